"""What something takes: its time, its processor time, and how much of the machine others had meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from benchmarks.figures import Case, Figures
from benchmarks.processes import cpu_ms, machine_cpu_ms


@dataclass(frozen=True)
class Spent:
    """Milliseconds. `elsewhere_ms`: of processor time, of all others on this machine."""

    took_ms: float
    cpu_ms: float
    elsewhere_ms: float

    @property
    def elsewhere_percent(self) -> float:
        """Of all that the machine's processors had."""
        return 100 * max(0.0, self.elsewhere_ms) / (self.took_ms * (os.cpu_count() or 1))

    def add(self, figures: Figures, case: Case, name: str) -> None:
        figures.add(case, f"{name}_ms", [self.took_ms])
        figures.add(case, f"{name}_cpu_ms", [self.cpu_ms])
        figures.add(case, "elsewhere_percent", [self.elsewhere_percent])

    def to_json(self) -> dict[str, float]:
        return asdict(self)


def own_cpu_ms() -> float:
    """Of this process, and of those that it has waited for."""
    return cpu_ms(os.getpid())


class Spending:
    """`spent` is there when the block has ended."""

    spent: Spent


@contextmanager
def spending(own: Callable[[], float] = own_cpu_ms) -> Iterator[Spending]:
    """`own`: the processor time, so far, of those that are measured."""
    watched = Spending()
    began, cpu, machine = time.monotonic(), own(), machine_cpu_ms()
    yield watched
    took, cpu, machine = time.monotonic() - began, own() - cpu, machine_cpu_ms() - machine
    watched.spent = Spent(took * 1000, cpu, machine - cpu)
