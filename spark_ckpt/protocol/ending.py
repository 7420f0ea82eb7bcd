"""The last entry of a run: damage that it found, or the stream's end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.context import Context
from spark_ckpt.protocol.durable_put import Known, put_entry
from spark_ckpt.protocol.entries import Damage, End, Entry, Plan, Request, encode, entry_in
from spark_ckpt.protocol.instructions import Instruction, Level
from spark_ckpt.protocol.log import RunLog
from spark_ckpt.protocol.retention.deletion import Batch

ATTEMPTS = 4
Settled = Callable[[Known, int, Entry | None, str], list[Instruction]]
"""What became of the put of an entry of that number, what stands there where it is taken, and why an attempt did not succeed."""


class EndingOwner(Protocol):
    """The run, as its last entry sees it."""

    def damage_noted(self, *said: Instruction) -> list[Instruction]:
        """Or not, where that was not possible."""

    def fenced(self, number: int, entry: Entry | None) -> list[Instruction]: ...

    def end_noted(self, noted: bool) -> list[Instruction]:
        """False: nobody knows."""

    def all_landed(self) -> list[Instruction]:
        """A put of `_metadata` was answered; perhaps the last."""


class Ending:
    """A plan or a request may stand where it was to go: then it goes behind that."""

    def __init__(self, owner: EndingOwner, context: Context, log: RunLog) -> None:
        self.landing: set[int] = set()
        """Puts of `_metadata` that were under way when the run was over."""
        self.forgotten = False
        """Whether one that was put and not known to be stored when the run was over may be there, with files that nobody remembers."""
        self.stop: ev.StopRequested | None = None
        """The query's, which waits until damage is noted."""
        self.going = Batch((), ())
        """All that the stream has, once its end is noted."""
        self._owner = owner
        self._context = context
        self._log = log

    def await_puts(self, tickets: Iterable[int]) -> None:
        """Nobody else waits for them any more."""

        def answered(event: ev.MetadataPut) -> list[Instruction]:
            self.landing.discard(event.ticket)
            return self._owner.all_landed()

        for ticket in tickets:
            self.landing.add(ticket)
            self._context.questions.hand_over(ticket, answered)

    def stopped_meanwhile(self, why_kept: str) -> list[Instruction]:
        return [*kept(self.stop, why_kept), do.Stopped()] if self.stop else []

    def note_damage(self, damage: Damage) -> list[Instruction]:
        """So that the next claim goes back further. A successor's claim there: fenced, nothing is damaged."""

        def known(known: Known, number: int, there: Entry | None, cause: str) -> list[Instruction]:
            if known is Known.TAKEN and there is not None and there.claim != self._context.claim.claim:
                return self._owner.fenced(number, there)
            if known in (Known.HOPELESS, Known.TRIED_OUT):
                return self._owner.damage_noted(do.Log(Level.ERROR, f"the damage could not be noted in the log: {cause}"))
            return self._owner.damage_noted()

        return self._append(damage, known)

    def note_end(self, end: End) -> list[Instruction]:
        """Everything goes on the strength of it, so it must not stand in a hole of the log (`log_trim.py`)."""

        def known(known: Known, number: int, _there: Entry | None, _cause: str) -> list[Instruction]:
            return self._look_past(number) if known is Known.STORED else self._owner.end_noted(False)

        return self._append(end, known)

    def _append(self, last: Damage | End, settled: Settled) -> list[Instruction]:
        """Behind plans of the run and requests to it."""
        number = self._log.next_number

        def known(known: Known, event: ev.EntryPut | ev.EntryRead) -> list[Instruction]:
            there = entry_in(number, event.data) if known is Known.TAKEN and isinstance(event, ev.EntryRead) else None
            if isinstance(there, (Plan, Request)) and there.claim == self._context.claim.claim:
                self._log.next_number = number + 1
                return self._append(last, settled)
            return settled(known, number, there, put.cause)

        put = put_entry(self._context.questions, number, encode(last), known, ATTEMPTS)
        return put.begin()

    def _look_past(self, number: int, attempt: int = 0) -> list[Instruction]:
        def seen(found: int | None, _entry: Entry | None) -> list[Instruction]:
            return self._owner.end_noted(found is None)

        def not_seen(_event: ev.ReadFailed) -> list[Instruction]:
            return self._look_past(number, attempt + 1) if attempt + 1 < ATTEMPTS else self._owner.end_noted(False)

        return self._log.look_past(number, seen, not_seen, attempt)


def kept(stop: ev.StopRequested, why: str) -> list[Instruction]:
    """Said of a stop that was to delete the stream's checkpoints, and does not."""
    return [nothing_deleted(why)] if stop.delete else []


def nothing_deleted(why: str) -> Instruction:
    return do.Log(Level.WARN, f"nothing was deleted (spark.ckpt.onStop=DELETE): {why}; see `spark-ckpt list`")
