"""What a stream's machine asks of the storage, done in other threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spark_ckpt.coordinator.actions import StorageActions
from spark_ckpt.coordinator.pool import Pool
from spark_ckpt.coordinator.schedule import Schedule, Task
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do

FIRST_DELAY_S = 0.1
DOUBLINGS = 32
"""Attempts have no bound, a floating-point number has."""
LONGEST_DELAY_S = 5.0
"""Between attempts; each waits twice as long as the one before."""


@dataclass(frozen=True)
class Pools:
    """Of all streams of a process. Deletions wait for a thread of their own in `background`, so that no epoch waits behind them, and old
    entries of the log for one in `trimming`, so that no deletion does. What deletes a savepoint too has threads in `elsewhere`: that may
    lie in a storage that does not answer for ten minutes each time, or, on a mount that hangs, never; no other stream waits for that."""

    foreground: Pool
    background: Pool
    trimming: Pool
    elsewhere: Pool


class StorageWork:
    """For the stream's own thread: `post` hands a task over to that, `answered` and `broken` are called there."""

    def __init__(
        self,
        actions: StorageActions,
        pools: Pools,
        schedule: Schedule,
        post: Callable[[Task], None],
        answered: Callable[[ev.Event], None],
        broken: Callable[[Exception], None],
    ) -> None:
        self._actions = actions
        self._pools = pools
        self._schedule = schedule
        self._post = post
        self._answered = answered
        self._broken = broken
        self._in_hand = 0
        self._postponed: dict[int, do.Question] = {}

    @property
    def is_idle(self) -> bool:
        """Nothing is in hand. What is postponed is the schedule's."""
        return self._in_hand == 0

    def begin(self, asked: do.Question | do.Delete | do.Trimming) -> None:
        """At once, or after a pause what was tried before."""
        if isinstance(asked, do.Delete):
            self._submit(self._pools.background if asked.savepoint is None else self._pools.elsewhere, asked)
        elif isinstance(asked, do.Trimming):
            self._submit(self._pools.trimming, asked)
        elif asked.attempt == 0:
            self._submit(self._pools.foreground, asked)
        else:
            question = asked
            self._postponed[question.ticket] = question
            pause = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** min(question.attempt - 1, DOUBLINGS))
            self._schedule.later(pause, lambda: self._resume(question))

    def look(self, look: Task) -> None:
        """Something that the machine has not asked for. It must not raise."""

        def run() -> None:
            look()
            self._post(self._done)

        self._in_hand += 1
        self._pools.foreground.submit(run)

    def give_up(self) -> list[ev.Event]:
        """The schedule is closed: the answers to what is postponed."""
        postponed, self._postponed = self._postponed, {}
        return [self._actions.given_up(question) for question in postponed.values()]

    def _resume(self, question: do.Question) -> None:
        self._postponed.pop(question.ticket, None)
        self._submit(self._pools.foreground, question)

    def _submit(self, pool: Pool, asked: do.Question | do.Delete | do.Trimming) -> None:
        self._in_hand += 1
        pool.submit(lambda: self._perform(asked))

    def _perform(self, asked: do.Question | do.Delete | do.Trimming) -> None:
        """In a pool's thread."""
        try:
            answer = self._actions.perform(asked)
        except Exception as error:
            fault = error
            self._post(lambda: self._done(lambda: self._broken(fault)))
        else:
            self._post(lambda: self._done(lambda: self._answered(answer)))

    def _done(self, then: Task = lambda: None) -> None:
        self._in_hand -= 1
        then()
