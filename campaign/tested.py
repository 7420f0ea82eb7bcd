"""Which code a result was taken with, as twelve digits: any change of what ran makes earlier results those of another code.

Kills, and tests that start processes, run all of the package and of the shim. A test of the simulation runs in one process: what its
modules import, one from the other, is all that it can reach, so that a change of the tab does not void ten thousand schedules.
"""

from __future__ import annotations

import ast
import hashlib
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("spark_ckpt", "jvm_shim")
_IN_ONE_PROCESS = Path("tests/simulation")
_OURS = ("spark_ckpt", "simulation", "tests")


def code() -> str:
    """Of the whole product."""
    return _digest(ROOT / name for name in files())


def changed() -> bool:
    """Whether files of the product differ from the commit's."""
    return bool(_git("status", "--porcelain", "--", *PRODUCT))


def files() -> list[str]:
    names = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *PRODUCT).split("\0")
    return [name for name in filter(None, names) if (ROOT / name).is_file()]


def code_of(test: str) -> str:
    """`test`: as pytest calls it."""
    path = Path(test.split("::")[0])
    return _digest(reached(ROOT / path)) if path.is_relative_to(_IN_ONE_PROCESS) else code()


def reached(path: Path) -> set[Path]:
    """The file, and what it and what it imports import of this repository. The front of the package, which imports for users, is not
    followed: nothing that is reached from within uses it."""
    found, left = {path}, [path]
    while left:
        for module in _imported(left.pop()):
            if module not in found:
                found.add(module)
                left.append(module)
    return found


def _imported(path: Path) -> Iterator[Path]:
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            if parts[0] in _OURS:
                yield from _modules(parts)


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
