"""Questions to the storage that are asked again when they get no answer: what `Start` and `Resume` have in common."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from enum import Enum

from spark_ckpt.errors import CheckpointError, ErrorKind
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.entries import Entry, decode
from spark_ckpt.protocol.instructions import Instruction, LookPast, Question, Refused, RequestName
from spark_ckpt.protocol.machine import InvalidTransitionError, Machine, Story, Tickets

ATTEMPTS = 5
_DONE = {RequestName.START: "started", RequestName.RESUME: "taken up again by a new coordinator"}


class GivenUpError(CheckpointError):
    """Raised inside a stage to end it with a refusal of this kind."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class UnlessMovedOnError(GivenUpError):
    """Raised where something is missing that whoever has appended to the log meanwhile may have deleted: then look again."""


class Recovery(Machine):
    """Any `CheckpointError` raised by a transition ends the stage: the request is refused with its kind and message."""

    def __init__(self, request: RequestName, phase: Enum, confirming: Enum, refused: Enum, tickets: Tickets, story: Story) -> None:
        super().__init__(phase, tickets, story)
        self._request_name = request
        self._confirming_phase = confirming
        self._refused_phase = refused
        self._tail = 0
        self._unless: UnlessMovedOnError | None = None
        self._outstanding: dict[int, Question] = {}
        self._entries: dict[int, Entry] = {}

    def handle(self, event: ev.Event, now_ms: int) -> list[Instruction]:
        try:
            return super().handle(event, now_ms)
        except InvalidTransitionError:
            raise
        except UnlessMovedOnError as error:
            return self._confirm(error)
        except CheckpointError as error:
            return self._refuse(error.kind, str(error))

    def _refuse(self, kind: ErrorKind, message: str) -> list[Instruction]:
        self.phase = self._refused_phase
        self.questions.forget_all()
        return [Refused(self._request_name, kind, message)]

    def _ask(self, question: Question) -> Question:
        self._outstanding[question.ticket] = question
        return question

    def _answered(self, ticket: int) -> Question:
        return self._outstanding.pop(ticket)

    def _read_failed(self, event: ev.ReadFailed) -> list[Instruction]:
        asked = self._answered(event.ticket)
        if event.hopeless or asked.attempt + 1 >= ATTEMPTS:
            raise GivenUpError(event.kind, f"the stream cannot be {_DONE[self._request_name]}: {event.message}")
        return [self._ask(replace(asked, ticket=self.questions.ticket(), attempt=asked.attempt + 1))]

    def _entry(self, event: ev.EntryRead) -> Entry:
        """An entry that must be there: above its floor the log has no gap. Raises `UnlessMovedOnError`."""
        self._answered(event.ticket)
        if event.data is None:
            raise UnlessMovedOnError(
                ErrorKind.DAMAGED,
                f"log entry {event.number} is missing, although there are later ones; put it back, or go on from one of the stream's "
                "checkpoints with spark.ckpt.restore.path, a new checkpointLocation and a new output path",
            )
        entry = decode(event.number, event.data)
        self._entries[event.number] = entry
        return entry

    def _confirm(self, error: UnlessMovedOnError) -> list[Instruction]:
        """Whether the log has grown since its tail was located: only a LIST tells, for the next number may be gone as well."""
        self._unless = error
        self._outstanding.clear()
        self.questions.forget_all()
        self.phase = self._confirming_phase
        return [self._ask(LookPast(self.questions.ticket(), self._tail))]

    def _confirmed(self, event: ev.PastSeen) -> list[Instruction]:
        self._answered(event.ticket)
        if event.found is None:
            assert self._unless is not None
            raise GivenUpError(self._unless.kind, str(self._unless))
        return self._moved_on(event)

    @abstractmethod
    def _moved_on(self, event: ev.PastSeen) -> list[Instruction]:
        """The log has grown since."""
