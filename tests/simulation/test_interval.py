"""The interval mode under seeded schedules: epochs run past checkpoints that are still in the making, or never complete."""

from __future__ import annotations

import pytest

from simulation import (
    AGAIN,
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
MOST = 600
RARE = AGAIN | RARE_IN_BOTH_GATES | {Happened.RERUN_IN_PLACE, Happened.SPOOL_FULL, Happened.CHOICE_REFUSED}

MISSED = MISSED_IN_BOTH_GATES | {
    LeftOut.START_ORDER: {Rule.SAME_DATA},
    LeftOut.PUT_IF_ABSENT: {Rule.SAME_DATA},
    LeftOut.DELETE_ISSUED_AFTER: {Rule.RETAINED_EXIST},
    LeftOut.GHOSTS_KEPT: {Rule.NOTHING_NEEDED_DELETED},
    LeftOut.RELEASE_LATER: {Rule.ORIGIN_LOADS, Rule.RELEASED_UNUSED},
    LeftOut.NEWEST_BY_EPOCH: {Rule.LAG},
    LeftOut.GO_BACK_OWN: {Rule.FENCED_STOPS},
    LeftOut.TIMED_FROM_SEAL: {Rule.PROGRESS},
    LeftOut.LONG_BRIDGED: {Rule.LAG},
    LeftOut.SEALS_RESENT: {Rule.FILES_RIGHT},
    LeftOut.ADOPTED_STAY: {Rule.PROGRESS},
}


def test_every_rule_of_this_mode_is_left_out_once() -> None:
    """What a person can choose, and what a start does, does not depend on the mode, and the every-epoch mode shows it sooner."""
    assert set(MISSED) == set(LeftOut) - IN_AT_LEAST_ONCE - {LeftOut.CHOOSE_RETAINED, LeftOut.CLAIM_NOT_IN_HOLE}
    assert set(MISSED) >= IN_BACKGROUND


def test_all_rules_hold_and_the_faults_really_happened() -> None:
    check_all_rules(Mode.INTERVAL, SEEDS, RARE)


@pytest.mark.parametrize("rule", list(MISSED), ids=lambda rule: rule.name)
def test_a_rule_that_is_left_out_is_missed(rule: LeftOut) -> None:
    check_missed(Mode.INTERVAL, rule, MISSED[rule], MOST)


@pytest.mark.parametrize("seed", [3, 4])
def test_a_seed_replays_its_story_whatever_the_hashes(seed: int) -> None:
    check_replay("interval", seed)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_ten_thousand_seeds() -> None:
    check_all_rules(Mode.INTERVAL, 10_000, AGAIN | {Happened.SPOOL_FULL})


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rule", list(MISSED), ids=lambda rule: rule.name)
def test_a_rule_that_is_left_out_is_missed_by_many_seeds(rule: LeftOut) -> None:
    check_missed_by_many(Mode.INTERVAL, rule, MISSED[rule])
