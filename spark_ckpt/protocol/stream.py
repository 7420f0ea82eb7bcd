"""One stream through its starts, runs and stops: what a runtime drives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from spark_ckpt.errors import ErrorKind
from spark_ckpt.model import CheckpointId
from spark_ckpt.paths import parse_checkpoint_url
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.checkpoints.stats import Summary
from spark_ckpt.protocol.ending import kept
from spark_ckpt.protocol.entries import Restored
from spark_ckpt.protocol.instructions import Announcement, Gate, Instruction, Level, RequestName
from spark_ckpt.protocol.machine import Story, Tickets
from spark_ckpt.protocol.reasons import HandoverFailure
from spark_ckpt.protocol.run import Parts, Run
from spark_ckpt.protocol.settings import Settings
from spark_ckpt.protocol.start.phases import StartPhase
from spark_ckpt.protocol.start.resume import Resume, ResumePhase
from spark_ckpt.protocol.start.start import Start

_NO_RUN = "no run of the query is in hand"
_SIGNALS = (ev.AcksReceived, ev.DeclineReceived, ev.HoldingReceived, ev.ExecutorsLost, ev.DamageReported)


class Stream:
    """Events in, instructions out. A `StartRequested` begins a new run whatever came before; answers to an older stage are ignored."""

    def __init__(self, settings: Settings | None = None, parts: Parts | None = None) -> None:
        self._parts = parts or Parts()
        self._settings = settings or Settings()
        self._tickets = Tickets()
        self._story = Story()
        self._waiting: dict[object, ev.Event] = {}
        self._refusal = do.Refused(RequestName.RESUME, ErrorKind.INTERNAL, "")
        self._gate = Gate.EPOCH
        self.stage: Start | Resume | Run | None = None

    @property
    def run(self) -> Run | None:
        return self.stage if isinstance(self.stage, Run) else None

    @property
    def wanted(self) -> frozenset[str]:
        """States that tasks wait for."""
        later = frozenset(event.uid for event in self._waiting.values() if isinstance(event, ev.StateWanted))
        return later | (self.run.handover.wanted if self.run else frozenset())

    def handle(self, event: ev.Event, now_ms: int) -> list[Instruction]:
        """Raises `InvalidTransitionError` for what cannot happen; the stream is unusable then, until the next `StartRequested`."""
        if isinstance(event, ev.StartRequested):
            self._waiting = {}
            self._gate = self._gate_for(event.forgetful)
            ahead = self._settings.ahead if self._gate is Gate.BACKGROUND else 0
            settings = replace(self._settings, ahead=ahead)
            self.stage = Start(event, self._tickets, self._story, settings, self._parts.start)
            told = self._of_real_time(event.forgetful) if event.real_time else self._why_every_epoch(event.forgetful)
            return [*told, *self._advance(self.stage.begin(now_ms), now_ms)]
        if isinstance(event, ev.ResumeRequested):
            self._waiting = {}
            self._gate = Gate.BACKGROUND if event.real_time else self._gate_for(event.forgetful)
            self.stage = Resume(event, self._gate, self._tickets, self._story)
            return self._advance(self.stage.begin(now_ms), now_ms)
        run = self.run
        return run.handle(event, now_ms) if run else self._before_run(event, now_ms)

    def _gate_for(self, forgetful: tuple[str, ...]) -> Gate:
        """Only epochs that can be run again as planned may run before their checkpoint is complete."""
        return Gate.BACKGROUND if self._settings.interval_ms != 0 and not forgetful else Gate.EPOCH

    def _why_every_epoch(self, forgetful: tuple[str, ...]) -> list[Instruction]:
        if not (self._settings.interval_ms != 0 and forgetful):
            return []
        named = ", ".join(forgetful)
        message = f"every epoch is a checkpoint, whatever spark.ckpt.interval says: {named} may not give the same data twice"
        return [do.Log(Level.WARN, message)]

    def _of_real_time(self, forgetful: tuple[str, ...]) -> list[Instruction]:
        """Rule: no row waits for the storage in real time, whatever the source."""
        if not forgetful:
            return []
        named = ", ".join(forgetful)
        message = f"after a crash the rows since the last checkpoint may be lost: {named} may not give them again"
        return [do.Log(Level.WARN, message)]

    def _before_run(self, event: ev.Event, now_ms: int) -> list[Instruction]:
        if isinstance(event, ev.StopRequested):
            starting = isinstance(self.stage, Start) and self.stage.phase is not StartPhase.REFUSED
            self.stage = None
            message = "the query was stopped while it started"
            refused = [do.Refused(RequestName.START, ErrorKind.INTERNAL, message)] if starting else []
            return [*refused, *kept(event, "no run had begun, or its coordinator died"), do.Stopped()]
        if isinstance(self.stage, Resume) and not isinstance(event, ev.Answer):
            return self._after_resume(self.stage, event)
        if isinstance(event, ev.StateWanted):
            return [do.NotHandedOver(event.uid, HandoverFailure.DECLINED, _NO_RUN)]
        if isinstance(event, ev.TriggerRequested):
            return [do.Refused(RequestName.TRIGGER, ErrorKind.INTERNAL, f"epoch {event.epoch} was triggered before the stream was started")]
        if isinstance(event, ev.SealRequested):
            return [do.Refused(RequestName.SEAL, ErrorKind.INTERNAL, f"epoch {event.epoch} was sealed before the stream was started")]
        if isinstance(event, ev.FinishRequested):
            return [do.Refused(RequestName.FINISH, ErrorKind.INTERNAL, "finish came before the stream was started")]
        if isinstance(event, _SIGNALS) or not isinstance(self.stage, (Start, Resume)):
            return []
        return self._advance(self.stage.handle(event, now_ms), now_ms)

    def _after_resume(self, stage: Resume, event: ev.Event) -> list[Instruction]:
        """The JVM sends `resume`, the acks and what was unanswered back to back: they wait until the run is rebuilt."""
        if stage.phase is not ResumePhase.REFUSED:
            # A report comes twice a second, and the storage may be away for hours: the newest of each executor waits.
            key = event.executor if isinstance(event, ev.HoldingReceived) else object()
            self._waiting.pop(key, None)
            self._waiting[key] = event
            return []
        return _refusal(event, self._refusal)

    def _advance(self, instructions: Iterable[Instruction], now_ms: int) -> list[Instruction]:
        """A finished start or resume becomes a run."""
        given = list(instructions)
        stage = self.stage
        if isinstance(stage, Resume) and stage.phase is ResumePhase.REFUSED:
            self._refusal = next((i for i in given if isinstance(i, do.Refused)), self._refusal)
            waiting, self._waiting = self._waiting, {}
            return given + [refused for event in waiting.values() for refused in _refusal(event, self._refusal)]
        if not isinstance(stage, (Start, Resume)) or stage.beginning is None:
            return given
        settings = self._settings
        if stage.beginning.real_time:
            settings, self._gate = settings.in_real_time(), Gate.BACKGROUND
        given = [replace(i, gate=self._gate) if isinstance(i, do.Started) else i for i in given]
        run = Run(stage.beginning, settings, self._gate, self._tickets, self._story, self._parts)
        self.stage = run
        if isinstance(stage, Start) and stage.beginning.origin:
            origin = stage.beginning.origin
            summary = Summary(origin.id.run, origin.id.epoch, origin.time_ms, full_bytes=origin.size)
            copied = _copied_from(stage.beginning.claim.restored, origin.id)
            given.append(do.Announce(Announcement.RESTORED, {**summary.to_json(), **copied}))
        given += run.begin(now_ms)
        waiting, self._waiting = self._waiting, {}
        for event in waiting.values():
            given += run.handle(event, now_ms)
        return given


def _copied_from(chosen: Restored | None, origin: CheckpointId) -> dict[str, Any]:
    if chosen is None or chosen.imported != origin:
        return {}
    return {"from": chosen.path, "from_savepoint": parse_checkpoint_url(chosen.path) is None}


def _refusal(event: ev.Event, refused: do.Refused) -> list[Instruction]:
    """A run that could not be resumed refuses what is asked of it for the same reason."""
    if isinstance(event, ev.TriggerRequested):
        return [do.Refused(RequestName.TRIGGER, refused.kind, refused.message)]
    if isinstance(event, ev.SealRequested):
        return [do.Refused(RequestName.SEAL, refused.kind, refused.message)]
    if isinstance(event, ev.FinishRequested):
        return [do.Refused(RequestName.FINISH, refused.kind, refused.message)]
    if isinstance(event, ev.StateWanted):
        return [do.NotHandedOver(event.uid, HandoverFailure.DECLINED, refused.message)]
    return []
