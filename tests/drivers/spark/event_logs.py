"""Event logs of applications that never ran: as large as one wishes, for the history server."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spark_ckpt.model import Ack, CheckpointId, Handle, HandleKind, Snapshot, StoreId
from spark_ckpt.protocol.checkpoints.acknowledgements import Acknowledgements
from spark_ckpt.protocol.checkpoints.required_ids import Slot
from spark_ckpt.protocol.checkpoints.stats import summary_of

BEGIN_MS = 1_767_225_600_000
PACKAGE = "org.apache.spark.ckpt."
ROOT = "file:/data/ckpt/orders"
QUERY_ID = "3b6c2f7d-2f25-4d94-8f65-3e3ad7a1d3c1"
KINDS = 40
"""So many checkpoints differ."""
SAVEPOINT = 120
"""The epoch of which a savepoint was made."""
OPERATORS = {0: "deduplicate(id, ts)", 1: "aggregate(window, key)"}


def write_log(folder: Path, app: str, *, checkpoints: int, partitions: int, seed: int) -> Path:
    """A finished application with one query of two stateful operators, `partitions` each."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / app
    with log.open("w") as out:
        for event in _events(app, checkpoints, partitions, random.Random(seed)):
            out.write(json.dumps(event, separators=(",", ":")) + "\n")
    return log


def write_log_of_two_queries(folder: Path, app: str, seed: int) -> Path:
    """The second, `invoices`, was started last."""
    log = write_log(folder, app, checkpoints=5, partitions=3, seed=seed)
    others = [line.replace(ROOT, "file:/data/ckpt/invoices") for line in checkpoint_events(7, 2, seed)]
    others[0] = others[0].replace('"orders"', '"invoices"').replace(QUERY_ID, "9d9f0b43-0000-4d94-8f65-3e3ad7a1d3c1")
    lines = log.read_text().splitlines()
    log.write_text("\n".join([*lines[:-1], *others, lines[-1]]) + "\n")
    return log


def checkpoint_events(checkpoints: int, partitions: int, seed: int) -> Iterator[str]:
    """Only the events of checkpoints, as the event log writes them."""
    for event in _events("app", checkpoints, partitions, random.Random(seed)):
        if event["Event"].startswith(PACKAGE):
            yield json.dumps(event, separators=(",", ":"))


