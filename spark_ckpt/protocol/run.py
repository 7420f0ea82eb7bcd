"""One run in the every-epoch mode: plan, snapshots, seal, `_metadata`; epoch after epoch."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import Any, ClassVar

from spark_ckpt.errors import ErrorKind, FormatError
from spark_ckpt.model import Ack, Checkpoint, CheckpointId, Decline
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.commit import required_ids
from spark_ckpt.protocol.driver_files import commits_file, needed, offsets_file
from spark_ckpt.protocol.entries import Plan
from spark_ckpt.protocol.instructions import Announcement, Instruction, RequestName
from spark_ckpt.protocol.machine import Story, Tickets
from spark_ckpt.protocol.pending import PendingCheckpoint
from spark_ckpt.protocol.reasons import AbortReason, AckResult, Outcome
from spark_ckpt.protocol.run_ending import of_either_mode
from spark_ckpt.protocol.run_requests import RunRequests
from spark_ckpt.protocol.run_state import RunPhase, Settings
from spark_ckpt.protocol.start import Beginning
from spark_ckpt.protocol.stats import Summary, summary_of

__all__ = ["Run", "RunPhase", "Settings"]


_LIVE = (RunPhase.IDLE, RunPhase.PLANNING, RunPhase.RUNNING, RunPhase.SEALED, RunPhase.STORING, RunPhase.READING_BACK)
_OPEN_REQUEST = {
    RunPhase.PLANNING: RequestName.TRIGGER,
    RunPhase.SEALED: RequestName.SEAL,
    RunPhase.STORING: RequestName.SEAL,
    RunPhase.READING_BACK: RequestName.SEAL,
}


class Run(RunRequests):
    """Begins with what `Start` or `Resume` found out."""

    def __init__(self, beginning: Beginning, settings: Settings, tickets: Tickets, story: Story) -> None:
        super().__init__(beginning, settings, tickets, story)
        self._losses_seen = 0
        self._early: list[Ack] = []
        self._pending: PendingCheckpoint | None = None
        self._checkpoint: Checkpoint | None = None
        self._told: Summary | None = None
        self._last_summary: Summary | None = None
        self._left: int | None = None
        self._finalise_from = 0
        if beginning.plan:
            self._pending = self._new_pending(self._numbers[beginning.epoch], beginning.claim.time_ms)

    def begin(self, now_ms: int) -> list[Instruction]:
        """What a new run does first."""
        self.now_ms = now_ms
        self._deletions.drop(self._free(self._store.cut()))
        puts = self._take_over()
        if self.phase is RunPhase.IDLE:
            return [*puts, *self._turn_away_lost(), *self._set(ev.Timer.IDLE, self._settings.idle_ms)]
        if self._pending:
            self._pending.triggered_ms = now_ms
        self._asked_ms = now_ms
        told = do.Announce(Announcement.TRIGGERED, Summary(self.claim.run, self._epoch, now_ms).to_json())
        return [*puts, *self._turn_away_lost(), told]

    # --- the checkpoint in hand

    def _new_pending(self, number: int, triggered_ms: int) -> PendingCheckpoint:
        pending = PendingCheckpoint(CheckpointId(self.claim.run, self._epoch), number, triggered_ms)
        early, self._early = self._early, []
        for ack in early:
            pending.acknowledge(ack)
        self._losses_seen = self._executors.losses
        return pending

    def _named_by_pending(self) -> frozenset[str]:
        acks = self._pending.acks.values() if self._pending else ()
        return frozenset(h.object for a in [*acks, *self._early] for h in a.snapshot.handles)

    def _lowest_pending(self) -> int | None:
        return None  # it is newer than every one that is complete

    def _finalising(self) -> frozenset[CheckpointId]:
        return frozenset([self._checkpoint.id] if self._checkpoint else [])

    def _discard_pending(self) -> None:
        if self._pending:
            self._pending.discard()

    def _open_requests(self) -> list[RequestName]:
        request = _OPEN_REQUEST.get(self.phase)
        return [*([request] if request else []), *super()._open_requests()]

    def _summary(self, **numbers: Any) -> Summary:
        assert self._pending is not None
        return summary_of(self._pending, self.now_ms, self._plan_ms, **numbers)

    def _aborted(self, reason: AbortReason, message: str) -> Instruction:
        told = self._summary() if self._pending is not None else Summary(self.claim.run, self._epoch, self._asked_ms)
        return do.Announce(Announcement.ABORTED, replace(told, reason=reason.value, message=message))

    def _abort(self, reason: AbortReason, kind: ErrorKind, message: str) -> list[Instruction]:
        """The query fails. Nothing is deleted: what was uploaded is the successor's garbage."""
        aborted = self._aborted(reason, message)
        refused = self._refuse_open(kind, message)
        return [*self._over(RunPhase.FAILED, kind, message), *refused, aborted]

    def _stopped_in_hand(self, message: str) -> list[Instruction]:
        return [self._aborted(AbortReason.STOPPED, message)] if self._pending is not None and self.phase in _LIVE else []

    # --- timers

    def _timer_fired(self, event: ev.TimerFired) -> list[Instruction]:
        self._timers.pop(event.timer, None)
        if event.timer is ev.Timer.IDLE:
            return self._look_at_log() if self.phase is RunPhase.IDLE else []
        if event.timer is ev.Timer.GRACE:
            return self._grace_over() if self.phase is RunPhase.SEALED else []
        if event.timer is ev.Timer.PLAN:
            return self._plan_timed_out()
        waited = f"within {self._settings.timeout_ms} ms (spark.ckpt.timeout)"
        if self.phase is RunPhase.SEALED:
            assert self._pending is not None
            missing, needed_acks = len(self._pending.missing), len(self._pending.required)
            return self._abort(
                AbortReason.EXPIRED,
                ErrorKind.TIMEOUT,
                f"checkpoint {self._epoch} did not complete {waited}: {missing} of {needed_acks} snapshots are not stored yet; "
                "see the agents' log lines"
                if missing
                else f"checkpoint {self._epoch} did not complete {waited}: a file of the driver could not be stored: {self._cause}",
            )
        return self._abort(
            AbortReason.EXPIRED,
            ErrorKind.TIMEOUT,
            f"_metadata of checkpoint {self._epoch} could not be stored {waited}: {self._cause or 'no answer'}",
        )

    # --- trigger

    def _planned(self, plan: Plan) -> list[Instruction]:
        return [*self._stop_looking(), *self._set(ev.Timer.PLAN, self._settings.timeout_ms), *self._append_plan(plan)]

    def _trigger_again(self, event: ev.TriggerRequested) -> list[Instruction]:
        """Sent again because the coordinator that got it first died."""
        if event.epoch != self._epoch or self._plan is None or not self._plan.same_data(Plan(0, 0, event.epoch, event.offsets)):
            return [self._out_of_order(RequestName.TRIGGER, event.epoch)]
        written, puts = self._taken_in(event.files, event.epoch)
        self._files.apply({**written, offsets_file(event.epoch): event.offsets})
        return [*puts, self._barrier()]

    def _barrier(self) -> Instruction:
        return do.Triggered(self.claim.run, self._epoch, self.base, self.now_ms, version=self._version, sparse=self._sparse)

    def _plan_failed(self, kind: ErrorKind, message: str) -> list[Instruction]:
        return self._abort(AbortReason.PLAN_FAILURE, kind, message)

    def _proceed(self, pressure: bool = False) -> list[Instruction]:  # noqa: ARG002
        if self.phase is not RunPhase.IDLE:
            return []
        newest = self._store.newest
        copies = self._desk.copy(newest, self._finishing is not None) if newest else self._nothing_to_save()
        return [*copies, *self._maybe_finished()]

    def _plan_stored(self, number: int) -> list[Instruction]:
        self._plan_ms = self.now_ms - self._asked_ms
        self._pending = self._new_pending(self._numbers.pop(self._epoch, number), self._asked_ms)
        self.phase = RunPhase.RUNNING
        return [
            *self._cancel(ev.Timer.PLAN),
            self._barrier(),
            do.Announce(
                Announcement.TRIGGERED, replace(Summary(self.claim.run, self._epoch, self._asked_ms), plan_ms=self._plan_ms).to_json()
            ),
            *self._delete(self._deletions.append_stored(number, self._named_by_pending())),
        ]

    def _files_stored(self) -> list[Instruction]:
        return self._maybe_finalise()

    # --- acks

    def _ack(self, event: ev.AckReceived) -> list[Instruction]:
        ack = event.ack
        mine = (ack.run, ack.epoch) == (self.claim.run, self._epoch)
        gone = self._released_object(ack)
        if gone is not None and self._pending is not None:
            self._release([ack.snapshot])
            cause = f"it names {gone}, which was released"
            return self._decline(ev.DeclineReceived(Decline(ack.run, ack.epoch, ack.snapshot.store, ack.snapshot.uid, ack.executor, cause)))
        if self._pending is None and self.phase in (RunPhase.IDLE, RunPhase.PLANNING) and mine:
            self._early.append(ack)
            return []
        result = self._pending.acknowledge(ack) if self._pending else AckResult.DISCARDED
        if result is AckResult.SUCCESS:
            self._keep(h.object for h in ack.snapshot.handles)
            return self._maybe_finalise()
        if result is not AckResult.DUPLICATE:
            self._release([ack.snapshot])
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
        self._heard(event)
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

    def _lost(self, uids: Set[str]) -> list[Instruction]:
        """The epoch runs again in place, under the same plan: this attempt's acks are discarded, a new one is pending."""
        assert self._pending is not None
        old = self._pending
        message = f"{len(uids)} of {len(old.required)} snapshots of epoch {self._epoch} died with their executor; it has to run again"
        aborted = self._aborted(AbortReason.LOST, message)
        uploaded = old.discard()
        self._pending = self._new_pending(old.log, self.now_ms)
        self._release(uploaded)
        self.phase = RunPhase.RUNNING
        return [*self._cancel(ev.Timer.SEAL, ev.Timer.GRACE), do.Refused(RequestName.SEAL, ErrorKind.LOST, message), aborted]

    # --- seal

    def _seal(self, event: ev.SealRequested) -> list[Instruction]:
        if event.epoch != self._epoch or self._pending is None:
            return [self._out_of_order(RequestName.SEAL, event.epoch)]
        try:
            required = required_ids(event.epoch, event.commit)
        except FormatError as error:
            self.phase = RunPhase.SEALED
            return self._abort(AbortReason.BAD_COMMIT, error.kind, str(error))
        written, puts = self._taken_in(event.files, event.epoch)
        self._files.apply({**written, commits_file(event.epoch): event.commit})
        self._release(self._pending.seal(required, self._store.newest.snapshots if self._store.newest else ()))
        self.phase = RunPhase.SEALED
        timer = self._set(ev.Timer.SEAL, self._settings.timeout_ms)
        refused = self._maybe_refuse()
        return [*timer, *puts, *(refused or self._maybe_finalise() or self._maybe_grace())]

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
        pending, files = self._pending, needed(self._files.as_mapping(), self._epoch)
        if self._large.awaits(files.values()):
            return []
        self.phase = RunPhase.STORING
        self.forget(self._left)
        self._left = None
        self._finalise_from = self.now_ms
        self._attempt = 0
        self._cause = ""
        snapshots = pending.snapshots
        told = self._told = self._summary(full_bytes=sum(s.size for s in snapshots))
        self._checkpoint = Checkpoint(
            pending.id,
            pending.log,
            self.claim.claim,
            self.claim.query_id,
            pending.triggered_ms,
            self.claim.job,
            files,
            snapshots,
            {k: v for k, v in told.to_json().items() if k not in ("run", "epoch", "time_ms", "metadata_bytes", "finalise_ms")},
            log_from=self._log_from(pending.id.epoch),
            stream=self.claim.stream,
        )
        return [*self._cancel(ev.Timer.GRACE), self._put_metadata(self._checkpoint, self.ticket())]

    # --- finalise

    def _metadata_put(self, event: ev.MetadataPut) -> list[Instruction]:
        del self._puts[event.ticket]
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
        return [self._put_metadata(self._checkpoint, self.ticket(), self._attempt)]

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
        checkpoint, pending, told = self._checkpoint, self._pending, self._told
        assert checkpoint is not None
        assert pending is not None
        assert told is not None
        took, waited = self.now_ms - pending.triggered_ms, self.now_ms - self._finalise_from
        told = replace(told, duration_ms=took, metadata_bytes=metadata_bytes, finalise_ms=waited)
        self._registry.register(checkpoint)
        dropped = self._store.add(checkpoint)
        ready = [name for name, released in self._strays.items() if released < self._epoch]
        named = self._registry.named()
        for name in ready:
            del self._strays[name]
        self._deletions.drop(self._free(dropped), [name for name in ready if name not in named])
        self._files.forget_before(self._epoch - 1)
        self._last_summary = told
        self._pending = self._checkpoint = self._plan = self._told = None
        self._epoch += 1
        self.phase = RunPhase.IDLE
        return [
            *self._cancel(ev.Timer.SEAL, ev.Timer.GRACE),
            do.Sealed(told.to_json()),
            do.Announce(Announcement.COMPLETED, told),
            *self._set(ev.Timer.IDLE, self._settings.idle_ms),
            *self._proceed(),
        ]

    TABLE: ClassVar = {
        **of_either_mode(_LIVE),
        (RunPhase.IDLE, ev.TriggerRequested): "_trigger",
        (RunPhase.IDLE, ev.SealRequested): "_seal_again",
        (RunPhase.IDLE, ev.EntryRead): "_looked",
        (RunPhase.IDLE, ev.FinishRequested): "_finish",
        (RunPhase.IDLE, ev.ReadFailed): "_look_failed",
        (RunPhase.PLANNING, ev.EntryPut): "_plan_put",
        (RunPhase.PLANNING, ev.EntryRead): "_plan_read_back",
        (RunPhase.PLANNING, ev.ReadFailed): "_plan_read_failed",
        (RunPhase.PLANNING, ev.PastSeen): "_past_seen",
        (RunPhase.RUNNING, ev.TriggerRequested): "_trigger_again",
        (RunPhase.RUNNING, ev.SealRequested): "_seal",
        (RunPhase.SEALED, ev.LeftAcksRead): "_left_acks",
        (RunPhase.SEALED, ev.ReadFailed): "_left_acks_failed",
        (RunPhase.STORING, ev.MetadataPut): "_metadata_put",
        (RunPhase.READING_BACK, ev.MetadataRead): "_metadata_read_back",
        (RunPhase.READING_BACK, ev.ReadFailed): "_read_back_failed",
    }
