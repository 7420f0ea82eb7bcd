"""Many seeds, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from simulation.invariants import Invariant
from simulation.mutations import Variant
from simulation.observed import Observed
from simulation.simulation import Mode, Result, simulate


@dataclass
class Campaign:
    """`failed` holds the results of the seeds that broke an invariant."""

    seeds: int = 0
    failed: list[Result] = field(default_factory=list)
    observed: Counter[Observed] = field(default_factory=Counter)

    @property
    def broken(self) -> Counter[Invariant]:
        """Which invariants were broken, in how many seeds each."""
        return Counter(r.violation.invariant for r in self.failed if r.violation)

    @property
    def never(self) -> list[Observed]:
        """What did not happen in any seed: nothing was learnt about that."""
        return [h for h in Observed if not self.observed[h]]

    def report(self) -> str:
        lines = [f"{self.seeds} seeds, {len(self.failed)} failed"]
        lines += [f"  {count:8d} {invariant.name}: {invariant.value}" for invariant, count in self.broken.most_common()]
        lines += [f"  seed {r.seed}: {r.violation}" for r in self.failed[:5]]
        lines += ["what happened:", *(f"  {self.observed[h]:8d} {h.value}" for h in Observed)]
        return "\n".join(lines)


def campaign(
    seeds: Iterable[int], mode: Mode = Mode.BOTH, variant: Variant | None = None, enough: Callable[[Campaign], bool] = lambda _: False
) -> Campaign:
    """Run the seeds, until `enough` is known."""
    total = Campaign()
    for seed in seeds:
        result = simulate(seed, mode, variant)
        total.seeds += 1
        total.observed.update(result.observed)
        if result.violation:
            total.failed.append(result)
        if enough(total):
            break
    return total
