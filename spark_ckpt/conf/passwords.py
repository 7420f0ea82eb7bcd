"""What a person has typed, as a message may show it: without what may be a password, and on one line."""

from __future__ import annotations

import re

from spark_ckpt.errors import printable, without_password

_MOST = 200


def shown(value: str) -> str:
    """A value, cut after 200 characters."""
    kept = without_password(value)
    line = printable(" ".join(kept[: _MOST + 1].splitlines()))
    return line if len(kept) <= _MOST else line[:_MOST] + "…"


def shown_key(text: str, others: str = "-") -> str:
    """As much of it as may be the name of a setting: letters, digits, `.`, `_` and `others`. What follows may be a value."""
    key = re.match(rf"[\w.{re.escape(others)}]*", text)
    assert key is not None
    return text if key[0] == text else key[0] + "…"
