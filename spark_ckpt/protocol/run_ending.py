"""The last things of a run: damage found, the query's stop, the stream's end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping

from spark_ckpt.errors import ErrorKind, without_way_out
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.deletion import Batch
from spark_ckpt.protocol.entries import Damage, End, Plan, Request, encode
from spark_ckpt.protocol.instructions import Instruction, Level, RequestName
from spark_ckpt.protocol.reasons import Outcome
from spark_ckpt.protocol.run_log import RunLog
from spark_ckpt.protocol.run_state import OVER, RunPhase

REPORT_ATTEMPTS = 3
_END_UNKNOWN = (
    "nothing was deleted (spark.ckpt.onStop=DELETE): the stream's end could not be noted in its log, or it is not known whether it is "
    "there; see `spark-ckpt list`"
)
_WHILE_LIVE: Mapping[type, str] = {
    ev.TimerFired: "_timer_fired",
    ev.AckReceived: "_ack",
    ev.DeclineReceived: "_decline",
    ev.HoldingReceived: "_holding",
    ev.ExecutorLost: "_executor_lost",
    ev.DamageReported: "_damage_reported",
    ev.SavepointStored: "_savepoint_stored",
    ev.RequestAnswered: "_request_answered",
    ev.FileStored: "_file_put",
    ev.OldEntriesListed: "_old_listed",
    ev.PlansRead: "_plans_read",
    ev.EntriesDeleted: "_entries_deleted",
    ev.TrimFailed: "_trim_failed",
}
_WHEN_OVER: Mapping[type, str] = {
    ev.TriggerRequested: "_refuse_trigger",
    ev.SealRequested: "_refuse_seal",
    ev.FinishRequested: "_refuse_finish",
    ev.AckReceived: "nothing",
    ev.DeclineReceived: "nothing",
    ev.HoldingReceived: "nothing",
    ev.ExecutorLost: "nothing",
    ev.DamageReported: "nothing",
    ev.EntriesDeleted: "_last_entries_deleted",
    ev.TrimFailed: "_trim_failed",
}


class RunEnding(RunLog):
    """Transitions out of the run, and those after it."""

    @abstractmethod
    def _stopped_in_hand(self, message: str) -> list[Instruction]:
        """The query stops: what is told of the checkpoints in the making."""

    def _refuse_trigger(self, _event: ev.TriggerRequested) -> list[Instruction]:
        return [do.Refused(RequestName.TRIGGER, *self._failure)]

    def _refuse_seal(self, _event: ev.SealRequested) -> list[Instruction]:
        return [do.Refused(RequestName.SEAL, *self._failure)]

    def _damage_reported(self, event: ev.DamageReported) -> list[Instruction]:
        """Note it in the log, so that the next claim goes back further. A successor's claim there: fenced, nothing is damaged."""
        known = self._registry.checkpoints
        bad = {c for c in known if c == event.checkpoint or (event.object is not None and event.object in self._registry.objects(c))}
        if not bad:
            return [do.Log(Level.ERROR, f"state could not be loaded: {event.cause}")]
        cause = without_way_out(event.cause)
        self._damage = Damage(self.claim.claim, self.claim.run, tuple(sorted(bad | set(self.claim.bad))), cause, self._floor)
        named = ", ".join(f"run {c.run} epoch {c.epoch}" for c in sorted(bad))
        message = f"checkpoint {named} cannot be restored ({cause}); the next start goes back to the one before it"
        refused = self._refuse_open(ErrorKind.DAMAGED, message)
        number = self._next_number
        self._attempt = 0
        cancelled = self._over(RunPhase.REPORTING, ErrorKind.DAMAGED, message)
        return [*cancelled, *refused, do.Log(Level.ERROR, message), do.PutEntry(self.ticket(), number, encode(self._damage))]

    def _damage_put(self, event: ev.EntryPut) -> list[Instruction]:
        assert self._damage is not None
        if event.outcome is Outcome.STORED:
            return self._reported()
        if event.outcome is Outcome.EXISTS:
            return [do.ReadEntry(self.ticket(), event.number)]
        self._attempt += 1
        if event.outcome is Outcome.REFUSED or self._attempt >= REPORT_ATTEMPTS:
            return self._reported(do.Log(Level.ERROR, f"the damage could not be noted in the log: {event.message}"))
        return [do.PutEntry(self.ticket(), event.number, encode(self._damage), self._attempt)]

    def _damage_read_back(self, event: ev.EntryRead) -> list[Instruction]:
        assert self._damage is not None
        entry = self._decode(event) if event.data is not None else None
        if entry is not None and entry.claim != self.claim.claim:
            return [*self._fenced(event.number, entry), *self._stopped_meanwhile()]
        if isinstance(entry, (Plan, Request)):
            self._next_number = event.number + 1
            return [do.PutEntry(self.ticket(), self._next_number, encode(self._damage))]
        return self._reported()

    def _report_failed(self, _event: ev.ReadFailed) -> list[Instruction]:
        return self._reported()

    def _reported(self, *said: Instruction) -> list[Instruction]:
        self.phase = RunPhase.FAILED
        return [*said, *self._stopped_meanwhile()]

    def _stop_after_report(self, _event: ev.StopRequested) -> list[Instruction]:
        """Without the note the next start would load the same damage: the query's stop waits for it."""
        self._stop_waits = True
        return []

    def _stopped_meanwhile(self) -> list[Instruction]:
        return [do.Stopped()] if self._stop_waits else []

    def _stop(self, event: ev.StopRequested) -> list[Instruction]:
        message = f"the query stopped while epoch {self._epoch} was in hand"
        refused = self._refuse_open(ErrorKind.INTERNAL, message)
        instructions = [*refused, *self._stopped_in_hand(message)]
        ending = event.delete and not event.failed and self.phase not in OVER
        in_hand = self._replaced.in_hand if self._replaced and self.claim.ahead else -1
        before = self.claim.used if self.claim.used is not None else -1
        self._used = max([before, self._last_triggered(), in_hand, *self._recorded])
        self._going = self._everything() if ending else Batch((), ())
        cancelled = self._over(RunPhase.ENDING if ending else RunPhase.STOPPED, ErrorKind.CONFLICT, "the query was stopped; start it again")
        if ending:
            self._awaited.update(self._puts)
            self._attempt = 0
            return [*cancelled, *instructions, self._put_end()]
        return [*cancelled, *instructions, do.Stopped()]

    def _everything(self) -> Batch:
        """That the stream has in the storage, as far as this run remembers."""
        queued = self._deletions.queued
        checkpoints = self._registry.checkpoints.union(self._finalising(), self._puts.values(), queued.checkpoints)
        objects = self._registry.named().union(self._named_by_pending(), self._strays, queued.objects)
        objects |= self._deletions.planned.objects | self._large.names
        return Batch(tuple(sorted(checkpoints)), tuple(sorted(objects)))

    def _put_end(self) -> Instruction:
        end = End(self.claim.claim, self.claim.run, self._used, self._floor)
        return do.PutEntry(self.ticket(), self._next_number, encode(end), self._attempt)

    def _end_put(self, event: ev.EntryPut) -> list[Instruction]:
        """Once the end is in the log, nobody will ask for these checkpoints: all go."""
        if event.outcome in (Outcome.UNKNOWN, Outcome.FAILED) and self._attempt < REPORT_ATTEMPTS:
            self._attempt += 1
            return [self._put_end()]
        if event.outcome is Outcome.EXISTS:
            return [do.ReadEntry(self.ticket(), event.number)]
        return self._look_past_end() if event.outcome is Outcome.STORED else self._ended(False)

    def _end_read_back(self, event: ev.EntryRead) -> list[Instruction]:
        entry = self._decode(event) if event.data is not None else None
        if isinstance(entry, (Plan, Request)) and entry.claim == self.claim.claim:
            self._next_number = event.number + 1
            return [self._put_end()]
        return self._look_past_end() if isinstance(entry, End) and entry.claim == self.claim.claim else self._ended(False)

    def _end_failed(self, _event: ev.ReadFailed) -> list[Instruction]:
        if self._attempt < REPORT_ATTEMPTS:
            self._attempt += 1
            return [do.ReadEntry(self.ticket(), self._next_number, self._attempt)]
        return self._ended(False)

    def _look_past_end(self) -> list[Instruction]:
        """Everything goes on the strength of it, so it must not stand in a hole of the log (`log_trim.py`)."""
        return [do.LookPast(self.ticket(), self._next_number)]

    def _past_end(self, event: ev.PastSeen) -> list[Instruction]:
        if event.found is None:
            return self._ended(True)
        entry = self._decode_past(event)
        own = isinstance(entry, Request) and entry.claim == self.claim.claim
        return [do.LookPast(self.ticket(), event.found)] if own else self._ended(False)

    def _ended(self, noted: bool) -> list[Instruction]:
        if not noted:
            self.phase = RunPhase.STOPPED
            return [do.Log(Level.WARN, _END_UNKNOWN), do.Stopped()]
        self.phase = RunPhase.ENDED
        return self._gone()

    def _late_put(self, event: ev.MetadataPut) -> list[Instruction]:
        del self._puts[event.ticket]
        return self._gone() if self.phase is RunPhase.ENDED else []

    def _gone(self) -> list[Instruction]:
        """`_metadata` that is on its way would land after its deletion: that waits until every put is answered."""
        if self._puts:
            return []
        self.phase = RunPhase.STOPPED
        return [*self._delete(self._going, at_last=True), do.Stopped()]


