"""The every-epoch mode under seeded schedules: the rules hold, and each rule that is left out is caught."""

from __future__ import annotations

import pytest

from simulation import (
    AGAIN,
    AT_LEAST_ONCE_ONLY,
    BACKGROUND,
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
    SOONER_IN_INTERVAL,
    check_all_rules,
    check_caught,
    check_caught_by_many,
    check_replay,
)

# A minute of a processor of one's own; beside others it takes as long as they let it.
pytestmark = pytest.mark.timeout(600)

SEEDS = 200
MOST = 1_000
NOT_HERE = BACKGROUND | AGAIN | IN_REAL_TIME
RARE = NOT_HERE | RARE_IN_BOTH_GATES | {Observed.FENCED_IDLE}

CAUGHT = CAUGHT_IN_BOTH_GATES | {
    Mutation.START_ORDER: {Invariant.RETAINED_EXIST, Invariant.SAME_DATA},
    Mutation.PUT_IF_ABSENT: {Invariant.RETAINED_EXIST, Invariant.SAME_DATA},
    Mutation.CHOOSE_RETAINED: {Invariant.RETAINED_EXIST},
    Mutation.CLAIM_NOT_IN_HOLE: {Invariant.FENCED_STOPS},
}


def test_every_rule_of_this_mode_is_left_out_once() -> None:
    assert set(CAUGHT) == set(Mutation) - INTERVAL_ONLY - AT_LEAST_ONCE_ONLY - REAL_TIME_ONLY


def test_all_rules_hold_and_the_faults_really_happened() -> None:
    check_all_rules(Mode.EVERY, SEEDS, RARE)


@pytest.mark.parametrize("rule", [rule for rule in CAUGHT if rule not in SOONER_IN_INTERVAL], ids=lambda rule: rule.name)
def test_a_rule_that_is_left_out_is_caught(rule: Mutation) -> None:
    check_caught(Mode.EVERY, rule, CAUGHT[rule], MOST)


@pytest.mark.parametrize("seed", [3, 4])
def test_a_seed_replays_its_story_whatever_the_hashes(seed: int) -> None:
    check_replay("every", seed)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_ten_thousand_seeds() -> None:
    check_all_rules(Mode.EVERY, 10_000, NOT_HERE | {Observed.MADE_GOOD})


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rule", list(CAUGHT), ids=lambda rule: rule.name)
def test_a_rule_that_is_left_out_is_caught_by_many_seeds(rule: Mutation) -> None:
    check_caught_by_many(Mode.EVERY, rule, CAUGHT[rule])
