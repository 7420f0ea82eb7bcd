"""What is seen of an application that shows itself: its lines, its event logs, its metrics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.drivers.spark.harness import Application


def lines(app: Application, kind: str) -> list[str]:
    """What the job has said of a kind (`tests/spark/jobs/saying.py`), without the kind; not what it is just saying."""
    said = app.log.with_suffix(".scratch") / "tmp" / "said"
    whole = said.read_text().rpartition("\n")[0] if said.exists() else ""
    return [rest for line in whole.splitlines() for word, _, rest in [line.partition(" ")] if word == kind]


def told(app: Application, kind: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(app, kind)]


def logged(folder: Path) -> list[dict[str, Any]]:
    """The checkpoint events of all event logs in a folder."""
    files = (p for p in folder.rglob("*") if p.is_file() and p.suffix != ".crc")
    events = (json.loads(line) for file in files for line in file.read_text().splitlines())
    return [{**e, "Event": e["Event"].rsplit(".", 1)[1]} for e in events if e.get("Event", "").startswith("org.apache.spark.ckpt.")]


def metrics_in(said: list[str]) -> dict[str, float]:
    """Those of the query `orders`, by their names below its source's; Spark itself has some of a queue of listeners of a like name."""
    found = {}
    for line in said:
        name, value = line.rsplit(" ", 1)
        if "checkpoints_orders_" in name:
            found[name.split("checkpoints_orders_", 1)[1].split("_Value", 1)[0].split("{", 1)[0]] = float(value)
    return found


def conf(logs: Path) -> dict[str, str]:
    logs.mkdir()
    return {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{logs}",
        "spark.metrics.conf.*.sink.prometheusServlet.class": "org.apache.spark.metrics.sink.PrometheusServlet",
        "spark.metrics.conf.*.sink.prometheusServlet.path": "/metrics/prometheus",
    }
