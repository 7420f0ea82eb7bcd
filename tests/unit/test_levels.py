"""Where the package's parts stand, read from their imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import spark_ckpt

PACKAGE = Path(str(spark_ckpt.__file__)).parent
NAME = PACKAGE.name
NO_MODULES = set(spark_ckpt.__all__)


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
