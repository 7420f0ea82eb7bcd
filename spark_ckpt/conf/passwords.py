"""What a person has typed, as a message may show it: without what may be a password, and on one line."""

from __future__ import annotations

import re

from spark_ckpt.errors import printable

_MOST = 200
_SCHEME = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*://")


def shown(value: str) -> str:
    """A value, cut after 200 characters. A password goes up to the last `@`, whatever is in it; before that, a URL's scheme stays."""
    before, at, after = value.rpartition("@")
    scheme = _SCHEME.match(before)
    kept = f"{scheme[0] if scheme else ''}…@{after}" if at else value
    line = printable(" ".join(kept[: _MOST + 1].splitlines()))
    return line if len(kept) <= _MOST else line[:_MOST] + "…"


def shown_key(text: str, others: str = "-") -> str:
    """As much of it as may be the name of a setting: letters, digits, `.`, `_` and `others`. What follows may be a value."""
    key = re.match(rf"[\w.{re.escape(others)}]*", text)
    assert key is not None
    return text if key[0] == text else key[0] + "…"
