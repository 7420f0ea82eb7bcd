"""The timers of a run: one of each kind, and of EXPIRY one for each checkpoint in the making."""

from __future__ import annotations

from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.events import Timer, TimerFired
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.machine import Questions, Then


class Timers:
    """To set one that runs sets it anew. `epoch`: of the checkpoint that it is for."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._running: dict[tuple[Timer, int | None], int] = {}

    def runs(self, timer: Timer) -> bool:
        return (timer, None) in self._running

    def set(self, timer: Timer, after_ms: int, then: Then, epoch: int | None = None) -> list[Instruction]:
        """`then` is called when so many milliseconds have passed."""

        def fired(event: TimerFired) -> list[Instruction]:
            self._running.pop((timer, epoch), None)
            return then(event)

        cancelled = self.cancel(timer, epoch)
        set_timer = self._questions.ask(lambda ticket: do.SetTimer(ticket, timer, after_ms), fired)
        self._running[timer, epoch] = set_timer.ticket
        return [*cancelled, set_timer]

    def cancel(self, timer: Timer, epoch: int | None = None) -> list[Instruction]:
        ticket = self._running.pop((timer, epoch), None)
        self._questions.forget(ticket)
        return [] if ticket is None else [do.CancelTimer(ticket)]

    def cancel_all(self) -> list[Instruction]:
        return [i for timer, epoch in tuple(self._running) for i in self.cancel(timer, epoch)]
