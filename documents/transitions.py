"""The diagrams in docs/protocol.md: where each event leads, from each stage's own transition table."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterable
from enum import Enum

from documents.parts import replaced
from spark_ckpt.protocol.events import Timer
from spark_ckpt.protocol.machine import Machine
from spark_ckpt.protocol.run import Run
from spark_ckpt.protocol.start.resume import Resume
from spark_ckpt.protocol.start.start import Start

STAGES: tuple[type[Machine], ...] = (Start, Resume, Run)
_WIDTH = 150


def renewed(page: str) -> str:
    """docs/protocol.md with the diagrams of today. Raises ValueError where it has no place for one."""
    for stage in STAGES:
        page = replaced(page, f"the table of `{stage.__name__}`", diagram(stage))
    return page


def diagram(stage: type[Machine]) -> str:
    """A line for each set of phases that lead to the same phases, and by which events. What leads nowhere else is left out."""
    phases_by: dict[tuple[str, frozenset[Enum]], list[Enum]] = defaultdict(list)
    for (phase, kind), row in stage.TABLE.items():
        if row.to:
            phases_by[_name(kind), row.to].append(phase)
    events_by: dict[tuple[tuple[Enum, ...], tuple[Enum, ...]], list[str]] = defaultdict(list)
    for (event, led_to), found in phases_by.items():
        events_by[_in_order(found), _in_order(led_to)].append(event)
    lines = []
    for (phases, to), events in sorted(
        events_by.items(), key=lambda item: ([_place(p) for p in item[0][0]], [_place(p) for p in item[0][1]])
    ):
        lines.append(f"{_names(phases)} -> {_names(to)}")
        lines += textwrap.wrap(", ".join(sorted(events)), _WIDTH, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(["```", *lines, "```"])


def _name(kind: type | Timer) -> str:
    return f"timer {kind.name}" if isinstance(kind, Timer) else kind.__name__


def _place(phase: Enum) -> int:
    return list(type(phase)).index(phase)


def _in_order(phases: Iterable[Enum]) -> tuple[Enum, ...]:
    return tuple(sorted(phases, key=_place))


def _names(phases: Iterable[Enum]) -> str:
    return ", ".join(phase.name for phase in phases)
