"""What a start, or a coordinator that takes the place of another one, has read of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum

from spark_ckpt.errors import ErrorKind
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.entries import Entry, decode
from spark_ckpt.protocol.instructions import Instruction, LocateTail, ReadEntry
from spark_ckpt.protocol.start.recovery import Next, Recovery, UnlessMovedOnError


class LogRead:
    """The log, as far as it was read. `tail`: as it was located."""

    def __init__(self, recovery: Recovery) -> None:
        self.tail = 0
        self.entries: dict[int, Entry] = {}
        self._recovery = recovery

    def locate(self, phase: Enum, then: Next) -> list[Instruction]:
        def located(event: ev.TailLocated) -> list[Instruction]:
            self.tail = event.number
            return then()

        return self._recovery.ask(phase, LocateTail, located)

    def read_one(self, phase: Enum, number: int, then: Callable[[Entry], list[Instruction]]) -> list[Instruction]:
        """One that must be there."""
        return self._recovery.ask(phase, lambda ticket: ReadEntry(ticket, number), lambda event: then(self.take(event)))

    def read(
        self, phase: Enum, numbers: Iterable[int], then: Next, may_be_gone: Callable[[int], bool] = lambda _: False
    ) -> list[Instruction]:
        """Those which have not been read. `may_be_gone`: nothing is said where one of these is missing."""

        def each(event: ev.EntryRead) -> None:
            if event.data is not None or not may_be_gone(event.number):
                self.take(event)

        return self._recovery.ask_each(phase, [n for n in numbers if n not in self.entries], ReadEntry, each, then)

    def take(self, event: ev.EntryRead) -> Entry:
        """An entry that must be there: above its floor the log has no gap. Raises `UnlessMovedOnError`."""
        if event.data is None:
            raise UnlessMovedOnError(
                ErrorKind.DAMAGED,
                f"log entry {event.number} is missing, although there are later ones; put it back, or go on from one of the stream's "
                "checkpoints with spark.ckpt.restore.path, a new checkpointLocation and a new output path",
            )
        entry = decode(event.number, event.data)
        self.entries[event.number] = entry
        return entry
