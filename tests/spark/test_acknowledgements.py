"""Acknowledgements that do not count, on real executors: of an attempt that lost, of one snapshot twice, and after the completion.

The pipe to the coordinator is recorded: what came through it, and what the run made of it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt.cli.main import run as cli
from spark_ckpt.model import Ack, Checkpoint, CheckpointId
from spark_ckpt.protocol.checkpoints.acknowledgements import Acknowledgements
from spark_ckpt.protocol.checkpoints.required_ids import Slot, required_ids
from spark_ckpt.protocol.reasons import AckResult
from spark_ckpt.stored.metadata.codec import decode_metadata
from tests.drivers.spark.harness import Start
from tests.drivers.spark.many_files import RECORDER

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(600)]

HELD, LATE = 1, 2
"""The epochs in which a task fails after its state was committed: acknowledged, twice even; not acknowledged until all is over."""
WAIT_S = 120


def test_acknowledgements_that_do_not_count(start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, location, out, folder = (tmp_path / name for name in ("in", "location", "out", "folder"))
    source.mkdir()
    folder.mkdir()
    recorder = tmp_path / "recorder.sh"
    recorder.write_text(RECORDER.format(folder=tmp_path, python=sys.executable))
    recorder.chmod(0o700)
    conf = {"spark.ckpt.python": str(recorder), "spark.ckpt.retained": "100", "spark.sql.shuffle.partitions": "1"}
    conf |= {"spark.excludeOnFailure.taskAndStage.enabled": "true"}  # a task that has failed runs on the other executor
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
        whole = (tmp_path / "heard").read_bytes().rpartition(b"\n")[0]
        lines = [json.loads(line) for line in whole.splitlines() if b'"acks"' in line]
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

    # Of an attempt whose agent is stopped, when the checkpoint is complete with those of another executor.
    def agents_of_executors() -> dict[int, int]:
        return {parent(pid): pid for pid, command in app.descendants() if "spark_ckpt.agent" in command}

    app.until(lambda: len(agents_of_executors()) == 2, "agents again", WAIT_S)
    agents = agents_of_executors()
    for pid in agents.values():
        os.kill(pid, signal.SIGSTOP)
    (folder / "hold").touch()
    give(LATE)
    app.until(lambda: not (folder / "hold").exists(), "a task that is held", WAIT_S)
    slow = agents.pop(int((folder / "executor").read_text()))
    os.kill(agents.popitem()[1], signal.SIGCONT)
    (folder / "fail").touch()
    (needed,) = (snapshot.uid for snapshot in decode_metadata(complete(LATE).read_bytes()).snapshots)
    assert {ack.snapshot.uid for ack in acked(LATE)} == {needed}
    os.kill(slow, signal.SIGCONT)
    app.until(lambda: len(acked(LATE)) > 1, "the acknowledgement of the attempt that lost", WAIT_S)
    assert acked(LATE)[-1].snapshot.uid != needed
    for number in range(LATE + 1, LATE + 3):
        give(number)
        complete(number)
    (folder / "end").touch()
    app.expect_success()

    # What the run makes of them, one after the other.
    judge, results = Acknowledgements(CheckpointId(1, HELD)), []
    acks = acked(HELD)
    first = next(n for n, ack in enumerate(acks) if ack.snapshot.uid == won)
    results += [judge.acknowledge(ack) for ack in acks[: first + 1]]
    assert [snapshot.uid for snapshot in judge.seal(required(made))] == [lost]
    assert Counter(results) == {AckResult.SUCCESS: 2, AckResult.DUPLICATE: len(results) - 2}
    assert len(results) > 2
    late = Acknowledgements(CheckpointId(1, LATE))
    late.seal(required(decode_metadata(complete(LATE).read_bytes())))
    assert [late.acknowledge(ack) for ack in acked(LATE)] == [AckResult.SUCCESS, AckResult.UNKNOWN]
    numbers = Counter(n for path in out.glob("[0-9]*.json") for n in json.loads(path.read_text()))
    assert numbers == Counter(range(10 * (LATE + 3)))
    assert cli(["verify", f"file://{stream}", "--deep"]) == 0
    capsys.readouterr()


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def required(made: Checkpoint) -> dict[str, Slot]:
    commit = made.file(f"commits/{made.id.epoch}")
    assert commit is not None
    return dict(required_ids(made.id.epoch, commit))
