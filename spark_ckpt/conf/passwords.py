"""What a person has typed, as a message may show it: without what may be a password, and on one line."""

from __future__ import annotations

import re

from spark_ckpt.errors import printable, without_password

_MOST = 200
_WORD = r"(?<![^\s'\"(=-])"
"""The beginning of one, also behind the hyphens of an option."""
_URL = re.compile(rf"{_WORD}(?:(?!file:)[A-Za-z][A-Za-z0-9+.-]*:/|s3[an]?:)", re.IGNORECASE)
_BARE = re.compile(rf"{_WORD}[^\s'\"(/…][^\s'\"(…]*:[^\s…]*@|{_WORD}:[^\s…]+@")
"""A key and its secret, as a URL has them, without its scheme; not in a path, nor where the secret is hidden already."""


def shown(value: str) -> str:
    """A value, cut after 200 characters."""
    kept = without_password(value)
    line = printable(" ".join(kept[: _MOST + 1].splitlines()))
    return line if len(kept) <= _MOST else line[:_MOST] + "…"


def without_urls_passwords(message: str) -> str:
    """A sentence of somebody else's that may quote what was typed: from its first URL on as that alone would be shown, with all that stands
    up to the last `@`, for a password may have spaces and quotes in it."""
    found = _URL.search(message)
    if found is not None:
        words = without_password(message[found.start() :]).split(" ")
        message = message[: found.start()] + " ".join(map(without_password, words))
    return _BARE.sub("…@", message)


def shown_key(text: str, others: str = "-") -> str:
    """As much of it as may be the name of a setting: letters, digits, `.`, `_` and `others`. What follows may be a value."""
    key = re.match(rf"[\w.{re.escape(others)}]*", text)
    assert key is not None
    return text if key[0] == text else key[0] + "…"
