"""`python -m simulation --seeds 10000`; `--seed N` tells the story of one."""

from __future__ import annotations

import sys

import click

from simulation.campaign import campaign
from simulation.mutations import Mutation, mutated
from simulation.simulation import Mode, simulate

_MODES = {mode.value.lower().replace("_", "-"): mode for mode in Mode}


@click.command()
@click.option("--seeds", default=1000, show_default=True, help="How many seeds.")
@click.option("--first", default=0, show_default=True, help="The first seed.")
@click.option("--seed", type=int, help="Replay this one seed and tell what happened.")
@click.option("--mode", type=click.Choice(list(_MODES)), default="both", show_default=True, help="`both`: half of the seeds for each gate.")
@click.option("--without", type=click.Choice([rule.name for rule in Mutation]), help="Leave out one rule of the protocol: seeds must fail.")
def main(seeds: int, first: int, seed: int | None, mode: str, without: str | None) -> None:
    """The protocol under seeded schedules and faults. Exit status 1 if a seed broke an invariant."""
    variant = mutated(Mutation[without]) if without else None
    if without:
        click.echo(f"left out: {Mutation[without].value}")
    if seed is not None:
        result = simulate(seed, _MODES[mode], variant, click.echo)
        click.echo(f"seed {seed}: {result.violation or 'all invariants hold'}")
        sys.exit(1 if result.violation else 0)
    total = campaign(range(first, first + seeds), _MODES[mode], variant)
    click.echo(total.report())
    if total.failed:
        left_out = f" --without {without}" if without else ""
        click.echo(f"replay: python -m simulation --seed {total.failed[0].seed} --mode {mode}{left_out}")
    sys.exit(1 if total.failed else 0)


if __name__ == "__main__":
    main()
