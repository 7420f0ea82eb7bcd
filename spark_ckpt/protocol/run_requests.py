"""What people ask of a run, and its end in good order."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import CheckpointId
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.desk import Desk
from spark_ckpt.protocol.entries import Entry, Request
from spark_ckpt.protocol.instructions import Instruction, Level, RequestName
from spark_ckpt.protocol.machine import Story, Tickets
from spark_ckpt.protocol.run_ending import RunEnding
from spark_ckpt.protocol.run_state import RunPhase, Settings
from spark_ckpt.protocol.start import Beginning


class RunRequests(RunEnding):
    """Savepoints are copies of completed checkpoints, made in the background; a checkpoint that is being copied is not dropped."""

    def __init__(self, beginning: Beginning, settings: Settings, tickets: Tickets, story: Story) -> None:
        super().__init__(beginning, settings, tickets, story)
        self._desk = Desk(self.claim.run, self.ticket)
        self._finishing: ev.FinishRequested | None = None
        self._superseded: list[CheckpointId] = []

    def _take_up(self, entry: Entry) -> list[Instruction]:
        number = self._next_number
        self._next_number += 1
        if not isinstance(entry, Request):
            return [do.Log(Level.WARN, f"log entry {number} is a {type(entry).__name__.lower()} that this run did not write")]
        return self._desk.take(number, entry)

    def _turn_away_lost(self) -> list[Instruction]:
        """A coordinator that this one replaced took these up. Where it answered, that answer stays: answers are put if absent."""
        message = "the coordinator was replaced before it met the request; ask again"
        lost = self._replaced.requests if self._replaced else ()
        return [answer for number, request in lost for answer in self._desk.refuse(number, request, message)]

    def _savepoint_stored(self, event: ev.SavepointStored) -> list[Instruction]:
        return [*self._desk.stored(event), *self._proceed()]

    def _request_answered(self, event: ev.RequestAnswered) -> list[Instruction]:
        return self._desk.answered(event)

    def _free(self, dropped: Iterable[CheckpointId], in_use: Callable[[CheckpointId], bool] = lambda _: False) -> list[CheckpointId]:
        """Those of the superseded checkpoints that nothing needs any more."""
        self._superseded += dropped
        free = [c for c in self._superseded if not self._desk.pins(c) and not in_use(c)]
        self._superseded = [c for c in self._superseded if c not in free]
        return free

    # --- the end

    def _finish(self, event: ev.FinishRequested) -> list[Instruction]:
        if self.phase is not RunPhase.IDLE or self._finishing:
            message = f"finish came while epoch {self._epoch} was in hand; please report it"
            return [do.Refused(RequestName.FINISH, ErrorKind.INTERNAL, message)]
        self._finishing = event
        self._desk.stop_url, self._desk.stop_failure = None, ""
        return self._proceed()

    def _maybe_finished(self) -> list[Instruction]:
        """The newest epoch is in a completed checkpoint. The query stops only with the savepoint that was asked for (as in Flink)."""
        if self._finishing is None or self._desk.busy:
            return []
        stopping, url = self._finishing.stopping, self._desk.stop_url
        self._finishing = None
        if stopping and url is None:
            failure = self._desk.stop_failure or "the request was lost with the coordinator that took it up; ask again"
            message = f"the query goes on, it could not be stopped with a savepoint: {failure}"
            return [do.Refused(RequestName.FINISH, ErrorKind.STORAGE, message)]
        return [do.Finished(url)]

    def _nothing_to_save(self) -> list[Instruction]:
        """Nothing will ever be, if the query ends now; else the first epoch is waited for."""
        return self._desk.turn_away("no epoch has finished yet, so there is nothing to save") if self._finishing else []

    def _refuse_finish(self, _event: ev.FinishRequested) -> list[Instruction]:
        return [do.Refused(RequestName.FINISH, *self._failure)]

    def _open_requests(self) -> list[RequestName]:
        return [RequestName.FINISH] if self._finishing else []

    def _over(self, phase: RunPhase, kind: ErrorKind, message: str) -> list[Instruction]:
        over = super()._over(phase, kind, message)
        self._finishing = None
        closed = self._desk.close("the run ended before it met the request; ask again when the query runs")
        self._await_deletions()
        return over if phase is RunPhase.FENCED else [*over, *closed]
