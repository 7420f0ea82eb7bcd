"""The interval mode under seeded schedules: epochs run past checkpoints that are still in the making, or never complete."""

from __future__ import annotations

import pytest

from simulation import (
    AGAIN,
    AT_LEAST_ONCE_ONLY,
    IN_REAL_TIME,
    INTERVAL_ONLY,
    REAL_TIME_ONLY,
    Invariant,
    Mode,
    Mutation,
    Observed,
)
from tests.drivers.schedules import (
    CAUGHT_IN_BOTH_GATES,
    RARE_IN_BOTH_GATES,
    SOONER_IN_EVERY_EPOCH,
    check_all_rules,
    check_caught,
    check_caught_by_many,
    check_replay,
)

# A minute of a processor of one's own; beside others it takes as long as they let it.
pytestmark = pytest.mark.timeout(600)

SEEDS = 200
MOST = 600
RARE = AGAIN | IN_REAL_TIME | RARE_IN_BOTH_GATES | {Observed.RERUN_IN_PLACE, Observed.SPOOL_FULL, Observed.CHOICE_REFUSED}

CAUGHT = CAUGHT_IN_BOTH_GATES | {
    Mutation.START_ORDER: {Invariant.SAME_DATA},
    Mutation.PUT_IF_ABSENT: {Invariant.SAME_DATA},
    Mutation.DELETE_ISSUED_AFTER: {Invariant.RETAINED_EXIST},
    Mutation.SPARE_DROPPED: {Invariant.NOTHING_NEEDED_DELETED},
    Mutation.UNCERTAIN_KEPT: {Invariant.NOTHING_NEEDED_DELETED},
    Mutation.DISCARD_LATER: {Invariant.DELETED_UNUSED, Invariant.NOTHING_NEEDED_DELETED, Invariant.OBJECTS_EXIST},
    Mutation.BASES_KEPT: {Invariant.DELETED_UNUSED},
    Mutation.BASES_TAKEN_OVER: {Invariant.DELETED_UNUSED},
    Mutation.HANDLES_TOLD: {Invariant.DELETED_UNUSED},
    Mutation.OVERTAKEN_WAITED_FOR: {Invariant.DELETED_UNUSED},
    Mutation.NEWEST_BY_EPOCH: {Invariant.LAG},
    Mutation.STATES_OF_ITS_END: {Invariant.HOOK_STATE},
    Mutation.GO_BACK_OWN: {Invariant.FENCED_STOPS},
    Mutation.TIMED_FROM_SEAL: {Invariant.PROGRESS},
    Mutation.LONG_BRIDGED: {Invariant.LAG},
    Mutation.SEALS_RESENT: {Invariant.FILES_RIGHT},
    Mutation.ADOPTED_STAY: {Invariant.PROGRESS},
    Mutation.LOST_WHEN_ALL_REPORTED: {Invariant.LOST_IS_GONE},
    Mutation.LOST_WHEN_REPORTED_TWICE: {Invariant.LOST_IS_GONE},
    Mutation.ALL_THAT_HAD_ENDED: {Invariant.ON_DEMAND},
    Mutation.DUE_UNASKED: {Invariant.LAG},
    Mutation.LEFT_LOOKED_FOR: {Invariant.LOST_IS_GONE},
}
LONG = SOONER_IN_EVERY_EPOCH | {Mutation.DELETE_ISSUED_AFTER}
"""What one of hundreds of schedules shows: only the campaign looks for it."""


def test_every_rule_of_this_mode_is_left_out_once() -> None:
    """What a person can choose, and what a start does, does not depend on the mode, and the every-epoch mode shows it sooner."""
    assert set(CAUGHT) == set(Mutation) - AT_LEAST_ONCE_ONLY - REAL_TIME_ONLY - {Mutation.CHOOSE_RETAINED, Mutation.CLAIM_NOT_IN_HOLE}
    assert set(CAUGHT) >= INTERVAL_ONLY


def test_all_rules_hold_and_the_faults_really_happened() -> None:
    check_all_rules(Mode.INTERVAL, SEEDS, RARE)


@pytest.mark.parametrize("rule", [rule for rule in CAUGHT if rule not in LONG], ids=lambda rule: rule.name)
def test_a_rule_that_is_left_out_is_caught(rule: Mutation) -> None:
    check_caught(Mode.INTERVAL, rule, CAUGHT[rule], MOST)


@pytest.mark.parametrize("seed", [3, 4])
def test_a_seed_replays_its_story_whatever_the_hashes(seed: int) -> None:
    check_replay("interval", seed)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_ten_thousand_seeds() -> None:
    check_all_rules(Mode.INTERVAL, 10_000, AGAIN | IN_REAL_TIME | {Observed.SPOOL_FULL, Observed.MADE_GOOD})


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rule", list(CAUGHT), ids=lambda rule: rule.name)
def test_a_rule_that_is_left_out_is_caught_by_many_seeds(rule: Mutation) -> None:
    check_caught_by_many(Mode.INTERVAL, rule, CAUGHT[rule])
