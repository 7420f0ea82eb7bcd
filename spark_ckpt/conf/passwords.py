"""What a person has typed, as a message may show it: without what may be a password, and on one line."""

from __future__ import annotations

import re

from spark_ckpt.errors import printable, without_password

_MOST = 200
_SCHEME = "[A-Za-z][A-Za-z0-9+.-]*"
_URL = re.compile(
    rf"(?<![A-Za-z0-9+.-])[0-9+.-]*(?={_SCHEME}://)|(?<![^\s'\"(\[<=])-{{0,2}}(?=(?!file:){_SCHEME}:(?:/|[^\s?]{{0,200}}\?)|s3[an]?:)",
    re.IGNORECASE,
)
"""What stands before one. Without its slashes it counts as one where a word begins, behind the hyphens of an option too."""
_BETWEEN = re.compile(r"([\s,])")
_RUN = re.compile(r"[^\s…]+")
_PIECE = re.compile(r"[^'\"(]+")


def shown(value: str) -> str:
    """A value, cut after 200 characters."""
    kept = without_password(value)
    line = printable(" ".join(kept[: _MOST + 1].splitlines()))
    return line if len(kept) <= _MOST else line[:_MOST] + "…"


def without_urls_passwords(message: str) -> str:
    """A sentence of somebody else's that may quote what was typed: from its first URL on as each word alone would be shown, and then all
    that stands up to the last `@`, for a password may have spaces and quotes in it."""
    found = _URL.search(message)
    if found is not None:
        words = "".join(map(without_password, _BETWEEN.split(message[found.end() :])))
        message = message[: found.end()] + without_password(words)
    return _RUN.sub(_without_bare, message)


def _without_bare(run: re.Match[str]) -> str:
    """A word without a key and its secret, as a URL has them, without its scheme; not in a path, nor where the secret is hidden already."""
    head, at, rest = run[0].rpartition("@")
    begins = run.start() == 0 or run.string[run.start() - 1] != "…"
    for piece in _PIECE.finditer(head):
        if (piece.start() or begins) and not piece[0].startswith("/") and ":" in piece[0]:
            return f"{head[: piece.start()]}…{at}{rest}"
    return run[0]


def shown_key(text: str, others: str = "-") -> str:
    """As much of it as may be the name of a setting: letters, digits, `.`, `_` and `others`. What follows may be a value."""
    key = re.match(rf"[\w.{re.escape(others)}]*", text)
    assert key is not None
    return text if key[0] == text else key[0] + "…"
