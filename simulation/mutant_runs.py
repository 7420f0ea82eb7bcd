"""Parts of a run, each of which leaves out one rule."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import Checkpoint, CheckpointId, Snapshot
from spark_ckpt.paths import run_prefix
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.checkpoints.pending import FinishedEpoch, PendingCheckpoint
from spark_ckpt.protocol.checkpoints.pending_checkpoints import PendingCheckpoints
from spark_ckpt.protocol.checkpoints.policy import CheckpointPolicy
from spark_ckpt.protocol.checkpoints.savepoint_queue import LoggedRequest, SavepointQueue
from spark_ckpt.protocol.durable_put import DurablePut, Known
from spark_ckpt.protocol.ending import Ending
from spark_ckpt.protocol.entries import Claim
from spark_ckpt.protocol.epoch import EpochInHand
from spark_ckpt.protocol.handover import StateHandover
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.log import RunLog
from spark_ckpt.protocol.planning import Planning
from spark_ckpt.protocol.reasons import AbortReason, Outcome
from spark_ckpt.protocol.retention.completed import CompletedCheckpointStore
from spark_ckpt.protocol.retention.deletion import Batch, Deletions
from spark_ckpt.protocol.retention.planned_files import PlannedFiles
from spark_ckpt.protocol.retention.shared_state import SharedStateRegistry
from spark_ckpt.protocol.retention.subsumption import Subsumption
from spark_ckpt.protocol.run import Run
from spark_ckpt.protocol.stream import Stream


class AtCompletion(PendingCheckpoints):
    def complete(self, p: PendingCheckpoint, metadata_bytes: int) -> list[Instruction]:
        told = super().complete(p, metadata_bytes)
        self._subsumption.deletions.append_issued(0)
        return [*told, *self._subsumption.appended(0, self.named)]


class OnAnyAppend(Deletions):
    """Deletes what waits when an append is stored, whenever that was issued."""

    def freed_by(self, number: int) -> tuple[list[CheckpointId], list[str]]:
        checkpoints, discarded = super().freed_by(number)
        waiting, self._waiting = self._waiting, []
        queued, self._discarded = list(self._discarded), {}
        return [*checkpoints, *waiting], [*discarded, *queued]


class SparingRetained(Deletions):
    def __init__(self, registry: SharedStateRegistry) -> None:
        super().__init__(registry)
        self._dropped: set[CheckpointId] = set()

    def drop(self, checkpoints: Iterable[CheckpointId], discarded: Iterable[str] = ()) -> None:
        dropped = list(checkpoints)
        self._dropped.update(dropped)
        super().drop(dropped, discarded)

    def spared(self, objects: frozenset[str], checkpoints: list[CheckpointId]) -> frozenset[str]:
        return self._registry.named_of(objects, but={*checkpoints, *self._dropped})


class SparingNothing(Deletions):
    def spared(self, objects: frozenset[str], checkpoints: list[CheckpointId]) -> frozenset[str]:  # noqa: ARG002
        return frozenset()


class NotPlanned(PlannedFiles):
    def __init__(self) -> None:
        super().__init__()
        self.all_known = True

    def named(self) -> frozenset[str]:
        return frozenset()


class SparingNoPlan(Deletions):
    """Deletes a large file of the driver with the last checkpoint that names it."""

    def __init__(self, registry: SharedStateRegistry) -> None:
        super().__init__(registry)
        self.planned = NotPlanned()


class UnknownIsFailed(DurablePut):
    def answered(self, event: Any) -> list[Instruction]:
        return super().answered(replace(event, outcome=Outcome.HOPELESS) if event.outcome is Outcome.UNKNOWN else event)


class UnknownFails(PendingCheckpoints):
    """Takes an unknown outcome of `_metadata` for a failure, and deletes what it uploaded."""

    def put_of(self, p: PendingCheckpoint, checkpoint: Checkpoint) -> DurablePut:
        put = super().put_of(p, checkpoint)
        return UnknownIsFailed(put._questions, put._put, put._known, put._read, put._judge)

    def known(self, p: PendingCheckpoint, known: Known, event: ev.MetadataPut | ev.MetadataRead | None) -> list[Instruction]:
        if known is not Known.HOPELESS or p not in self.pending:
            return super().known(p, known, event)
        uploaded = sorted(o for o in p.acks.named if o not in self._subsumption.registry.named())
        p.put = None
        aborted = self.abort(p, AbortReason.FINALISE_FAILURE, ErrorKind.STORAGE, "an unknown outcome was taken for a failure")
        return [*self._subsumption.deleter.delete(Batch((), tuple(uploaded))), *aborted]


class GivenUpAtOnce(PendingCheckpoints):
    """Takes a checkpoint whose time is up while its `_metadata` is under way for one that will not be there."""

    def expired(self, p: PendingCheckpoint) -> list[Instruction]:
        if p.put is not None:
            p.put.abandon(lambda _: [])
            p.put = None
        return super().expired(p)


class DiscardingAtOnce(Subsumption):
    """What an aborted or losing attempt uploaded goes with the next append."""

    def discard(self, snapshots: Iterable[Snapshot], is_named: Callable[[str], bool], epoch: int) -> None:  # noqa: ARG002
        own = run_prefix(self._context.claim.run)
        objects = {h.object for snapshot in snapshots for h in snapshot.handles if h.object.startswith(own)}
        self.deletions.drop([], sorted(objects - self.registry.named()))

    def appended(self, number: int, named: frozenset[str]) -> list[Instruction]:  # noqa: ARG002
        return super().appended(number, frozenset())


class ForgettingBases(Subsumption):
    """Takes no checkpoint for needed because tasks have loaded from it."""

    def loads_from_base(self, epoch: int) -> None:
        """Nobody remembers."""

    def take_over(self, epoch: int) -> None:
        """Nobody remembers."""


class ForgettingOthersBases(Subsumption):
    """The same, of what tasks loaded that a coordinator before has triggered."""

    def take_over(self, epoch: int) -> None:
        """Nobody remembers."""


class ForgettingOvertaken(Subsumption):
    def is_overtaken(self, making: Collection[int]) -> bool:  # noqa: ARG002
        return False


class InOrderOfCompletion(CompletedCheckpointStore):
    """Takes what completed last for the newest."""

    def place_of(self, log: int) -> int:  # noqa: ARG002
        return len(self._logs)


class WithoutAcks(PendingCheckpoints):
    """Completes a checkpoint with the snapshots that happen to be there."""

    def is_ready(self, p: PendingCheckpoint) -> bool:
        p.acks.required = {uid: slot for uid, slot in p.acks.required.items() if uid not in p.acks.missing}
        p.acks._missing.clear()
        return super().is_ready(p)


class AheadAtOnce(RunLog):
    """Runs epochs ahead of their plans as soon as the first checkpoint is complete."""

    @property
    def ahead(self) -> int:
        return self._context.settings.ahead if self._owner.base_is_known else 0


class BeginningUnsaid(Planning):
    """Real-time epochs begin, and only their end is recorded."""

    def begin(self, event: ev.TriggerRequested) -> list[Instruction]:
        self._log.may_run_ahead = True
        return super().begin(event)


class WithoutItsPlan(PendingCheckpoints):
    """Completes a checkpoint before its plan is in the log, where it will probably be."""

    def is_ready(self, p: PendingCheckpoint) -> bool:
        assert isinstance(self._owner, Run)
        p.log = p.log or self._owner._log.next_number
        return super().is_ready(p)


class UnderItsNumber(EpochInHand):
    """Asks for the state of a checkpoint under the number with which the stream goes on from it."""

    def version(self, claim: Claim) -> int | None:  # noqa: ARG002
        return None


class BeginningNowhere(EpochInHand):
    """Looks for the state of operators that have none."""

    @property
    def begins(self) -> tuple[int, ...]:
        return ()


class TimedFromItsTrigger(PendingCheckpoints):
    """Counts the time that tasks need as a checkpoint's."""

    def tell_triggered(self, p: PendingCheckpoint) -> list[Instruction]:
        return [*super().tell_triggered(p), *super().count_time(p)]

    def count_time(self, p: PendingCheckpoint) -> list[Instruction]:  # noqa: ARG002
        return []


