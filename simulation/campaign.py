"""Many seeds, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from simulation.happened import Happened
from simulation.left_out import Rules
from simulation.rules import Rule
from simulation.simulation import Mode, Result, simulate


@dataclass
class Campaign:
    """`failed` holds the results of the seeds that broke a rule."""

    seeds: int = 0
    failed: list[Result] = field(default_factory=list)
    happened: Counter[Happened] = field(default_factory=Counter)

    @property
    def broken(self) -> Counter[Rule]:
        """Which rules were broken, in how many seeds each."""
        return Counter(r.violation.rule for r in self.failed if r.violation)

    @property
    def never(self) -> list[Happened]:
        """What did not happen in any seed: nothing was learnt about that."""
        return [h for h in Happened if not self.happened[h]]

    def report(self) -> str:
        lines = [f"{self.seeds} seeds, {len(self.failed)} failed"]
        lines += [f"  {count:8d} {rule.name}: {rule.value}" for rule, count in self.broken.most_common()]
        lines += [f"  seed {r.seed}: {r.violation}" for r in self.failed[:5]]
        lines += ["what happened:", *(f"  {self.happened[h]:8d} {h.value}" for h in Happened)]
        return "\n".join(lines)


def campaign(
    seeds: Iterable[int], mode: Mode = Mode.BOTH, rules: Rules | None = None, enough: Callable[[Campaign], bool] = lambda _: False
) -> Campaign:
    """Run the seeds, until `enough` is known."""
    total = Campaign()
    for seed in seeds:
        result = simulate(seed, mode, rules)
        total.seeds += 1
        total.happened.update(result.happened)
        if result.violation:
            total.failed.append(result)
        if enough(total):
            break
    return total
