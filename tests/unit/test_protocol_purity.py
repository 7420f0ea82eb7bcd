"""The protocol imports nothing that could tell the time, roll dice, run threads or touch the world."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import spark_ckpt.protocol

FOLDER = Path(str(spark_ckpt.protocol.__file__)).parent
ALLOWED = {"__future__", "abc", "base64", "collections", "collections.abc", "dataclasses", "enum", "json", "re", "typing"}
ALLOWED |= {"functools", "hashlib", "zlib"}
ALLOWED_OWN = {"spark_ckpt.bounded_json", "spark_ckpt.errors", "spark_ckpt.model", "spark_ckpt.paths"}
FORBIDDEN_CALLS = {"open", "print", "input", "eval", "exec", "__import__", "hash", "id"}


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            assert node.module is not None
            yield node.module


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: path.name)
def test_a_module_of_the_protocol_is_pure(path: Path) -> None:
    tree = ast.parse(path.read_text())
    foreign = {n for n in imports(tree) if n not in ALLOWED | ALLOWED_OWN and n.split(".")[:2] != ["spark_ckpt", "protocol"]}
    assert foreign == set()
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert called & FORBIDDEN_CALLS == set()