class WaitingForItsEnd(EpochInHand):
    """While an epoch runs none that has ended becomes a checkpoint, however long that takes."""

    @property
    def is_long(self) -> bool:
        return False


class WithFilesOfNow(PendingCheckpoints):
    """A checkpoint of a finished epoch holds the driver's files as they are when it begins."""

    def seal(self, p: PendingCheckpoint, finished: FinishedEpoch) -> list[Instruction]:
        return super().seal(p, replace(finished, files=self._folder.files.as_mapping()))


class WithStatesOfNow(PendingCheckpoints):
    """A checkpoint holds the states that hooks have given last."""

    def finalise(self, p: PendingCheckpoint) -> list[Instruction]:
        p.hooks = self.finished.hooks if self.finished else {}
        return super().finalise(p)


class TellingAtTheSeal(PendingCheckpoints):
    """Hooks are told of a checkpoint when its epoch has ended."""

    def seal(self, p: PendingCheckpoint, finished: FinishedEpoch) -> list[Instruction]:
        return [*self._context.hooks.completed(p.epoch), *super().seal(p, finished)]


class GoneAtOnce(Ending):
    """Deletes all there is at the end, whatever `_metadata` is still on its way."""

    def await_puts(self, tickets: Iterable[int]) -> None:
        """Nobody does."""


