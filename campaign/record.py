"""Results: a line of JSON for each case and each long test, and the code that they are of."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Any

from campaign import tested
from campaign.comparison import Comparison
from campaign.dimensions import Case
from campaign.sinks.holdings import Held
from campaign.sinks.trial import SinkResult, Struck
from campaign.trial import Result, sparks_own

RESULTS = tested.ROOT / "campaign" / "results"
KILLS, TESTS, SINKS = RESULTS / "kills.jsonl", RESULTS / "tests.jsonl", RESULTS / "sinks.jsonl"
LINES = RESULTS / "lines.jsonl"
SCHEMA = tested.ROOT / "campaign" / "results.schema.json"
FORMAT = 1
Line = Mapping[str, Any]


def about(code: str) -> dict[str, Any]:
    """The head of a line, of something that ran this code. Names no host and no path."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'"([^"]+)"', java)
    versions = {name: version(name) for name in ("spark-ckpt", "pyspark")}
    versions |= {"python": platform.python_version(), "java": found[1] if found else ""}
    return {
        "format": FORMAT,
        "code": code,
        "commit": tested.commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "versions": versions,
        "cores": os.cpu_count() or 1,
    }


def case_line(result: Result) -> dict[str, Any]:
    """Of a case that came to no comparison the streams have no rows."""
    case = result.case
    compared = [_rows(one) for one in result.comparisons]
    compared += [{}] * (len(case.streams) - len(compared))
    streams = [{"operator": s.operator, "sink": s.sink.value, **rows} for s, rows in zip(case.streams, compared, strict=True)]
    return {
        **about(tested.code_of_kills()),
        "seed": case.seed,
        "kills_planned": len(case.kills),
        "case": case.number,
        **{kind: value.value for kind, value in case.settings().items()},
        "conf": dict(case.conf),
        "streams": streams,
        "kills": [{"killed": h.what, "at_s": h.at_s, "epochs": h.epochs} for h in result.kills],
        "ends": [{"why": h.what, "sparks_own": sparks_own(h), "at_s": h.at_s, "epochs": h.epochs} for h in result.ends],
        "spells": result.spells,
        "seen": result.seen,
        "files": result.files,
        "outcome": result.outcome.value,
        "seconds": result.seconds,
        "text": result.text,
    }


def sinks_line(result: SinkResult) -> dict[str, Any]:
    """Of a case that came to no comparison there are no sinks."""
    return {
        **about(tested.code_of_sinks()),
        "mode": result.case.mode.value,
        "group": result.case.group.value,
        "sinks": [_held(held) for held in result.held],
        "kills": [_struck(kill) for kill in result.kills],
        "ends": [{"why": end.what, "sparks_own": sparks_own(end), "at_s": end.at_s, "epochs": end.epochs} for end in result.ends],
        "files": result.files,
        "outcome": result.outcome.value,
        "seconds": result.seconds,
        "text": result.text,
    }


def _held(held: Held) -> dict[str, Any]:
    line = {"sink": held.sink.value, **_rows(held.rows)}
    return line if held.in_topic is None else {**line, "in_topic": _rows(held.in_topic)}


def _struck(kill: Struck) -> dict[str, Any]:
    sinks = []
    for sink, (rows, topic) in kill.twice.items():
        line = {"sink": sink.value, "behind": kill.behind[sink], "twice": rows}
        sinks.append(line if topic is None else {**line, "in_topic": topic})
    return {"killed": kill.strike.value, "at_s": kill.at.at_s, "epochs": kill.at.epochs, "sinks": sinks}


def _rows(compared: Comparison) -> dict[str, Any]:
    return {name: value for name, value in asdict(compared).items() if name != "examples"}


def drawn(case: Case) -> tuple[int, int, int]:
    return case.seed, len(case.kills), case.number


def identity(line: Line) -> tuple[int, int, int]:
    """The same for the case that the line is of."""
    return line["seed"], line["kills_planned"], line["case"]


def read(path: Path) -> list[dict[str, Any]]:
    """Raises ValueError for a line of another format."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for line in lines:
        if line["format"] != FORMAT:
            raise ValueError(f"{path.name} has a line of format {line['format']}; this version reads {FORMAT}")
    return lines


def append(path: Path, line: Line) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as f:
        f.write(json.dumps(line, ensure_ascii=False, default=_plain) + "\n")


def keep(path: Path, valid: Callable[[Line], bool]) -> int:
    """Drop the other lines; how many."""
    lines = read(path)
    kept = [line for line in lines if valid(line)]
    if len(kept) < len(lines):
        path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept))
    return len(lines) - len(kept)


def of_one_code(lines: Iterable[Line]) -> list[Line]:
    """Those of the code that the last line is of."""
    every = list(lines)
    return [line for line in every if line["code"] == every[-1]["code"]]


def newest(lines: Iterable[Line]) -> list[Line]:
    """Of long tests: the last line of each."""
    return sorted({line["test"]: line for line in lines}.values(), key=lambda line: str(line["test"]))


def _plain(value: object) -> object:
    assert isinstance(value, Enum)
    return value.value
