"""What every stage of a stream's life has in common: phases, a transition table that says where each event leads, questions that are open,
and the story of what happened."""

from __future__ import annotations

from abc import ABC
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, TypeVar

from spark_ckpt.errors import CheckpointError
from spark_ckpt.protocol.events import Event, ReadFailed, Timer, TimerFired, TrimFailed
from spark_ckpt.protocol.instructions import Instruction

STORY_LINES = 40
LINE_LENGTH = 200

Asked = TypeVar("Asked")
Then = Callable[[Any], list[Instruction]]
"""What is done with an answer."""


class InvalidTransitionError(CheckpointError):
    """An event that cannot happen in this phase, or that led where its row does not: a bug of this package or of its caller. `story` tells
    what led here."""

    def __init__(self, what: str, story: list[str]) -> None:
        super().__init__(f"{what}; what led here: " + " | ".join(story[-8:]))
        self.story = story


def brief(event: Event) -> str:
    """An event in a few words: contents can be megabytes, and may be data."""
    shown = [f"{name}={getattr(event, name)}" for name in _SHOWN if hasattr(event, name)]
    return f"{type(event).__name__}({', '.join(shown)})"


_SHOWN = ("number", "run", "epoch", "id", "outcome", "timer", "executor", "failed", "message", "damage")


class Tickets:
    """Numbers 1, 2, 3, … that tell one instruction's answer from another's. Shared by all stages of one stream."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        self._last += 1
        return self._last


class Story:
    """The last events and instructions of a stream, for errors."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=STORY_LINES)

    def tell(self, line: str) -> None:
        self._lines.append(line[:LINE_LENGTH])

    @property
    def lines(self) -> list[str]:
        return list(self._lines)


class Questions:
    """The questions of one stage that are open, and who takes their answers. The answer to one that is not open is late: nobody's."""

    def __init__(self, tickets: Tickets) -> None:
        self._tickets = tickets
        self._open: dict[int, tuple[Then, Then] | None] = {}

    def __contains__(self, ticket: int) -> bool:
        return ticket in self._open

    def ticket(self) -> int:
        """For a question whose answer the stage's own table takes."""
        ticket = self._tickets.next()
        self._open[ticket] = None
        return ticket

    def ask(self, make: Callable[[int], Asked], then: Then, failed: Then | None = None) -> Asked:
        """The instruction that asks, made with its ticket. `then` takes its answer, `failed` takes a `ReadFailed` or `TrimFailed`."""
        ticket = self._tickets.next()
        self._open[ticket] = (then, failed or then)
        return make(ticket)

    def settle(self, ticket: int) -> None:
        """The answer is there. One that somebody takes stays open until it is handed over."""
        if self._open.get(ticket) is None:
            self._open.pop(ticket, None)

    def answer(self, event: Any) -> list[Instruction]:
        """Handed to who asked."""
        takers = self._open.pop(event.ticket)
        assert takers is not None
        then, failed = takers
        return failed(event) if isinstance(event, (ReadFailed, TrimFailed)) else then(event)

    def hand_over(self, ticket: int, then: Then) -> None:
        """Of a question that is open: somebody else takes its answer."""
        self._open[ticket] = (then, then)

    def forget(self, *tickets: int | None) -> None:
        """Stop waiting; a late answer will be ignored."""
        for ticket in tickets:
            if ticket is not None:
                self._open.pop(ticket, None)

    def forget_all(self, but: Iterable[int | None] = ()) -> None:
        kept = frozenset(but)
        self._open = {ticket: takers for ticket, takers in self._open.items() if ticket in kept}


@dataclass(frozen=True)
class Transition:
    """The method that handles an event and returns instructions, and the phases to which that may lead besides the one it came in."""

    method: str
    to: frozenset[Enum]


def leads(method: str, *to: Enum) -> Transition:
    return Transition(method, frozenset(to))


def kind(event: Event) -> type | Timer:
    """By which a table knows an event: timers that fire are told apart."""
    return event.timer if isinstance(event, TimerFired) else type(event)


class Machine(ABC):
    """One stage. Subclasses give `TABLE`: (phase, kind of event) -> where it leads. What is not in it cannot happen."""

    TABLE: ClassVar[Mapping[tuple[Any, type | Timer], Transition]]

    def __init__(self, phase: Enum, tickets: Tickets, story: Story) -> None:
        self.phase: Any = phase
        self.now_ms = 0
        self.questions = Questions(tickets)
        self._story = story

    def handle(self, event: Event, now_ms: int) -> list[Instruction]:
        """One event in, instructions out. `now_ms`: the runtime's clock, which only ever ends up in records for people."""
        self.now_ms = now_ms
        ticket = getattr(event, "ticket", None)
        if ticket is not None and ticket not in self.questions:
            self._story.tell(f"late {type(event).__name__}")
            return []
        before = self.phase
        row = self.TABLE.get((before, kind(event)))
        if row is None:
            self._story.tell(f"[{before.name}] {brief(event)}")
            raise InvalidTransitionError(f"{type(event).__name__} cannot happen in phase {before.name}", self._story.lines)
        if ticket is not None:
            self.questions.settle(ticket)
        method: Then = getattr(self, row.method)
        instructions = method(event)
        self._story.tell(f"[{before.name}] {brief(event)} -> [{self.phase.name}] {', '.join(type(i).__name__ for i in instructions)}")
        if self.phase is not before and self.phase not in row.to:
            what = f"{type(event).__name__} led from phase {before.name} to {self.phase.name}, which its row does not name"
            raise InvalidTransitionError(what, self._story.lines)
        return instructions

    def nothing(self, _event: Event) -> list[Instruction]:
        """For events that mean nothing in a phase."""
        return []