class ForgettingAdopted(PendingCheckpoints):
    """Takes the plans that its claim has adopted for no part of what a start from its checkpoints reads."""

    def log_from(self, epoch: int) -> int | None:  # noqa: ARG002
        return None


class LostWhenNobodyReportsIt(StateHandover):
    """Does not wait for the reports of those that have not reported since."""

    def all_reported(self, asked: int) -> bool:  # noqa: ARG002
        return True


class LostAfterOneReport(StateHandover):
    """Takes a report that was on its way for an answer."""

    def all_reported(self, asked: int) -> bool:
        heard, taking_part = self._executors._heard, self._executors._taking_part - self._executors._lost
        return all(heard.get(executor, (0, 0))[0] > asked for executor in taking_part)


class LostWithItsExecutor(StateHandover):
    """Takes what an executor has not acknowledged before it died for lost, whatever its agent has stored."""

    def look_for_left(self, gone: list[str]) -> list[Instruction]:
        return self._lose(gone)


class AnsweringWithAny(SavepointQueue):
    """Answers a request for a checkpoint with the next one that completes, or with the newest."""

    def is_covered(self, asked: LoggedRequest, epoch: int) -> bool:  # noqa: ARG002
        return True


class WhenAskedOnly(CheckpointPolicy):
    """Takes `interval=never` by its word, however much lies in spools and log."""

    def is_due(self, pending: int, pressure: bool) -> bool:  # noqa: ARG002
        return super().is_due(pending, pressure=False)


class SureOfItsAppends(RunLog):
    def is_sure(self, before_ms: int | None) -> bool:  # noqa: ARG002
        return True


class WithoutSeals(Stream):
    """Of what the driver has sealed, a coordinator that takes another one's place is told the commits only."""

    def handle(self, event: ev.Event, now_ms: int) -> list[Instruction]:
        if isinstance(event, ev.ResumeRequested):
            event = replace(event, files={path: content for path, content in event.files.items() if path.startswith("commits/")})
        return super().handle(event, now_ms)
