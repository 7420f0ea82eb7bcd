"""The tables of docs/guarantees.md that say what each sink has seen after each kind of kill: taken from campaign/results/sinks.jsonl."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from campaign.dimensions import Mode
from campaign.sinks.dimensions import STRIKES, SinkKind, Strike, cases
from documents.parts import period, replaced

_SOURCE = "campaign/results/sinks.jsonl"
_MODES = {
    Mode.EVERY_EPOCH: "Every epoch is a checkpoint (`spark.ckpt.interval=0`)",
    Mode.INTERVAL: "With an interval",
    Mode.AT_LEAST_ONCE: "At-least-once (`spark.ckpt.mode=AT_LEAST_ONCE`)",
}
_STRIKES = (Strike.DRIVER, Strike.MACHINE, Strike.EXECUTORS, Strike.WRITING, Strike.COORDINATOR, Strike.AGENT)
_SINKS = {
    SinkKind.FILE: "Spark's file sink",
    SinkKind.SKIPS: "`foreachBatch` that skips batch ids that it has",
    SinkKind.APPENDS: "`foreachBatch` that appends",
    SinkKind.KAFKA: "Kafka",
    SinkKind.NUMBERED: "Kafka, numbered: what its reader keeps",
}
_OF = {group: " and ".join(f"**{strike.value}**" for strike in strikes) for group, strikes in STRIKES.items()}
_IN_TOPIC = "Kafka, numbered: in the topic"
_BEHIND = "*epochs that no checkpoint held at the kill*"
_NONE = "·"

Line = Mapping[str, Any]


def read(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def renewed(page: str, lines: Sequence[Line]) -> str:
    """docs/guarantees.md with the tables of today. Raises ValueError where it has no place for them."""
    return replaced(page, _SOURCE, tables(lines))


def tables(lines: Sequence[Line]) -> str:
    """One for each mode, of the last run of each case. What never ran has no numbers."""
    newest = list({(line["mode"], line["group"]): line for line in lines}.values())
    parts: list[str] = []
    for mode, title in _MODES.items():
        kills = [kill for line in newest if line["mode"] == mode.value for kill in line["kills"]]
        if kills:
            parts += [f"**{title}**", "", *_table(kills), ""]
    return "\n".join([*parts, *_about(newest)])


def _table(kills: Sequence[Line]) -> Iterator[str]:
    of = {strike: [kill for kill in kills if kill["killed"] == strike.value] for strike in _STRIKES}
    yield f"| | {' | '.join(f'**{strike.value}**' for strike in _STRIKES)} |"
    yield "|---|" + "---:|" * len(_STRIKES)
    for sink, name in _SINKS.items():
        held = [[one for kill in of[strike] for one in kill["sinks"] if one["sink"] == sink.value] for strike in _STRIKES]
        if sink is SinkKind.NUMBERED:
            yield _row(_IN_TOPIC, [_sum([one["in_topic"] for one in found]) for found in held])
        yield _row(name, [_sum([one["twice"] for one in found]) for found in held])
    behind = [[one["behind"] for kill in of[strike] for one in kill["sinks"]] for strike in _STRIKES]
    yield _row(_BEHIND, [_range(found) for found in behind])


def _row(name: str, cells: Sequence[str]) -> str:
    return f"| {' | '.join([name, *cells])} |"


def _sum(found: Sequence[int]) -> str:
    return f"{sum(found):,}" if found else _NONE


def _range(found: Sequence[int]) -> str:
    if not found:
        return _NONE
    return str(min(found)) if min(found) == max(found) else f"{min(found)} to {max(found)}"


def _about(lines: Sequence[Line]) -> list[str]:
    if not lines:
        return ["None is recorded yet."]
    rows = [rows for line in lines for one in line["sinks"] for rows in (one, *([one["in_topic"]] if "in_topic" in one else []))]
    total = {name: sum(one[name] for one in rows) for name in ("expected", "missing", "excess")}
    codes = sorted({line["code"] for line in lines})
    done = {(line["mode"], line["group"]) for line in lines}
    left = [f"{case.mode.value}: {_OF[case.group]}" for case in cases() if (case.mode.value, case.group.value) not in done]
    unequal = [f"{line['mode']}, {line['group']}: {line['outcome']}" for line in lines if line["outcome"] != "equal"]
    counts = f"{sum(len(line['kills']) for line in lines)} kills, {total['expected']:,} rows expected in all sinks together"
    return [
        f"**{counts}, {total['missing']:,} missing, {total['excess']:,} in excess.**"
        + (f" Not as it should be, or not without help: {'; '.join(unequal)}." if unequal else ""),
        f"{period(line['date'] for line in lines)}, code {', '.join(codes)}.",
        *([f"Not measured yet ({_NONE}): {'; '.join(left)}."] if left else []),
    ]
