"""What is done when the process ends, if nobody has by then: a generator that is not closed is closed later, when no thread runs.

One hook for all, since `atexit` never gives up the place of one that is taken back.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_actions: dict[object, Callable[[], None]] = {}


@contextmanager
def done_at_exit(action: Callable[[], None]) -> Iterator[None]:
    """If the process ends within the block, `action` is done, the one that was given last before the others."""
    token = object()
    _actions[token] = action
    try:
        yield
    finally:
        del _actions[token]


@atexit.register
def _do_all() -> None:
    for action in reversed(list(_actions.values())):
        with suppress(Exception):  # what comes after it is done all the same
            action()
