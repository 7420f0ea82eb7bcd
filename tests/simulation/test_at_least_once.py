"""At-least-once under seeded schedules: nothing is lost, and no number ever carries two things, whatever a person discards."""

from __future__ import annotations

import pytest

from simulation import IN_AT_LEAST_ONCE, Happened, LeftOut, Mode, Rule
from tests.drivers.schedules import RARE_IN_BOTH_GATES, check_all_rules, check_missed, check_missed_by_many, check_replay

SEEDS = 150
MOST = 600
RARE = RARE_IN_BOTH_GATES | {Happened.RERUN_IN_PLACE, Happened.SPOOL_FULL, Happened.CHOICE_REFUSED, Happened.FORGOTTEN}

MISSED = {
    LeftOut.AHEAD_COUNTED: {Rule.SAME_DATA},
    LeftOut.FIRST_VOIDS: {Rule.SAME_DATA},
    LeftOut.CARRIED_VOIDS_NOT: {Rule.SAME_DATA},
    LeftOut.AHEAD_WHEN_KNOWN: {Rule.SAME_DATA},
    LeftOut.PLAN_BEFORE_METADATA: {Rule.PLAN_FIRST},
    LeftOut.OLD_VERSION: {Rule.STATE_RIGHT},
    LeftOut.FILES_OF_ITS_END: {Rule.FILES_RIGHT},
}
"""What is broken, each in some seed, when a rule is left out."""
HARD = {LeftOut.CARRIED_VOIDS_NOT, LeftOut.FIRST_VOIDS}
"""Needs some hundred seeds: left to the campaign."""


def test_every_rule_of_this_mode_is_left_out_once() -> None:
    assert set(MISSED) == IN_AT_LEAST_ONCE


def test_all_rules_hold_and_input_was_really_run_again() -> None:
    total = check_all_rules(Mode.AT_LEAST_ONCE, SEEDS, RARE)
    assert total.happened[Happened.DUPLICATED] > SEEDS


@pytest.mark.parametrize("rule", [rule for rule in MISSED if rule not in HARD], ids=lambda rule: rule.name)
def test_a_rule_that_is_left_out_is_missed(rule: LeftOut) -> None:
    check_missed(Mode.AT_LEAST_ONCE, rule, MISSED[rule], MOST)


@pytest.mark.parametrize("seed", [3, 4])
def test_a_seed_replays_its_story_whatever_the_hashes(seed: int) -> None:
    check_replay("at-least-once", seed)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_ten_thousand_seeds() -> None:
    check_all_rules(Mode.AT_LEAST_ONCE, 10_000, {Happened.SPOOL_FULL})


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rule", list(MISSED), ids=lambda rule: rule.name)
def test_a_rule_that_is_left_out_is_missed_by_many_seeds(rule: LeftOut) -> None:
    check_missed_by_many(Mode.AT_LEAST_ONCE, rule, MISSED[rule])
