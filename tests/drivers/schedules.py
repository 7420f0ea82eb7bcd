"""What is tested in each mode alike; which events are rare there, and what a left out rule breaks, the mode's own tests say."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Set

from simulation import SELDOM, Campaign, Invariant, Mode, Mutation, Observed, campaign, mutated, simulate

CAUGHT_IN_BOTH_GATES = {
    Mutation.DELETE_AFTER_APPEND: {Invariant.RETAINED_EXIST},
    Mutation.TOLD_WHEN_DURABLE: {Invariant.COMPLETED_STORED},
    Mutation.SPARE_PLANNED: {Invariant.PLANNED_EXIST},
    Mutation.SPARE_NAMED: {Invariant.NOTHING_NEEDED_DELETED},
    Mutation.RERUN_PLANNED: {Invariant.SAME_DATA},
    Mutation.ADOPT: {Invariant.PROGRESS, Invariant.SAME_DATA},
    Mutation.READ_BACK: {Invariant.COMPLETED_STORED, Invariant.PLAN_FIRST},
    Mutation.DELETE_NOTHING_UNKNOWN: {Invariant.NOTHING_NEEDED_DELETED},
    Mutation.WAIT_FOR_ACKS: {Invariant.STATE_RIGHT},
    Mutation.ORIGIN_VERIFIED: {Invariant.ORIGIN_WHOLE},
    Mutation.LOADED_COMPARED: {Invariant.STATE_RIGHT},
    Mutation.NOTED_AGAIN: {Invariant.PROGRESS},
    Mutation.COLLECT_READABLE: {Invariant.NOTHING_NEEDED_DELETED},
    Mutation.NUMBERS_GO_ON: {Invariant.SAME_DATA},
    Mutation.GONE_AT_LAST: {Invariant.DELETED},
    Mutation.COLLECT_KEPT_FIRST: {Invariant.NOTHING_NEEDED_DELETED},
    Mutation.COLLECT_CLAIM_AGAIN: {Invariant.NOTHING_NEEDED_DELETED},
    Mutation.COLLECT_SETTLED: {Invariant.NOTHING_NEEDED_DELETED},
    Mutation.COLLECT_AGAIN: {Invariant.NOTHING_NEEDED_DELETED},
    Mutation.A_DAY: {Invariant.FENCED_STOPS},
    Mutation.YOUNG_KNOWN: {Invariant.PLANNED_EXIST},
    Mutation.CLAIM_STAYS: {Invariant.PROGRESS},
    Mutation.APPEND_NOT_IN_HOLE: {Invariant.FENCED_STOPS},
    Mutation.BEGINS_EMPTY: {Invariant.STATE_RIGHT},
    Mutation.BESIDE_STATE: {Invariant.FILES_RIGHT},
}
"""What is broken, each in some seed, when a rule is left out: the same whether checkpoints are waited for or not."""
SOONER_IN_EVERY_EPOCH = {
    Mutation.COLLECT_KEPT_FIRST,
    Mutation.COLLECT_READABLE,
    Mutation.DELETE_AFTER_APPEND,
    Mutation.DELETE_NOTHING_UNKNOWN,
    Mutation.GONE_AT_LAST,
    Mutation.ORIGIN_VERIFIED,
    Mutation.READ_BACK,
}
SOONER_IN_INTERVAL = {Mutation.A_DAY, Mutation.COLLECT_AGAIN}
"""What fewer schedules of one mode show than of the other: in the other, only the campaign's many schedules look for it."""
TRIED_FIRST: dict[tuple[Mode, Mutation], tuple[int, ...]] = {
    (Mode.INTERVAL, Mutation.ADOPT): (1, 10),
    (Mode.INTERVAL, Mutation.LOADED_COMPARED): (16,),
    (Mode.INTERVAL, Mutation.NOTED_AGAIN): (16,),
    (Mode.INTERVAL, Mutation.COLLECT_SETTLED): (7,),
    (Mode.INTERVAL, Mutation.COLLECT_AGAIN): (4,),
    (Mode.INTERVAL, Mutation.A_DAY): (62,),
    (Mode.INTERVAL, Mutation.YOUNG_KNOWN): (10,),
    (Mode.INTERVAL, Mutation.APPEND_NOT_IN_HOLE): (20,),
    (Mode.INTERVAL, Mutation.START_ORDER): (6,),
    (Mode.INTERVAL, Mutation.UNCERTAIN_KEPT): (5,),
    (Mode.INTERVAL, Mutation.DISCARD_LATER): (18, 31, 161),
    (Mode.INTERVAL, Mutation.BASES_KEPT): (25,),
    (Mode.INTERVAL, Mutation.BASES_TAKEN_OVER): (183,),
    (Mode.INTERVAL, Mutation.HANDLES_TOLD): (22,),
    (Mode.INTERVAL, Mutation.OVERTAKEN_WAITED_FOR): (336,),
    (Mode.INTERVAL, Mutation.NEWEST_BY_EPOCH): (25,),
    (Mode.INTERVAL, Mutation.STATES_OF_ITS_END): (17,),
    (Mode.INTERVAL, Mutation.GO_BACK_OWN): (5,),
    (Mode.INTERVAL, Mutation.TIMED_FROM_SEAL): (19,),
    (Mode.INTERVAL, Mutation.SEALS_RESENT): (157,),
    (Mode.INTERVAL, Mutation.LOST_WHEN_ALL_REPORTED): (27,),
    (Mode.INTERVAL, Mutation.LOST_WHEN_REPORTED_TWICE): (50,),
    (Mode.EVERY, Mutation.ADOPT): (3, 12),
    (Mode.EVERY, Mutation.READ_BACK): (2, 14),
    (Mode.EVERY, Mutation.DELETE_NOTHING_UNKNOWN): (5,),
    (Mode.EVERY, Mutation.ORIGIN_VERIFIED): (5,),
    (Mode.EVERY, Mutation.LOADED_COMPARED): (25,),
    (Mode.EVERY, Mutation.NOTED_AGAIN): (25,),
    (Mode.EVERY, Mutation.COLLECT_READABLE): (61,),
    (Mode.EVERY, Mutation.GONE_AT_LAST): (48,),
    (Mode.EVERY, Mutation.COLLECT_KEPT_FIRST): (39,),
    (Mode.EVERY, Mutation.CLAIM_STAYS): (10,),
    (Mode.EVERY, Mutation.START_ORDER): (0, 8),
    (Mode.EVERY, Mutation.PUT_IF_ABSENT): (0, 25),
    (Mode.EVERY, Mutation.CHOOSE_RETAINED): (146,),
    (Mode.EVERY, Mutation.CLAIM_NOT_IN_HOLE): (43,),
    (Mode.EVERY, Mutation.COLLECT_SETTLED): (4,),
    (Mode.EVERY, Mutation.APPEND_NOT_IN_HOLE): (10,),
    (Mode.EVERY, Mutation.BESIDE_STATE): (35,),
    (Mode.INTERVAL, Mutation.CLAIM_STAYS): (4,),
    (Mode.INTERVAL, Mutation.BEGINS_EMPTY): (10,),
    (Mode.INTERVAL, Mutation.LONG_BRIDGED): (6,),
    (Mode.INTERVAL, Mutation.COLLECT_CLAIM_AGAIN): (14,),
    (Mode.INTERVAL, Mutation.ADOPTED_STAY): (31,),
    (Mode.INTERVAL, Mutation.BESIDE_STATE): (33,),
    (Mode.AT_LEAST_ONCE, Mutation.AHEAD_WHEN_KNOWN): (278,),
    (Mode.REAL_TIME, Mutation.ENDS_AS_ASKED): (24,),
    (Mode.AT_LEAST_ONCE, Mutation.FILES_OF_ITS_END): (22,),
}
"""Seeds that have shown what a left out rule breaks. They only save time: with another protocol other seeds may show it, and are found."""
RARE_IN_BOTH_GATES = {
    Observed.LOAD_FENCED,
    Observed.NOT_FINISHED,
    Observed.RESURFACED,
    Observed.SHARED,
    Observed.IMPORTED,
    Observed.SOURCE_GONE,
    Observed.HOLE,
    Observed.MADE_GOOD,
}


