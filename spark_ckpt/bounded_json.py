"""JSON that anybody may have written: a byte of it can become a hundred in memory, so it is known how many values it holds before it is
parsed."""

from __future__ import annotations

import json
import re
from typing import Any

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""One that does not end goes to the document's end: else all of that would be looked through again from each quotation mark in it."""
_BEGINS = (b",", b"[", b"{")
"""Behind each of these, and nowhere else but behind a key, a value begins."""


def parse_json(data: bytes, values: int) -> Any:
    """Of UTF-8 and nothing else: `json` would guess from the bytes, and what was counted would be another document than what is parsed.

    Raises ValueError, like `check_values` too, and RecursionError.
    """
    check_values(data, values)
    return json.loads(str(data, "utf-8"))


def check_values(data: bytes, values: int) -> None:
    """Raises ValueError where UTF-8 may hold more than that many `values`: lists, objects, what is in those, and the keys of objects."""
    if _count(data, 0, len(data)) > values and _holds_more(data, values):
        raise ValueError(f"it holds more than {values} values")


def _holds_more(data: bytes, values: int) -> bool:
    """What stands in strings is not counted, but strings are: between two of them there need be nothing in a forged document."""
    count = end = 0
    for text in _STRING.finditer(data):
        count += 1 + _count(data, end, text.start())
        end = text.end()
        if count > values:
            return True
    return count + _count(data, end, len(data)) > values


def _count(data: bytes, start: int, end: int) -> int:
    return sum(data.count(begin, start, end) for begin in _BEGINS)
