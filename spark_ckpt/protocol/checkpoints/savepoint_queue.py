"""People's requests for savepoints and checkpoints: they wait for a checkpoint, a savepoint also for its copy, and for their answer
(Flink: `CheckpointRequestDecider`)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import Checkpoint, CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.checkpoints.stats import Summary
from spark_ckpt.protocol.durable_put import DurablePut, Known
from spark_ckpt.protocol.entries import CHECKPOINT, SAVEPOINT, STOP, Request
from spark_ckpt.protocol.instructions import Announcement, Instruction, Level, RequestName
from spark_ckpt.protocol.machine import Questions

ATTEMPTS = 5
NO_DRAIN = (
    "the query was about to be drained, and nobody waits for that any more: whoever had asked was told to ask again. Nothing was drained: "
    "start the query again, and it goes on"
)

NOT_IN_REAL_TIME = (
    "a query in real time cannot be drained; ask for its stop without that, or start it with a processing time trigger first"
)


@dataclass(frozen=True)
class LoggedRequest:
    """A request and the number of its log entry. `ended`: the newest epoch that had ended when it was taken up, -1 for none."""

    number: int
    request: Request
    ended: int = -1

    @property
    def stops(self) -> bool:
        return self.request.action == STOP

    @property
    def is_for_a_copy(self) -> bool:
        return self.request.action != CHECKPOINT


class SavepointQueue:
    """Every request gets one answer. Those to stop wait until the query is about to end: no epoch is to follow their savepoint.

    Savepoints are copies of completed checkpoints, made in the background. `changed`: called when one more copy is made, or will not be.
    A checkpoint is asked for by any number of people, and answers them all that it is new enough for.
    """

    def __init__(self, run: int, questions: Questions, changed: Callable[[], list[Instruction]]) -> None:
        self.finishing: ev.FinishRequested | None = None
        """No further epoch will run."""
        self._run = run
        self._questions = questions
        self._changed = changed
        self._waiting: list[LoggedRequest] = []
        self._assigned: dict[int, list[LoggedRequest]] = {}
        self._copies: dict[int, tuple[LoggedRequest, Checkpoint]] = {}
        self._answers: dict[int, DurablePut] = {}
        """By log entry, those that are being stored."""
        self._stored_stops: list[tuple[LoggedRequest, str]] = []
        """Requests to stop, and where their savepoints are stored, until the query ends with one."""
        self._stop_failure = ""

    def take(self, number: int, request: Request, ended: int, newest: Checkpoint | None) -> list[Instruction]:
        """`ended`: the newest epoch that has, -1 for none; `newest`: the newest completed checkpoint."""
        asked = LoggedRequest(number, request, ended)
        if request.action not in (SAVEPOINT, STOP, CHECKPOINT):
            return self._refuse(asked, f"this release does not know the request {request.action!r}")
        self._waiting.append(asked)
        return [do.Stopping(self._run, request.drain)] if asked.stops else self._cover(newest)

    @property
    def wants_drain(self) -> bool:
        """Whether somebody waits who has asked for one. Rule: no query is drained for anybody else: all that comes after is late."""
        return any(asked.stops and asked.request.drain for asked in self._waiting)

    @property
    def needs_copy(self) -> bool:
        """Whether a savepoint waits for a checkpoint."""
        return any(asked.is_for_a_copy and self._is_called(asked) for asked in self._waiting)

    def needs_checkpoint(self, epoch: int) -> bool:
        """Whether a checkpoint is asked for that none in the making will be, and that of this epoch would be. After a start the epochs that
        had ended before run again: what holds less than they did answers nobody."""
        return any(not asked.is_for_a_copy and self.is_covered(asked, epoch) for asked in self._waiting)

    @property
    def busy(self) -> bool:
        """Whether a savepoint is in the making."""
        return bool(self._assigned or self._copies)

    def pins(self, checkpoint: CheckpointId) -> bool:
        """It is being copied."""
        return any(copied.id == checkpoint for _, copied in self._copies.values())

    def assign(self, epoch: int) -> None:
        """The checkpoint of this epoch, which begins now or is of the newest epoch that has ended, will be theirs, if it holds enough."""
        called = [a for a in self._waiting if self._is_called(a) and (a.is_for_a_copy or self.is_covered(a, epoch))]
        self._waiting = [asked for asked in self._waiting if asked not in called]
        if called:
            self._assigned.setdefault(epoch, []).extend(called)

    def join(self, making: Collection[int]) -> None:
        """Whoever has asked for a checkpoint that one of these in the making will do for gets that one."""
        for asked in tuple(self._waiting):
            epoch = min((epoch for epoch in making if not asked.is_for_a_copy and self.is_covered(asked, epoch)), default=None)
            if epoch is not None:
                self._waiting.remove(asked)
                self._assigned.setdefault(epoch, []).append(asked)

    def await_it(self, epoch: int) -> bool:
        """Whether somebody waits for the checkpoint of this epoch."""
        return epoch in self._assigned

    def copy(self, checkpoint: Checkpoint) -> list[Instruction]:
        """This completed one is the newest, and holds the newest epoch that may become one."""
        return [*(i for asked in self._called(copies=True) for i in self._store(asked, checkpoint)), *self._cover(checkpoint)]

    def completed(self, checkpoint: Checkpoint) -> list[Instruction]:
        """It is stored. A request for a checkpoint is also answered by one that has overtaken its own."""
        mine = self._assigned.pop(checkpoint.id.epoch, [])
        return [*(i for asked in mine for i in self._store(asked, checkpoint)), *self._cover(checkpoint)]

    def is_covered(self, asked: LoggedRequest, epoch: int) -> bool:
        """Rule: a checkpoint answers a request for one only if it holds every epoch that had ended when that was taken up."""
        return epoch >= asked.ended

    def _cover(self, checkpoint: Checkpoint | None) -> list[Instruction]:
        if checkpoint is None:
            return []
        epoch = checkpoint.id.epoch
        done = [a for a in (*self._waiting, *self._all_assigned) if not a.is_for_a_copy and self.is_covered(a, epoch)]
        self._waiting = [asked for asked in self._waiting if asked not in done]
        self._assigned = {of: rest for of, several in self._assigned.items() if (rest := [asked for asked in several if asked not in done])}
        return [i for asked in done for i in self._store(asked, checkpoint)]

    @property
    def _all_assigned(self) -> list[LoggedRequest]:
        return [asked for several in self._assigned.values() for asked in several]

    def aborted(self, epoch: int, message: str) -> list[Instruction]:
        return [i for asked in self._assigned.pop(epoch, []) for i in self._refuse(asked, message)]

    def refuse(self, number: int, request: Request, message: str) -> list[Instruction]:
        return self._refuse(LoggedRequest(number, request), message)

    def nothing_to_save(self) -> list[Instruction]:
        """Nothing will ever be, if the query ends now; else the first epoch is waited for."""
        if self.finishing is None:
            return []
        message = "no epoch has finished yet, so there is nothing to save"
        return [i for asked in self._called() for i in self._refuse(asked, message)]

    def unfit(self, epoch: int, why: str) -> list[Instruction]:
        """The newest epoch can be no checkpoint, and nobody knows when the next one will come: whoever waits is told."""
        message = f"epoch {epoch}, the newest, can become no checkpoint: {why}; ask again when another epoch has ended"
        return [i for asked in self._called() for i in self._refuse(asked, message)]

    def cannot_finish(self, event: ev.FinishRequested, epoch: int, why: str) -> list[Instruction]:
        """The query was about to end, and its newest epoch can be no checkpoint: who has asked for the end is told too."""
        self.finish(event)
        answers = self.unfit(epoch, why)
        self.finishing = None
        return answers

    def close(self, message: str) -> list[Instruction]:
        """The run is over: nobody else will answer them."""
        stored, self._stored_stops = self._stored_stops, []
        stops = [i for asked, url in stored for i in self._refuse(asked, f"{message}; the savepoint {url} is stored")]
        waiting, self._waiting = self._waiting, []
        assigned = self._all_assigned
        copied = [asked for asked, _ in self._copies.values()]
        self._assigned, self._copies, self.finishing = {}, {}, None
        return [*stops, *(i for asked in (*waiting, *assigned, *copied) for i in self._refuse(asked, message))]

    @property
    def answering(self) -> frozenset[int]:
        """The tickets of answers that are on their way: a run's end waits for none, and forgets none."""
        return frozenset(put.putting for put in self._answers.values() if put.putting is not None)

    # --- the end in good order

    def finish(self, event: ev.FinishRequested) -> None:
        self.finishing = event
        self._stop_failure = ""

    def finished(self) -> list[Instruction]:
        """The newest epoch is in a completed checkpoint. The query stops only with the savepoint that was asked for (as in Flink).

        Rule: nobody is told that a query has stopped before the query is told to: a coordinator that comes meanwhile lets it go on.
        """
        if self.finishing is None or self.busy:
            return []
        stopping, stored = self.finishing.stopping, self._stored_stops
        self.finishing, self._stored_stops = None, []
        if stopping and not stored:
            failure = self._stop_failure or "the request was lost with the coordinator that took it up; ask again"
            message = f"the query goes on, it could not be stopped with a savepoint: {failure}"
            return [do.Refused(RequestName.FINISH, ErrorKind.STORAGE, message)]
        answers = [i for asked, url in stored for i in self._put(asked.number, url, None)]
        return [do.Finished(stored[-1][1] if stored else None), *answers]

    def _is_called(self, asked: LoggedRequest) -> bool:
        """An end without a drain is not what somebody has asked for who wants one."""
        if not asked.stops:
            return True
        return self.finishing is not None and (self.finishing.drained or not asked.request.drain)

    def _called(self, copies: bool = False) -> list[LoggedRequest]:
        """Takes them out of those that wait. `copies`: for savepoints only."""
        called = [asked for asked in self._waiting if self._is_called(asked) and (asked.is_for_a_copy or not copies)]
        self._waiting = [asked for asked in self._waiting if asked not in called]
        return called

    def _store(self, asked: LoggedRequest, checkpoint: Checkpoint) -> list[Instruction]:
        if not asked.is_for_a_copy:
            return self._put(asked.number, None, None, checkpoint.id)

        def known(_known: Known, event: ev.SavepointStored) -> list[Instruction]:
            self._copies.pop(asked.number, None)
            return [*self._stored(asked, checkpoint, event), *self._changed()]

        self._copies[asked.number] = (asked, checkpoint)
        copy = partial(do.StoreSavepoint, checkpoint=checkpoint, request=asked.request, number=asked.number)
        return DurablePut(self._questions, lambda ticket, attempt: copy(ticket, attempt=attempt), known, attempts=ATTEMPTS).begin()

    def _stored(self, asked: LoggedRequest, checkpoint: Checkpoint, event: ev.SavepointStored) -> list[Instruction]:
        if event.url is None:
            failed = f"the savepoint that log entry {asked.number} asks for could not be stored: {event.message}"
            return [*self._refuse(asked, event.message), do.Log(Level.WARN, failed)]
        summary = Summary(checkpoint.id.run, checkpoint.id.epoch, checkpoint.time_ms, full_bytes=checkpoint.size)
        said = do.Announce(Announcement.SAVEPOINT, {**summary.to_json(), "savepoint": event.url})
        if asked.stops and self.finishing is not None:
            self._stored_stops.append((asked, event.url))
            return [said]
        return [*self._put(asked.number, event.url, None), said]

    def _refuse(self, asked: LoggedRequest, error: str) -> list[Instruction]:
        if asked.stops:
            self._stop_failure = error
        return self._put(asked.number, None, error)

    def _put(self, number: int, url: str | None, error: str | None, checkpoint: CheckpointId | None = None) -> list[Instruction]:
        """Put if absent: an answer that a coordinator which has died has given stays."""

        def known(known: Known, event: ev.RequestAnswered) -> list[Instruction]:
            self._answers.pop(number, None)
            if known is Known.STORED:
                return []
            return [do.Log(Level.WARN, f"the answer to the request in log entry {number} could not be stored: {event.message}")]

        def ask(ticket: int, attempt: int) -> Instruction:
            return do.AnswerRequest(ticket, self._run, number, url, error, attempt, checkpoint)

        self._answers[number] = put = DurablePut(self._questions, ask, known, attempts=ATTEMPTS)
        return put.begin()
