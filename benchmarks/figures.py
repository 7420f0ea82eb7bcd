"""Measured values and what is made of them: medians, spread, ratios. The JSON files hold every value, not only the medians."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import machine, sittings
from benchmarks.sittings import Sitting

ONCE_A_ROUND = frozenset(
    (
        *("start_ms", "first_epoch_ms", "empty_ms", "restore_ms", "restart_ms", "read_ms", "write_ms", "command_ms"),
        *("memory_bytes", "sent_count"),
    )
)
"""Metrics of which each round adds one value: by them a case's rounds are counted."""


@dataclass(frozen=True, order=True)
class Case:
    """What was measured: of which system, at which setting. `size` is rows an epoch, or what the experiment says."""

    experiment: str
    system: str
    partitions: int = 0
    size: int = 0


@dataclass(frozen=True)
class Summary:
    """`low` and `high` are the quartiles (of fewer than four values the extremes)."""

    median: float
    low: float
    high: float
    count: int

    @staticmethod
    def of(values: Sequence[float]) -> Summary:
        """Raises ValueError for no values."""
        if not values:
            raise ValueError("a summary of no values")
        if len(values) < 4:
            low, high = min(values), max(values)
        else:
            low, _, high = statistics.quantiles(values, n=4, method="inclusive")
        return Summary(statistics.median(values), low, high, len(values))


@dataclass(frozen=True)
class Estimate:
    """A figure, within which bounds another run of the same kind would have it, and what is to be said of how it was taken.

    `rounds`: so many at least have made it.
    """

    value: float
    low: float
    high: float
    note: str = ""
    rounds: int = 1

    @staticmethod
    def median(values: Sequence[float]) -> Estimate:
        """With the notch of a box plot, 1.57 IQR / sqrt(n) (McGill, Tukey and Larsen, 1978); of fewer than four values the extremes.

        Raises ValueError for no values.
        """
        found = Summary.of(values)
        if found.count < 4:
            return Estimate(found.median, found.low, found.high)
        notch = 1.57 * (found.high - found.low) / math.sqrt(found.count)
        return Estimate(found.median, found.median - notch, found.median + notch)

    @staticmethod
    def mean(values: Sequence[float]) -> Estimate:
        """With two standard errors; of fewer than four values the extremes. Raises ValueError for no values."""
        if not values:
            raise ValueError("a mean of no values")
        mean = statistics.fmean(values)
        if len(values) < 4:
            return Estimate(mean, min(values), max(values))
        error = 2 * statistics.stdev(values) / math.sqrt(len(values))
        return Estimate(mean, mean - error, mean + error)

    @staticmethod
    def exact(value: float) -> Estimate:
        return Estimate(value, value, value)

    def over(self, base: Estimate) -> Estimate:
        """Raises ZeroDivisionError."""
        high = self.high / base.low if base.low > 0 else math.inf
        return Estimate(self.value / base.value, self.low / base.high, high, rounds=min(self.rounds, base.rounds))

    def beyond(self, base: Estimate) -> Estimate:
        rounds = min(self.rounds, base.rounds)
        return Estimate(self.value - base.value, self.low - base.high, self.high - base.low, rounds=rounds)

    def of_rounds(self, rounds: int) -> Estimate:
        return replace(self, rounds=rounds)


