"""One run in the every-epoch mode: plan, snapshots, seal, `_metadata`; epoch after epoch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from spark_ckpt.errors import ErrorKind, FormatError
from spark_ckpt.model import Ack, Checkpoint, CheckpointId, Decline
from spark_ckpt.paths import run_prefix
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.commit import required_ids
from spark_ckpt.protocol.driver_files import commits_file, needed, offsets_file
from spark_ckpt.protocol.entries import Entry, Plan, Request, encode
from spark_ckpt.protocol.instructions import Announcement, Instruction, Level, RequestName
from spark_ckpt.protocol.reasons import AbortReason, AckResult, Outcome
from spark_ckpt.protocol.run_ending import RunEnding
from spark_ckpt.protocol.run_state import LIVE, OVER, RunPhase, Settings
from spark_ckpt.protocol.stats import Summary

__all__ = ["Run", "RunPhase", "Settings"]


_IGNORED_WHEN_OVER = (ev.DeclineReceived, ev.HoldingReceived, ev.ExecutorLost, ev.DamageReported)


class Run(RunEnding):
    """Begins with what `Start` or `Resume` found out."""

    def begin(self, now_ms: int) -> list[Instruction]:
        """What a new run does first."""
        self.now_ms = now_ms
        if self.phase is RunPhase.IDLE:
            return self._set(ev.Timer.IDLE, self._settings.idle_ms)
        if self._pending:
            self._pending.triggered_ms = now_ms
        self._asked_ms = now_ms
        self.statistics.triggered += 1
        return [do.Announce(Announcement.TRIGGERED, Summary(self.claim.run, self._epoch, now_ms).to_json())]

    # --- timers

    def _timer_fired(self, event: ev.TimerFired) -> list[Instruction]:
        self._timers.pop(event.timer, None)
        if event.timer is ev.Timer.IDLE:
            return self._look_at_log() if self.phase is RunPhase.IDLE else []
        if event.timer is ev.Timer.GRACE:
            return self._grace_over() if self.phase is RunPhase.SEALED else []
        waited = f"within {self._settings.timeout_ms} ms (spark.ckpt.timeout)"
        if event.timer is ev.Timer.PLAN:
            return self._abort(
                AbortReason.PLAN_FAILURE,
                ErrorKind.TIMEOUT,
                f"the plan of epoch {self._epoch} could not be stored {waited}: {self._cause or 'no answer'}",
            )
        if self.phase is RunPhase.SEALED:
            assert self._pending is not None
            missing, needed_acks = len(self._pending.missing), len(self._pending.required)
            return self._abort(
                AbortReason.EXPIRED,
                ErrorKind.TIMEOUT,
                f"checkpoint {self._epoch} did not complete {waited}: {missing} of {needed_acks} snapshots are not stored yet; "
                "see the agents' log lines",
            )
        return self._abort(
            AbortReason.EXPIRED,
            ErrorKind.TIMEOUT,
            f"_metadata of checkpoint {self._epoch} could not be stored {waited}: {self._cause or 'no answer'}",
        )

    # --- idle

    def _look_at_log(self) -> list[Instruction]:
        """Nobody appends while the stream is idle, so a successor or a request is noticed by looking."""
        self._look = self.ticket()
        return [do.ReadEntry(self._look, self._next_number)]

    def _looked(self, event: ev.EntryRead) -> list[Instruction]:
        if event.data is not None:
            entry = self._decode(event)
            if entry is None or entry.claim != self.claim.claim:
                return self._fenced(event.number, entry)
            taken = self._take_up(entry)
            return [*taken, *self._look_at_log()]
        return self._set(ev.Timer.IDLE, self._settings.idle_ms)

    def _look_failed(self, _event: ev.ReadFailed) -> list[Instruction]:
        return self._set(ev.Timer.IDLE, self._settings.idle_ms)

    def _take_up(self, entry: Entry) -> list[Instruction]:
        """A request of a person: noted, and its number is used up."""
        self._next_number += 1
        what = f"{entry.action} {entry.target}".strip() if isinstance(entry, Request) else type(entry).__name__
        return [
            do.Log(
                Level.WARN,
                f"the request in log entry {self._next_number - 1} ({what}) cannot be met by a stream that checkpoints every epoch",
            )
        ]

    # --- trigger

    def _trigger(self, event: ev.TriggerRequested) -> list[Instruction]:
        if event.epoch != self._epoch:
            return [self._out_of_order(RequestName.TRIGGER, event.epoch)]
        recorded = self._recorded.pop(event.epoch, None)
        self._files.apply({**event.files, offsets_file(event.epoch): event.offsets})
        self._plan = Plan(self.claim.claim, self.claim.run, event.epoch, event.offsets, self._files.take_changes(), recorded is not None)
        if recorded and not recorded.same_data(self._plan):
            return self._abort(
                AbortReason.PLAN_FAILURE,
                ErrorKind.CONFLICT,
                f"epoch {event.epoch} was planned before with other data, and a sink may have seen that; start the query again "
                "to run it as it was planned",
                RequestName.TRIGGER,
            )
        self.phase = RunPhase.PLANNING
        self._cause = ""
        self._asked_ms = self.now_ms
        self.forget(self._look)
        self._deletions.append_issued(self._next_number)
        return [
            *self._cancel(ev.Timer.IDLE),
            *self._set(ev.Timer.PLAN, self._settings.timeout_ms),
            do.PutEntry(self.ticket(), self._next_number, encode(self._plan)),
        ]

    def _trigger_again(self, event: ev.TriggerRequested) -> list[Instruction]:
        """Sent again because the coordinator that got it first died."""
        if event.epoch != self._epoch or self._plan is None or not self._plan.same_data(Plan(0, 0, event.epoch, event.offsets)):
            return [self._out_of_order(RequestName.TRIGGER, event.epoch)]
        self._files.apply({**event.files, offsets_file(event.epoch): event.offsets})
        return [self._barrier()]

    def _out_of_order(self, request: RequestName, epoch: int) -> Instruction:
        return do.Refused(
            request, ErrorKind.INTERNAL, f"{request.value} of epoch {epoch} came while epoch {self._epoch} was due; please report it"
        )

    def _barrier(self) -> Instruction:
        return do.Triggered(self.claim.run, self._epoch, self.base, self.now_ms)

    def _plan_put(self, event: ev.EntryPut) -> list[Instruction]:
        if event.outcome is Outcome.STORED:
            return self._planned(event.number)
        if event.outcome in (Outcome.EXISTS, Outcome.UNKNOWN):
            return [do.ReadEntry(self.ticket(), event.number)]
        self._cause = event.message
        if event.outcome is Outcome.REFUSED:
            return self._abort(
                AbortReason.PLAN_FAILURE,
                ErrorKind.STORAGE,
                f"the plan of epoch {self._epoch} could not be stored: {event.message}",
                RequestName.TRIGGER,
            )
        return self._put_plan(event.number)

    def _put_plan(self, number: int) -> list[Instruction]:
        assert self._plan is not None
        self._attempt += 1
        return [do.PutEntry(self.ticket(), number, encode(self._plan), self._attempt)]

    def _plan_read_back(self, event: ev.EntryRead) -> list[Instruction]:
        assert self._plan is not None
        if event.data is None:
            self._cause = "a put was not answered and did not arrive"
            return self._put_plan(event.number)
        entry = self._decode(event)
        if isinstance(entry, Plan) and entry.claim == self.claim.claim and entry.same_data(self._plan):
            return self._planned(event.number)
        if isinstance(entry, Request) and entry.claim == self.claim.claim:
            taken = self._take_up(entry)
            self._deletions.append_failed(event.number)
            self._deletions.append_issued(self._next_number)
            return [*taken, do.PutEntry(self.ticket(), self._next_number, encode(self._plan))]
        return self._fenced(event.number, entry)

    def _plan_read_failed(self, event: ev.ReadFailed) -> list[Instruction]:
        """The put decides as well as a read does: our own entry makes it EXISTS, and it is read again."""
        self._cause = event.message
        return self._put_plan(self._next_number)

    def _planned(self, number: int) -> list[Instruction]:
        self._next_number = number + 1
        self._attempt = 0
        self._plan_ms = self.now_ms - self._asked_ms
        self._pending = self._new_pending(number, self._asked_ms)
        self.phase = RunPhase.RUNNING
        self.statistics.triggered += 1
        return [
            *self._cancel(ev.Timer.PLAN),
            self._barrier(),
            do.Announce(
                Announcement.TRIGGERED, replace(Summary(self.claim.run, self._epoch, self._asked_ms), plan_ms=self._plan_ms).to_json()
            ),
            *self._delete(self._deletions.append_stored(number, self._named_by_pending())),
        ]

    # --- acks

    def _ack(self, event: ev.AckReceived) -> list[Instruction]:
        ack = event.ack
        mine = (ack.run, ack.epoch) == (self.claim.run, self._epoch)
        gone = next((o for o in sorted({h.object for h in ack.snapshot.handles}) if o in self._released), None)
        if gone is not None and self._pending is not None:
            cause = f"it names {gone}, which was released"
            return self._decline(ev.DeclineReceived(Decline(ack.run, ack.epoch, ack.snapshot.store, ack.snapshot.uid, ack.executor, cause)))
        if self._pending is None and self.phase in (RunPhase.IDLE, RunPhase.PLANNING) and mine:
            self._early.append(ack)
            return []
        result = self._pending.acknowledge(ack) if self._pending else AckResult.DISCARDED
        self.statistics.acks[result] += 1
        if result is AckResult.SUCCESS:
            names = {h.object for h in ack.snapshot.handles}
            self._deletions.keep(names)
            for name in names:
                self._strays.pop(name, None)
            return self._maybe_finalise()
        if result is not AckResult.DUPLICATE:
            self._release([ack])
        return []

    def _decline(self, event: ev.DeclineReceived) -> list[Instruction]:
        if self._pending is None:
            return []
        self._pending.decline(event.decline)
        return self._maybe_refuse()

    def _maybe_refuse(self) -> list[Instruction]:
        refused = self._pending.refused if self._pending and self.phase is RunPhase.SEALED else None
        if refused is None:
            return []
        store = refused.store
        return self._abort(
            AbortReason.DECLINED,
            ErrorKind.DECLINED,
            f"executor {refused.executor} could not store operator {store.operator} partition {store.partition} of epoch "
            f"{self._epoch}: {refused.cause}",
        )

    def _release(self, acks: Iterable[Ack]) -> None:
        """What losing and aborted attempts uploaded may go once a later checkpoint completes, less all that anything names."""
        own = run_prefix(self.claim.run)
        epoch = self._epoch - 1 if self.phase is RunPhase.IDLE else self._epoch
        for ack in acks:
            for handle in ack.snapshot.handles:
                if handle.object.startswith(own):
                    self._strays[handle.object] = epoch

    # --- executors

    def _holding(self, event: ev.HoldingReceived) -> list[Instruction]:
        self._executors.holds(event.executor, event.held)
        return []

    def _executor_lost(self, event: ev.ExecutorLost) -> list[Instruction]:
        self._executors.lost(event.executor)
        return self._maybe_grace()

    def _maybe_grace(self) -> list[Instruction]:
        waiting = ev.Timer.GRACE in self._timers or self._left is not None
        if self.phase is RunPhase.SEALED and self._executors.losses > self._losses_seen and not waiting:
            return self._set(ev.Timer.GRACE, self._settings.grace_ms)
        return []

    def _grace_over(self) -> list[Instruction]:
        """An agent outlives its executor and leaves its acks in the storage; look there before giving up."""
        self._left = self.ticket()
        return [do.ReadLeftAcks(self._left, self.claim.run, self._epoch)]

    def _left_acks(self, event: ev.LeftAcksRead) -> list[Instruction]:
        instructions: list[Instruction] = []
        self._left = None
        for ack in event.acks:
            if self.phase is RunPhase.SEALED:
                instructions += self._ack(ev.AckReceived(ack))
        if self.phase is not RunPhase.SEALED or self._pending is None:
            return instructions
        lost = self._pending.missing - self._executors.held
        return instructions + (self._lost(lost) if lost else self._maybe_grace())

    def _left_acks_failed(self, _event: ev.ReadFailed) -> list[Instruction]:
        self._left = None
        return self._maybe_grace()

    def _lost(self, uids: frozenset[str]) -> list[Instruction]:
        """The epoch runs again in place, under the same plan: this attempt's acks are discarded, a new one is pending."""
        assert self._pending is not None
        old = self._pending
        message = f"{len(uids)} of {len(old.required)} snapshots of epoch {self._epoch} died with their executor; it has to run again"
        aborted = self._aborted(AbortReason.LOST, message)
        self._release(old.discard())
        self._pending = self._new_pending(old.log, self.now_ms)
        self.phase = RunPhase.RUNNING
        return [*self._cancel(ev.Timer.SEAL, ev.Timer.GRACE), do.Refused(RequestName.SEAL, ErrorKind.LOST, message), aborted]

    # --- seal

    def _seal(self, event: ev.SealRequested) -> list[Instruction]:
        if event.epoch != self._epoch or self._pending is None:
            return [self._out_of_order(RequestName.SEAL, event.epoch)]
        try:
            required = required_ids(event.epoch, event.commit)
        except FormatError as error:
            return self._abort(AbortReason.BAD_COMMIT, error.kind, str(error), RequestName.SEAL)
        self._files.apply({**event.files, commits_file(event.epoch): event.commit})
        previous = {s.uid: s for s in self._store.newest.snapshots} if self._store.newest else {}
        self._release(self._pending.seal(required, previous, self.now_ms))
        self.phase = RunPhase.SEALED
        timer = self._set(ev.Timer.SEAL, self._settings.timeout_ms)
        refused = self._maybe_refuse()
        return [*timer, *(refused or self._maybe_finalise() or self._maybe_grace())]

    def _seal_again(self, event: ev.SealRequested) -> list[Instruction]:
        """Sent again because the coordinator that completed it died before it could answer."""
        newest = self._store.newest
        known = newest is not None and newest.id == CheckpointId(self.claim.run, event.epoch)
        if newest is None or not known or newest.files.get(commits_file(event.epoch)) != event.commit:
            return [self._out_of_order(RequestName.SEAL, event.epoch)]
        told = self._last_summary or Summary(newest.id.run, newest.id.epoch, newest.time_ms, full_bytes=newest.size)
        return [do.Sealed(told.to_json())]

    def _maybe_finalise(self) -> list[Instruction]:
        if self.phase is not RunPhase.SEALED or self._pending is None or self._pending.missing:
            return []
        pending = self._pending
        self.phase = RunPhase.STORING
        self.forget(self._left)
        self._left = None
        self._finalise_from = self.now_ms
        self._attempt = 0
        self._cause = ""
        told = self._summary(full_bytes=sum(s.size for s in pending.snapshots))
        self._checkpoint = Checkpoint(
            pending.id,
            pending.log,
            self.claim.claim,
            self.claim.query_id,
            pending.triggered_ms,
            self.claim.job,
            needed(self._files.as_mapping(), self._epoch),
            pending.snapshots,
            {k: v for k, v in told.to_json().items() if k not in ("run", "epoch", "time_ms", "metadata_bytes", "finalise_ms")},
        )
        return [*self._cancel(ev.Timer.GRACE), do.StoreMetadata(self.ticket(), self._checkpoint)]

    # --- finalise

    def _metadata_put(self, event: ev.MetadataPut) -> list[Instruction]:
        if event.outcome is Outcome.STORED:
            return self._completed(event.size)
        if event.outcome in (Outcome.EXISTS, Outcome.UNKNOWN):
            self.phase = RunPhase.READING_BACK
            return [do.ReadMetadata(self.ticket(), event.id)]
        self._cause = event.message
        if event.outcome is Outcome.REFUSED:
            return self._abort(
                AbortReason.FINALISE_FAILURE,
                ErrorKind.STORAGE,
                f"_metadata of checkpoint {self._epoch} could not be stored: {event.message}",
            )
        return self._store_again()

    def _store_again(self) -> list[Instruction]:
        assert self._checkpoint is not None
        self.phase = RunPhase.STORING
        self._attempt += 1
        return [do.StoreMetadata(self.ticket(), self._checkpoint, self._attempt)]

    def _metadata_read_back(self, event: ev.MetadataRead) -> list[Instruction]:
        mine, theirs = self._checkpoint, event.checkpoint
        assert mine is not None
        if event.damage is not None or theirs is None:
            self._cause = event.damage or "a put was not answered and did not arrive"
            return self._store_again()
        if replace(theirs, time_ms=0, counters={}) == replace(mine, time_ms=0, counters={}):
            return self._completed(0)
        return self._abort(
            AbortReason.FINALISE_FAILURE,
            ErrorKind.CONFLICT,
            f"there is another _metadata for checkpoint {self._epoch} of run {self.claim.run}; start the query again",
        )

    def _read_back_failed(self, event: ev.ReadFailed) -> list[Instruction]:
        self._cause = event.message
        return self._store_again()

    def _completed(self, metadata_bytes: int) -> list[Instruction]:
        checkpoint = self._checkpoint
        assert checkpoint is not None
        told = self._summary(full_bytes=checkpoint.size, metadata_bytes=metadata_bytes, finalise_ms=self.now_ms - self._finalise_from)
        self._registry.register(checkpoint)
        dropped = self._store.add(checkpoint)
        ready = [name for name, released in self._strays.items() if released < self._epoch]
        named = self._registry.named()
        for name in ready:
            del self._strays[name]
        self._deletions.drop([c.id for c in dropped], [name for name in ready if name not in named])
        self._files.forget_before(self._epoch - 1)
        self.statistics.completed += 1
        self._last_summary = told
        self._pending = self._checkpoint = self._plan = None
        self._epoch += 1
        self.phase = RunPhase.IDLE
        return [
            *self._cancel(ev.Timer.SEAL, ev.Timer.GRACE),
            do.Sealed(told.to_json()),
            do.Announce(Announcement.COMPLETED, told.announcement()),
            *self._set(ev.Timer.IDLE, self._settings.idle_ms),
        ]

    TABLE: ClassVar = {
        (RunPhase.IDLE, ev.TriggerRequested): "_trigger",
        (RunPhase.IDLE, ev.SealRequested): "_seal_again",
        (RunPhase.IDLE, ev.EntryRead): "_looked",
        (RunPhase.IDLE, ev.ReadFailed): "_look_failed",
        (RunPhase.PLANNING, ev.EntryPut): "_plan_put",
        (RunPhase.PLANNING, ev.EntryRead): "_plan_read_back",
        (RunPhase.PLANNING, ev.ReadFailed): "_plan_read_failed",
        (RunPhase.RUNNING, ev.TriggerRequested): "_trigger_again",
        (RunPhase.RUNNING, ev.SealRequested): "_seal",
        (RunPhase.SEALED, ev.LeftAcksRead): "_left_acks",
        (RunPhase.SEALED, ev.ReadFailed): "_left_acks_failed",
        (RunPhase.STORING, ev.MetadataPut): "_metadata_put",
        (RunPhase.READING_BACK, ev.MetadataRead): "_metadata_read_back",
        (RunPhase.READING_BACK, ev.ReadFailed): "_read_back_failed",
        (RunPhase.REPORTING, ev.EntryPut): "_damage_put",
        (RunPhase.REPORTING, ev.EntryRead): "_damage_read_back",
        (RunPhase.REPORTING, ev.ReadFailed): "_report_failed",
        (RunPhase.ENDING, ev.EntryPut): "_end_put",
        (RunPhase.ENDING, ev.EntryRead): "_end_read_back",
        (RunPhase.ENDING, ev.ReadFailed): "_end_failed",
        **{(phase, ev.TimerFired): "_timer_fired" for phase in LIVE},
        **{(phase, ev.AckReceived): "_ack" for phase in LIVE},
        **{(phase, ev.DeclineReceived): "_decline" for phase in LIVE},
        **{(phase, ev.HoldingReceived): "_holding" for phase in LIVE},
        **{(phase, ev.ExecutorLost): "_executor_lost" for phase in LIVE},
        **{(phase, ev.DamageReported): "_damage_reported" for phase in LIVE},
        **{(phase, ev.Deleted): "_deleted" for phase in RunPhase},
        **{(phase, ev.StopRequested): "_stop" for phase in RunPhase},
        **{(phase, ev.TriggerRequested): "_refuse_trigger" for phase in OVER},
        **{(phase, ev.SealRequested): "_refuse_seal" for phase in OVER},
        **{(phase, ev.AckReceived): "_late_ack" for phase in OVER},
        **{(phase, signal): "nothing" for phase in OVER for signal in _IGNORED_WHEN_OVER},
    }
