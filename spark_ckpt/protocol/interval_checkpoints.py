"""The checkpoints of a run in the interval mode: acks, `_metadata`, completion, subsumption, abort. Any number can be in the making."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import Ack, Checkpoint, CheckpointId, Decline, Snapshot, objects_of
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.background import BackgroundCheckpoint, Final, SealedEpoch
from spark_ckpt.protocol.driver_files import needed
from spark_ckpt.protocol.instructions import Announcement, Instruction, Level
from spark_ckpt.protocol.machine import Story, Tickets
from spark_ckpt.protocol.pending import PendingState
from spark_ckpt.protocol.reasons import TOLERATED, AbortReason, AckResult, Outcome
from spark_ckpt.protocol.run_requests import RunRequests
from spark_ckpt.protocol.run_state import RunPhase, Settings
from spark_ckpt.protocol.schedule import Schedule
from spark_ckpt.protocol.start import Beginning
from spark_ckpt.protocol.stats import Lag, Summary, summary_of


class IntervalCheckpoints(RunRequests):
    """What does not depend on which epoch is in hand.

    A checkpoint whose time is up while its `_metadata` is under way is a *ghost*: nobody knows whether it will be there. It is reported
    as aborted, keeps its objects as a completed one does, and is read back until it is known, or a newer one has completed.
    """

    def __init__(self, beginning: Beginning, settings: Settings, tickets: Tickets, story: Story) -> None:
        super().__init__(beginning, settings, tickets, story)
        self._schedule = Schedule(settings.interval_ms, settings.min_pause_ms, settings.max_concurrent)
        self._pendings: list[BackgroundCheckpoint] = []
        self._ghosts: list[BackgroundCheckpoint] = []
        self._asked: dict[int, BackgroundCheckpoint] = {}
        self._sealed: SealedEpoch | None = None
        self._unasked: dict[str, Ack] = {}
        self._failures = 0
        self._base_until: dict[CheckpointId, int] = {}

    @abstractmethod
    def _not_finished(self, epoch: int, kind: ErrorKind, message: str) -> list[Instruction]:
        """The checkpoint of this epoch was aborted."""

    # --- which there are

    @property
    def making(self) -> tuple[int, ...]:
        """Epochs whose checkpoints are in the making and count against `maxConcurrent`: savepoints do not."""
        return tuple(p.epoch for p in self._pendings if not p.savepoint and not p.bridges)

    @property
    def _uploading(self) -> int:
        """How many of these are of epochs that have ended."""
        return sum(p.state is PendingState.SEALED for p in self._pendings if p.epoch in self.making)

    @property
    def _completed_epoch(self) -> int:
        """Under the run's own numbers."""
        newest, first = self._store.newest, self.claim.first
        if first is not None and (newest is None or newest.id == self.claim.origin):
            return first - 1
        return newest.id.epoch if newest else -1

    @property
    def _lag(self) -> Lag:
        newest, sealed = self._store.newest, self._sealed
        epochs = max(0, sealed.epoch - self._completed_epoch) if sealed else 0
        since = newest.time_ms if newest else self.claim.time_ms
        return Lag(epochs, max(0, self.now_ms - since) if epochs else 0, self._executors.bytes)

    def _pending_of(self, epoch: int) -> BackgroundCheckpoint | None:
        return next((p for p in self._pendings if p.epoch == epoch), None)

    def _named_by_pending(self) -> frozenset[str]:
        return frozenset[str]().union(*(p.named for p in self._pendings))

    def _driver_objects(self) -> frozenset[str]:
        """Also as they were when an epoch ended that is a checkpoint in the making, or may become one."""
        then = [*(p.files for p in [*self._pendings, *self._ghosts]), *([self._sealed.files] if self._sealed else [])]
        return super()._driver_objects().union(*(objects_of(files.values()) for files in then))

    def _lowest_pending(self) -> int | None:
        """One that completes after a newer one keeps its place among the older ones."""
        lowest = [min(p.log, self._log_from(p.epoch) or p.log) for p in self._pendings if p.log]
        return min(lowest, default=None)

    def _finalising(self) -> frozenset[CheckpointId]:
        return frozenset(p.id for p in [*self._pendings, *self._ghosts] if p.final is not Final.NOT_YET)

    def _discard_pending(self) -> None:
        for p in self._pendings:
            p.discard()
        self._pendings.clear()
        self._ghosts.clear()
        self._asked.clear()

    def _summary(self, p: BackgroundCheckpoint, **numbers: Any) -> Summary:
        lag = self._lag
        return summary_of(p, self.now_ms, p.plan_ms, lag_epochs=lag.epochs, lag_ms=lag.ms, lag_bytes=lag.bytes, **numbers)

    def _new_background(self, epoch: int, log: int, triggered_ms: int) -> list[Instruction]:
        p = BackgroundCheckpoint(CheckpointId(self.claim.run, epoch), log, triggered_ms, self.base, self._executors.losses)
        p.plan_ms = self._plan_ms
        return self._make(p)

    def _make(self, p: BackgroundCheckpoint) -> list[Instruction]:
        self._pendings.append(p)
        self._pendings.sort(key=lambda one: one.epoch)
        return [do.Announce(Announcement.TRIGGERED, replace(Summary(p.id.run, p.epoch, p.triggered_ms), plan_ms=p.plan_ms).to_json())]

    def _count_time(self, p: BackgroundCheckpoint) -> list[Instruction]:
        """From now on `timeout` passes: its epoch has ended, what is left to do is to store it."""
        p.expiry = self.ticket()
        return [do.SetTimer(p.expiry, ev.Timer.EXPIRY, self._settings.timeout_ms)]

    # --- acks

    def _ack(self, event: ev.AckReceived) -> list[Instruction]:
        ack = event.ack
        p = self._pending_of(ack.epoch) if ack.run == self.claim.run else None
        gone = self._released_object(ack)
        if gone is not None:
            self._release([ack.snapshot])
            cause = f"it names {gone}, which was released"
            return self._decline(ev.DeclineReceived(Decline(ack.run, ack.epoch, ack.snapshot.store, ack.snapshot.uid, ack.executor, cause)))
        result = p.acknowledge(ack) if p else AckResult.DISCARDED
        if result is AckResult.DUPLICATE:
            return []
        used = [q for q in self._pendings if q is not p and q.carry(ack.snapshot)]
        if p and result is AckResult.SUCCESS:
            used.append(p)
        if ack.run == self.claim.run and (self._sealed is None or self._wanted_later(ack)):
            self._unasked[ack.snapshot.uid] = ack
        if not used:
            self._release([ack.snapshot])
            return []
        self._keep(h.object for h in ack.snapshot.handles)
        return [i for q in used for i in self._maybe_finalise(q)]

    def _wanted_later(self, ack: Ack) -> bool:
        """Uploaded without being asked for (a full spool, a task that moved): a checkpoint of the newest finished epoch may want it."""
        assert self._sealed is not None
        return ack.epoch > self._sealed.epoch or ack.snapshot.uid in (self._sealed.required or {})

    def _decline(self, event: ev.DeclineReceived) -> list[Instruction]:
        decline = event.decline
        p = self._pending_of(decline.epoch) if decline.run == self.claim.run else None
        if p is None:
            return []
        p.decline(decline)
        return self._maybe_refuse(p)

    def _maybe_refuse(self, p: BackgroundCheckpoint) -> list[Instruction]:
        refused = p.refused if p.waits_for_acks else None
        if refused is None:
            return []
        store = refused.store
        return self._abort(
            p,
            AbortReason.DECLINED,
            ErrorKind.DECLINED,
            f"executor {refused.executor} could not store operator {store.operator} partition {store.partition} of epoch "
            f"{p.epoch}: {refused.cause}",
        )

    def _known_snapshots(self) -> Iterable[Snapshot]:
        """What is durable already, in the newest checkpoint or on the way into one."""
        if self._store.newest:
            yield from self._store.newest.snapshots
        for p in self._pendings:
            for ack in p.acks.values():
                yield ack.snapshot
        for ack in self._unasked.values():
            if self._released_object(ack) is None:
                yield ack.snapshot

    def _files_stored(self) -> list[Instruction]:
        return [i for p in tuple(self._pendings) for i in self._maybe_finalise(p)]

    def _seal_background(self, p: BackgroundCheckpoint, sealed: SealedEpoch) -> list[Instruction]:
        """The acks that are needed are known, and may be there."""
        assert sealed.required is not None
        p.files = needed(sealed.files, sealed.epoch)
        counting = self._count_time(p)
        self._release(p.seal(sealed.required, ()))
        known = {s.uid: s for s in self._known_snapshots() if s.uid in p.missing}
        for snapshot in known.values():
            if p.carry(snapshot):
                self._keep(h.object for h in snapshot.handles)
        return [*counting, *(self._maybe_refuse(p) or self._maybe_finalise(p) or self._maybe_grace())]

    # --- executors

    def _holding(self, event: ev.HoldingReceived) -> list[Instruction]:
        self._executors.holds(event.executor, event.held, event.bytes)
        return []

    def _executor_lost(self, event: ev.ExecutorLost) -> list[Instruction]:
        self._executors.lost(event.executor)
        return self._maybe_grace()

    def _hurt(self) -> list[BackgroundCheckpoint]:
        """Those that wait for acks and may wait in vain."""
        return [p for p in self._pendings if p.waits_for_acks and p.left is None and self._executors.losses > p.losses_seen and p.missing]

    def _maybe_grace(self) -> list[Instruction]:
        return self._set(ev.Timer.GRACE, self._settings.grace_ms) if self._hurt() and ev.Timer.GRACE not in self._timers else []

    def _grace_over(self) -> list[Instruction]:
        """An agent outlives its executor and leaves its acks in the storage; look there before giving up."""
        instructions: list[Instruction] = []
        for p in self._hurt():
            p.left = self.ticket()
            self._asked[p.left] = p
            instructions.append(do.ReadLeftAcks(p.left, self.claim.run, p.epoch))
        return instructions

    def _left_acks(self, event: ev.LeftAcksRead) -> list[Instruction]:
        p = self._asked.pop(event.ticket)
        p.left = None
        self._heard(event)
        instructions = [i for ack in event.acks for i in self._ack(ev.AckReceived(ack))]
        if p not in self._pendings or not p.waits_for_acks:
            return instructions
        lost = p.missing - self._executors.held
        if not lost:
            return instructions + self._maybe_grace()
        message = f"{len(lost)} of {len(p.required)} snapshots of epoch {p.epoch} died with their executor"
        return instructions + self._abort(p, AbortReason.LOST, ErrorKind.LOST, message)

    # --- finalise

    def _maybe_finalise(self, p: BackgroundCheckpoint) -> list[Instruction]:
        if p not in self._pendings or not p.waits_for_acks or p.missing or not p.log or self._large.awaits(p.files.values()):
            return []
        p.final = Final.STORING
        p.finalise_from = self.now_ms
        told = self._summary(p, full_bytes=sum(s.size for s in p.snapshots))
        left_out = ("run", "epoch", "time_ms", "metadata_bytes", "finalise_ms", "lag_epochs", "lag_ms", "lag_bytes")
        p.checkpoint = Checkpoint(
            p.id,
            p.log,
            self.claim.claim,
            self.claim.query_id,
            p.triggered_ms,
            self.claim.job,
            p.files,
            p.snapshots,
            {k: v for k, v in told.to_json().items() if k not in left_out},
            tuple(sorted(one.epoch for one in (*self._pendings, *self._ghosts) if one.epoch < p.epoch)),
            self._log_from(p.epoch),
            self.claim.stream,
        )
        return [self._put_metadata(p.checkpoint, self._question(p))]

    def _question(self, p: BackgroundCheckpoint) -> int:
        ticket = self.ticket()
        self._asked[ticket] = p
        return ticket

    def _metadata_put(self, event: ev.MetadataPut) -> list[Instruction]:
        del self._puts[event.ticket]
        p = self._asked.pop(event.ticket)
        if p not in self._pendings and p not in self._ghosts:
            # A newer one completed, and this one was dropped with what it named: if it landed after that, it goes again.
            self._deletions.drop([p.id] if event.outcome is Outcome.STORED else [])
            return []
        if event.outcome is Outcome.STORED:
            return self._completed(p, event.size)
        if event.outcome in (Outcome.EXISTS, Outcome.UNKNOWN):
            p.unknown = True
            p.final = Final.READING_BACK
            return [do.ReadMetadata(self._question(p), p.id)]
        p.cause = event.message
        if p in self._ghosts:
            return self._read_ghost(p) if p.unknown else self._lay_ghost(p)
        if event.outcome is Outcome.REFUSED:
            message = f"_metadata of checkpoint {p.epoch} could not be stored: {event.message}"
            return self._abort(p, AbortReason.FINALISE_FAILURE, ErrorKind.STORAGE, message)
        return self._store_again(p)

    def _store_again(self, p: BackgroundCheckpoint) -> list[Instruction]:
        if p in self._ghosts:
            return self._read_ghost(p)
        assert p.checkpoint is not None
        p.final = Final.STORING
        p.attempt += 1
        return [self._put_metadata(p.checkpoint, self._question(p), p.attempt)]

    def _metadata_read_back(self, event: ev.MetadataRead) -> list[Instruction]:
        p, theirs = self._asked.pop(event.ticket), event.checkpoint
        if p not in self._pendings and p not in self._ghosts:
            return []
        assert p.checkpoint is not None
        if event.damage is not None or theirs is None:
            p.cause = event.damage or "a put was not answered and did not arrive"
            return self._store_again(p)
        if replace(theirs, time_ms=0, counters={}) == replace(p.checkpoint, time_ms=0, counters={}):
            return self._completed(p, 0)
        if theirs.claim == self.claim.claim and {s.uid for s in theirs.snapshots} == set(p.required):
            # A coordinator that this one replaced had it under way: the same state, perhaps uploaded to other objects.
            p.checkpoint = theirs
            return self._completed(p, 0)
        message = f"there is another _metadata for checkpoint {p.epoch} of run {self.claim.run}; start the query again"
        return self._abort(p, AbortReason.FINALISE_FAILURE, ErrorKind.CONFLICT, message) if p in self._pendings else self._lay_ghost(p)

    def _read_back_failed(self, event: ev.ReadFailed) -> list[Instruction]:
        p = self._asked.pop(event.ticket)
        if event.ticket == p.left:
            p.left = None
            return self._maybe_grace()
        p.cause = event.message
        return self._store_again(p) if p in self._pendings or p in self._ghosts else []

    # --- complete

    def _completed(self, p: BackgroundCheckpoint, metadata_bytes: int) -> list[Instruction]:
        assert p.checkpoint is not None
        late = p in self._ghosts
        if late:
            self._ghosts.remove(p)
        else:
            self._pendings.remove(p)
        self._registry.register(p.checkpoint)
        dropped = self._store.add(p.checkpoint)
        self._failures = 0
        told = self._summary(p, full_bytes=p.checkpoint.size, metadata_bytes=metadata_bytes, finalise_ms=self.now_ms - p.finalise_from)
        instructions: list[Instruction] = [*self._end(p), *self._pause(p), do.Announce(Announcement.COMPLETED, told)]
        for older in [q for q in self._pendings if q.epoch < p.epoch and not q.savepoint and q.final is Final.NOT_YET]:
            instructions += self._abort(older, AbortReason.SUBSUMED, ErrorKind.CONFLICT, f"checkpoint {p.epoch} completed first")
        for ghost in [g for g in self._ghosts if g.epoch < p.epoch]:
            self._ghosts.remove(ghost)
            dropped.append(ghost.id)
        self._unasked = {uid: ack for uid, ack in self._unasked.items() if ack.epoch > p.epoch}
        instructions += self._desk.completed(p.checkpoint)
        self._supersede(dropped)
        return [*instructions, *self._proceed()]

    def _supersede(self, dropped: Iterable[CheckpointId]) -> None:
        """A checkpoint that tasks may have loaded from stays until one that was triggered after them completes: what they loaded may be
        part of what they upload, and of no other checkpoint yet (a task moved). The same for what aborted ones uploaded."""
        newest = self._completed_epoch
        bases = {p.base for p in self._pendings}
        free = self._free(dropped, lambda c: c in bases or self._base_until.get(c, -1) > newest)
        for c in free:
            self._base_until.pop(c, None)
        oldest = min((p.epoch for p in self._pendings), default=newest + 1)
        ready = [name for name, released in self._strays.items() if released < min(newest, oldest)]
        for name in ready:
            del self._strays[name]
        named = self._registry.named()
        self._deletions.drop(free, [name for name in ready if name not in named])

    def _end(self, p: BackgroundCheckpoint) -> list[Instruction]:
        """It is no longer in the making, one way or the other."""
        instructions: list[Instruction] = []
        if p.expiry is not None:
            self.forget(p.expiry)
            instructions.append(do.CancelTimer(p.expiry))
            p.expiry = None
        if p.left is not None:
            self.forget(p.left)
            self._asked.pop(p.left, None)
            p.left = None
        if p.late:
            p.late = False
            instructions.append(do.Late(self.claim.run, None))
        return instructions

    def _pause(self, p: BackgroundCheckpoint) -> list[Instruction]:
        if not self._schedule.min_pause_ms or p.savepoint:
            return []
        self._schedule.pausing = True
        return self._set(ev.Timer.PAUSE, self._schedule.min_pause_ms)

    # --- abort

    def _expired(self, p: BackgroundCheckpoint) -> list[Instruction]:
        p.expiry = None
        waited = f"within {self._settings.timeout_ms} ms (spark.ckpt.timeout)"
        if p.final is not Final.NOT_YET:
            message = f"_metadata of checkpoint {p.epoch} could not be stored {waited}: {p.cause or 'no answer'}"
        elif p.missing:
            message = (
                f"checkpoint {p.epoch} did not complete {waited}: {len(p.missing)} of {len(p.required)} snapshots are not stored yet; "
                "see the agents' log lines"
            )
        elif self._large.awaits(p.files.values()):
            why = self._cause or "no answer"
            message = f"checkpoint {p.epoch} did not complete {waited}: a file of the driver is not stored yet: {why}"
        else:
            message = f"checkpoint {p.epoch} did not complete {waited}: the plan of its epoch is not stored yet"
        return self._abort(p, AbortReason.EXPIRED, ErrorKind.TIMEOUT, message)

    def _abort(self, p: BackgroundCheckpoint, reason: AbortReason, kind: ErrorKind, message: str) -> list[Instruction]:
        """Nothing is deleted at once; of one whose `_metadata` may be there, or may still land, nothing is released either."""
        self._pendings.remove(p)
        pause = [] if p.bridges else self._pause(p)
        instructions = [*self._end(p), *pause, self._tell_aborted(p, reason, message)]
        if p.final is not Final.NOT_YET:
            assert p.checkpoint is not None
            self._ghosts.append(p)
            self._registry.register(p.checkpoint)
            if p not in self._asked.values():
                instructions += self._read_ghost(p) if p.unknown else self._lay_ghost(p)
        else:
            self._release(p.discard())
        instructions += [*self._desk.aborted(p.epoch, message), *self._not_finished(p.epoch, kind, message)]
        if reason in TOLERATED and not p.savepoint and not p.bridges:
            self._failures += 1
            if self._failures > self._settings.tolerable_failures:
                return [*instructions, *self._fail(kind, self._too_many(message))]
        return instructions + (self._proceed() if reason is not AbortReason.SUBSUMED else [])

    def _too_many(self, message: str) -> str:
        if self._failures == 1:
            return message
        allowed = self._settings.tolerable_failures
        return f"{self._failures} checkpoints in a row failed, spark.ckpt.tolerableFailures is {allowed}: {message}"

    def _tell_aborted(self, p: BackgroundCheckpoint, reason: AbortReason, message: str) -> Instruction:
        return do.Announce(Announcement.ABORTED, replace(self._summary(p), reason=reason.value, message=message))

    def _stopped_in_hand(self, message: str) -> list[Instruction]:
        if self.phase not in (RunPhase.IDLE, RunPhase.PLANNING, RunPhase.RUNNING):
            return []
        return [self._tell_aborted(p, AbortReason.STOPPED, message) for p in self._pendings]

    def _fail(self, kind: ErrorKind, message: str) -> list[Instruction]:
        """The query cannot go on, or is not to. Nothing is deleted: what was uploaded is the successor's garbage."""
        stopped = self._stopped_in_hand("the query failed")
        refused = self._refuse_open(kind, message)
        return [*self._over(RunPhase.FAILED, kind, message), *refused, *stopped, do.Failed(kind, message)]

    def _over(self, phase: RunPhase, kind: ErrorKind, message: str) -> list[Instruction]:
        expiries = [p.expiry for p in self._pendings if p.expiry is not None]
        return [*super()._over(phase, kind, message), *(do.CancelTimer(ticket) for ticket in expiries)]

    # --- ghosts

    def _revive(self, p: BackgroundCheckpoint) -> list[Instruction]:
        """Its epoch is to be a checkpoint again: there can be one of a name only, so its `_metadata` is put again as it is."""
        self._ghosts.remove(p)
        instructions = [*self._make(p), *self._count_time(p)]
        return instructions if p in self._asked.values() else [*instructions, *self._store_again(p)]

    def _read_ghost(self, p: BackgroundCheckpoint) -> list[Instruction]:
        """A put that was not answered may land at any time; only a look that finds it ends this, or a newer checkpoint."""
        p.attempt += 1
        return [do.ReadMetadata(self._question(p), p.id, p.attempt)]

    def _lay_ghost(self, p: BackgroundCheckpoint) -> list[Instruction]:
        """It is known that its `_metadata` is not there."""
        self._ghosts.remove(p)
        self._registry.unregister(p.id)
        self._release(p.discard())
        return [do.Log(Level.INFO, f"_metadata of the aborted checkpoint {p.epoch} was not stored")]
