"""`python -m benchmarks state`, with something else in the place of Spark."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks import states
from benchmarks.__main__ import cli
from benchmarks.errors import BenchmarkError
from tests.stored.earlier import HERE


def test_both_readers_of_state_read_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but Spark itself, in whose place an export of the state is looked at."""
    asked: list[dict[str, Any]] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request)
        assert Path(request["path"], "metadata").exists()
        assert list(Path(request["path"], "state", "0").glob("*/*.zip"))
        return {"seconds": 2.0, "rows": 500 if request.get("counted") else None}

    monkeypatch.setattr(states, "_spark", lambda _: nullcontext(answer))
    ran = CliRunner().invoke(cli, ["state", str(HERE / "states" / "update"), "--rows", "500", "--rounds", "2"])
    assert ran.exit_code == 0, ran.output
    assert [request.get("counted", False) for request in asked] == [True, False, False]
    assert "Spark's reader in local[2], its start-up and first read left out: 2.00 s (2.00 to 2.00), 250 rows a second" in ran.output
    assert re.search(r"read_state reads [0-9.]+ times as many rows a second", ran.output)
    assert len(re.findall("`spark-ckpt state` of", ran.output)) == 2
    ran = CliRunner().invoke(cli, ["state", str(HERE / "states" / "update"), "--rows", "400", "--rounds", "1"])
    assert isinstance(ran.exception, BenchmarkError)
    assert "Spark's reader finds 500 rows instead of 400" in str(ran.exception)
