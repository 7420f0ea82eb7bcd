"""At-least-once under seeded schedules: nothing is lost, and no number ever carries two things, whatever a person discards."""

from __future__ import annotations

import pytest

from simulation import AT_LEAST_ONCE_ONLY, IN_REAL_TIME, Invariant, Mode, Mutation, Observed
from tests.drivers.schedules import RARE_IN_BOTH_GATES, check_all_rules, check_caught, check_caught_by_many, check_replay

# A minute of a processor of one's own; beside others it takes as long as they let it.
pytestmark = pytest.mark.timeout(600)

SEEDS = 150
MOST = 600
RARE = RARE_IN_BOTH_GATES | IN_REAL_TIME | {Observed.RERUN_IN_PLACE, Observed.SPOOL_FULL, Observed.CHOICE_REFUSED, Observed.FORGOTTEN}

CAUGHT = {
    Mutation.AHEAD_COUNTED: {Invariant.SAME_DATA},
    Mutation.FIRST_VOIDS: {Invariant.SAME_DATA},
    Mutation.CARRIED_VOIDS_NOT: {Invariant.SAME_DATA},
    Mutation.AHEAD_WHEN_KNOWN: {Invariant.SAME_DATA},
    Mutation.PLAN_BEFORE_METADATA: {Invariant.PLAN_FIRST},
    Mutation.OLD_VERSION: {Invariant.STATE_RIGHT},
    Mutation.FILES_OF_ITS_END: {Invariant.FILES_RIGHT},
}
"""What is broken, each in some seed, when a rule is left out."""
HARD = {Mutation.CARRIED_VOIDS_NOT, Mutation.FIRST_VOIDS}
"""Needs some hundred seeds: left to the campaign."""


def test_every_rule_of_this_mode_is_left_out_once() -> None:
    assert set(CAUGHT) == AT_LEAST_ONCE_ONLY


def test_all_rules_hold_and_input_was_really_run_again() -> None:
    total = check_all_rules(Mode.AT_LEAST_ONCE, SEEDS, RARE)
    assert total.observed[Observed.DUPLICATED] > SEEDS


@pytest.mark.parametrize("rule", [rule for rule in CAUGHT if rule not in HARD], ids=lambda rule: rule.name)
def test_a_rule_that_is_left_out_is_caught(rule: Mutation) -> None:
    check_caught(Mode.AT_LEAST_ONCE, rule, CAUGHT[rule], MOST)


@pytest.mark.parametrize("seed", [3, 4])
def test_a_seed_replays_its_story_whatever_the_hashes(seed: int) -> None:
    check_replay("at-least-once", seed)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_ten_thousand_seeds() -> None:
    check_all_rules(Mode.AT_LEAST_ONCE, 10_000, IN_REAL_TIME | {Observed.SPOOL_FULL, Observed.MADE_GOOD})


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rule", list(CAUGHT), ids=lambda rule: rule.name)
def test_a_rule_that_is_left_out_is_caught_by_many_seeds(rule: Mutation) -> None:
    check_caught_by_many(Mode.AT_LEAST_ONCE, rule, CAUGHT[rule])
