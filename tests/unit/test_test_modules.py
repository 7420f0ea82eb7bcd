"""Tests as a specification: each test module can be read, moved and deleted by itself, for no other file imports it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, and every name that it imports from one: that may be a module, too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_test_module(name: str) -> bool:
    """A test module or a conftest, by whichever name it is found: `test_x`, `tests.unit.test_x`, `conftest`."""
    *folders, last = name.split(".")
    file = Path(f"{last}.py")
    there = TESTS.parent.joinpath(*folders, file).is_file() or any(TESTS.rglob(f"{last}.py") if not folders else ())
    return there and (last.startswith("test_") or last == "conftest")


@pytest.mark.parametrize("path", sorted(TESTS.rglob("*.py")), ids=lambda path: str(path.relative_to(TESTS)))
def test_nothing_imports_a_test_module(path: Path) -> None:
    """What several of them need is in `tests/drivers`."""
    assert [name for name in imports(path) if is_test_module(name)] == []


def test_a_test_module_is_known_by_any_of_its_names() -> None:
    assert is_test_module("test_test_modules")
    assert is_test_module("tests.unit.test_test_modules")
    assert is_test_module("tests.contract.conftest")
    assert is_test_module("conftest")
    assert not is_test_module("tests.drivers.protocol_driving")
    assert not is_test_module("test_no_such_module")
