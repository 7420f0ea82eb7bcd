"""What is tested in each mode alike; which events are rare there, and what a left out rule breaks, the mode's own tests say."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Set

from simulation import Campaign, Happened, LeftOut, Mode, Rule, campaign, leaving_out, simulate

MISSED_IN_BOTH_GATES = {
    LeftOut.DELETE_AFTER_APPEND: {Rule.RETAINED_EXIST},
    LeftOut.SPARE_DROPPED: {Rule.NOTHING_NEEDED_DELETED},
    LeftOut.SPARE_PLANNED: {Rule.PLANNED_EXIST},
    LeftOut.SPARE_NAMED: {Rule.NOTHING_NEEDED_DELETED},
    LeftOut.RERUN_PLANNED: {Rule.SAME_DATA},
    LeftOut.ADOPT: {Rule.PLAN_FIRST},
    LeftOut.READ_BACK: {Rule.COMPLETED_STORED, Rule.PLAN_FIRST},
    LeftOut.DELETE_NOTHING_UNKNOWN: {Rule.NOTHING_NEEDED_DELETED},
    LeftOut.WAIT_FOR_ACKS: {Rule.STATE_RIGHT},
    LeftOut.ORIGIN_VERIFIED: {Rule.ORIGIN_WHOLE},
    LeftOut.LOADED_COMPARED: {Rule.STATE_RIGHT},
    LeftOut.NOTED_AGAIN: {Rule.PROGRESS},
    LeftOut.COLLECT_READABLE: {Rule.NOTHING_NEEDED_DELETED},
    LeftOut.NUMBERS_GO_ON: {Rule.SAME_DATA},
    LeftOut.GONE_AT_LAST: {Rule.DELETED},
    LeftOut.COLLECT_KEPT_FIRST: {Rule.NOTHING_NEEDED_DELETED},
    LeftOut.COLLECT_CLAIM_AGAIN: {Rule.NOTHING_NEEDED_DELETED},
    LeftOut.COLLECT_SETTLED: {Rule.NOTHING_NEEDED_DELETED},
    LeftOut.COLLECT_AGAIN: {Rule.NOTHING_NEEDED_DELETED},
    LeftOut.A_DAY: {Rule.FENCED_STOPS},
    LeftOut.YOUNG_KNOWN: {Rule.PLANNED_EXIST},
    LeftOut.CLAIM_STAYS: {Rule.PROGRESS},
    LeftOut.APPEND_NOT_IN_HOLE: {Rule.FENCED_STOPS},
}
"""What is broken, each in some seed, when a rule is left out: the same whether checkpoints are waited for or not."""
RARE_IN_BOTH_GATES = {
    Happened.LOAD_FENCED,
    Happened.NOT_FINISHED,
    Happened.GHOST,
    Happened.SHARED,
    Happened.IMPORTED,
    Happened.SOURCE_GONE,
    Happened.HOLE,
}


def check_all_rules(mode: Mode, seeds: int, rare: Set[Happened]) -> Campaign:
    """The rules hold in so many schedules, in which everything happened but what is `rare`."""
    total = campaign(range(seeds), mode)
    print(total.report())
    assert not total.failed, total.report()
    assert set(total.never) <= rare, total.report()
    return total


def check_missed(mode: Mode, rule: LeftOut, expected: Set[Rule], seeds: int, failures: int = 1) -> None:
    """Among so many schedules without the rule, some break each of `expected`, and one of them does it again."""

    def known(so_far: Campaign) -> bool:
        return len(so_far.failed) >= failures and expected <= so_far.broken.keys()

    total = campaign(range(seeds), mode, leaving_out(rule), known)
    print(f"without {rule.name}: {total.report()}")
    assert len(total.failed) >= failures, total.report()
    assert expected <= total.broken.keys(), total.report()
    again = simulate(total.failed[0].seed, mode, leaving_out(rule))
    assert str(again.violation) == str(total.failed[0].violation)


def check_missed_by_many(mode: Mode, rule: LeftOut, expected: Set[Rule]) -> None:
    """That it is missed is no luck of one schedule, however rarely one shows it."""

    def enough(so_far: Campaign) -> bool:
        return len(so_far.failed) >= 10 and expected <= so_far.broken.keys()

    total = campaign(range(4_000), mode, leaving_out(rule), enough)
    print(f"without {rule.name}: {total.report()}")
    assert len(total.failed) >= 3, total.report()
    assert expected <= total.broken.keys(), total.report()


def check_replay(mode: str, seed: int) -> None:
    """A seed tells the same story whatever the hashes are."""
    command = [sys.executable, "-m", "simulation", "--seed", str(seed), "--mode", mode]
    stories = [
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": hashes}, capture_output=True, text=True, check=True).stdout
        for hashes in ("1", "2")
    ]
    assert stories[0] == stories[1]
    assert len(stories[0].splitlines()) > 100
