"""Parts of a page that are generated, between two marks."""

from __future__ import annotations

from collections.abc import Iterable

END = "<!-- end -->"


def begin(source: str) -> str:
    return f"<!-- from {source}, by `python -m documents` -->"


def period(dates: Iterable[str]) -> str:
    """From the earliest day of these timestamps to the latest."""
    days = sorted({date[:10] for date in dates})
    return f"On {days[0]}" if len(days) == 1 else f"From {days[0]} to {days[-1]}"


def replaced(page: str, source: str, part: str) -> str:
    """The page with the part that comes from `source`. Raises ValueError where it has no place for that, or several."""
    mark = begin(source)
    if page.count(mark) != 1 or END not in page.partition(mark)[2]:
        raise ValueError(f"a page has no place for what comes from {source}; it lies between {mark} and {END}")
    before, _, rest = page.partition(mark)
    return f"{before}{mark}\n{part}\n{END}{rest.partition(END)[2]}"
