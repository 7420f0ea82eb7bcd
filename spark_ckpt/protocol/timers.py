"""The timers of a run, of which there is one of each kind."""

from __future__ import annotations

from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.events import Timer, TimerFired
from spark_ckpt.protocol.instructions import Instruction
from spark_ckpt.protocol.machine import Questions, Then


class Timers:
    """To set one that runs sets it anew."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._running: dict[Timer, int] = {}

    def runs(self, timer: Timer) -> bool:
        return timer in self._running

    def set(self, timer: Timer, after_ms: int, then: Then) -> list[Instruction]:
        """`then` is called when so many milliseconds have passed."""

        def fired(event: TimerFired) -> list[Instruction]:
            self._running.pop(timer, None)
            return then(event)

        cancelled = self.cancel(timer)
        set_timer = self._questions.ask(lambda ticket: do.SetTimer(ticket, timer, after_ms), fired)
        self._running[timer] = set_timer.ticket
        return [*cancelled, set_timer]

    def cancel(self, *timers: Timer) -> list[Instruction]:
        cancelled: list[Instruction] = []
        for timer in timers:
            ticket = self._running.pop(timer, None)
            if ticket is not None:
                self._questions.forget(ticket)
                cancelled.append(do.CancelTimer(ticket))
        return cancelled
