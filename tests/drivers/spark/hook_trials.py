"""One stream of many lives, whose hook publishes into one database; what the hook was asked, and what it should have published."""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.drivers.spark.harness import Application, Start

EXAMPLES = Path(__file__).parents[3] / "examples"


class HookTrial:
    def __init__(self, start: Start, events: Path, tmp: Path, **conf: str) -> None:
        self.location, self.database, self.storage = tmp / "location", tmp / "rows.sqlite", tmp / "storage"
        self.conf = {f"spark.ckpt.{name.replace('_', '.')}": value for name, value in conf.items()}
        self._start, self._events = start, events
        self._calls = tmp / "calls.jsonl"

    def live(self, point: str = "", **more: Any) -> Application:
        args = [str(path) for path in (self._events, self.location, self.database, self._calls)] + ([point] if point else [])
        env = {"PYTHONPATH": os.pathsep.join([str(EXAMPLES), os.environ.get("PYTHONPATH", "")])}
        return self._start("hooks.py", *args, storage=f"file://{self.storage}", conf=self.conf, env=env, **more)

    def killed(self, point: str) -> None:
        """A life that kills itself there."""
        app = self.live(point)
        assert app.wait() == -9, f"{point} was never reached\n{app.tail()}"
        app.kill()

    def told(self) -> list[dict[str, Any]]:
        """What the hook was asked, in the order of its lives and calls."""
        return [json.loads(line) for line in self._calls.read_text().splitlines()] if self._calls.exists() else []

    def last_life(self) -> list[tuple[str, int | None]]:
        """What the hook was asked in its last life, in order."""
        told = self.told()
        return [(call["call"], call["epoch"]) for call in told if call["life"] == told[-1]["life"] and call["call"] != "stage"]

    def published(self) -> Counter[str]:
        return published(self.database)

    def expected(self) -> Counter[str]:
        return expected(self._events)


def published(database: Path) -> Counter[str]:
    """The rows that readers of a two-phase sink see."""
    with closing(sqlite3.connect(database)) as db:
        return Counter(row for (row,) in db.execute("SELECT row FROM published"))


def expected(events: Path) -> Counter[str]:
    """Each event once, as a batch query over all files has it."""
    lines = {line for path in events.iterdir() for line in path.read_text().splitlines()}
    rows = ({name: event[name] for name in ("id", "key", "value")} for event in map(json.loads, lines))
    return Counter(json.dumps(row, sort_keys=True) for row in rows)