def write_rolling_log(folder: Path, app: str, *, files: int, checkpoints: int, partitions: int, seed: int) -> Path:
    """The same as Spark writes it by default, in several files; returns the folder that they are in."""
    rolling = folder / f"eventlog_v2_{app}"
    rolling.mkdir(parents=True)
    (rolling / f"appstatus_{app}").touch()
    lines = [json.dumps(e, separators=(",", ":")) for e in _events(app, checkpoints, partitions, random.Random(seed))]
    per_file = -(-len(lines) // files)
    for number in range(files):
        # Each file begins with the log's version, as Spark's own do.
        part = lines[number * per_file : (number + 1) * per_file]
        (rolling / f"events_{number + 1}_{app}").write_text("\n".join([lines[0], *part]) + "\n")
    return rolling


def _events(app: str, checkpoints: int, partitions: int, rng: random.Random) -> Iterator[dict[str, Any]]:
    yield {"Event": "SparkListenerLogStart", "Spark Version": "4.3.0"}
    yield {"Event": "SparkListenerApplicationStart", "App Name": "orders", "App ID": app, "Timestamp": BEGIN_MS, "User": "ann"}
    run_id = "5ab8ab15-d6d3-41bd-b4b0-0e4b0d2a4a54"
    common = {"root": ROOT, "run": 3}
    options = {
        "storage": "s3://lake/ckpt",
        "mode": "EXACTLY_ONCE",
        "interval": "10s",
        "timeout": "10min",
        "retained": "3",
        "maxConcurrent": "1",
    }
    named = {"queryId": QUERY_ID, "runId": run_id, "name": "orders", "background": True, "options": options}
    yield {"Event": PACKAGE + "CheckpointRunStarted", **common, "epoch": 0, "timeMs": BEGIN_MS, **named}
    path = "s3://lake/ckpt/data/ckpt/orders/run-00000002/chk-41"
    restored = {"timeMs": BEGIN_MS - 60_000, "restoredMs": BEGIN_MS, "path": path, "fullBytes": 44_000_000}
    restored.update({"from": "", "fromSavepoint": False})
    counts = {"triggered": 0, "completed": 0, "failed": 0, "restored": 1}
    yield {"Event": PACKAGE + "CheckpointRestored", "root": ROOT, "run": 2, "epoch": 41, **restored, "counts": counts}
    kinds = [_announcement(list(_acks(partitions, rng))) for _ in range(min(checkpoints, KINDS))]
    for epoch in range(checkpoints):
        time_ms = BEGIN_MS + 10_000 * epoch
        failed = epoch % 97 == 60
        counts = {**counts, "triggered": epoch + 1, "failed" if failed else "completed": counts["failed" if failed else "completed"] + 1}
        kind = rng.choice(kinds)
        told = {**kind, "full_bytes": kind["full_bytes"] + epoch * 6_000 * partitions}
        behind = rng.choice([0, 0, 0, 1, 1, 2, 3])
        shared = {
            **common,
            "epoch": epoch,
            "timeMs": time_ms,
            "acked": told["acked"],
            "required": told["required"],
            "newBytes": told["new_bytes"],
            "durationMs": _slowest(told, "acked_ms_max") + 35,
            "lag": {"epochs": behind, "ms": 1_130 * behind, "bytes": 900_000 * behind},
            "late": epoch % 25 == 7,
            "counts": counts,
            "executors": told["executors"],
            "operators": [_operator(int(id_), numbers, told) for id_, numbers in told["operators"].items()],
        }
        if failed:
            message = "_metadata of checkpoint could not be stored within 600000 ms (spark.ckpt.timeout): 503 Slow Down"
            yield {"Event": PACKAGE + "CheckpointAborted", **shared, "reason": "EXPIRED", "message": message}
        else:
            yield {
                "Event": PACKAGE + "CheckpointCompleted",
                **shared,
                "path": f"s3://lake/ckpt/data/ckpt/orders/run-00000003/chk-{epoch}",
                "fullBytes": told["full_bytes"],
                "metadataBytes": 40 * told["acked"],
                "planMs": 12,
                "finaliseMs": 23,
                "sinkMs": _slowest(told, "commit_ms_max") + 60,
                "syncMsMax": told["sync_ms_max"],
                "asyncMsMax": told["async_ms_max"],
                "latencies": [],
            }
            if epoch == SAVEPOINT:
                made = {"epoch": epoch, "timeMs": time_ms, "path": "s3://lake/savepoints/before-upgrade", "fullBytes": told["full_bytes"]}
                yield {"Event": PACKAGE + "CheckpointSavepoint", **common, **made}
    yield {"Event": "SparkListenerApplicationEnd", "Timestamp": BEGIN_MS + 10_000 * checkpoints}


def _announcement(acks: list[Ack]) -> dict[str, Any]:
    acknowledged = Acknowledgements(CheckpointId(3, 0))
    for ack in acks:
        acknowledged.acknowledge(ack)
    acknowledged.seal({a.snapshot.uid: Slot(a.snapshot.store.operator, a.snapshot.store.partition, 0) for a in acks})
    full_bytes = sum(a.snapshot.size for a in acks)
    told: dict[str, Any] = summary_of(CheckpointId(3, 0), BEGIN_MS, acknowledged, BEGIN_MS, 0, full_bytes=full_bytes).announcement()
    assert told["acked"] == told["required"] == len(acks)
    return told


def _slowest(told: dict[str, Any], name: str) -> int:
    return int(max(round(numbers[name]) for numbers in told["operators"].values()))


def _operator(id_: int, numbers: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": id_,
        "name": OPERATORS[id_],
        "partitions": numbers["partitions"],
        "snapshots": numbers["snapshots"],
        "newBytes": numbers["new_bytes"],
        "fullBytes": numbers["full_bytes"],
        "syncMsMax": numbers["sync_ms_max"],
        "asyncMsMax": numbers["async_ms_max"],
        "startDelayMsMax": numbers["start_delay_ms_max"],
        "commitMsMax": numbers["commit_ms_max"],
        "ackedMsMax": numbers["acked_ms_max"],
        "subtasks": told["subtasks"][str(id_)],
        "distributions": told.get("distributions", {}).get(str(id_), []),
    }


def _acks(partitions: int, rng: random.Random) -> Iterator[Ack]:
    for operator in OPERATORS:
        for part in range(partitions):
            start = 20 + 260 * operator + rng.expovariate(1 / 30)
            new = rng.randrange(4_000, 60_000) * (operator + 1)
            handle = Handle(HandleKind.CHANGELOG, "7_a.changelog", "run-00000003/seg/7-x", 0, new, 0)
            snapshot = Snapshot(StoreId(operator, part, "default"), 1, f"{operator}-{part}", (handle,))
            commit = start + rng.uniform(40, 180)
            slow = 400 if part == 17 else 0
            yield Ack(
                3,
                0,
                snapshot,
                str(part % 16),
                new,
                sync_ms=rng.uniform(0.6, 4),
                async_ms=rng.uniform(60, 140) + slow,
                start_delay_ms=start,
                commit_delay_ms=commit,
            )
