"""Acknowledgements that do not count, on real executors: of an attempt that lost, of one snapshot twice, and when all is over.

The pipe to the coordinator is recorded: what came through it, and what the run made of it.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt.cli.main import run as cli
from spark_ckpt.model import Ack, CheckpointId
from spark_ckpt.protocol.checkpoints.acknowledgements import Acknowledgements
from spark_ckpt.protocol.checkpoints.required_ids import required_ids
from spark_ckpt.protocol.reasons import AckResult
from spark_ckpt.stored.metadata.codec import decode_metadata
from tests.drivers.spark.harness import Start
from tests.drivers.spark.many_files import RECORDER

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

HELD = 1
"""The epoch in which a task fails after its state was acknowledged."""
WAIT_S = 120


def test_acknowledgements_that_do_not_count(start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, location, out, folder = (tmp_path / name for name in ("in", "location", "out", "folder"))
    source.mkdir()
    folder.mkdir()
    recorder = tmp_path / "recorder.sh"
    recorder.write_text(RECORDER.format(folder=tmp_path, python=sys.executable))
    recorder.chmod(0o700)
    conf = {"spark.ckpt.python": str(recorder), "spark.ckpt.retained": "100", "spark.sql.shuffle.partitions": "1"}
    where = tuple(map(str, (source, location, out, folder)))
    app = start("losing_attempts.py", *where, storage=f"file://{tmp_path}/storage", conf=conf, master="local-cluster[2,1,1024]")
    stream = Path(f"{tmp_path}/storage{location}")

    def give(number: int) -> None:
        (tmp_path / "aside").write_text("".join(json.dumps({"value": 10 * number + n}) + "\n" for n in range(10)))
        os.replace(tmp_path / "aside", source / f"{number}.json")

    def complete(epoch: int) -> Path:
        path = stream / f"run-00000001/chk-{epoch}/_metadata"
        app.until(path.exists, f"checkpoint {epoch}", WAIT_S)
        return path

    def acked(epoch: int) -> list[Ack]:
        lines = [json.loads(line) for line in (tmp_path / "heard").read_bytes().splitlines() if b'"acks"' in line]
        rows: list[dict[str, Any]] = [row for line in lines if line["type"] == "acks" for row in line["acks"] if row["epoch"] == epoch]
        return [Ack.from_json(row) for row in rows if "decline" not in row]

    def times(epoch: int, uid: str) -> int:
        return Counter(ack.snapshot.uid for ack in acked(epoch))[uid]

    give(0)
    complete(0)
    (folder / "hold").touch()
    give(HELD)
    app.until(lambda: bool(acked(HELD)), "the acknowledgement of an attempt that will lose", WAIT_S)
    lost = acked(HELD)[0].snapshot.uid
    # Its agent dies, and another one names the same once more.
    assert app.kill_all("spark_ckpt.agent") == 2
    app.until(lambda: times(HELD, lost) >= 2, "the same acknowledgement again", WAIT_S)
    (folder / "fail").touch()
    made = decode_metadata(complete(HELD).read_bytes())
    (won,) = (snapshot.uid for snapshot in made.snapshots)
    assert won != lost
    # And when all is over.
    before = times(HELD, won)
    app.kill_all("spark_ckpt.agent")
    app.until(lambda: times(HELD, won) > before, "an acknowledgement of a completed checkpoint", WAIT_S)
    for number in range(HELD + 1, HELD + 4):
        give(number)
        complete(number)
    (folder / "end").touch()
    app.expect_success()

    # What the run makes of them, one after the other.
    judge, results = Acknowledgements(CheckpointId(1, HELD)), []
    commit = made.file(f"commits/{HELD}")
    assert commit is not None
    acks = acked(HELD)
    first = next(n for n, ack in enumerate(acks) if ack.snapshot.uid == won)
    results += [judge.acknowledge(ack) for ack in acks[: first + 1]]
    assert [snapshot.uid for snapshot in judge.seal(required_ids(HELD, commit))] == [lost]
    results += [judge.acknowledge(ack) for ack in acks[first + 1 :]]
    assert Counter(results)[AckResult.SUCCESS] == 2, results
    assert AckResult.DUPLICATE in results
    numbers = Counter(n for path in out.glob("[0-9]*.json") for n in json.loads(path.read_text()))
    assert numbers == Counter(range(10 * (HELD + 4)))
    assert cli(["verify", f"file://{stream}", "--deep"]) == 0
    capsys.readouterr()
