"""A run's dealings with the log: looks while idle, plans, and what else turns up at the next number."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace

from spark_ckpt.errors import ErrorKind, FormatError
from spark_ckpt.model import Content
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.driver_files import offsets_file, sources_of
from spark_ckpt.protocol.entries import Entry, Plan, Request, encode
from spark_ckpt.protocol.instructions import Instruction, RequestName
from spark_ckpt.protocol.log_trim import is_sure
from spark_ckpt.protocol.reasons import Outcome
from spark_ckpt.protocol.run_state import RunPhase, RunState


class RunLog(RunState):
    """`_plan` is the one that is being appended, `_attempt` and `_cause` belong to it. `_plan_waits`: for large files that it names."""

    _plan_waits = False
    _file_attempts = 0
    _trim_ms: int | None = None

    @abstractmethod
    def _planned(self, plan: Plan) -> list[Instruction]:
        """The epoch's plan is made, and to be stored."""

    @abstractmethod
    def _plan_stored(self, number: int) -> list[Instruction]:
        """The plan is entry `number` of the log."""

    @abstractmethod
    def _plan_failed(self, kind: ErrorKind, message: str) -> list[Instruction]:
        """The run cannot go on."""

    @abstractmethod
    def _take_up(self, entry: Entry) -> list[Instruction]:
        """An entry under the run's own claim that it did not write: a request of a person. Its number is used up."""

    @abstractmethod
    def _proceed(self, pressure: bool = False) -> list[Instruction]:
        """Something changed: what can be done now, if no epoch is in hand. `pressure`: whether half full spools count."""

    # --- idle

    def _look_at_log(self) -> list[Instruction]:
        """Nobody appends while the stream is idle, so a successor or a request is noticed by looking."""
        self._look = self.ticket()
        return [do.ReadEntry(self._look, self._next_number)]

    def _looked(self, event: ev.EntryRead) -> list[Instruction]:
        self._look = None
        if event.data is not None:
            entry = self._decode(event)
            if entry is None or entry.claim != self.claim.claim:
                return self._fenced(event.number, entry)
            taken = self._take_up(entry)
            return [*taken, *self._proceed(), *self._look_at_log()]
        return self._set(ev.Timer.IDLE, self._settings.idle_ms)

    def _look_failed(self, _event: ev.ReadFailed) -> list[Instruction]:
        self._look = None
        return self._set(ev.Timer.IDLE, self._settings.idle_ms)

    def _stop_looking(self) -> list[Instruction]:
        self.forget(self._look)
        self._look = None
        return self._cancel(ev.Timer.IDLE)

    # --- plans

    def _trigger(self, event: ev.TriggerRequested) -> list[Instruction]:
        if event.epoch != self._epoch:
            return [self._out_of_order(RequestName.TRIGGER, event.epoch)]
        self.phase = RunPhase.PLANNING
        self._asked_ms = self.now_ms
        written, puts = self._taken_in(event.files, event.epoch)
        plan = self._new_plan(event, written)
        return [*puts, *self._planned(plan)] if plan is not None else self._conflicting_plan(event.epoch)

    def _new_plan(self, event: ev.TriggerRequested, written: Mapping[str, Content | None]) -> Plan | None:
        """None: the epoch was planned before with other data. What its sources had listed for it lies there since the start: nobody
        writes it again."""
        recorded = self._recorded.pop(event.epoch, None)
        listed = sources_of(recorded.files) if recorded else {}
        self._files.apply({**listed, **written, offsets_file(event.epoch): event.offsets})
        plan = Plan(self.claim.claim, self.claim.run, event.epoch, event.offsets, self._files.take_changes(), recorded is not None)
        return plan if recorded is None or recorded.same_data(plan) else None

    def _append_plan(self, plan: Plan) -> list[Instruction]:
        self._plan = plan
        self._attempt = 0
        self._cause = ""
        self._plan_waits = self._large.awaits(plan.files.values())
        return [] if self._plan_waits else self._issue_plan(plan)

    def _issue_plan(self, plan: Plan) -> list[Instruction]:
        """All that the plan names is durable."""
        self._floor = self._next_floor()
        self._plan = plan = replace(plan, floor=self._floor)
        try:
            data = encode(plan)
        except FormatError as error:
            return self._plan_failed(ErrorKind.STORAGE, f"the plan of epoch {plan.epoch} could not be stored: {error}")
        self._deletions.append_issued(self._next_number)
        return [do.PutEntry(self.ticket(), self._next_number, data)]

    def _file_put(self, event: ev.FileStored) -> list[Instruction]:
        """A large file of the driver, which a plan or a checkpoint waits for."""
        one = self._storing.pop(event.ticket)
        if event.outcome is Outcome.STORED:
            self._large.stored(event.name)
            waiting = self._plan if self._plan_waits else None
            self._plan_waits = waiting is not None and self._large.awaits(waiting.files.values())
            issued = self._issue_plan(waiting) if waiting is not None and not self._plan_waits else []
            return issued + self._files_stored()
        self._cause = event.message
        if event.outcome is Outcome.REFUSED:
            return self._plan_failed(ErrorKind.STORAGE, f"a file of the driver could not be stored: {event.message}")
        self._file_attempts += 1
        return [self._store_file(one, self._file_attempts)]

    @abstractmethod
    def _files_stored(self) -> list[Instruction]:
        """Large files of the driver became durable: checkpoints may have waited for them."""

    def _plan_put(self, event: ev.EntryPut) -> list[Instruction]:
        assert self._plan is not None
        if event.outcome is Outcome.STORED:
            return self._appended(event.number, event.stored_ms)
        if event.outcome in (Outcome.EXISTS, Outcome.UNKNOWN):
            return [do.ReadEntry(self.ticket(), event.number)]
        self._cause = event.message
        if event.outcome is Outcome.REFUSED:
            return self._plan_failed(ErrorKind.STORAGE, f"the plan of epoch {self._plan.epoch} could not be stored: {event.message}")
        return self._put_plan(event.number)

    def _put_plan(self, number: int) -> list[Instruction]:
        assert self._plan is not None
        self._attempt += 1
        return [do.PutEntry(self.ticket(), number, encode(self._plan), self._attempt)]

    def _plan_read_back(self, event: ev.EntryRead) -> list[Instruction]:
        assert self._plan is not None
        if event.data is None:
            self._cause = "a put was not answered and did not arrive"
            return self._put_plan(event.number)
        entry = self._decode(event)
        if isinstance(entry, Plan) and entry.claim == self.claim.claim and entry.same_data(self._plan):
            self._plan, self._floor = entry, max(self._floor, entry.floor)
            return self._appended(event.number, None)
        if isinstance(entry, Request) and entry.claim == self.claim.claim:
            taken = self._take_up(entry)
            self._deletions.append_failed(event.number)
            return [*taken, *self._append_plan(self._plan), *self._proceed()]
        return self._fenced(event.number, entry)

    def _plan_read_failed(self, event: ev.ReadFailed) -> list[Instruction]:
        """The put decides as well as a read does: our own entry makes it EXISTS, and it is read again."""
        self._cause = event.message
        return self._put_plan(self._next_number)

    def _appended(self, number: int, stored_ms: int | None) -> list[Instruction]:
        """The run's own plan is there. `stored_ms`: since when, None where the put's answer was lost."""
        before, self._stored_ms = self._stored_ms, stored_ms
        # Of a storage whose clock jumps one date may be wrong: what is deleted on the strength of it rests on two.
        self._trim_ms = min(before, stored_ms) if before is not None and stored_ms is not None and self._is_sure(before) else None
        return self._plan_is_stored(number) if self._is_sure(before) else [do.LookPast(self.ticket(), number)]

    def _is_sure(self, before_ms: int | None) -> bool:
        return is_sure(before_ms, self._stored_ms, self._settings.log_kept_ms)

    def _past_seen(self, event: ev.PastSeen) -> list[Instruction]:
        """Whether the plan stands at the log's end, or in a hole that others have left behind them."""
        if event.found is None:
            return self._plan_is_stored(self._next_number)
        entry = self._decode_past(event)
        if isinstance(entry, Request) and entry.claim == self.claim.claim:
            return [do.LookPast(self.ticket(), event.found)]
        return self._fenced(event.found, entry)

    def _plan_is_stored(self, number: int) -> list[Instruction]:
        assert self._plan is not None
        self._next_number = number + 1
        self._attempt = self._file_attempts = 0
        self._deletions.planned.add(number, self._plan.objects)
        trimming = self._trimming(self._trim.begin(number, self._plan.floor, self._trim_ms, self._tickets))
        return [*self._plan_stored(number), *trimming]

    def _plan_timed_out(self) -> list[Instruction]:
        assert self._plan is not None
        waited = f"within {self._settings.timeout_ms} ms (spark.ckpt.timeout)"
        return self._plan_failed(
            ErrorKind.TIMEOUT, f"the plan of epoch {self._plan.epoch} could not be stored {waited}: {self._cause or 'no answer'}"
        )

    def _conflicting_plan(self, epoch: int) -> list[Instruction]:
        return self._plan_failed(
            ErrorKind.CONFLICT,
            f"epoch {epoch} was planned before with other data, and a sink may have seen that; start the query again "
            "to run it as it was planned",
        )
