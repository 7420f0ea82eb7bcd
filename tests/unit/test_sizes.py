"""What a reader can hold in his head: modules of at most 500 lines; in the product and its simulation, classes of at most 20
attributes, those of their bases and a dataclass's fields included."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("spark_ckpt", "simulation", "testbed", "campaign", "benchmarks", "documents")
MODULES = sorted(path for part in PARTS for path in (ROOT / part).rglob("*.py"))
LINES, ATTRIBUTES = 500, 20
RECORDS = {
    "Claim": "a stored record: one field for each of the log entry's (docs/format.md)",
    "Options": "one field for each option that users set (spark_ckpt/conf/table.py)",
    "Faults": "one probability for each fault of the simulation",
}
"""Values without a life of their own, which somebody looks up and nobody has to hold in his head: why they may have more."""
_LIVED_IN = tuple(ROOT / part for part in ("spark_ckpt", "simulation"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LINES


def attributes_of(node: ast.ClassDef) -> set[str]:
    """What its methods assign to `self`; a dataclass's fields."""
    assigned = {
        found.attr
        for found in ast.walk(node)
        if isinstance(found, ast.Attribute) and isinstance(found.ctx, ast.Store)
        if isinstance(found.value, ast.Name) and found.value.id == "self"
    }
    return assigned | (fields_of(node) if is_dataclass(node) else set())


def is_dataclass(node: ast.ClassDef) -> bool:
    return any(ast.unparse(decorator).split("(")[0].split(".")[-1] == "dataclass" for decorator in node.decorator_list)


def fields_of(node: ast.ClassDef) -> set[str]:
    annotated = [one for one in node.body if isinstance(one, ast.AnnAssign) and "ClassVar" not in ast.unparse(one.annotation)]
    return {one.target.id for one in annotated if isinstance(one.target, ast.Name)}


@cache
def classes() -> Mapping[str, list[tuple[set[str], list[str]]]]:
    """Name -> of each class that has it: own attributes, names of bases."""
    lived_in = [path for path in MODULES if any(path.is_relative_to(part) for part in _LIVED_IN)]
    found: dict[str, list[tuple[set[str], list[str]]]] = {}
    for node in (node for path in lived_in for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)):
        bases = [base.id if isinstance(base, ast.Name) else getattr(base, "attr", "") for base in node.bases]
        found.setdefault(node.name, []).append((attributes_of(node), bases))
    return found


def most(name: str) -> int:
    """Attributes of the largest class of that name."""
    return max(len(with_bases(name, own, bases)) for own, bases in classes()[name])


def with_bases(name: str, own: set[str], bases: list[str]) -> set[str]:
    above = [(base, *one) for base in bases if base != name for one in classes().get(base, [])]
    return own.union(*(with_bases(*one) for one in above))


def test_no_class_is_an_object_of_everything() -> None:
    found = {name: most(name) for name in classes()}
    assert len(found) > 300, found
    assert {name: count for name, count in found.items() if count > ATTRIBUTES and name not in RECORDS} == {}
    assert {name for name in RECORDS if found[name] <= ATTRIBUTES} == set(), "need no exception any more"


def test_fields_of_a_dataclass_count() -> None:
    written = "@dataclasses.dataclass(frozen=True)\nclass A:\n x: int = 0\n y: ClassVar[int] = 1\n def f(self):\n  self.z = 0"
    (node,) = ast.parse(written).body
    assert isinstance(node, ast.ClassDef)
    assert attributes_of(node) == {"x", "z"}
