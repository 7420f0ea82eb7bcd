"""What people ask a simulated driver for that is to end its query, as `DriverStream.scala` and `EpochRunner.scala` meet it."""

from __future__ import annotations

from simulation.environment import Environment
from simulation.invariants import Invariant, ViolationError
from simulation.observed import Observed
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.entries import STOP, Plan, Request


class StopRequests:
    """One is met at a time, the oldest first. `met`: that one."""

    def __init__(self, env: Environment) -> None:
        self.met: do.Stopping | None = None
        self._env = env
        self._runs: list[int] = []
        self._waiting: list[do.Stopping] = []
        self._asked_with: list[do.Stopping] = []
        """Those that the coordinator had taken up when it was asked for an end, and that this end answers."""

    @property
    def is_open(self) -> bool:
        return self.met is not None or bool(self._waiting)

    def begin(self, run: int) -> None:
        """Another run."""
        self._runs.append(run)
        self.met, self._waiting = None, []

    def check_goes_on(self) -> None:
        """The query runs an epoch."""
        answers = self._env.ended_as_asked
        ended = next((run for run in self._runs if run in answers), None)
        if ended is not None:
            raise ViolationError(Invariant.ANSWERED_ENDS, f"the query of run {ended} goes on, though it ended with {answers[ended]}")

    def forget(self) -> None:
        """A new coordinator turns away what the other one had taken up."""
        self._waiting = []

    def take(self, asked: do.Stopping) -> None:
        self._env.observed[Observed.STOPPING] += 1
        self._waiting.append(asked)

    def drains(self, epoch: int) -> bool:
        """Whether an epoch that drains comes first. Before the first one there is nothing to drain."""
        if self.met is not None:
            return False
        self.met = self._waiting[0]
        return self.met.drain and epoch > 0

    def finish(self) -> ev.FinishRequested:
        assert self.met is not None
        drained = self.met.drain
        self._asked_with = [asked for asked in self._waiting if drained or not asked.drain]
        return ev.FinishRequested(stopping=True, drained=drained)

    def refused(self) -> None:
        """All that the end would have answered are answered with an error, and the query goes on."""
        self.met, answered = None, self._asked_with
        self._waiting = [asked for asked in self._waiting if not any(asked is one for one in answered)]


def check_wanted(drain: Plan, env: Environment) -> None:
    """It is about to be stored. Whoever is told to ask again may be so after that."""
    env.observed[Observed.DRAINED] += 1
    log, claim = env.world.log, drain.claim
    if log.superseded(claim) and claim < log.floor:
        return  # it has slept for a day, and is fenced: entries of those who had asked it are gone
    entries = {n: log.entry(n) for n in sorted(log.entries) if n > claim}
    wanted = [n for n, e in entries.items() if isinstance(e, Request) and e.action == STOP and e.drain and e.claim == claim]
    if all(n in env.answering for n in wanted):
        answered = f"and {wanted} have been answered"
        raise ViolationError(Invariant.DRAINED_ASKED, f"epoch {drain.epoch} drains a query under claim {claim}, {answered}")
