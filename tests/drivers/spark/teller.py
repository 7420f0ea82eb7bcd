"""The other end of jobs/told.py: one JVM for many sessions and queries."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from tests.drivers.spark.harness import Application, submit

AVAILABLE = {"availableNow": True}


class Told:
    """An application that does what it is told; every call answers with the error that the user saw, None if there was none."""

    def __init__(self, folder: Path, env: Mapping[str, str], conf: Mapping[str, str]) -> None:
        folder.mkdir()
        self.log = folder / "application.log"
        self._folder = folder
        self._number = 0
        self.seconds = 0.0
        self.app: Application = submit("told.py", [str(folder)], log=self.log, storage=None, conf=conf, env=env)

    def session(self, conf: Mapping[str, str]) -> str | None:
        """End the SparkContext that there is and begin another."""
        return self._tell({"do": "session", "conf": dict(conf)})

    def query(
        self,
        query: str,
        source: Path,
        out: Path,
        location: Path | None,
        *,
        settings: Mapping[str, str] | None = None,
        options: Mapping[str, str] | None = None,
        trigger: Mapping[str, object] | None = None,
    ) -> str | None:
        return self._tell(
            {
                "do": "query",
                "query": query,
                "source": str(source),
                "out": str(out),
                "location": None if location is None else str(location),
                "settings": dict(settings or {}),
                "options": dict(options or {}),
                "trigger": dict(trigger or AVAILABLE),
            }
        )

    def end(self) -> None:
        self._tell({"do": "end"})
        self.app.expect_success()

    def _tell(self, command: Mapping[str, object]) -> str | None:
        number, self._number = self._number, self._number + 1
        temp = self._folder / f"{number}.new"
        temp.write_text(json.dumps(command))
        temp.rename(self._folder / f"{number}.json")
        answer = self._folder / f"{number}.answer"
        self.app.until(answer.exists, f"an answer to {command}", 150)
        doc = json.loads(answer.read_text())
        self.seconds = doc["seconds"]
        error = doc["error"]
        return None if error is None else str(error)


def sentence(error: str | None) -> str:
    """What spark-ckpt says in an error of Spark's: the line that carries it, without Spark's own words around it."""
    assert error is not None, "nothing was refused"
    found = re.search(r"CheckpointFailure(?:\[\w+\])?: ([^\n]*)", error)
    found = found or re.search(r"terminated with exception: ([^\n]*?)( SQLSTATE: \w+)?$", error, re.M)
    assert found, f"no sentence of spark-ckpt in:\n{error}"
    return found.group(1)
