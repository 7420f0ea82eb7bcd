"""A start of a query as a driver knows it, in a JVM without an application, and the coordinator that it talks to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_RUN: dict[str, Any] = {"run": 1, "claim": 1, "origin": None, "epoch": 0, "barrier": "{}", "gate": "BACKGROUND"}
STARTED: dict[str, Any] = {**_RUN, "files": {}, "planned": [], "hooks": {}}


class Function:
    class Java:
        implements = ("scala.Function1",)

    def __init__(self, java: Any, answers: dict[str, Any]) -> None:
        self._java, self.answers = java, answers
        self.heard: list[dict[str, Any]] = []

    def apply(self, message: Any) -> Any:
        self.heard.append(json.loads(message if isinstance(message, str) else message.toString()))
        return self._java.org.apache.spark.ckpt.Json.parse(json.dumps(self.answers.get(self.heard[-1]["type"], {})))


class Started:
    """A start of a query, and the coordinator that it talks to."""

    def __init__(self, java: Any, folder: Path) -> None:
        ckpt, nothing = java.org.apache.spark.ckpt, java.scala.Option.empty()
        empty = java.scala.jdk.javaapi.CollectionConverters.asScala(java.java.util.ArrayList()).toSeq()
        self._java = java
        self.coordinator = Function(java, {"start": STARTED, "finish": {"savepoint": None}})
        transfer = ckpt.FileTransfer(java.java.io.File(str(folder)))
        self.stream = ckpt.DriverStream("file:/x", "life", transfer, nothing, self.coordinator, self.coordinator, self.coordinator)
        self._asked = ("q", ckpt.JobShape(empty, empty, "sink"), ckpt.JobNeeds(empty, nothing, False, False), empty, None)
        self.stream.start(*self._asked)

    def goes_back(self, run: int) -> None:
        self.coordinator.answers["start"] = {**STARTED, "run": run}
        self.stream.start(*self._asked)

    def asked(self, drain: bool, run: int = 1) -> None:
        said = {"type": "stopping", "root": "file:/x", "run": run, "drain": drain}
        self.stream.heard(self._java.org.apache.spark.ckpt.Json.parse(json.dumps(said)))

    def drains(self) -> bool | None:
        """Of the request that is met next; None: there is none."""
        return self.stream.stopRequest().get().drain() if self.stream.stopRequest().isDefined() else None

    def met(self) -> Any:
        """Those that are met with it."""
        return self.stream.metWith(self.stream.stopRequest().get())
