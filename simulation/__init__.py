"""Both modes under seeded schedules and faults: the real protocol, simulated drivers, executors, storage, source and sink.

One seed decides everything; `simulate(seed)` raises `ViolationError` with the invariant that broke, or returns what happened.
"""

from __future__ import annotations

from simulation.campaign import Campaign, campaign
from simulation.invariants import Invariant, ViolationError
from simulation.mutations import AT_LEAST_ONCE_ONLY, INTERVAL_ONLY, REAL_TIME_ONLY, Mutation, Variant, mutated
from simulation.observed import AGAIN, BACKGROUND, IN_REAL_TIME, SELDOM, Observed
from simulation.simulation import Mode, Result, Simulation, simulate

__all__ = [
    "AGAIN",
    "AT_LEAST_ONCE_ONLY",
    "BACKGROUND",
    "INTERVAL_ONLY",
    "IN_REAL_TIME",
    "REAL_TIME_ONLY",
    "SELDOM",
    "Campaign",
    "Invariant",
    "Mode",
    "Mutation",
    "Observed",
    "Result",
    "Simulation",
    "Variant",
    "ViolationError",
    "campaign",
    "mutated",
    "simulate",
]
