"""Rules are left out, and faults are put in, by a part that takes another one's place: no class of the simulation or of a test gives a
name with an underscore of its own that a base class of the package has. Such a name may go, or mean something else, at any time."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "spark_ckpt"
LOOKED_AT = sorted(path for part in ("simulation", "tests") for path in (ROOT / part).rglob("*.py"))


@dataclass
class Module:
    """`classes`: wherever in the module they are, by name; a name may be there several times. `names`: imported name -> module, name."""

    classes: dict[str, list[ast.ClassDef]] = field(default_factory=dict)
    names: dict[str, tuple[str, str]] = field(default_factory=dict)


def module_of(tree: ast.Module) -> Module:
    module = Module()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            module.classes.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Import):
            module.names.update((alias.asname or alias.name, (alias.name, "")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            module.names.update((alias.asname or alias.name, (node.module, alias.name)) for alias in node.names)
    return module


@cache
def module_named(name: str) -> Module | None:
    path = ROOT.joinpath(*name.split("."))
    found = next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)
    return module_of(ast.parse(found.read_text(encoding="utf-8"))) if found is not None else None


def private_names(node: ast.ClassDef) -> set[str]:
    """Methods and attributes in the body of the class, less `__init__` and its like."""
    names: set[str] = set()
    for one in node.body:
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(one.name)
        elif isinstance(one, ast.Assign | ast.AnnAssign):
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if name.startswith("_") and not name.endswith("__")}


def bases_of(node: ast.ClassDef, name: str, module: Module) -> Iterator[tuple[str, str, Module, ast.ClassDef]]:
    """Module, name and body of every class that it is made of, those of simulation and tests included."""
    for base in node.bases:
        written = ast.unparse(base).split("[")[0]
        yield from found_as(written, name, module, node)


def found_as(written: str, name: str, module: Module, but: ast.ClassDef) -> Iterator[tuple[str, str, Module, ast.ClassDef]]:
    for node in module.classes.get(written, []):
        if node is not but:
            yield name, written, module, node
            yield from bases_of(node, name, module)
    first, _, rest = written.rpartition(".")
    where, what = module.names.get(written) or (module.names.get(first) or ("", ""))
    if first and what:  # `from spark_ckpt.stored import gc`, `gc.Collector`
        where, what = f"{where}.{what}", rest
    elif first:
        what = rest
    there = module_named(where) if where else None
    if there is not None and what:
        yield from found_as(what, where, there, but)


def overrides(name: str, module: Module) -> list[str]:
    return [
        f"{node.name}.{private} is {base}'s of {where}"
        for nodes in module.classes.values()
        for node in nodes
        for where, base, _, other in bases_of(node, name, module)
        if where.split(".")[0] == PACKAGE
        for private in sorted(private_names(node) & private_names(other))
    ]


@pytest.mark.parametrize("path", LOOKED_AT, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_name_with_an_underscore_is_overridden(path: Path) -> None:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    assert overrides(name, module_of(ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    "written",
    [
        "from spark_ckpt.stored.gc import Collector\nclass A(Collector):\n def _old(self): ...",
        "from spark_ckpt.stored.gc import Collector as C\ndef f():\n class A(C):\n  async def _old(self): ...",
        "from spark_ckpt.stored import gc\nclass A(gc.Collector):\n _old = None",
        "import spark_ckpt.stored.gc\nclass A(spark_ckpt.stored.gc.Collector):\n _old: int = 0",
        "from spark_ckpt.stored.gc import Collector\nclass A(Collector): ...\nclass B(A):\n def _old(self): ...",
    ],
    ids=["imported", "under another name", "by its module", "by its whole name", "through another class"],
)
def test_one_that_is_is_found(written: str) -> None:
    (found,) = overrides("tests.made_up", module_of(ast.parse(written)))
    assert found.endswith("_old is Collector's of spark_ckpt.stored.gc")


def test_what_a_test_has_of_its_own_is_its_own() -> None:
    body = "def look(self): ...\n def _mine(self): ...\n def __init__(self): ..."
    written = f"from spark_ckpt.stored.gc import Collector\nclass A(Collector):\n {body}"
    assert overrides("tests.made_up", module_of(ast.parse(written))) == []
