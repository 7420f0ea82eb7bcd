"""At-least-once under seeded schedules: nothing is lost, and no number ever carries two things, whatever a person discards."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from spark_ckpt.testing.simulation import IN_AT_LEAST_ONCE, Happened, LeftOut, Mode, Rule, campaign, leaving_out, simulate

SEEDS = 150
MOST = 600
RARE = {
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
    LeftOut.AHEAD_COUNTED: {Rule.SAME_DATA},
    LeftOut.FIRST_VOIDS: {Rule.PROGRESS},
    LeftOut.CARRIED_VOIDS_NOT: {Rule.SAME_DATA},
    LeftOut.AHEAD_WHEN_KNOWN: {Rule.SAME_DATA},
    LeftOut.PLAN_BEFORE_METADATA: {Rule.PLAN_FIRST},
    LeftOut.OLD_VERSION: {Rule.STATE_RIGHT},
}
"""What is broken, each in some seed, when a rule is left out."""
HARD = {LeftOut.CARRIED_VOIDS_NOT}
"""Needs some hundred seeds: left to the campaign."""


def test_every_rule_of_this_mode_is_left_out_once() -> None:
    assert set(MISSED) == IN_AT_LEAST_ONCE


def test_all_rules_hold_and_input_was_really_run_again() -> None:
    total = campaign(range(SEEDS), Mode.AT_LEAST_ONCE)
    print(total.report())
    assert not total.failed, total.report()
    assert set(total.never) <= RARE, total.report()
    assert total.happened[Happened.DUPLICATED] > SEEDS


@pytest.mark.parametrize("rule", [rule for rule in MISSED if rule not in HARD], ids=lambda rule: rule.name)
def test_a_rule_that_is_left_out_is_missed(rule: LeftOut) -> None:
    expected = MISSED[rule]
    total = campaign(range(MOST), Mode.AT_LEAST_ONCE, leaving_out(rule), lambda so_far: expected <= so_far.broken.keys())
    print(f"without {rule.name}: {total.report()}")
    assert expected <= total.broken.keys(), total.report()
    again = simulate(total.failed[0].seed, Mode.AT_LEAST_ONCE, leaving_out(rule))
    assert str(again.violation) == str(total.failed[0].violation)


@pytest.mark.parametrize("seed", [3, 4])
def test_a_seed_replays_its_story_whatever_the_hashes(seed: int) -> None:
    command = [sys.executable, "-m", "spark_ckpt.testing.simulation", "--seed", str(seed), "--mode", "at-least-once"]
    stories = [
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": hashes}, capture_output=True, text=True, check=True).stdout
        for hashes in ("1", "2")
    ]
    assert stories[0] == stories[1]
    assert len(stories[0].splitlines()) > 100


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_ten_thousand_seeds() -> None:
    total = campaign(range(10_000), Mode.AT_LEAST_ONCE)
    print(total.report())
    assert not total.failed, total.report()
    assert set(total.never) <= {Happened.SPOOL_FULL}, total.report()


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rule", list(MISSED), ids=lambda rule: rule.name)
def test_a_rule_that_is_left_out_is_missed_by_many_seeds(rule: LeftOut) -> None:
    total = campaign(range(2_000), Mode.AT_LEAST_ONCE, leaving_out(rule))
    print(f"without {rule.name}: {total.report()}")
    assert len(total.failed) >= 3, total.report()
    assert MISSED[rule] <= total.broken.keys(), total.report()
