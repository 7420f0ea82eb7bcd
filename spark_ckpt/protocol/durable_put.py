"""One entry or object, put if absent until it is known what became of it.

A put has one of five outcomes. STORED: it is there. EXISTS and UNKNOWN: something is there, or may be, and perhaps it is our own, whose
answer was lost; only a look tells. FAILED: it is not there, and trying again may help. HOPELESS: trying again cannot help.

    PUTTING --EXISTS, UNKNOWN--> READING_BACK --nothing is there--> PUTTING
    PUTTING --FAILED--> PUTTING
    READING_BACK --no answer--> PUTTING     (a put tells as much: our own entry makes it EXISTS)

A put whose answer was lost may land at any time. So whoever gives up (`give_up`) does not know that nothing will be there, and goes on
looking, until it is found, or nobody cares any more (`abandon`).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from spark_ckpt.protocol.events import EntryPut, EntryRead
from spark_ckpt.protocol.instructions import Instruction, PutEntry, ReadEntry
from spark_ckpt.protocol.machine import Questions
from spark_ckpt.protocol.reasons import Outcome


class Seen(Enum):
    """What a look shows, as its owner judges it."""

    OURS = "OURS"
    NOTHING = "NOTHING"
    OTHERS = "OTHERS"


class Known(Enum):
    """What became of it."""

    STORED = "STORED"
    TAKEN = "TAKEN"
    """Somebody else's is there."""
    HOPELESS = "HOPELESS"
    """It is not there, and trying again cannot help."""
    TRIED_OUT = "TRIED_OUT"
    """As often as was allowed; it may be there."""
    ABSENT = "ABSENT"
    """Given up, and certainly not there."""


Put = Callable[[int, int], Instruction]
"""From ticket and attempt."""


class DurablePut:
    """`judge`: what the answer to `read` shows. `known`: called once, with the answer that settled it; None where that was before.

    `read`: None for what may be put any number of times, and where something that is there already is as good. `attempts`: so many puts at
    most; None: until whoever waits has enough. Answers to puts have `outcome` and `message`.
    """

    def __init__(
        self,
        questions: Questions,
        put: Put,
        known: Callable[[Known, Any], list[Instruction]],
        read: Put | None = None,
        judge: Callable[[Any], Seen] | None = None,
        attempts: int | None = None,
    ) -> None:
        self.cause = ""
        """Why the last attempt did not succeed."""
        self.unknown = False
        """It may be there, or still land."""
        self.putting: int | None = None
        """The ticket of a put that is under way."""
        self._questions = questions
        self._put = put
        self._read = read
        self._judge = judge
        self._known = known
        self._attempts = attempts
        self._attempt = 0
        self._looks = 0
        self._looking: int | None = None
        self._given_up = False

    @property
    def open(self) -> bool:
        """A question is."""
        return self.putting is not None or self._looking is not None

    def begin(self) -> list[Instruction]:
        asked = self._questions.ask(lambda ticket: self._instruction(ticket, put=True), self.answered)
        return [asked]

    def answered(self, event: Any) -> list[Instruction]:
        """To a put. Rule: an unknown outcome is read back, not taken for stored or failed."""
        self.putting = None
        exists, unknown = event.outcome is Outcome.EXISTS, event.outcome is Outcome.UNKNOWN
        if event.outcome is Outcome.STORED or (exists and self._read is None):
            return self._known(Known.STORED, event)
        if (exists or unknown) and self._read is not None:
            self.unknown = True
            return self._look()
        self.cause = event.message
        if self._given_up:
            return self._look() if self.unknown else self._known(Known.ABSENT, event)
        return self._known(Known.HOPELESS, event) if event.outcome is Outcome.HOPELESS else self._again(event)

    def give_up(self) -> list[Instruction]:
        """Nothing more is put. `known` is called when it turns up, or when it is certain that it will not."""
        self._given_up = True
        if self.open:
            return []
        return self._look() if self.unknown else self._known(Known.ABSENT, None)

    def insist(self) -> list[Instruction]:
        """It was given up, and is wanted after all."""
        self._given_up = False
        return [] if self.open else self._again(None)

    def abandon(self, then: Callable[[Any], list[Instruction]]) -> None:
        """Whatever becomes of it; a put that is under way is answered to `then`."""
        self._questions.forget(self._looking)
        if self.putting is not None:
            self._questions.hand_over(self.putting, then)

    def _again(self, event: Any) -> list[Instruction]:
        self._attempt += 1
        if self._attempts is not None and self._attempt >= self._attempts:
            return self._known(Known.TRIED_OUT, event)
        return self.begin()

    def _look(self) -> list[Instruction]:
        return [self._questions.ask(lambda ticket: self._instruction(ticket, put=False), self._looked, self._not_looked)]

    def _instruction(self, ticket: int, put: bool) -> Instruction:
        if put:
            self.putting = ticket
            return self._put(ticket, self._attempt)
        assert self._read is not None
        self._looking = ticket
        return self._read(ticket, self._looks)

    def _looked(self, event: Any) -> list[Instruction]:
        self._looking = None
        assert self._judge is not None
        seen = self._judge(event)
        if seen is not Seen.NOTHING:
            return self._known(Known.STORED if seen is Seen.OURS else Known.TAKEN, event)
        self.cause = getattr(event, "damage", None) or "a put was not answered and did not arrive"
        return self._missed(event)

    def _not_looked(self, event: Any) -> list[Instruction]:
        self._looking = None
        self.cause = event.message
        return self._missed(event)

    def _missed(self, event: Any) -> list[Instruction]:
        if not self._given_up:
            return self._again(event)
        self._looks += 1
        return self._look()


def put_entry(
    questions: Questions,
    number: int,
    data: bytes,
    known: Callable[[Known, EntryPut | EntryRead], list[Instruction]],
    attempts: int | None = None,
    is_ours: Callable[[bytes], bool] | None = None,
) -> DurablePut:
    """An entry of the log. `is_ours`: whether what is there instead is as good; None: only the same bytes are."""

    def judge(event: EntryRead) -> Seen:
        if event.data is None:
            return Seen.NOTHING
        return Seen.OURS if event.data == data or (is_ours is not None and is_ours(event.data)) else Seen.OTHERS

    return DurablePut(
        questions,
        lambda ticket, attempt: PutEntry(ticket, number, data, attempt),
        known,
        lambda ticket, attempt: ReadEntry(ticket, number, attempt),
        judge,
        attempts,
    )
