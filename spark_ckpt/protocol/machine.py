"""What every stage of a stream's life has in common: a phase, one transition table, tickets, and the story of what happened."""

from __future__ import annotations

from abc import ABC
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, ClassVar

from spark_ckpt.errors import CheckpointError
from spark_ckpt.protocol.events import Event
from spark_ckpt.protocol.instructions import Instruction

STORY_LINES = 40
LINE_LENGTH = 200


class InvalidTransitionError(CheckpointError):
    """An event that cannot happen in this phase: a bug of this package or of its caller. `story` tells what led here."""

    def __init__(self, phase: Enum, event: Event, story: list[str]) -> None:
        super().__init__(f"{type(event).__name__} cannot happen in phase {phase.name}; what led here: " + " | ".join(story[-8:]))
        self.story = story


def brief(event: Event) -> str:
    """An event in a few words: contents can be megabytes, and may be data."""
    told = [f"{name}={getattr(event, name)}" for name in _TOLD if hasattr(event, name)]
    return f"{type(event).__name__}({', '.join(told)})"


_TOLD = ("number", "run", "epoch", "id", "outcome", "timer", "executor", "failed", "message", "damage")


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


class Machine(ABC):
    """One stage. Subclasses give `TABLE`: (phase, event type) -> name of the method that handles it and returns instructions."""

    TABLE: ClassVar[Mapping[tuple[Any, type], str]]

    def __init__(self, phase: Enum, tickets: Tickets, story: Story) -> None:
        self.phase: Any = phase
        self.now_ms = 0
        self._tickets = tickets
        self._story = story
        self._awaited: set[int] = set()

    def ticket(self) -> int:
        """A number for an instruction whose answer will be waited for."""
        ticket = self._tickets.next()
        self._awaited.add(ticket)
        return ticket

    def forget(self, *tickets: int | None) -> None:
        """Stop waiting; a late answer will be ignored."""
        self._awaited.difference_update(t for t in tickets if t is not None)

    def forget_all(self) -> None:
        self._awaited.clear()

    def handle(self, event: Event, now_ms: int) -> list[Instruction]:
        """One event in, instructions out. `now_ms`: the runtime's clock, which only ever ends up in records for people."""
        self.now_ms = now_ms
        ticket = getattr(event, "ticket", None)
        if ticket is not None:
            if ticket not in self._awaited:
                self._story.tell(f"late {type(event).__name__}")
                return []
            self._awaited.discard(ticket)
        before = self.phase
        name = self.TABLE.get((self.phase, type(event)))
        if name is None:
            self._story.tell(f"[{before.name}] {brief(event)}")
            raise InvalidTransitionError(self.phase, event, self._story.lines)
        method: Callable[[Any], list[Instruction]] = getattr(self, name)
        instructions = method(event)
        self._story.tell(f"[{before.name}] {brief(event)} -> [{self.phase.name}] {', '.join(type(i).__name__ for i in instructions)}")
        return instructions

    def nothing(self, _event: Event) -> list[Instruction]:
        """For events that mean nothing in a phase."""
        return []