def of_either_mode(live: Iterable[RunPhase]) -> dict[tuple[RunPhase, type], str]:
    """The rows of `Machine.TABLE` that do not depend on the mode, whose phases before the end are `live`."""
    return {
        **{(phase, event): name for phase in live for event, name in _WHILE_LIVE.items()},
        (RunPhase.REPORTING, ev.EntryPut): "_damage_put",
        (RunPhase.REPORTING, ev.EntryRead): "_damage_read_back",
        (RunPhase.REPORTING, ev.ReadFailed): "_report_failed",
        (RunPhase.ENDING, ev.EntryPut): "_end_put",
        (RunPhase.ENDING, ev.EntryRead): "_end_read_back",
        (RunPhase.ENDING, ev.ReadFailed): "_end_failed",
        (RunPhase.ENDING, ev.PastSeen): "_past_end",
        (RunPhase.ENDING, ev.MetadataPut): "_late_put",
        (RunPhase.ENDED, ev.MetadataPut): "_late_put",
        **{(phase, event): name for phase in OVER for event, name in _WHEN_OVER.items()},
        **{(phase, ev.Deleted): "_deleted" for phase in RunPhase},
        **{(phase, ev.StopRequested): "_stop" for phase in RunPhase},
        (RunPhase.REPORTING, ev.StopRequested): "_stop_after_report",
    }
