"""Progress on a terminal: a bar on stderr for each piece of work, which goes when the work is done."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spark_ckpt.cli.output import suppress_unwritten
from spark_ckpt.errors import printable
from spark_ckpt.progress import Step, Tell, Unit, nobody
from spark_ckpt.units import size_text

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

AFTER_S = 0.5
"""Work that is done sooner shows nothing, in seconds."""

_TEXTS: Mapping[Unit, Callable[[int], str]] = {Unit.BYTES: size_text, Unit.THINGS: str, Unit.SECONDS: lambda seconds: f"{seconds} s"}


@contextmanager
def progress_bars(quiet: bool = False) -> Iterator[Tell]:
    """Nothing where stderr is no terminal or closed, or where a person wants none."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield nobody
        return
    with _bars() as bars:
        yield bars.tell


class _Bars:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self._tasks: dict[str, TaskID] = {}
        self._closed = False
        self._begins = threading.Timer(AFTER_S, self._begin)
        self._begins.daemon = True
        self._begins.start()

    def _begin(self) -> None:
        with self._lock, suppress_unwritten(sys.stderr):
            if not self._closed:  # the timer may have gone off just before it was cancelled
                self._progress.start()

    def tell(self, step: Step) -> None:
        from rich.markup import escape

        with self._lock:
            task = self._tasks.get(step.what)
            if task is None:
                what = escape(printable(step.what))
                task = self._tasks[step.what] = self._progress.add_task(what, total=step.total, unit=step.unit)
            ended = step.total is not None and step.done >= step.total
            self._progress.update(task, completed=step.done, total=step.total, visible=not ended)

    def close(self) -> None:
        self._begins.cancel()
        with self._lock, suppress_unwritten(sys.stderr):
            self._closed = True
            self._progress.stop()


@contextmanager
def _bars() -> Iterator[_Bars]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Task as Bar
    from rich.text import Text

    class Amount(ProgressColumn):
        """`1.4 GiB of 10.0 GiB`, `7 of 100`."""

        def render(self, task: Bar) -> Text:
            shown = _TEXTS[task.fields["unit"]]
            done = shown(int(task.completed))
            return Text(done if task.total is None else f"{done} of {shown(int(task.total))}")

    columns = (TextColumn("{task.description}"), BarColumn(), Amount(), TimeRemainingColumn(compact=True))
    bars = _Bars(Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False))
    try:
        yield bars
    finally:
        bars.close()
