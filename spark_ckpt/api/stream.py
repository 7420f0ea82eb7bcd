"""`stream`: what a stream holds, as an object that a notebook shows as a table."""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from os import PathLike
from typing import Any

from spark_ckpt.api.state import options_of, stream_of
from spark_ckpt.errors import printable
from spark_ckpt.paths import checkpoint_name
from spark_ckpt.stored.listing import COLUMNS, NUMBERS, Listed, epochs_past_latest, listed, owner_text
from spark_ckpt.stored.opening import opened_stream
from spark_ckpt.units import LAST_MS, age_text, size_text

_SHOWN = 20
"""Checkpoints that a notebook shows, the newest ones."""


@dataclass(frozen=True)
class CompletedCheckpoint:
    """One row of `spark-ckpt list`. `size`: bytes of state that a restore loads. `duration_ms`: from the barrier until it was complete.

    `time`: when its epoch was triggered. What `_metadata` would have said is None where it cannot be read; `status` says so then, and
    `error` why. `latest`: a start would go on from it. `retained`: a person may go back to it; any other may be deleted at any moment.
    """

    name: str
    url: str
    epoch: int
    time: datetime | None
    stores: int | None
    size: int | None
    new_bytes: int | None
    duration_ms: float | None
    status: str
    latest: bool
    retained: bool
    error: str | None
    row: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True)
class Stream:
    """A stream's completed checkpoints, ascending, at the moment in which it was looked at: ask again to see what is there now.

    `epochs_past_latest`: how many were planned past the latest checkpoint, None where that is not known. `owner`: who has begun its newest
    run. `problem`: what is wrong with its log.
    """

    url: str
    checkpoints: tuple[CompletedCheckpoint, ...]
    epochs_past_latest: int | None
    owner: str | None
    problem: str | None
    seen: datetime

    @property
    def latest(self) -> CompletedCheckpoint | None:
        """The one that a start would go on from."""
        return next((one for one in self.checkpoints if one.latest), None)

    @property
    def age_s(self) -> float | None:
        """Seconds since the latest was triggered, when the stream was looked at: by the clocks of two machines. Its state is that old."""
        latest = self.latest
        return (self.seen - latest.time).total_seconds() if latest is not None and latest.time is not None else None

    def __repr__(self) -> str:
        rows = [COLUMNS, *(one.row for one in self.checkpoints[-_SHOWN:])]
        widths = [max(len(row[n]) for row in rows) for n in range(len(COLUMNS))]

        def line(row: tuple[str, ...]) -> str:
            cells = zip(COLUMNS, map(printable, row), widths, strict=True)
            return "  ".join(text.rjust(width) if name in NUMBERS else text.ljust(width) for name, text, width in cells).rstrip()

        return "\n".join([*(map(line, rows) if self.checkpoints else ()), *self._told])

    def _repr_html_(self) -> str:
        """What Jupyter and its kin show."""
        head = "".join(_cell("th", name, name) for name in COLUMNS)
        rows = "".join(
            "<tr>" + "".join(_cell("td", name, text) for name, text in zip(COLUMNS, one.row, strict=True)) + "</tr>"
            for one in self.checkpoints[-_SHOWN:]
        )
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>" if self.checkpoints else ""
        return f"<div>{table}{''.join(f'<p>{html.escape(line)}</p>' for line in self._told)}</div>"

    @property
    def _told(self) -> list[str]:
        hidden = len(self.checkpoints) - _SHOWN
        lines = [f"{hidden} older ones are not shown"] if hidden > 0 else []
        if not self.checkpoints:
            lines.append(f"the stream at {self.url} has no completed checkpoint")
        if self.latest is not None and self.age_s is not None:
            past = self.epochs_past_latest
            lines.append(
                f"the latest holds {size_text(self.latest.size)} and was triggered {age_text(self.age_s)} ago"
                + (f"; {past} {'epoch was' if past == 1 else 'epochs were'} planned past it" if past is not None else "")
            )
        return [printable(line) for line in (*lines, *(filter(None, (self.owner, self.problem))))]


def stream(url: str | PathLike[str], conf: Mapping[str, Any] | None = None, clock: Callable[[], float] = time.time) -> Stream:
    """The stream at `url`, or the one checkpoint or savepoint there, looked at now: what `spark-ckpt list` prints.

    `conf`: `spark.ckpt.s3.…`, where the storage needs them. Raises `ConfigError` for what is no URL, `ObjectMissingError` where no stream
    is, `StorageError`. What is damaged is in the result.
    """
    with opened_stream(stream_of(url, "the stream's URL"), options_of(conf)) as (storage, reader):
        overview = reader.overview()
        past = epochs_past_latest(storage, reader, overview)
        checkpoints = tuple(map(_completed, listed(reader, overview)))
        owner = owner_text(overview.standing.claim) if overview.standing is not None else None
        return Stream(reader.url, checkpoints, past, owner, overview.problem, datetime.fromtimestamp(clock(), UTC))


def _completed(one: Listed) -> CompletedCheckpoint:
    c = one.found.checkpoint
    counters = c.counters if c is not None else {}
    new, took = counters.get("new_bytes"), counters.get("duration_ms")
    return CompletedCheckpoint(
        name=checkpoint_name(one.found.id),
        url=one.url,
        epoch=one.found.id.epoch,
        time=datetime.fromtimestamp(c.time_ms / 1000, UTC) if c is not None and 0 <= c.time_ms < LAST_MS else None,
        stores=len(c.snapshots) if c is not None else None,
        size=c.size if c is not None else None,
        new_bytes=new if isinstance(new, int) else None,
        duration_ms=took if isinstance(took, (int, float)) else None,
        status=one.status,
        latest=one.latest,
        retained=one.retained,
        error=str(one.found.error) if c is None else None,
        row=one.row,
    )


def _cell(tag: str, column: str, text: str) -> str:
    align = "right" if column in NUMBERS else "left"
    return f'<{tag} style="text-align: {align}">{html.escape(printable(text))}</{tag}>'