def check_all_rules(mode: Mode, seeds: int, rare: Set[Observed]) -> Campaign:
    """The rules hold in so many schedules, in which everything happened but what is `rare`."""
    total = campaign(range(seeds), mode)
    print(total.report())
    assert not total.failed, total.report()
    assert set(total.never) <= rare | SELDOM, total.report()
    assert all(total.observed[what] <= max(1, seeds // 1_000) for what in SELDOM), total.report()
    return total


def check_caught(mode: Mode, rule: Mutation, expected: Set[Invariant], seeds: int) -> None:
    """Among so many schedules without the rule, some break each of `expected`, and one of them does it again.

    Those of `TRIED_FIRST` come before the others, whichever of them break what.
    """
    first = TRIED_FIRST.get((mode, rule), ())

    def known(so_far: Campaign) -> bool:
        return expected <= so_far.broken.keys()

    total = campaign([*first, *(seed for seed in range(seeds) if seed not in first)], mode, mutated(rule), known)
    print(f"without {rule.name}: {total.report()}")
    assert expected <= total.broken.keys(), total.report()
    again = simulate(total.failed[0].seed, mode, mutated(rule))
    assert str(again.violation) == str(total.failed[0].violation)


def check_caught_by_many(mode: Mode, rule: Mutation, expected: Set[Invariant]) -> None:
    """That it is missed is no luck of one schedule, however rarely one shows it."""

    def enough(so_far: Campaign) -> bool:
        return len(so_far.failed) >= 10 and expected <= so_far.broken.keys()

    total = campaign(range(4_000), mode, mutated(rule), enough)
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
