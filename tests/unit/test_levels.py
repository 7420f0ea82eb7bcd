"""Where the package's parts stand, read from their imports: each may use what stands below it, and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import spark_ckpt

PACKAGE = Path(str(spark_ckpt.__file__)).parent
NAME = PACKAGE.name
NO_MODULES = set(spark_ckpt.__all__)

LEVELS = (
    # Words of the field, keys and units: everybody's, so they know nobody.
    {"bounded_json", "errors", "model", "paths", "progress", "units"},
    # What any process of this package needs, whatever it does: pipes, packages, folders of its own. The storages use those too.
    {"process"},
    # Objects by name, and the rules: side by side, for a rule that looked into a storage could not be simulated, and a storage that knew of
    # epochs could not be exchanged.
    {"storage", "protocol"},
    # What a person may set, the storages' options among it. Rules get numbers, and never ask.
    {"conf"},
    # What lies in a storage, read and judged by the rules: for everybody who looks at a stream, inside or outside of a query.
    {"stored"},
    # What a checkpoint's state stores hold, row by row: it takes numpy and RocksDB, which what runs beside a query does without.
    {"state"},
    # Stock Spark's own layout of a checkpointLocation, read and written.
    {"stock"},
    # Who acts on a stream: beside an executor, beside the driver, in the user's own program. They talk through pipes and the log only.
    {"agent", "coordinator", "api"},
    # What people type uses all of them.
    {"cli"},
)
LEVEL_OF = {part: level for level, parts in enumerate(LEVELS) for part in parts}


def imports(path: Path) -> Iterator[str]:
    """The package's own modules that a file imports, those included that it imports when it needs them."""
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == NAME:
            names = [f"{NAME}.{alias.name}" for alias in node.names if alias.name not in NO_MODULES]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module]
        yield from (name for name in names if name.split(".")[0] == NAME)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_what_a_module_imports_of_the_package_is_in_it(path: Path) -> None:
    """Another copy of the package that is installed beside it may hide that a module has moved, until somebody has only this one."""
    wanted = [PACKAGE.parent.joinpath(*name.split(".")) for name in imports(path)]
    assert [str(module) for module in wanted if not (module.with_suffix(".py").is_file() or (module / "__init__.py").is_file())] == []


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def test_every_part_has_its_place() -> None:
    assert {part_of(path) for path in PACKAGE.rglob("*.py")} - {"__init__"} == set(LEVEL_OF)


@pytest.mark.parametrize("part", sorted(LEVEL_OF))
def test_a_part_uses_only_what_stands_below_it(part: str) -> None:
    """The words of the field may use each other; of other parts on one level none knows another."""
    own = {part} if LEVEL_OF[part] else set(LEVELS[0])
    modules = [path for path in PACKAGE.rglob("*.py") if part_of(path) == part]
    used = {(path.name, name) for path in modules for name in imports(path) if name.split(".")[1] not in own}
    assert {(module, name) for module, name in used if LEVEL_OF[name.split(".")[1]] >= LEVEL_OF[part]} == set()
