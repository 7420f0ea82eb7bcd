"""The stream as a start finds it: the end of its log, and the run that wrote it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from spark_ckpt.errors import ErrorKind, FormatError
from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.entries import Claim, Damage, End, Entry, Request, decode
from spark_ckpt.protocol.instructions import Instruction, ReadEntry
from spark_ckpt.protocol.start.log_read import LogRead
from spark_ckpt.protocol.start.phases import StartPhase
from spark_ckpt.protocol.start.recovery import GivenUpError, Recovery


@dataclass(frozen=True)
class LastRun:
    """`tail`: number of the log's last entry. `floor`: nobody asks for entries below it any more.

    `claim`: under which the last entry was written, None where the log is empty. `end`: the stream was deleted on purpose since. `damaged`:
    checkpoints of a stream that was not, which earlier runs have found damaged; and why, where the last run says so.
    """

    tail: int = 0
    floor: int = 0
    claim: Claim | None = None
    end: End | None = None
    damaged: Mapping[CheckpointId, str] = field(default_factory=dict)

    @property
    def living(self) -> Claim | None:
        """The last claim, unless the stream was deleted on purpose since."""
        return self.claim if self.end is None else None

    @property
    def next_run(self) -> int:
        return self.claim.run + 1 if self.claim else 1

    @property
    def used(self) -> int:
        """The highest number that the last claim knew to be used, -1 for none."""
        return self.claim.used if self.claim is not None and self.claim.used is not None else -1

    @property
    def may_be_unplanned(self) -> bool:
        """Epochs of the last run may have run without a plan, so what followed the origin runs anew in any case."""
        return self.claim is not None and self.claim.ahead > 0

    @property
    def stream(self) -> str:
        """Its name; empty: it has none yet."""
        return self.claim.stream if self.claim else ""


class LastRunReader:
    """Reads back from the log's tail to what says how the last run ended. `known`: what follows."""

    def __init__(self, recovery: Recovery, log: LogRead, known: Callable[[LastRun], list[Instruction]]) -> None:
        self._recovery = recovery
        self._log = log
        self._known = known
        self._before: dict[int, Entry] = {}
        """What stands before the log's tail, read from there back to the one of number `_back`."""
        self._back = 0

    def begin(self) -> list[Instruction]:
        return self._log.locate(StartPhase.LOCATING, self._tail_located)

    def _tail_located(self) -> list[Instruction]:
        if self._log.tail == 0:
            return self._known(LastRun())
        return self._log.read_one(StartPhase.READING_TAIL, self._log.tail, self._tail_read)

    def _tail_read(self, entry: Entry) -> list[Instruction]:
        if isinstance(entry, Claim):
            return self._run_known(entry, entry)
        self._back = self._log.tail
        return self._read([entry.claim, *self._further_back()])

    def _further_back(self) -> range:
        """As many entries as were read back already. Below the floor a run that slept may have stored its entry in a hole; from there on
        nothing was ever deleted."""
        tail = self._log.entries[self._log.tail]
        last, width = self._back, max(1, self._log.tail - self._back)
        self._back = max(last - width, tail.floor, tail.claim + 1)
        return range(self._back, last)

    def _read(self, numbers: list[int] | range) -> list[Instruction]:
        return self._recovery.ask_each(StartPhase.READING_CLAIM, numbers, ReadEntry, self._claim_read, self._all_read)

    def _claim_read(self, event: ev.EntryRead) -> None:
        if event.number == self._log.entries[self._log.tail].claim:
            self._log.take(event)
            return
        try:
            entry = decode(event.number, event.data) if event.data is not None else None
        except FormatError:
            entry = None  # whether it is needed turns out later
        if entry is not None:
            self._before[event.number] = entry

    def _all_read(self) -> list[Instruction]:
        """What the run itself appended last says how it ended: behind that are requests of people, who ask whether it lives or not.

        Rule: an entry names the claim that the one before it names, or is one.
        """
        tail = self._log.entries[self._log.tail]
        number, newest = self._log.tail, tail
        while (before := self._before.get(number - 1)) is not None:
            if before.claim != tail.claim:
                at = f"log entry {number}, the last one," if number == self._log.tail else f"log entry {number}, and each one behind it,"
                raise GivenUpError(
                    ErrorKind.DAMAGED,
                    f"{at} names the claim in entry {tail.claim}, and the one before it that in entry {before.claim}: it was forged or put "
                    "there by mistake; remove it",
                )
            if not isinstance(newest, Request):
                break
            number, newest = number - 1, before
        if isinstance(newest, Request) and number == self._back and (further := self._further_back()):
            return self._read(further)
        claim = self._log.entries[tail.claim]
        if not isinstance(claim, Claim):
            raise GivenUpError(
                ErrorKind.DAMAGED, f"log entry {tail.claim} should be a claim and is a {type(claim).__name__.lower()}; the log is damaged"
            )
        return self._run_known(claim, newest)

    def _run_known(self, claim: Claim, newest: Entry) -> list[Instruction]:
        """`newest`: the run's own last entry."""
        tail = self._log.entries[self._log.tail]
        end = newest if isinstance(newest, End) else None
        noted = dict.fromkeys(newest.bad, newest.cause) if isinstance(newest, Damage) else {}
        damaged = {} if end is not None else {**dict.fromkeys(claim.bad, ""), **noted}
        return self._known(LastRun(self._log.tail, max(tail.floor, newest.floor), claim, end, damaged))
