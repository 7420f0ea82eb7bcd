"""Which code a result was taken with, as twelve digits: any change of what ran makes earlier results those of another code.

Kills, and tests that start processes, run all of the package and of the shim, and what of the folders around them they are made of: what
their modules import or start, one from the other. A test of the simulation runs in one process, and imports all that it can reach, so that
a change of the tab does not void ten thousand schedules.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("spark_ckpt", "jvm_shim")
_KILLS = ("campaign/trial.py", "campaign/job.py")
_SINKS = ("campaign/sinks/trial.py", "campaign/sinks/application.py")
_IN_ONE_PROCESS = Path("tests/simulation")
_AROUND = ("tests", "testbed", "simulation", "benchmarks", "campaign", "examples")
_ON_PATH = ("tests/spark/jobs", "examples")
"""Modules of these are imported by their names alone."""


def code_of_kills() -> str:
    return _digest({*_product(), *reached(*(ROOT / name for name in _KILLS))})


def code_of_sinks() -> str:
    return _digest({*_product(), *reached(*(ROOT / name for name in _SINKS))})


def code_of(test: str) -> str:
    """`test`: as pytest calls it."""
    path = ROOT / test.split("::")[0]
    found = reached(path, *_conftests(path))
    if not path.is_relative_to(ROOT / _IN_ONE_PROCESS):
        found |= {*_product(), ROOT / "pyproject.toml"}
    return _digest(found)


def _conftests(path: Path) -> list[Path]:
    above = [folder / "conftest.py" for folder in path.parents if folder.is_relative_to(ROOT)]
    return [path for path in above if path.is_file()]


def changed() -> bool:
    """Whether files of the product differ from the commit's."""
    return bool(_git("status", "--porcelain", "--", *PRODUCT))


def _product() -> list[Path]:
    names = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *PRODUCT).split("\0")
    return [ROOT / name for name in filter(None, names) if (ROOT / name).is_file()]


def reached(*paths: Path) -> set[Path]:
    """The files, and what they and what they import or start import or start of this repository. The front of the package, which imports
    for users, is not followed: nothing that is reached from within uses it."""
    scripts = [path for folder in _AROUND for path in (ROOT / folder).rglob("*.py")]
    found, left = set(paths), list(paths)
    while left:
        path = left.pop()
        tree = ast.parse(path.read_text())
        for other in (*_imported(tree, path.parent), *_started(tree, scripts)):
            if other not in found:
                found.add(other)
                left.append(other)
    return found


def _imported(tree: ast.Module, folder: Path) -> Iterator[Path]:
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            if parts[0] in ("spark_ckpt", *_AROUND):
                yield from _modules(parts)
            else:
                beside = [place / f"{parts[0]}.py" for place in (folder, *(ROOT / place for place in _ON_PATH))]
                yield from (path for path in beside if path.is_file())


def _started(tree: ast.Module, scripts: Sequence[Path]) -> Iterator[Path]:
    """Every file that has a name that is written there, whichever of them is meant; all of a folder that is; the module after a -m."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            if text.endswith(".py"):
                yield from (path for path in scripts if f"/{path.relative_to(ROOT).as_posix()}".endswith(f"/{text}"))
            elif text.startswith(tuple(f"{name}/" for name in _AROUND)) and text.isprintable() and (ROOT / text).is_dir():
                yield from (ROOT / text).rglob("*.py")
            elif text.startswith(tuple(f"{name}." for name in _AROUND)):
                yield from _program(text)
        elif isinstance(node, ast.List | ast.Tuple):
            words = [item.value if isinstance(item, ast.Constant) else None for item in node.elts]
            for option, module in itertools.pairwise(words):
                if option == "-m" and isinstance(module, str) and module.split(".")[0] in _AROUND:
                    yield from _program(module)


def _program(module: str) -> Iterator[Path]:
    parts = module.split(".")
    yield from _modules(parts)
    yield from _modules([*parts, "__main__"])


def _modules(parts: list[str]) -> Iterator[Path]:
    """A module with the packages that it is in, whose `__init__` runs first."""
    for n in range(1, len(parts) + 1):
        place = ROOT.joinpath(*parts[:n])
        if (place / "__init__.py").is_file() and parts[:n] != ["spark_ckpt"]:
            yield place / "__init__.py"
        elif place.with_suffix(".py").is_file():
            yield place.with_suffix(".py")


def _digest(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for name, path in sorted((path.relative_to(ROOT).as_posix(), path) for path in paths):
        digest.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def commit() -> str:
    """With a + where the product was changed since."""
    return _git("rev-parse", "--short=12", "HEAD").strip() + ("+" if changed() else "")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout
