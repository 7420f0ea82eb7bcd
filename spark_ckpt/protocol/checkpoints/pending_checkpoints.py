"""The checkpoints of a run that are in the making: acks, `_metadata`, completion, subsumption, abort. In the interval mode any number is,
where every epoch is a checkpoint one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import Ack, Checkpoint, CheckpointId, Decline, Snapshot, objects_of
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.checkpoints.acknowledgements import Gathering
from spark_ckpt.protocol.checkpoints.executors import Executors
from spark_ckpt.protocol.checkpoints.failures import FailurePolicy
from spark_ckpt.protocol.checkpoints.lost_snapshots import LostSnapshots
from spark_ckpt.protocol.checkpoints.pending import FinishedEpoch, PendingCheckpoint
from spark_ckpt.protocol.checkpoints.policy import CheckpointPolicy
from spark_ckpt.protocol.checkpoints.savepoint_queue import SavepointQueue
from spark_ckpt.protocol.checkpoints.stats import Lag, Summary
from spark_ckpt.protocol.context import Context
from spark_ckpt.protocol.driver_files import needed
from spark_ckpt.protocol.driver_folder import DriverFolder
from spark_ckpt.protocol.durable_put import DurablePut, Known, Seen
from spark_ckpt.protocol.instructions import Announcement, Instruction, Level
from spark_ckpt.protocol.reasons import AbortReason, AckResult, Outcome
from spark_ckpt.protocol.retention.subsumption import Subsumption
from spark_ckpt.protocol.timers import Timers


class CheckpointsOwner(Protocol):
    """The run, as its checkpoints see it."""

    @property
    def last_triggered(self) -> int:
        """The newest epoch that was triggered, or is about to be."""

    def checkpoint_completed(self, p: PendingCheckpoint, summary: Summary) -> list[Instruction]:
        """Said before anybody else is told."""

    def checkpoint_aborted(self, p: PendingCheckpoint, reason: AbortReason, kind: ErrorKind, message: str) -> list[Instruction]: ...

    def fail(self, kind: ErrorKind, message: str) -> list[Instruction]:
        """The query cannot go on, or is not to."""

    def proceed(self, pressure: bool = False) -> list[Instruction]:
        """Something changed: what can be done now, if no epoch is in hand."""


class PendingCheckpoints:
    """A checkpoint that is given up while its `_metadata` is under way is *uncertain*: nobody knows whether it will be there. It is
    reported as aborted, keeps its objects as a completed one does, and is looked for until it is known, or a newer one has completed."""

    def __init__(
        self,
        owner: CheckpointsOwner,
        context: Context,
        timers: Timers,
        executors: Executors,
        folder: DriverFolder,
        subsumption: Subsumption,
        policy: CheckpointPolicy,
        savepoints: SavepointQueue,
    ) -> None:
        self.pending: list[PendingCheckpoint] = []
        self.uncertain: list[PendingCheckpoint] = []
        self.finished: FinishedEpoch | None = None
        """The newest epoch that has ended, if it may become a checkpoint."""
        self.ended = -1
        """The newest epoch that has ended, in this run or, perhaps, in one before, and runs again."""
        self._owner = owner
        self._context = context
        self._timers = timers
        self._executors = executors
        self._folder = folder
        self._subsumption = subsumption
        self._policy = policy
        self._savepoints = savepoints
        self._failures = FailurePolicy(context)
        self._lost = LostSnapshots(self, context, timers, executors)
        self._kept_acks: dict[str, Ack] = {}
        """By id, what a checkpoint of the newest finished epoch, or of a later one, may want."""
        self._puts: dict[int, CheckpointId] = {}

    # --- which there are

    def of(self, epoch: int) -> PendingCheckpoint | None:
        return next((p for p in self.pending if p.epoch == epoch), None)

    @property
    def making(self) -> tuple[int, ...]:
        """Epochs whose checkpoints count against `maxConcurrent`."""
        return tuple(p.epoch for p in self.pending if p.counts)

    @property
    def uploading(self) -> int:
        """How many of these are of epochs that have ended."""
        return sum(p.counts and p.acks.state is Gathering.SEALED for p in self.pending)

    @property
    def late(self) -> PendingCheckpoint | None:
        return next((p for p in self.pending if p.late), None)

    @property
    def named(self) -> frozenset[str]:
        """Objects that they need."""
        return frozenset[str]().union(*(p.acks.named for p in self.pending))

    def _names(self, name: str) -> bool:
        """Whether any of them needs that object."""
        return any(p.acks.names(name) for p in self.pending)

    @property
    def driver_objects(self) -> frozenset[str]:
        """Large files of the driver as they were when an epoch ended that is a checkpoint in the making, or may become one."""
        finished = self.finished
        may_become_one = finished is not None and finished.epoch > self._subsumption.completed_epoch
        ended = objects_of(finished.files.values()) if finished and may_become_one else frozenset[str]()
        return ended.union(*(p.driver_objects for p in (*self.pending, *self.uncertain)))

    @property
    def lowest_entry(self) -> int | None:
        """Of the log, that a start from any of them would read. One that completes after a newer one keeps its place among the older."""
        return min((min(p.log, self.log_from(p.epoch) or p.log) for p in self.pending if p.log), default=None)

    @property
    def finalising(self) -> frozenset[CheckpointId]:
        """Those whose `_metadata` may be there."""
        return frozenset(p.id for p in (*self.pending, *self.uncertain) if p.put is not None).union(self.unanswered.values())

    @property
    def unanswered(self) -> dict[int, CheckpointId]:
        """Puts of `_metadata` that are under way, by ticket."""
        return {ticket: c for ticket, c in self._puts.items() if ticket in self._context.questions}

    @property
    def lag(self) -> Lag:
        newest, finished = self._subsumption.store.newest, self.finished
        epochs = max(0, finished.epoch - self._subsumption.completed_epoch) if finished else 0
        since = newest.time_ms if newest else self._context.claim.time_ms
        return Lag(epochs, max(0, self._context.now_ms - since) if epochs else 0, self._executors.bytes)

    def log_from(self, epoch: int) -> int | None:
        """`Checkpoint.log_from` of a checkpoint of the run's own. Rule: what a claim has adopted stays until its run has passed over it."""
        return self._context.claim.first_adopted_past(epoch)

    def _summary(self, p: PendingCheckpoint, **numbers: Any) -> Summary:
        if not self._context.waits_for_checkpoints:
            lag = self.lag
            numbers |= {"lag_epochs": lag.epochs, "lag_ms": lag.ms, "lag_bytes": lag.bytes}
        return p.summary(self._context.now_ms, **numbers)

    # --- the beginning, and the end of its epoch

    def begin(self, epoch: int, log: int, triggered_ms: int, plan_ms: int) -> PendingCheckpoint:
        """Of an epoch that begins, or has ended. `log`: the entry that plans it, 0 if that is not stored yet."""
        uncertain = next((p for p in self.uncertain if p.epoch == epoch), None)
        if uncertain is not None:
            self.uncertain.remove(uncertain)
            p = uncertain
            p.savepoint = p.on_demand = p.bridges = False  # whatever it was begun for before
        else:
            p = PendingCheckpoint(CheckpointId(self._context.claim.run, epoch), log, triggered_ms, plan_ms)
            for ack in self._kept_acks.values():
                if ack.epoch == epoch and self._subsumption.deleted_object(ack) is None:
                    p.acks.acknowledge(ack)
                    self._subsumption.keep([ack.snapshot])
        self.pending.append(p)
        self.pending.sort(key=lambda one: one.epoch)
        return p

    def tell_triggered(self, p: PendingCheckpoint) -> list[Instruction]:
        """One that was uncertain is put again as it is: there can be one of a name only."""
        announced = [do.Announce(Announcement.TRIGGERED, replace(Summary(p.id.run, p.epoch, p.triggered_ms), plan_ms=p.plan_ms).to_json())]
        return [*announced, *self.count_time(p), *p.put.insist()] if p.put is not None else [*announced]

    def count_time(self, p: PendingCheckpoint) -> list[Instruction]:
        """Rule: from now on `timeout` passes. Its epoch has ended, what is left to do is to store it."""
        return self._timers.set(ev.Timer.EXPIRY, self._context.settings.timeout_ms, lambda _: self.expired(p), p.epoch)

    def seal(self, p: PendingCheckpoint, finished: FinishedEpoch) -> list[Instruction]:
        """Its epoch has ended: the acks that are needed are known, and may be there."""
        assert finished.required is not None
        p.files = needed(finished.files, finished.epoch)
        p.losses, p.hooks = finished.losses, finished.hooks
        counting = self.count_time(p)
        self.discard(p.acks.seal(finished.required))
        if p.acks.missing:
            known = {s.uid: s for s in self._known_snapshots() if s.uid in p.acks.missing}
            self._subsumption.keep([snapshot for snapshot in known.values() if p.acks.carry(snapshot)])
        return [*counting, *(self._refuse_declined(p) or self.finalise(p) or self._lost.wait())]

    def finish(self, finished: FinishedEpoch) -> None:
        """An epoch has ended."""
        self.finished, self.ended = finished, max(self.ended, finished.epoch)
        required = finished.required or {}
        self._kept_acks = {uid: ack for uid, ack in self._kept_acks.items() if uid in required}

    def planned(self, epoch: int, log: int) -> list[Instruction]:
        """The plan of an epoch is stored, which may be a checkpoint already."""
        p = self.of(epoch)
        if p is None or p.log:
            return []
        p.log = log
        return self.finalise(p)

    def bridges_end(self, message: str) -> list[Instruction]:
        """A long epoch has ended, so a newer one than its predecessor can be a checkpoint."""
        bridges = [p for p in self.pending if p.bridges and p.put is None and not self._savepoints.await_it(p.epoch)]
        self._policy.due_again(bool(bridges))
        return [i for p in bridges for i in self.abort(p, AbortReason.SUBSUMED, ErrorKind.CONFLICT, message)]

    def _known_snapshots(self) -> Iterable[Snapshot]:
        """What is durable already, in the newest checkpoint or on the way into one."""
        if self._subsumption.store.newest:
            yield from self._subsumption.store.newest.snapshots
        for p in self.pending:
            yield from p.acks.acknowledged
        for ack in self._kept_acks.values():
            if self._subsumption.deleted_object(ack) is None:
                yield ack.snapshot

    def durable(self, uid: str) -> Snapshot | None:
        """In the newest completed checkpoint, or acknowledged since and not deleted."""
        kept = self._kept_acks.get(uid)
        if kept is not None and self._subsumption.deleted_object(kept) is None:
            return kept.snapshot
        acknowledged = next((found for p in self.pending if (found := p.acks.find(uid)) is not None), None)
        return acknowledged or self._subsumption.store.snapshot(uid)

    # --- acks

    def acknowledge(self, acks: Sequence[Ack]) -> list[Instruction]:
        """What is looked at here is looked at for each of maybe a hundred thousand partitions: as little as possible for each."""
        if not self._subsumption.deleted_objects(acks):
            return self._count(acks)
        gone = [self._subsumption.deleted_object(ack) for ack in acks]
        counted = self._count([ack for ack, name in zip(acks, gone, strict=True) if name is None])
        return [*counted, *(i for ack, name in zip(acks, gone, strict=True) if name is not None for i in self._refuse(ack, name))]

    def _refuse(self, ack: Ack, gone: str) -> list[Instruction]:
        self.discard([ack.snapshot])
        cause = f"it names {gone}, which was deleted"
        return self.decline(Decline(ack.run, ack.epoch, ack.snapshot.store, ack.snapshot.uid, ack.executor, cause))

    def _count(self, acks: Iterable[Ack]) -> list[Instruction]:
        run = self._context.claim.run
        pending = {p.epoch: p for p in self.pending}
        waiting = [p for p in self.pending if p.waits_for_acks]
        changed: dict[PendingCheckpoint, None] = {}
        used, unused = list[Snapshot](), list[Snapshot]()
        for ack in acks:
            p = pending.get(ack.epoch) if ack.run == run else None
            result = p.acks.acknowledge(ack) if p else AckResult.DISCARDED
            if result is AckResult.DUPLICATE:
                continue
            takers = [q for q in waiting if q is not p and q.acks.carry(ack.snapshot)] if waiting else []
            if p and result is AckResult.SUCCESS:
                takers.append(p)
            if ack.run == run and self._may_be_wanted(ack):
                self._kept_acks[ack.snapshot.uid] = ack
            for taker in takers:
                changed[taker] = None
            (used if takers else unused).append(ack.snapshot)
        self._subsumption.keep(used)
        self.discard(unused)
        return [i for p in changed for i in self.finalise(p)]

    def _may_be_wanted(self, ack: Ack) -> bool:
        """Uploaded without being asked for (a full spool, a task that moved): a checkpoint of the newest finished epoch may want it."""
        finished = self.finished
        return finished is None or ack.epoch > finished.epoch or ack.snapshot.uid in (finished.required or {})

    def decline(self, decline: Decline) -> list[Instruction]:
        p = self.of(decline.epoch) if decline.run == self._context.claim.run else None
        if p is None:
            return []
        p.acks.decline(decline)
        return self._refuse_declined(p)

    def _refuse_declined(self, p: PendingCheckpoint) -> list[Instruction]:
        refused = p.acks.refused if p.waits_for_acks else None
        if refused is None:
            return []
        store = refused.store
        message = (
            f"executor {refused.executor} could not store operator {store.operator} partition {store.partition} of epoch {p.epoch}: "
            f"{refused.cause}"
        )
        return self.abort(p, AbortReason.DECLINED, ErrorKind.DECLINED, message)

    def discard(self, snapshots: Iterable[Snapshot]) -> None:
        """What losing and aborted attempts uploaded."""
        self._subsumption.discard(snapshots, self._names, self._owner.last_triggered)

    # --- lost executors

    def executors_lost(self, executors: Iterable[str]) -> list[Instruction]:
        for executor in executors:
            self._executors.lost(executor)
        return self._lost.executors_lost()

    def take_left(self, event: ev.LeftAcksRead) -> list[Instruction]:
        self._subsumption.heard(event.keys, self._owner.last_triggered)
        told = "what a lost executor's agent has left in the storage does not count"
        warned = [do.Log(Level.WARN, f"{told}: {problem}") for problem in event.unreadable]
        return [*warned, *self.acknowledge(event.acks)]

    # --- finalise

    def finalise_all(self) -> list[Instruction]:
        return [i for p in tuple(self.pending) for i in self.finalise(p)]

    def is_ready(self, p: PendingCheckpoint) -> bool:
        """Rule: a checkpoint is complete when all its acks are in, and stored after the plan of its epoch and all that it names."""
        return not p.acks.missing and bool(p.log) and not self._folder.awaits(p.files.values())

    def finalise(self, p: PendingCheckpoint) -> list[Instruction]:
        if p not in self.pending or not p.waits_for_acks or not self.is_ready(p):
            return []
        claim = self._context.claim
        p.finalise_from = self._context.now_ms
        snapshots = p.acks.snapshots
        summary = self._summary(p, full_bytes=sum(s.size for s in snapshots))
        p.checkpoint = Checkpoint(
            p.id,
            p.log,
            claim.claim,
            claim.query_id,
            p.triggered_ms,
            claim.job,
            p.files,
            snapshots,
            {k: v for k, v in summary.to_json().items() if k not in _NOT_STORED},
            tuple(sorted(one.epoch for one in (*self.pending, *self.uncertain) if one.epoch < p.epoch)),
            self.log_from(p.epoch),
            claim.stream,
            p.hooks,
            given_up=tuple(sorted(one.epoch for one in self.uncertain if one.epoch < p.epoch)),
        )
        p.put = self.put_of(p, p.checkpoint)
        return p.put.begin()

    def put_of(self, p: PendingCheckpoint, checkpoint: Checkpoint) -> DurablePut:
        """Rules: an unknown outcome is read back, and after it nothing is deleted."""
        return DurablePut(
            self._context.questions,
            partial(self._store, checkpoint),
            partial(self.known, p),
            lambda ticket, attempt: do.ReadMetadata(ticket, p.id, attempt),
            partial(self._judge, p),
        )

    def _store(self, checkpoint: Checkpoint, ticket: int, attempt: int) -> Instruction:
        self._puts = {**self.unanswered, ticket: checkpoint.id}
        return do.StoreMetadata(ticket, checkpoint, attempt)

    def _judge(self, p: PendingCheckpoint, event: ev.MetadataRead) -> Seen:
        mine, theirs = p.checkpoint, event.checkpoint
        assert mine is not None
        if event.damage is not None or theirs is None:
            return Seen.NOTHING
        if replace(theirs, time_ms=0, counters={}) == replace(mine, time_ms=0, counters={}):
            return Seen.OURS
        if theirs.claim == mine.claim and {s.uid for s in theirs.snapshots} == set(p.acks.required):
            # A coordinator that this one replaced had it under way: the same state, perhaps uploaded to other objects.
            p.checkpoint = theirs
            return Seen.OURS
        return Seen.OTHERS

    def known(self, p: PendingCheckpoint, known: Known, event: ev.MetadataPut | ev.MetadataRead | None) -> list[Instruction]:
        """What became of its `_metadata`."""
        if known is Known.STORED:
            return self.complete(p, event.size if isinstance(event, ev.MetadataPut) else 0)
        if p in self.uncertain:
            return self._absent(p)
        if known is Known.TAKEN:
            message = f"there is another _metadata for checkpoint {p.epoch} of run {p.id.run}; start the query again"
            return self.abort(p, AbortReason.FINALISE_FAILURE, ErrorKind.CONFLICT, message)
        assert p.put is not None
        message = f"_metadata of checkpoint {p.epoch} could not be stored: {p.put.cause}"
        return self.abort(p, AbortReason.FINALISE_FAILURE, ErrorKind.STORAGE, message)

    # --- complete

    def complete(self, p: PendingCheckpoint, metadata_bytes: int) -> list[Instruction]:
        assert p.checkpoint is not None
        (self.uncertain if p in self.uncertain else self.pending).remove(p)
        dropped = self._subsumption.completed(p.checkpoint)
        self._failures.completed()
        finalise_ms = self._context.now_ms - p.finalise_from
        summary = self._summary(p, full_bytes=p.checkpoint.size, metadata_bytes=metadata_bytes, finalise_ms=finalise_ms)
        paused = [] if p.savepoint else self._policy.ended()
        instructions = [*self._context.hooks.completed(p.epoch), *self._end(p), *self._owner.checkpoint_completed(p, summary)]
        instructions += [*paused, do.Announce(Announcement.COMPLETED, summary), *self._savepoints.completed(p.checkpoint)]
        for older in [q for q in self.pending if q.epoch < p.epoch and not q.savepoint and q.put is None]:
            instructions += self.abort(older, AbortReason.SUBSUMED, ErrorKind.CONFLICT, f"checkpoint {p.epoch} completed first")
        # What is given up later than that waits for the next one, which says so: a person may choose what nobody is about to delete.
        for older in [q for q in self.uncertain if q.epoch in p.checkpoint.given_up]:
            self.uncertain.remove(older)
            dropped.append(older.id)
            assert older.put is not None
            older.put.abandon(partial(self._landed, older.id))
        self._kept_acks = {uid: ack for uid, ack in self._kept_acks.items() if ack.epoch > p.epoch}
        self.subsume(dropped)
        return [*instructions, *self._owner.proceed()]

    def tell_again(self) -> list[Instruction]:
        """Of the newest that is complete: whether the coordinator that this one replaced has told of it nobody knows."""
        newest = self._subsumption.store.newest
        if newest is None:
            return []
        told = self._context.hooks.completed(newest.id.epoch)
        if newest.id.run != self._context.claim.run:
            return told
        stands = Summary(newest.id.run, newest.id.epoch, newest.time_ms, full_bytes=newest.size)
        return [*told, do.Announce(Announcement.STANDS, stands.to_json())]

    def subsume(self, dropped: Iterable[CheckpointId] = ()) -> None:
        self._subsumption.subsume(dropped, [p.epoch for p in self.pending], self._savepoints.pins)

    def _landed(self, checkpoint: CheckpointId, event: ev.MetadataPut) -> list[Instruction]:
        """A newer one completed, and this one was dropped with what it named: if it landed after that, it goes again."""
        self._subsumption.deletions.drop([checkpoint] if event.outcome is Outcome.STORED else [])
        return []

    def _end(self, p: PendingCheckpoint) -> list[Instruction]:
        """It is no longer in the making, one way or the other."""
        self._context.questions.forget(p.left)
        p.left = None
        instructions = self._timers.cancel(ev.Timer.EXPIRY, p.epoch)
        if p.late:
            p.late = False
            instructions.append(do.Late(p.id.run, None))
        return instructions

    # --- abort

    def expired(self, p: PendingCheckpoint) -> list[Instruction]:
        waited = f"within {self._context.settings.timeout_ms} ms (spark.ckpt.timeout)"
        if p.put is not None:
            message = f"_metadata of checkpoint {p.epoch} could not be stored {waited}: {p.put.cause or 'no answer'}"
        elif p.acks.missing:
            message = (
                f"checkpoint {p.epoch} did not complete {waited}: {len(p.acks.missing)} of {len(p.acks.required)} snapshots are not stored "
                "yet; see the agents' log lines"
            )
        elif self._folder.awaits(p.files.values()):
            why = self._folder.cause or "no answer"
            message = f"checkpoint {p.epoch} did not complete {waited}: a file of the driver is not stored yet: {why}"
        else:
            message = f"checkpoint {p.epoch} did not complete {waited}: the plan of its epoch is not stored yet"
        return self.abort(p, AbortReason.EXPIRED, ErrorKind.TIMEOUT, message)

    def abort(self, p: PendingCheckpoint, reason: AbortReason, kind: ErrorKind, message: str) -> list[Instruction]:
        """Nothing is deleted at once; of one whose `_metadata` may be there, or may still land, nothing is deleted either."""
        self.pending.remove(p)
        paused = self._policy.ended() if p.counts else []
        instructions = [*self._end(p), *paused, self._tell_aborted(p, reason, message), *self._context.hooks.aborted(p.epoch)]
        if p.put is not None:
            assert p.checkpoint is not None
            self.uncertain.append(p)
            self._subsumption.registry.register(p.checkpoint)
            instructions += p.put.give_up()
        else:
            self.discard(p.acks.discard())
        instructions += self._savepoints.aborted(p.epoch, message)
        instructions += self._owner.checkpoint_aborted(p, reason, kind, message)
        failed = self._failures.too_many(reason, p.counts and not p.on_demand, message)
        if failed is not None:
            return [*instructions, *self._owner.fail(kind, failed)]
        return instructions + (self._owner.proceed() if reason is not AbortReason.SUBSUMED else [])

    def _absent(self, p: PendingCheckpoint) -> list[Instruction]:
        """It is known that its `_metadata` is not there."""
        self.uncertain.remove(p)
        self._subsumption.registry.unregister(p.id)
        self.discard(p.acks.discard())
        return [do.Log(Level.INFO, f"_metadata of the aborted checkpoint {p.epoch} was not stored")]

    def tell_stopped(self, message: str) -> list[Instruction]:
        """The run is over: what is in the making comes to nothing."""
        return [self._tell_aborted(p, AbortReason.STOPPED, message) for p in self.pending]

    def give_up_all(self) -> None:
        """And nothing of it is deleted: what was uploaded is the successor's garbage."""
        for p in self.pending:
            p.acks.discard()
        self.pending.clear()
        self.uncertain.clear()

    def _tell_aborted(self, p: PendingCheckpoint, reason: AbortReason, message: str) -> Instruction:
        return do.Announce(Announcement.ABORTED, replace(self._summary(p), reason=reason.value, message=message))


_NOT_STORED = ("run", "epoch", "time_ms", "metadata_bytes", "finalise_ms", "lag_epochs", "lag_ms", "lag_bytes")
"""Of a summary: `_metadata` says it itself, or it is not known yet."""
