"""The interval mode after damage: the checkpoint before, and from there every epoch as it was planned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from spark_ckpt.model import Checkpoint
from spark_ckpt.protocol.entries import Claim, Entry, Plan, decode
from spark_ckpt.stored.metadata.codec import decode_metadata
from tests.drivers.spark.harness import Start
from tests.drivers.spark.oracle import differences, read
from tests.drivers.spark.trials import Trial, completed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

NAMES = ("windows", "sliding", "outer", "sessions")
OFTEN = {"spark.ckpt.interval": "300ms", "spark.ckpt.retained": "20"}


class Stored:
    """What one stream of a trial has in its storage."""

    def __init__(self, trial: Trial, name: str) -> None:
        found = [(path, decode_metadata(path.read_bytes())) for path in completed(trial.storage, trial.locations / name)]
        self.checkpoints: list[tuple[Path, Checkpoint]] = sorted(found, key=lambda one: one[1].id)
        self.folder = self.checkpoints[0][0].parents[2]

    @property
    def newest(self) -> Path:
        return self.checkpoints[-1][0]

    @property
    def before(self) -> Checkpoint:
        return self.checkpoints[-2][1]

    def own_object(self) -> tuple[Path, int]:
        """One that only the newest checkpoint names, and where in it something stands that is needed."""
        content = self.checkpoints[-1][1]
        others = frozenset[str]().union(*(c.objects for _, c in self.checkpoints[:-1]))
        handle = next(h for s in content.snapshots for h in s.handles if h.object not in others)
        return self.folder / handle.object, handle.offset + handle.length // 2

    def log(self) -> dict[int, Entry]:
        return {int(path.name): decode(int(path.name), path.read_bytes()) for path in (self.folder / "log").iterdir()}

    def claims(self) -> list[Claim]:
        return [entry for _, entry in sorted(self.log().items()) if isinstance(entry, Claim)]


def rewrite(path: Path, change: Callable[[bytearray], None]) -> None:
    """What a snapshot elsewhere links to stays as it was."""
    content = bytearray(path.read_bytes())
    change(content)
    path.unlink()
    path.write_bytes(content)


@pytest.mark.campaign
def test_the_one_before_is_restored_and_planned_epochs_run_again(
    start: Start, events: Path, oracle: Mapping[str, Path], tmp_path: Path
) -> None:
    trial = Trial(start, events, tmp_path, NAMES)
    app = trial.start(**OFTEN)
    app.until(lambda: all(len(completed(trial.storage, trial.locations / name)) >= 3 for name in NAMES), "three checkpoints of each", 200)
    app.kill()
    stored = {name: Stored(trial, name) for name in NAMES}

    def flip(content: bytearray) -> None:
        content[at] ^= 1

    rewrite(stored["windows"].newest, lambda content: content.__delitem__(slice(200, None)))
    missing, _ = stored["sliding"].own_object()
    missing.unlink()
    flipped, at = stored["outer"].own_object()
    rewrite(flipped, flip)
    # Of the two newest, so that the entry that goes missing is never the last one.
    for path, _ in stored["sessions"].checkpoints[-2:]:
        rewrite(path, lambda content: content.__delitem__(slice(200, None)))
    intact = stored["sessions"].checkpoints[-3][1]
    planned = [n for n, entry in stored["sessions"].log().items() if isinstance(entry, Plan) and n > intact.log]
    (stored["sessions"].folder / "log" / f"{min(planned):020d}").unlink()

    # Bytes that are wrong are noticed when they are loaded: that start ends with the damage named, and the next one goes back.
    app = trial.start(**OFTEN)
    assert app.wait() != 0
    said = trial.log()
    assert f"{flipped.name} of checkpoint" in said
    assert "restart the query, it goes back to the newest intact checkpoint" in said
    assert f"log entry {min(planned)} is missing, so it is not known which epochs were planned past checkpoint run 1 epoch" in said

    chosen = f"file://{stored['sessions'].folder}/run-{intact.id.run:08d}/chk-{intact.id.epoch}"
    # The query that the choice is for starts first.
    trial = Trial(start, events, tmp_path, tuple(reversed(NAMES)))
    trial.start(**OFTEN, **{"spark.ckpt.restore.path": chosen, "spark.ckpt.restore.plans": "DISCARD"}).expect_success()
    said += trial.log()
    for name in ("windows", "sliding", "outer"):
        one, newest = stored[name], stored[name].checkpoints[-1][1].id
        assert differences(trial.out / name, oracle[name]) == [], name
        again = next(claim for claim in one.claims() if newest in claim.bad)
        assert again.origin == one.before.id, name
        assert f"checkpoint run {newest.run} epoch {newest.epoch} is damaged and left out, the one before it is restored" in said
        # Plans of the first run and of the one that went back: the same data under the same numbers.
        plans = [entry for entry in one.log().values() if isinstance(entry, Plan)]
        first = {plan.epoch: plan.offsets for plan in plans if plan.run == 1}
        adopted = {epoch: one.log()[n] for n, epoch in again.adopted_past(-1).items()}
        replanned = {epoch: plan.offsets for epoch, plan in adopted.items() if isinstance(plan, Plan)}
        replanned |= {plan.epoch: plan.offsets for plan in plans if plan.run == again.run and plan.epoch in first}
        assert newest.epoch in replanned
        # Some may have been planned first by the run in between, which ended.
        assert {epoch: planned for epoch, planned in replanned.items() if epoch in first} == {e: first[e] for e in replanned if e in first}
    assert set(read(oracle["sessions"])) <= set(read(trial.out / "sessions")), "rows were lost"
