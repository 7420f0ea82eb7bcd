"""What is done when the process ends, if nobody has by then: a generator that is not closed is closed later, when no thread runs.

One hook for all, since `atexit` never gives up the place of one that is taken back; and one of multiprocessing's, whose forked children end
without `atexit` (`Process._bootstrap`).
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread, current_thread

_actions: dict[object, tuple[Callable[[], None], Thread]] = {}
"""With the thread whose they are."""
_hooked: set[int] = set()
"""Processes: one that was forked is another."""


@contextmanager
def done_at_exit(action: Callable[[], None]) -> Iterator[None]:
    """If the process ends within the block, `action` is done, the one that was given last before the others."""
    _hook_into_multiprocessing()
    token = object()
    _actions[token] = action, current_thread()
    try:
        yield
    finally:
        del _actions[token]


def _hook_into_multiprocessing() -> None:
    if os.getpid() in _hooked:
        return
    _hooked.add(os.getpid())
    process, util = (sys.modules.get(f"multiprocessing.{name}") for name in ("process", "util"))
    if process is not None and util is not None and process.parent_process() is not None:
        util.Finalize(None, _do_those_not_waited_for, exitpriority=0)


@atexit.register
def _do_all() -> None:
    for action, _ in reversed(list(_actions.values())):
        with suppress(Exception):  # what comes after it is done all the same
            action()


def _do_those_not_waited_for() -> None:
    """multiprocessing waits for the child's other threads afterwards: they go on with what they do."""
    for action, thread in reversed(list(_actions.values())):
        if thread is current_thread() or thread.daemon or not thread.is_alive():
            with suppress(Exception):
                action()
