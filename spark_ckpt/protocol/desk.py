"""Where people's requests wait: for a checkpoint, for its copy, for their answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from spark_ckpt.model import Checkpoint, CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import SAVEPOINT, STOP, Request
from spark_ckpt.protocol.instructions import Announcement, Instruction, Level
from spark_ckpt.protocol.stats import Summary

ATTEMPTS = 5


@dataclass(frozen=True)
class Asked:
    """A request and the number of its log entry."""

    number: int
    request: Request

    @property
    def stops(self) -> bool:
        return self.request.action == STOP


class Desk:
    """Every request gets one answer. Those to stop wait until the query is about to end: no epoch is to follow their savepoint."""

    def __init__(self, run: int, ticket: Callable[[], int]) -> None:
        self.stop_url: str | None = None
        """Where the savepoint of a request to stop was stored."""
        self.stop_failure = ""
        self._run = run
        self._ticket = ticket
        self._waiting: list[Asked] = []
        self._given: dict[int, list[Asked]] = {}
        self._copies: dict[int, tuple[Asked, do.StoreSavepoint]] = {}
        self._answers: dict[int, do.AnswerRequest] = {}

    def take(self, number: int, request: Request) -> list[Instruction]:
        asked = Asked(number, request)
        if request.action not in (SAVEPOINT, STOP):
            return [self._answer(asked, None, f"this release does not know the request {request.action!r}")]
        self._waiting.append(asked)
        return [do.Stopping(request.drain)] if asked.stops else []

    def wants(self, ending: bool) -> bool:
        """Whether a request waits for a checkpoint. `ending`: no further epoch will run."""
        return any(ending or not asked.stops for asked in self._waiting)

    @property
    def busy(self) -> bool:
        """Whether a savepoint is in the making."""
        return bool(self._given or self._copies)

    def pins(self, checkpoint: CheckpointId) -> bool:
        """It is being copied."""
        return any(copy.checkpoint.id == checkpoint for _, copy in self._copies.values())

    def give(self, epoch: int, ending: bool) -> None:
        """The checkpoint of this epoch will be theirs."""
        self._given.setdefault(epoch, []).extend(self._called(ending))

    def copy(self, checkpoint: Checkpoint, ending: bool) -> list[Instruction]:
        """This completed one is theirs."""
        return [self._store(asked, checkpoint) for asked in self._called(ending)]

    def completed(self, checkpoint: Checkpoint) -> list[Instruction]:
        return [self._store(asked, checkpoint) for asked in self._given.pop(checkpoint.id.epoch, [])]

    def aborted(self, epoch: int, message: str) -> list[Instruction]:
        return [self._answer(asked, None, message) for asked in self._given.pop(epoch, [])]

    def turn_away(self, message: str) -> list[Instruction]:
        return [self._answer(asked, None, message) for asked in self._called(True)]

    def refuse(self, number: int, request: Request, message: str) -> list[Instruction]:
        return [self._answer(Asked(number, request), None, message)]

    def close(self, message: str) -> list[Instruction]:
        """The run is over: nobody else will answer them."""
        given = [asked for several in self._given.values() for asked in several]
        copied = [asked for asked, _ in self._copies.values()]
        unsure = list(self._answers.values())
        left = [*self._called(True), *given, *copied]
        self._given, self._copies, self._answers = {}, {}, {}
        return [*(self._answer(asked, None, message) for asked in left), *(replace(a, ticket=self._ticket(), attempt=0) for a in unsure)]

    def stored(self, event: ev.SavepointStored) -> list[Instruction]:
        asked, copy = self._copies.pop(event.ticket)
        if event.url is None and not event.hopeless and copy.attempt + 1 < ATTEMPTS:
            again = replace(copy, ticket=self._ticket(), attempt=copy.attempt + 1)
            self._copies[again.ticket] = (asked, again)
            return [again]
        answer = self._answer(asked, event.url, None if event.url is not None else event.failure)
        if event.url is None:
            failed = f"the savepoint that log entry {asked.number} asks for could not be stored: {event.failure}"
            return [answer, do.Log(Level.WARN, failed)]
        made = copy.checkpoint
        told = Summary(made.id.run, made.id.epoch, made.time_ms, full_bytes=made.size)
        return [answer, do.Announce(Announcement.SAVEPOINT, {**told.to_json(), "savepoint": event.url})]

    def answered(self, event: ev.RequestAnswered) -> list[Instruction]:
        answer = self._answers.pop(event.ticket)
        if event.failure is None:
            return []
        if answer.attempt + 1 >= ATTEMPTS:
            return [do.Log(Level.WARN, f"the answer to the request in log entry {event.number} could not be stored: {event.failure}")]
        again = replace(answer, ticket=self._ticket(), attempt=answer.attempt + 1)
        self._answers[again.ticket] = again
        return [again]

    def _called(self, ending: bool) -> list[Asked]:
        called = [asked for asked in self._waiting if ending or not asked.stops]
        self._waiting = [asked for asked in self._waiting if asked not in called]
        return called

    def _store(self, asked: Asked, checkpoint: Checkpoint) -> Instruction:
        copy = do.StoreSavepoint(self._ticket(), checkpoint, asked.request, asked.number)
        self._copies[copy.ticket] = (asked, copy)
        return copy

    def _answer(self, asked: Asked, url: str | None, error: str | None) -> Instruction:
        if asked.stops:
            self.stop_url = url or self.stop_url
            self.stop_failure = error or self.stop_failure
        answer = do.AnswerRequest(self._ticket(), self._run, asked.number, url, error)
        self._answers[answer.ticket] = answer
        return answer
