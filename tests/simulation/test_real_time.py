"""Real time under seeded schedules, and runs with micro-batches between: nothing is lost, state is right, and no number ever carries two
things, not even that of an epoch which never ended."""

from __future__ import annotations

import pytest

from simulation import REAL_TIME_ONLY, Invariant, Mode, Mutation, Observed
from tests.drivers.schedules import RARE_IN_BOTH_GATES, check_all_rules, check_caught, check_caught_by_many, check_replay

# A minute of a processor of one's own; beside others it takes as long as they let it.
pytestmark = pytest.mark.timeout(600)

SEEDS = 150
MOST = 600
RARE = RARE_IN_BOTH_GATES | {Observed.RERUN_IN_PLACE, Observed.SPOOL_FULL, Observed.CHOICE_REFUSED, Observed.FORGOTTEN, Observed.DRAINED}

CAUGHT = {
    Mutation.RECORDS_VOID: {Invariant.SAME_DATA},
    Mutation.RUNNING_COUNTED: {Invariant.SAME_DATA},
    Mutation.BEGUN_IS_LOGGED: {Invariant.PLAN_FIRST},
    Mutation.BEGINNING_ADOPTED: {Invariant.FILES_RIGHT},
    Mutation.ENDS_AS_ASKED: {Invariant.ANSWERED_ENDS},
    Mutation.PLANNED_FIRST: {Invariant.SAME_DATA},
}
"""What is broken, each in some seed, when a rule is left out."""
LONG = {Mutation.BEGINNING_ADOPTED}
"""What none of the first 600 schedules shows: `tests/unit/test_protocol_real_time.py` does."""


def test_every_rule_of_this_mode_is_left_out_once() -> None:
    assert set(CAUGHT) == REAL_TIME_ONLY


def test_all_rules_hold_and_input_was_really_read_again() -> None:
    total = check_all_rules(Mode.REAL_TIME, SEEDS, RARE)
    assert total.observed[Observed.DUPLICATED] > SEEDS
    assert total.observed[Observed.REAL_TIME] > 10 * SEEDS


@pytest.mark.parametrize("rule", [rule for rule in CAUGHT if rule not in LONG], ids=lambda rule: rule.name)
def test_a_rule_that_is_left_out_is_caught(rule: Mutation) -> None:
    check_caught(Mode.REAL_TIME, rule, CAUGHT[rule], MOST)


@pytest.mark.parametrize("seed", [3, 4])
def test_a_seed_replays_its_story_whatever_the_hashes(seed: int) -> None:
    check_replay("real-time", seed)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_ten_thousand_seeds() -> None:
    check_all_rules(Mode.REAL_TIME, 10_000, RARE)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rule", list(CAUGHT), ids=lambda rule: rule.name)
def test_a_rule_that_is_left_out_is_caught_by_many_seeds(rule: Mutation) -> None:
    check_caught_by_many(Mode.REAL_TIME, rule, CAUGHT[rule])
