"""What an earlier version stored is read: listed, shown, verified, and a start knows where it goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt.cli.main import run
from tests.drivers.coordinator_process import Jvm
from tests.stored.earlier import QUERY, place

JOB = {"operators": ["aggregate(key)"], "sources": ["FileSource"], "sink": "ForeachBatchSink"}


@pytest.fixture(params=list(QUERY))
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    status = run([*arguments, "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_it_is_listed_shown_and_verified(version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place(version, tmp_path / "stream")
    stream = f"file://{tmp_path}/stream"
    status, listed = call(capsys, "list", stream)
    assert (status, listed["runs"], listed["latest"]) == (0, [1, 2], "run-2/chk-5")
    assert [c["checkpoint"] for c in listed["checkpoints"]] == ["run-1/chk-3", "run-1/chk-4", "run-2/chk-5"]
    assert all(c["stores"] == 2 for c in listed["checkpoints"])
    status, shown = call(capsys, "show", stream)
    assert (status, shown["epoch"], shown["query_id"]) == (0, 5, QUERY[version])
    for path in (stream, f"{stream}/savepoints/kept"):
        status, verified = call(capsys, "verify", path, "--deep")
        assert (status, verified["intact"]) == (0, True)
    status, fit = call(capsys, "restore", f"{stream}/savepoints/kept", "--check", stream)
    assert (status, fit["problems"]) == (0, [])


def test_a_start_goes_on_from_it(version: str, jvm: Jvm, tmp_path: Path) -> None:
    place(version, tmp_path / "data" / "ckpt" / "orders")
    one = jvm(query=QUERY[version])
    assert one.ask("open", root=one.root, query_id=None)["query_id"] == QUERY[version]
    started = one.ask("start", **{**one.start_fields(), "job": JOB})
    assert (started["run"], started["origin"], started["epoch"], started["planned"]) == (3, {"run": 2, "epoch": 5}, 6, [])
    sources = {f"sources/0/{name}" for name in ("3.compact", "4", "5.compact", "6")}
    state = {"state/0/0/_metadata/schema", "state/0/_metadata/metadata"}
    logs = {"offsets/4", "offsets/5", "offsets/6", "commits/4", "commits/5"}
    assert set(started["files"]) == logs | sources | state


def test_a_start_goes_back_to_its_savepoint(version: str, jvm: Jvm, tmp_path: Path) -> None:
    place(version, tmp_path / "data" / "ckpt" / "orders")
    one = jvm(**{"query": QUERY[version], "restore.path": f"file://{tmp_path}/data/ckpt/orders/savepoints/kept"})
    started = one.ask("start", **{**one.start_fields(), "job": JOB})
    assert (started["origin"], started["epoch"]) == ({"run": 3, "epoch": 4}, 5)
    assert [planned["epoch"] for planned in started["planned"]] == [6]
