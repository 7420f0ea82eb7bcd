"""Whether a query goes on from offsets that another one has made: Spark finds a source by its position, or by a name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def same_sources(theirs: Sequence[str], mine: Sequence[str]) -> bool:
    """Of a `Job` each. Sources that all have names (`FileSource(orders)`, by Spark's source evolution) may come and go, for Spark knows
    which one an offset belongs to. Those without are what they were, one by one; that their kinds are the same is all that can be seen."""
    return theirs == mine or (_have_names(theirs) and _have_names(mine))


def _have_names(sources: Iterable[str]) -> bool:
    return all(source.endswith(")") for source in sources)
