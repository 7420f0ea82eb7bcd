"""README's table of costs: taken from docs/benchmarks.md, which the benchmark writes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from documents.parts import replaced

_SOURCE = "docs/benchmarks.md"
_FORM, _WORKLOAD = "## The short form", "### Aggregation"
_LEFT_OUT = "floor"
"""No system that one could choose."""
_SETTINGS = "[some of Spark's own settings](docs/options.md#sparks-own-settings)"
_SAME = f'The plugin sets {_SETTINGS}. "Same settings" is stock Spark with all of those that are not classes of the plugin.'

Row = Mapping[str, str]


def renewed(readme: str, benchmarks: str) -> str:
    """README with the table of today. Raises ValueError where it has no place for it, or where docs/benchmarks.md has no such workload."""
    return replaced(readme, _SOURCE, table(benchmarks))


def table(benchmarks: str) -> str:
    """Time and requests of an epoch, by system and number of partitions."""
    rows = [row for row in _rows(benchmarks) if row["system"] != _LEFT_OUT]
    systems = list(dict.fromkeys(row["system"] for row in rows))
    partitions = sorted({int(row["partitions"]) for row in rows})
    head = ["", *(f"{n} partitions" for n in partitions), *(f"S3 requests, {n} partitions" for n in partitions)]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    for system in systems:
        own = {int(row["partitions"]): row for row in rows if row["system"] == system}
        times = [_seconds(own[n]["epoch ms"]) if n in own else "" for n in partitions]
        requests = [_count(own[n]["requests"]) if n in own else "" for n in partitions]
        lines.append(f"| {' | '.join([system, *times, *requests])} |")
    return "\n".join([*lines, "", _SAME])


def _rows(benchmarks: str) -> list[Row]:
    form = benchmarks.partition(f"\n{_FORM}\n")[2].partition("\n## ")[0]
    section = form.partition(f"\n{_WORKLOAD}\n")[2].partition("\n##")[0]
    lines = [_cells(line) for line in section.splitlines() if line.startswith("|")]
    if len(lines) < 3 or not {"system", "partitions", "epoch ms", "requests"} <= set(lines[0]):
        raise ValueError(f"docs/benchmarks.md has no table of times and requests under {_WORKLOAD!r} of {_FORM!r}")
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def _cells(line: str) -> Sequence[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _seconds(median: str) -> str:
    """`1,254 (1,170 - 1,694)`, in milliseconds, with the quartiles."""
    return f"{_number(median) / 1000:.1f} s"


def _count(requests: str) -> str:
    return f"{_number(requests):,.{0 if _number(requests) >= 100 else 1}f}" if requests else ""


def _number(text: str) -> float:
    found = re.match(r"[\d,]+(\.\d+)?", text)
    if not found:
        raise ValueError(f"docs/benchmarks.md has {text!r} where a number belongs")
    return float(found[0].replace(",", ""))
