"""How bad a simulated world is: probabilities and delays, drawn from the seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

KEPT = 1000
"""Milliseconds that stand for the day which entries of the log stay: more than twice what a put may land late."""


@dataclass(frozen=True)
class Faults:
    """Probabilities per event or operation; 0 everywhere is quiet."""

    crash: float = 0.0
    sleep: float = 0.0
    coordinator_crash: float = 0.0
    executor_loss: float = 0.0
    agent_restart: float = 0.0
    """That an agent dies alone, and another takes its place, each time that its executor looks what there is to report."""
    answer_lost: float = 0.0
    request_lost: float = 0.0
    late: float = 0.0
    put_failed: float = 0.0
    read_failed: float = 0.0
    delete_failed: float = 0.0
    slow: float = 0.0
    ack_lost: float = 0.0
    ack_doubled: float = 0.0
    decline: float = 0.0
    losing: float = 0.0
    moved: float = 0.0
    stop: float = 0.0
    task_failure: float = 0.0
    long: float = 0.0
    """That an epoch lasts longer than the interval, perhaps longer than the time-out."""
    rival: float = 0.0
    """That a driver is started although another lives, each time the supervisor looks."""
    outage: float = 0.0
    """That the storage goes away for a while, each time the supervisor looks."""
    damage: float = 0.0
    """That something stored is damaged or vanishes, each time the supervisor looks."""
    demand: float = 0.0
    """That a person asks for a checkpoint, each time the supervisor looks."""
    ask: float = 0.0
    """That a person asks for a savepoint, each time the supervisor looks."""
    restore: float = 0.0
    """That a person chooses what the stream goes on from, each time a driver is started."""
    change: float = 0.0
    """That a person changes the query, each time a driver is started."""
    undated: float = 0.0
    """That an answer to a put does not say when it was stored."""
    gc: float = 0.0
    """That garbage is collected, each time the supervisor looks, and that the collector pauses between two steps."""


QUIET = Faults()
EVERYDAY = Faults(losing=0.2, moved=0.1, ack_doubled=0.1, restore=0.3, long=0.1, change=0.1)
"""Losing attempts, tasks that move, doubled acks and long epochs are Spark's everyday life, not faults; going back is a person's right."""
WHILE_DELETED = Faults(losing=0.2, moved=0.1, ack_doubled=0.1, decline=0.01, put_failed=0.05, slow=0.3, executor_loss=0.05)
"""Around the deletion of a stream: no put that lands after it was given up, for of that nobody could know."""

ANEW = Faults(losing=0.2, moved=0.1, crash=0.01, coordinator_crash=0.01, executor_loss=0.05, answer_lost=0.05, put_failed=0.05, rival=0.3)
"""Around the beginning of a stream that was deleted before; nobody goes back to what was before."""

_WORST = Faults(
    crash=0.01,
    sleep=0.02,
    coordinator_crash=0.01,
    executor_loss=0.15,
    agent_restart=0.03,
    answer_lost=0.08,
    request_lost=0.05,
    late=0.05,
    put_failed=0.05,
    read_failed=0.05,
    delete_failed=0.2,
    slow=0.15,
    ack_lost=0.08,
    ack_doubled=0.2,
    decline=0.01,
    losing=0.2,
    moved=0.1,
    stop=0.03,
    task_failure=0.03,
    long=0.1,
    rival=0.5,
    outage=0.1,
    damage=0.1,
    demand=0.2,
    ask=0.2,
    undated=0.1,
    restore=0.5,
    gc=0.4,
    change=0.2,
)


_APART = {"damage": -1, "agent_restart": -1_000_000_007, "demand": -2_000_000_011, "change": -6_000_000_041}


def draw(rng: random.Random, seed: int) -> Faults:
    """Each kind is absent, rare or frequent, so that one seed mixes few kinds and another all."""
    drawn = {name: worst * rng.choice((0.0, 0.3, 1.0)) for name, worst in vars(_WORST).items() if name not in _APART}
    # By sources of their own: without these a seed is the schedule that it would be if there were none.
    apart = {name: getattr(_WORST, name) * random.Random(first - seed).choice((0.0, 0.3, 1.0)) for name, first in _APART.items()}
    return Faults(**drawn, **apart)
