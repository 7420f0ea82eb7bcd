"""One interface for what verbs print: as text for people, as one JSON document for programs."""

from __future__ import annotations

import json
import math
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

import click

from spark_ckpt.errors import FormatError, printable
from spark_ckpt.model import Checkpoint
from spark_ckpt.protocol.offsets_conf import is_drained


@dataclass(frozen=True)
class Facts:
    """Names and their values."""

    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Table:
    """`right` names the columns that hold numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[str] = ()


@dataclass(frozen=True)
class Line:
    text: str


Section = Facts | Table | Line


@dataclass(frozen=True)
class Report:
    """What a verb found: `document` for programs, `sections` for people, the same facts in both."""

    document: Mapping[str, Any]
    sections: Sequence[Section]


def origin_of(c: Checkpoint) -> list[tuple[str, str]]:
    """What a checkpoint says of its job's ends, for `Facts`: one that was imported does not know them. And whether that job was drained."""
    drained = [("drained", "yes: all rows that come later count as late")] if is_drained(c) else []
    if c.imported is not None:
        return [("imported from", c.imported.location), *drained]
    return [("sources", ", ".join(c.job.sources)), ("sink", c.job.sink), *drained]


def tell(message: str) -> None:
    """A line on stderr. Where nobody can read it, the work goes on, and its exit status says the rest."""
    with suppress_unwritten(sys.stderr):
        click.echo(message, err=True)


@contextmanager
def suppress_unwritten(stream: TextIO) -> Iterator[None]:
    try:
        yield
    except OSError:
        say_no_more(stream)


def say_no_more(stream: TextIO) -> None:
    """What has not been written is not tried again when Python ends, which would change the exit status."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


class Output(ABC):
    def show(self, report: Report) -> None:
        """Print a verb's result on stdout; once per call of the program. A reader that is gone (`| head`) changes nothing of the result."""
        try:
            self._print(report)
        except BrokenPipeError:
            say_no_more(sys.stdout)

    @abstractmethod
    def _print(self, report: Report) -> None: ...

    @abstractmethod
    def fail(self, kind: str, message: str) -> None:
        """Print why there is no result."""


class JsonOutput(Output):
    """A number that JSON has not (NaN, infinity) is null: it comes out of a checkpoint's counters, which anybody may have written."""

    def _print(self, report: Report) -> None:
        try:
            try:
                text = json.dumps(report.document, indent=2, allow_nan=False)
            except ValueError:
                text = json.dumps(_in_json(report.document), indent=2, allow_nan=False)
        except RecursionError:  # some Pythons read deeper than they write
            raise FormatError("what was found holds lists in lists without end; it is damaged or forged") from None
        click.echo(text)

    def fail(self, kind: str, message: str) -> None:
        click.echo(json.dumps({"error": {"kind": kind, "message": message}}, indent=2))


def _in_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _in_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_in_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class TextOutput(Output):
    """Plain columns where stdout is no terminal, so that lines can be cut and searched; rich tables where it is."""

    def _print(self, report: Report) -> None:
        for section in report.sections:
            if isinstance(section, Table):
                if sys.stdout.isatty():
                    _rich_table(section)
                else:
                    _plain_table(section)
            elif isinstance(section, Facts):
                pairs = [(printable(name), printable(value)) for name, value in section.pairs]
                width = max((len(name) for name, _ in pairs), default=0)
                for name, value in pairs:
                    click.echo(f"{name:<{width}}  {value}")
            else:
                click.echo(printable(section.text))

    def fail(self, kind: str, message: str) -> None:  # noqa: ARG002 - a person reads the sentence, a program the kind
        tell(f"spark-ckpt: {printable(message)}")


def _plain_table(table: Table) -> None:
    cells = [[printable(cell) for cell in row] for row in [table.columns, *table.rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.columns))]
    for row in cells:
        parts = [
            f"{cell:>{width}}" if name in table.right else f"{cell:<{width}}"
            for cell, width, name in zip(row, widths, table.columns, strict=True)
        ]
        click.echo("  ".join(parts).rstrip())


LEAST_WIDTH = 40
"""Columns of a terminal."""


def _rich_table(table: Table) -> None:
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(box=None, pad_edge=False, header_style="bold")
    for name in table.columns:
        shown.add_column(name, justify="right" if name in table.right else "left", overflow="fold")
    for row in table.rows:
        # Text, not str: rich would take square brackets in a name for its markup.
        shown.add_row(*(Text(printable(cell)) for cell in row))
    console = Console()
    # Some terminals say that they have no columns: of a table that narrow nothing would be left.
    console.width = max(LEAST_WIDTH, console.width)
    console.print(shown)
