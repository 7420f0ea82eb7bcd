"""What a target is, what it measures, and how it is judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from benchmarks.figures import Case, Estimate, Figures
from benchmarks.machine import QUIET

OTHERS_PERCENT = 25
"""Of the machine's processor time, used by others during a turn, above which the turn's times say nothing. For an application
that stays from turn to turn, S3 server and proxy are others too: they use a few percent."""
ROUNDS = 3
"""By fewer no time is judged: a machine has slow minutes, and one round may be within one. What is counted is judged by one."""
MB = 1_000_000

Measure = Callable[[Figures], "Estimate | str"]
"""The text says why there is no figure; it may be empty."""


class Met(Enum):
    """The value is how tables call it."""

    YES = "yes"
    NO = "no"
    NOISY = "too noisy"
    FEW = "too few rounds"
    OPEN = "-"


@dataclass(frozen=True)
class Profile:
    """What to look at where a target is missed: figures of these systems, side by side. Numbers of None: all that were measured.

    `unit` is what `size` counts, `kind` what the profile is of.
    """

    experiment: str
    systems: Sequence[str]
    metrics: Sequence[str]
    partitions: int | None = None
    size: int | None = None
    unit: str = "rows"
    kind: str = "time"

    def cases(self, figures: Figures) -> list[Case]:
        found = [c for c in figures.cases(self.experiment) if c.system in self.systems]
        found = [c for c in found if self.partitions in (None, c.partitions) and self.size in (None, c.size)]
        return sorted(found, key=lambda c: (c.partitions, c.size, self.systems.index(c.system)))


@dataclass(frozen=True)
class Target:
    """Met when the measured value is at most `limit` (at least, if `at_least`; None: it is only told). `show` writes it for people.

    What is `counted` is the same on a busy machine. `profile`: of every target that can be missed.
    """

    what: str
    limit: float | None
    measure: Measure
    show: Callable[[float], str]
    at_least: bool = False
    counted: bool = False
    profile: Profile | None = None


@dataclass(frozen=True)
class Verdict:
    """`profile`: of what is judged, and where the rounds are too few of what would be missed."""

    what: str
    target: str
    measured: str
    met: Met
    profile: Profile | None = None


def times(value: float) -> str:
    return f"{value:.2f} x"


def millis(value: float) -> str:
    return f"{value:,.0f} ms" if abs(value) >= 10 else f"{value:.1f} ms"


def seconds(milliseconds: float) -> str:
    """One decimal below a minute."""
    return f"{milliseconds / 1000:,.{0 if milliseconds >= 60_000 else 1}f} s"


def count(value: float) -> str:
    return f"{value:,.2f}"


def megabytes(value: float) -> str:
    return f"{value / MB:,.1f} MB"


def percent(value: float) -> str:
    return f"{value:.2f} %"


def median_of(metric: str, case: Case) -> Measure:
    def measure(figures: Figures) -> Estimate | str:
        values = figures.values(case, metric)
        return Estimate.median(values).of_rounds(figures.rounds(case)) if values else ""

    return measure


def exactly(metric: str, case: Case) -> Measure:
    """A median of what is counted."""

    def measure(figures: Figures) -> Estimate | str:
        value = figures.median(case, metric)
        return "" if value is None else Estimate.exact(value)

    return measure


def ratio_of(above: Measure, below: Measure) -> Measure:
    def measure(figures: Figures) -> Estimate | str:
        one, other = above(figures), below(figures)
        return one.over(other) if isinstance(one, Estimate) and isinstance(other, Estimate) and other.value else ""

    return measure


def difference(above: Measure, below: Measure) -> Measure:
    def measure(figures: Figures) -> Estimate | str:
        one, other = above(figures), below(figures)
        return one.beyond(other) if isinstance(one, Estimate) and isinstance(other, Estimate) else ""

    return measure


def judged(targets: Sequence[Target], figures: Figures, by_load: bool = True) -> list[Verdict]:
    """`by_load`: the machine's load before the run counts. Not where each turn has run for minutes before it is measured."""

    def busy(target: Target) -> str:
        return (_busy(figures, target) if by_load else "") or _disturbed(figures, target)

    return [_verdict(target, target.measure(figures), busy(target)) for target in targets]


def _verdict(target: Target, measured: Estimate | str, busy: str) -> Verdict:
    """`busy`: why times of it say nothing; empty if they do."""
    bound = "-" if target.limit is None else f"{'at least' if target.at_least else 'at most'} {target.show(target.limit)}"
    if isinstance(measured, str):
        return Verdict(target.what, bound, f"not measured{f': {measured}' if measured else ''}", Met.OPEN)
    shown = f"{target.show(measured.value)}{f' ({measured.note})' if measured.note else ''}"
    if target.limit is None:
        return Verdict(target.what, bound, shown, Met.OPEN)
    met = measured.value >= target.limit if target.at_least else measured.value <= target.limit
    if not target.counted and measured.rounds < ROUNDS:
        told = f"{shown}, {measured.rounds} round{'s' if measured.rounds > 1 else ''} of at least {ROUNDS}"
        return Verdict(target.what, bound, told, Met.FEW, None if met else target.profile)
    if not target.counted and (busy or measured.low <= target.limit <= measured.high != measured.low):
        told = f"{shown}, {target.show(measured.low)} to {target.show(measured.high)}{busy and f'; {busy}'}"
        return Verdict(target.what, bound, told, Met.NOISY, target.profile)
    return Verdict(target.what, bound, shown, Met.YES if met else Met.NO, target.profile)


def _disturbed(figures: Figures, target: Target) -> str:
    cases = target.profile.cases(figures) if target.profile else ()
    used: dict[str, float] = {}
    for case in cases:
        used[case.system] = max(used.get(case.system, 0), figures.median(case, "elsewhere_percent") or 0)
    return "; ".join(f"others had {part:.0f} % of the machine beside {system}" for system, part in used.items() if part > OTHERS_PERCENT)


def _busy(figures: Figures, target: Target) -> str:
    """Each part has a load of its own. Files of earlier runs have one of what was measured again; and the processors' number in words."""
    about, experiment = figures.about, target.profile.experiment if target.profile else ""
    recorded = [sitting for found in figures.sittings.values() for sitting in found if sitting.experiment == experiment]
    loads = [sitting.load_before for sitting in recorded if sitting.load_before is not None]
    load = max(loads, default=about.get("loads", {}).get(experiment))
    processors = about.get("processor_count") or int(str(about.get("processors", "1")).split()[0])
    before = float(about.get("load_before", 0) if load is None else load)
    return f"the load before was {before:.2f}" if before > QUIET * processors else ""
