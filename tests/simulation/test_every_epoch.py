"""The every-epoch mode under seeded schedules: the rules hold, and each rule that is left out is missed."""

from __future__ import annotations

import pytest

from simulation import (
    AGAIN,
    BACKGROUND,
    IN_AT_LEAST_ONCE,
    IN_BACKGROUND,
    Happened,
    LeftOut,
    Mode,
    Rule,
)
from tests.drivers.schedules import (
    MISSED_IN_BOTH_GATES,
    RARE_IN_BOTH_GATES,
    check_all_rules,
    check_missed,
    check_missed_by_many,
    check_replay,
)

SEEDS = 200
MOST = 1_000
NOT_HERE = BACKGROUND | AGAIN
RARE = NOT_HERE | RARE_IN_BOTH_GATES | {Happened.FENCED_IDLE}

MISSED = MISSED_IN_BOTH_GATES | {
    LeftOut.START_ORDER: {Rule.RETAINED_EXIST, Rule.SAME_DATA},
    LeftOut.PUT_IF_ABSENT: {Rule.RETAINED_EXIST, Rule.SAME_DATA},
    LeftOut.CHOOSE_RETAINED: {Rule.RETAINED_EXIST},
    LeftOut.CLAIM_NOT_IN_HOLE: {Rule.FENCED_STOPS},
}


def test_every_rule_of_this_mode_is_left_out_once() -> None:
    assert set(MISSED) == set(LeftOut) - IN_BACKGROUND - IN_AT_LEAST_ONCE


def test_all_rules_hold_and_the_faults_really_happened() -> None:
    check_all_rules(Mode.EVERY, SEEDS, RARE)


@pytest.mark.parametrize("rule", list(MISSED), ids=lambda rule: rule.name)
def test_a_rule_that_is_left_out_is_missed(rule: LeftOut) -> None:
    check_missed(Mode.EVERY, rule, MISSED[rule], MOST, failures=2)


@pytest.mark.parametrize("seed", [3, 4])
def test_a_seed_replays_its_story_whatever_the_hashes(seed: int) -> None:
    check_replay("every", seed)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_ten_thousand_seeds() -> None:
    check_all_rules(Mode.EVERY, 10_000, NOT_HERE)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rule", list(MISSED), ids=lambda rule: rule.name)
def test_a_rule_that_is_left_out_is_missed_by_many_seeds(rule: LeftOut) -> None:
    check_missed_by_many(Mode.EVERY, rule, MISSED[rule])
