"""What lies in a stream, and what a start would make of it. Read by `stored/reading.py`; nothing is read here."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from spark_ckpt.errors import DamagedError, StorageSetupError
from spark_ckpt.model import Checkpoint, CheckpointId
from spark_ckpt.protocol.driver_files import missing_files
from spark_ckpt.protocol.entries import Claim
from spark_ckpt.protocol.retention.garbage import kept_checkpoints
from spark_ckpt.protocol.retention.order import choosable, dropping_nothing, given_up, newest_first


class Condition(Enum):
    """What reading the `_metadata` of a checkpoint that is there has shown."""

    COMPLETED = "COMPLETED"
    DAMAGED = "DAMAGED"
    UNREADABLE = "UNREADABLE"
    """It may not be read from here."""


@dataclass(frozen=True)
class Found:
    """One checkpoint in a listing: its content, or the error that reading it met: damaged, or nobody here may read it. `size` is that of
    `_metadata`, in bytes."""

    id: CheckpointId
    size: int
    checkpoint: Checkpoint | None
    error: DamagedError | StorageSetupError | None

    @property
    def condition(self) -> Condition:
        if self.error is None:
            return Condition.COMPLETED
        return Condition.DAMAGED if isinstance(self.error, DamagedError) else Condition.UNREADABLE


class Use(Enum):
    """What a restart would make of a completed checkpoint."""

    USABLE = "USABLE"
    """It may go on from it."""
    BAD = "BAD"
    """It was found damaged: a start looks at it only where it can go on from no other."""
    SUPERSEDED = "SUPERSEDED"
    """Nobody looks for it: the last claim's run did not inherit it. A fenced run completes what it had planned even after that claim; what
    such a checkpoint names may be gone, and that is no damage."""


@dataclass(frozen=True)
class Standing:
    """What the newest run itself appended last says: `tail` is the number of the log's last entry, `claim` that run's. Ended: the stream
    was deleted on purpose.
    `floor`: of the entries below it nothing is asked any more. `newest`: the number of what that run appended last."""

    tail: int
    claim: Claim
    bad: frozenset[CheckpointId]
    ended: bool
    floor: int = 0
    newest: int = 0

    def never_made(self, own: Collection[CheckpointId]) -> CheckpointId | None:
        """The copy that its run was to begin with, if it died before it had that, and has appended nothing (`Candidates.never_made`).
        `own`: the checkpoints of that run which are there."""
        before_its_first = self.floor <= self.claim.floor and self.newest == self.claim.claim
        return self.claim.copy if before_its_first and not own else None

    def is_cut_short(self, own: Collection[CheckpointId]) -> bool:
        """That copy was of what a person had chosen."""
        never_made, restored = self.never_made(own), self.claim.restored
        return never_made is not None and restored is not None and restored.imported == never_made

    def cut_short(self, own: Collection[CheckpointId]) -> str | None:
        """The same in words: what the stream had before is not what a start goes on from."""
        restored = self.claim.restored
        if restored is None or self.ended or not self.is_cut_short(own):
            return None
        return (
            f"run {self.claim.run} is to go on from {restored.path}, and the stream has no copy of it: not yet, or the restore was cut "
            f"short; if nothing runs, start the query with spark.ckpt.restore.path={restored.path} again"
        )

    @cached_property
    def _kept(self) -> frozenset[CheckpointId]:
        return kept_checkpoints(self.claim)

    def use(self, checkpoint: CheckpointId) -> Use:
        if self.ended or not (checkpoint.run == self.claim.run or checkpoint in self._kept):
            return Use.SUPERSEDED
        return Use.BAD if checkpoint in self.bad else Use.USABLE


@dataclass(frozen=True)
class Overview:
    """A stream's completed checkpoints, ascending, beside who has it.

    A damaged log says nothing about the checkpoints: they are here all the same, without `standing`, and `problem` says what is wrong with
    it. `latest`: the one that a restart goes on from; None: it begins anew, or is refused.
    """

    found: tuple[Found, ...]
    standing: Standing | None
    problem: str | None
    latest: CheckpointId | None

    @staticmethod
    def of(found: Iterable[Found], standing: Standing | None, problem: str | None = None) -> Overview:
        """Of a whole stream: all that was found, read before `standing` was."""
        known = tuple(found)
        if problem is None and standing is not None:
            problem = standing.cut_short([item.id for item in known if item.id.run == standing.claim.run])
        return Overview(known, standing, problem, _latest(known, standing))

    @property
    def newest(self) -> Checkpoint | None:
        """What is in the latest."""
        return next((item.checkpoint for item in self.found if item.id == self.latest), None)

    def use(self, checkpoint: CheckpointId) -> Use:
        return self.standing.use(checkpoint) if self.standing is not None else Use.USABLE

    @property
    def looked_at(self) -> tuple[Found, ...]:
        """What a start looks at: all that it may go on from; where only those are left that were found damaged, these once more."""
        uses = {item.id: self.use(item.id) for item in self.found}
        wanted = Use.USABLE if Use.USABLE in uses.values() else Use.BAD
        return tuple(item for item in self.found if uses[item.id] is wanted)

    @property
    def retained(self) -> frozenset[CheckpointId]:
        """Those a person may choose to go back to; a run may delete any other at any moment."""
        if self.standing is None:
            return frozenset(item.id for item in self.found)
        claim = self.standing.claim
        own = [item.id for item in self.found if item.id.run == claim.run]
        going = given_up(c.checkpoint for c in self.found if c.checkpoint is not None and self.use(c.id) is not Use.SUPERSEDED)
        dropping = dropping_nothing(claim) if self.standing.never_made(own) is not None else claim
        return choosable(dropping, own, _intact(self.found, self.standing), going)


def _intact(found: Iterable[Found], standing: Standing) -> frozenset[CheckpointId]:
    """As a start sees it that has read their `_metadata`."""
    whole = (item.id for item in found if item.checkpoint is not None and not missing_files(item.id.epoch, item.checkpoint.files))
    return frozenset(c for c in whole if standing.use(c) is Use.USABLE)


def _latest(found: Iterable[Found], standing: Standing | None) -> CheckpointId | None:
    """The newest intact one of the last claim's run, else that claim's origin, else an older one that it inherited; never a bad one."""
    if standing is None:
        return None
    claim, intact = standing.claim, _intact(found, standing)
    order = newest_first(claim, (c for c in intact if c.run == claim.run))
    return next((c for c in order if c in intact), None)
