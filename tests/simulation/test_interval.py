"""The interval mode under seeded schedules: epochs run past checkpoints that are still in the making, or never complete."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from spark_ckpt.testing.simulation import (
    AGAIN,
    IN_AT_LEAST_ONCE,
    IN_BACKGROUND,
    Happened,
    LeftOut,
    Mode,
    Rule,
    campaign,
    leaving_out,
    simulate,
)

SEEDS = 200
MOST = 600
RARE = AGAIN | {
    Happened.GHOST,
    Happened.SHARED,
    Happened.LOAD_FENCED,
    Happened.RERUN_IN_PLACE,
    Happened.NOT_FINISHED,
    Happened.SPOOL_FULL,
    Happened.IMPORTED,
    Happened.SOURCE_GONE,
    Happened.CHOICE_REFUSED,
}

MISSED = {
    LeftOut.START_ORDER: {Rule.SAME_DATA},
    LeftOut.DELETE_AFTER_APPEND: {Rule.RETAINED_EXIST},
    LeftOut.PUT_IF_ABSENT: {Rule.SAME_DATA},
    LeftOut.SPARE_DROPPED: {Rule.NOTHING_NEEDED_DELETED},
    LeftOut.SPARE_NAMED: {Rule.NOTHING_NEEDED_DELETED},
    LeftOut.RERUN_PLANNED: {Rule.SAME_DATA},
    LeftOut.REPLAN: {Rule.PLAN_FIRST},
    LeftOut.READ_BACK: {Rule.COMPLETED_STORED, Rule.PLAN_FIRST},
    LeftOut.DELETE_NOTHING_UNKNOWN: {Rule.NOTHING_NEEDED_DELETED},
    LeftOut.WAIT_FOR_ACKS: {Rule.STATE_RIGHT},
    LeftOut.DELETE_ISSUED_AFTER: {Rule.RETAINED_EXIST},
    LeftOut.GHOSTS_KEPT: {Rule.NOTHING_NEEDED_DELETED},
    LeftOut.RELEASE_LATER: {Rule.ORIGIN_LOADS, Rule.RELEASED_UNUSED},
    LeftOut.NEWEST_BY_EPOCH: {Rule.LAG},
    LeftOut.FIRST_PLAN_COUNTS: {Rule.SAME_DATA},
    LeftOut.GO_BACK_OWN: {Rule.FENCED_STOPS},
    LeftOut.COLLECT_KEPT_FIRST: {Rule.NOTHING_NEEDED_DELETED},
    LeftOut.COLLECT_CLAIM_AGAIN: {Rule.NOTHING_NEEDED_DELETED},
}
"""What is broken, each in some seed, when a rule is left out."""


def test_every_rule_of_this_mode_is_left_out_once() -> None:
    """What a person can choose does not depend on the mode, and the every-epoch mode shows it sooner."""
    assert set(MISSED) == set(LeftOut) - IN_AT_LEAST_ONCE - {LeftOut.CHOOSE_RETAINED}
    assert set(MISSED) >= IN_BACKGROUND


def test_all_rules_hold_and_the_faults_really_happened() -> None:
    total = campaign(range(SEEDS), Mode.INTERVAL)
    print(total.report())
    assert not total.failed, total.report()
    assert set(total.never) <= RARE, total.report()


@pytest.mark.parametrize("rule", list(MISSED), ids=lambda rule: rule.name)
def test_a_rule_that_is_left_out_is_missed(rule: LeftOut) -> None:
    expected = MISSED[rule]
    total = campaign(range(MOST), Mode.INTERVAL, leaving_out(rule), lambda so_far: expected <= so_far.broken.keys())
    print(f"without {rule.name}: {total.report()}")
    assert expected <= total.broken.keys(), total.report()
    again = simulate(total.failed[0].seed, Mode.INTERVAL, leaving_out(rule))
    assert str(again.violation) == str(total.failed[0].violation)


@pytest.mark.parametrize("seed", [3, 4])
def test_a_seed_replays_its_story_whatever_the_hashes(seed: int) -> None:
    command = [sys.executable, "-m", "spark_ckpt.testing.simulation", "--seed", str(seed), "--mode", "interval"]
    stories = [
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": hashes}, capture_output=True, text=True, check=True).stdout
        for hashes in ("1", "2")
    ]
    assert stories[0] == stories[1]
    assert len(stories[0].splitlines()) > 100


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_ten_thousand_seeds() -> None:
    total = campaign(range(10_000), Mode.INTERVAL)
    print(total.report())
    assert not total.failed, total.report()
    assert set(total.never) <= AGAIN | {Happened.SPOOL_FULL}, total.report()


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rule", list(MISSED), ids=lambda rule: rule.name)
def test_a_rule_that_is_left_out_is_missed_by_many_seeds(rule: LeftOut) -> None:
    total = campaign(range(2_000), Mode.INTERVAL, leaving_out(rule))
    print(f"without {rule.name}: {total.report()}")
    assert len(total.failed) >= 3, total.report()
    assert MISSED[rule] <= total.broken.keys(), total.report()
