"""Durations and sizes as Spark writes them (Spark: `JavaUtils.timeStringAs`, `JavaUtils.byteStringAs`)."""

from __future__ import annotations

import re

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
