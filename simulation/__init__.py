"""Both modes under seeded schedules and faults: the real protocol, simulated drivers, executors, storage, source and sink.

One seed decides everything; `simulate(seed)` raises `ViolationError` with the rule that broke, or returns what happened.
"""

from __future__ import annotations

from simulation.campaign import Campaign, campaign
from simulation.happened import AGAIN, BACKGROUND, Happened
from simulation.left_out import IN_AT_LEAST_ONCE, IN_BACKGROUND, LeftOut, Rules, leaving_out
from simulation.rules import Rule, ViolationError
from simulation.simulation import Mode, Result, Simulation, simulate

__all__ = [
    "AGAIN",
    "BACKGROUND",
    "IN_AT_LEAST_ONCE",
    "IN_BACKGROUND",
    "Campaign",
    "Happened",
    "LeftOut",
    "Mode",
    "Result",
    "Rule",
    "Rules",
    "Simulation",
    "ViolationError",
    "campaign",
    "leaving_out",
    "simulate",
]
