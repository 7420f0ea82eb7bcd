"""Durations and sizes as Spark writes them (Spark: `JavaUtils.timeStringAs`, `JavaUtils.byteStringAs`), and as people read them."""

from __future__ import annotations

import re
from datetime import UTC
from typing import Any

_NUMBER = re.compile(r"([0-9]{1,18})\s*([a-z]*)")
_MILLIS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_BYTES = {unit + suffix: 1024**power for power, unit in enumerate(["", "k", "m", "g", "t", "p"]) for suffix in ("", "b") if unit + suffix}

_LONGEST_MS = 100_000 * _MILLIS["d"]
"""Clocks count nanoseconds in 64 bits, here and in the JVM: 292 years. What is longer would be no time at all there, or an error."""
_LARGEST = 8191 * _BYTES["p"]
"""The JVM counts bytes in 64 bits with a sign."""


def parse_duration(text: str, otherwise: str = "") -> int:
    """Milliseconds. Units: ms, s, m, min, h, d; a plain number is milliseconds, as in Spark's streaming settings; 100,000 days at most.
    Raises ValueError, which says what may be written `otherwise`."""
    expected = f"a duration such as 500ms, 10s, 10min or 1h (a plain number is milliseconds){otherwise}"
    return _parse(text, _MILLIS, expected, _LONGEST_MS, "100000d")


def parse_size(text: str) -> int:
    """Bytes. Units: b, k, m, g, t, p, each also with a `b`, powers of 1024; a plain number is bytes; 8191p at most. Raises
    ValueError."""
    return _parse(text, _BYTES, "a size such as 512m or 10g (a plain number is bytes)", _LARGEST, "8191p")


def _parse(text: str, units: dict[str, int], expected: str, most: int, shown: str) -> int:
    match = _NUMBER.fullmatch(text.strip().lower())
    if match is None or (match.group(2) and match.group(2) not in units):
        raise ValueError(expected)
    value = int(match.group(1)) * units.get(match.group(2), 1)
    if value > most:
        raise ValueError(f"{expected}, {shown} at most")
    return value


LAST_MS = 253_402_300_800_000
"""The end of the year 9999."""


def size_text(size: int | None) -> str:
    """Bytes for people: `1.4 MiB`."""
    if size is None:
        return "-"
    if size >= 1 << 63:
        return "?"  # of no object
    value, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"


def duration_text(millis: Any) -> str:
    """What a checkpoint's counters say of its duration; `?` for one that is longer than any, or no number."""
    if not isinstance(millis, (int, float)):
        return "-"
    return f"{millis:.0f} ms" if abs(millis) < LAST_MS else "?"


def age_text(seconds: float) -> str:
    """How long ago, with what fits in two or three digits: `95 s`, `12 min`, `7 h`, `30 d`."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def time_text(millis: int) -> str:
    """A moment in UTC, to the second; `?` for one that no calendar has: it comes out of the storage."""
    from datetime import datetime

    if not 0 <= millis < LAST_MS:
        return "?"
    return datetime.fromtimestamp(millis / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
