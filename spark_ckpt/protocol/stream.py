"""One stream through its starts, runs and stops: what a runtime drives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from spark_ckpt.errors import ErrorKind
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.instructions import Announcement, Instruction, RequestName
from spark_ckpt.protocol.machine import Story, Tickets
from spark_ckpt.protocol.resume import Resume, ResumePhase
from spark_ckpt.protocol.run import Run, Settings
from spark_ckpt.protocol.start import Start, StartOrder, StartPhase
from spark_ckpt.protocol.stats import Summary

_SIGNALS = (ev.AckReceived, ev.DeclineReceived, ev.HoldingReceived, ev.ExecutorLost, ev.DamageReported)


class Stream:
    """Events in, instructions out. A `StartRequested` begins a new run whatever came before; answers to an older stage are ignored."""

    START: ClassVar[type[Start]] = Start
    RUN: ClassVar[type[Run]] = Run

    def __init__(self, settings: Settings | None = None, order: StartOrder | None = None) -> None:
        self._settings = settings or Settings()
        self._order = order or StartOrder()
        self._tickets = Tickets()
        self._story = Story()
        self._waiting: list[ev.Event] = []
        self._refusal = do.Refused(RequestName.RESUME, ErrorKind.INTERNAL, "")
        self.stage: Start | Resume | Run | None = None

    @property
    def story(self) -> list[str]:
        """The last events and what followed from them."""
        return self._story.lines

    @property
    def run(self) -> Run | None:
        return self.stage if isinstance(self.stage, Run) else None

    def handle(self, event: ev.Event, now_ms: int) -> list[Instruction]:
        """Raises `InvalidTransitionError` for what cannot happen; the stream is unusable then, until the next `StartRequested`."""
        if isinstance(event, ev.StartRequested):
            self._waiting = []
            self.stage = self.START(event, self._tickets, self._story, self._order)
            return self._advance(self.stage.begin(now_ms), now_ms)
        if isinstance(event, ev.ResumeRequested):
            self._waiting = []
            self.stage = Resume(event, self._tickets, self._story)
            return self._advance(self.stage.begin(now_ms), now_ms)
        if not isinstance(self.stage, Run):
            return self._before_run(event, now_ms)
        return self.stage.handle(event, now_ms)

    def _before_run(self, event: ev.Event, now_ms: int) -> list[Instruction]:
        if isinstance(event, ev.StopRequested):
            starting = isinstance(self.stage, Start) and self.stage.phase is not StartPhase.REFUSED
            self.stage = None
            message = "the query was stopped while it started"
            return [*([do.Refused(RequestName.START, ErrorKind.INTERNAL, message)] if starting else []), do.Stopped()]
        if isinstance(self.stage, Resume) and not isinstance(event, ev.Answer):
            return self._after_resume(self.stage, event)
        if isinstance(event, ev.TriggerRequested):
            return [do.Refused(RequestName.TRIGGER, ErrorKind.INTERNAL, f"epoch {event.epoch} was triggered before the stream was started")]
        if isinstance(event, ev.SealRequested):
            return [do.Refused(RequestName.SEAL, ErrorKind.INTERNAL, f"epoch {event.epoch} was sealed before the stream was started")]
        if isinstance(event, _SIGNALS) or self.stage is None:
            return []
        return self._advance(self.stage.handle(event, now_ms), now_ms)

    def _after_resume(self, stage: Resume, event: ev.Event) -> list[Instruction]:
        """The JVM sends `resume`, the acks and what was unanswered back to back: they wait until the run is rebuilt."""
        if stage.phase is not ResumePhase.REFUSED:
            self._waiting.append(event)
            return []
        return _refusal(event, self._refusal)

    def _advance(self, instructions: Iterable[Instruction], now_ms: int) -> list[Instruction]:
        """A finished start or resume becomes a run."""
        given = list(instructions)
        stage = self.stage
        if isinstance(stage, Resume) and stage.phase is ResumePhase.REFUSED:
            self._refusal = next(i for i in given if isinstance(i, do.Refused))
            waiting, self._waiting = self._waiting, []
            return given + [refused for event in waiting for refused in _refusal(event, self._refusal)]
        if isinstance(stage, Run) or stage is None or stage.beginning is None:
            return given
        run = self.RUN(stage.beginning, self._settings, self._tickets, self._story)
        self.stage = run
        if isinstance(stage, Start) and stage.beginning.origin:
            origin = stage.beginning.origin
            told = Summary(origin.id.run, origin.id.epoch, origin.time_ms, full_bytes=origin.size)
            given.append(do.Announce(Announcement.RESTORED, told.to_json()))
        given += run.begin(now_ms)
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            given += run.handle(event, now_ms)
        return given


def _refusal(event: ev.Event, refused: do.Refused) -> list[Instruction]:
    """A run that could not be resumed refuses what is asked of it for the same reason."""
    if isinstance(event, ev.TriggerRequested):
        return [do.Refused(RequestName.TRIGGER, refused.kind, refused.message)]
    if isinstance(event, ev.SealRequested):
        return [do.Refused(RequestName.SEAL, refused.kind, refused.message)]
    return []