class Figures:
    """Every value of a run of the benchmark, by case and metric. A metric's name ends in its unit: `epoch_ms`, `put_bytes`."""

    def __init__(self, about: Mapping[str, Any] | None = None, here: Mapping[str, Any] | None = None) -> None:
        """`about`: what the run was begun on; `here`: what is measured from now on, if that is something else."""
        self.about: dict[str, Any] = dict(about or {})
        self.notes: list[str] = []
        self.sittings: dict[str, list[Sitting]] = {}
        """Of each part that was measured so far."""
        self._here = self.about if here is None else here
        self._begun: dict[str, str] = {}
        self._values: dict[tuple[Case, str], list[float]] = {}

    def add(self, case: Case, metric: str, values: Iterable[float]) -> None:
        found = [float(v) for v in values]
        if found:
            self._values.setdefault((case, metric), []).extend(found)

    def take(self, others: Figures) -> None:
        """All that these have."""
        for case, metric, values in others:
            self.add(case, metric, values)

    def begin(self, part: str) -> None:
        """It is measured from now on: its rounds of this sitting have this time."""
        self._begun.setdefault(part, machine.now())

    def complete(self, part: str, experiment: str, found: Figures) -> None:
        """A round has come to its end, in which this was found. An interrupt comes before all of it or after all of it.

        A signal's handler runs between two statements: what it may find half done is made first, and put in its place by one of them.
        """
        values = {key: list(known) for key, known in self._values.items()}
        for case, metric, new in found:
            values.setdefault((case, metric), []).extend(new)
        self._values, self.sittings = values, {**self.sittings, part: self._recorded(part, experiment, 1)}

    def forget(self, gone: Callable[[Case], bool]) -> None:
        """All that was measured of these."""
        self._values = {(case, metric): values for (case, metric), values in self._values.items() if not gone(case)}

    def anew(self, part: str, gone: Callable[[Case], bool]) -> None:
        """A part is measured from its first round on: what was measured of it, and that it was, is forgotten."""
        self.forget(gone)
        self.sittings.pop(part, None)

    @property
    def parts(self) -> dict[str, int]:
        """What was measured so far: part -> rounds of it."""
        return {part: sum(sitting.rounds for sitting in found) for part, found in self.sittings.items()}

    def begun(self, part: str, rounds: int) -> int:
        """How many of so many rounds of a part are measured. What another machine has begun is begun anew: one part is of one machine."""
        found = self.parts.get(part, 0)
        here = Sitting.now("", 0, self._here).machine
        return found if found >= rounds or all(sitting.machine == here for sitting in self.sittings.get(part, ())) else 0

    def finish(self, part: str, experiment: str, rounds: int = 1) -> None:
        """So many rounds more of it were measured."""
        self.sittings[part] = self._recorded(part, experiment, rounds)

    def _recorded(self, part: str, experiment: str, rounds: int) -> list[Sitting]:
        here = {**self._here, "time": self._begun.get(part, self._here.get("time", ""))}
        return sittings.extended(self.sittings.get(part, []), Sitting.now(experiment, rounds, here))

    def rounds(self, case: Case) -> int:
        """Of which there are figures; one where nothing of it comes once in each round."""
        return max((len(values) for (c, metric), values in self._values.items() if c == case and metric in ONCE_A_ROUND), default=1)

    def note(self, text: str) -> None:
        """Something to be said of the run; once is enough."""
        if text not in self.notes:
            self.notes.append(text)

    def values(self, case: Case, metric: str) -> Sequence[float]:
        return self._values.get((case, metric), ())

    def summary(self, case: Case, metric: str) -> Summary | None:
        values = self.values(case, metric)
        return Summary.of(values) if values else None

    def median(self, case: Case, metric: str) -> float | None:
        found = self.summary(case, metric)
        return None if found is None else found.median

    def ratio(self, metric: str, case: Case, base: Case) -> float | None:
        """Median over median; None where one was not measured or the base is 0."""
        above, below = self.median(case, metric), self.median(base, metric)
        return None if above is None or not below else above / below

    def cases(self, experiment: str) -> list[Case]:
        """In the order in which they were first measured."""
        return list(dict.fromkeys(case for case, _ in self._values if case.experiment == experiment))

    def __iter__(self) -> Iterator[tuple[Case, str, Sequence[float]]]:
        for (case, metric), values in self._values.items():
            yield case, metric, values

    def write(self, path: Path) -> None:
        rows = [{**asdict(case), "metric": metric, "values": [_short(v) for v in values]} for case, metric, values in self]
        parts = {part: [sitting.to_json() for sitting in found] for part, found in self.sittings.items()}
        document = {"about": self.about, "notes": self.notes, "parts": parts, "figures": rows}
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(document, indent=1) + "\n")
        new.replace(path)

    @staticmethod
    def read(path: Path, here: Mapping[str, Any] | None = None) -> Figures:
        """`here`: what is measured from now on, as `machine.describe` says it; without it nothing is."""
        document = json.loads(path.read_text())
        figures = Figures(document["about"], here or {})
        figures.notes = list(document["notes"])
        parts = document.get("parts", {})  # files before 2026-11-23 have none
        figures.sittings = sittings.read(parts, figures.about, figures.notes)
        for row in document["figures"]:
            figures.add(Case(row["experiment"], row["system"], row["partitions"], row["size"]), row["metric"], row["values"])
        return figures


def _short(value: float) -> float:
    return int(value) if value == int(value) else round(value, 3)
