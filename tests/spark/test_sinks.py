"""Every kind of sink, trigger and way to start, on real Spark; after each, no process and no folder of ours is left."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Server
from harness import Application

from spark_ckpt.testing.lossy_proxy import Wire, WireFault

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

Start = Callable[..., Application]
FEW, MANY, PER_FILE, NEW_PER_FILE = 8, 24, 30, 20
EACH_ONCE = ("collects", "actions", "persists", "remembers", "fails", "files", "table")
SINKS = (*EACH_ONCE, "appends", "memory", "console", "noop", "stateless", "many")


def event(number: int) -> dict[str, object]:
    return {"id": number, "key": f"k{number % 5}", "value": random.Random(number).randrange(1000)}


def write_overlapping(folder: Path, first: int, files: int) -> None:
    """File n has ids from 20 n to 20 n + 29: a third of them again in the next file."""
    folder.mkdir(parents=True, exist_ok=True)
    for n in range(first, first + files):
        temp = folder.parent / f".{folder.name}-{n}"
        temp.write_text("".join(json.dumps(event(i)) + "\n" for i in range(n * NEW_PER_FILE, n * NEW_PER_FILE + PER_FILE)))
        os.utime(temp, (1_700_000_000 + n, 1_700_000_000 + n))  # the file source goes by modification time
        temp.rename(folder / f"{n:05d}.json")


def ids(files: int) -> Counter[int]:
    return Counter(range(files * NEW_PER_FILE + PER_FILE - NEW_PER_FILE))


def repeated(files: int) -> Counter[int]:
    return Counter(i for n in range(files) for i in range(n * NEW_PER_FILE, n * NEW_PER_FILE + PER_FILE))


def held(folder: Path) -> Counter[int]:
    """The ids that a sink holds; the file sink's own log decides where there is one."""
    log = folder / "_spark_metadata"
    if log.exists():
        lines = [line for entry in log.iterdir() if entry.name.split(".")[0].isdigit() for line in entry.read_text().splitlines()[1:]]
        parts = sorted({Path(json.loads(line)["path"].removeprefix("file://")) for line in lines})
    else:
        parts = sorted(p for p in folder.rglob("*.json") if not p.name.startswith("."))
    return Counter(json.loads(line)["id"] for part in parts for line in part.read_text().splitlines())


def test_every_sink_killed_between_its_epoch_and_the_commit(start: Start, s3: Server, tmp_path: Path) -> None:
    write_overlapping(tmp_path / "in/few", 0, FEW)
    write_overlapping(tmp_path / "in/many", 0, MANY)
    locations, out = tmp_path / "locations", tmp_path / "out"
    args = ("sinks.py", ",".join(SINKS), str(tmp_path / "in"), str(locations), str(out))
    how = {"storage": f"s3://{s3.bucket}/ckpt", "env": s3.env}
    conf = {**s3.conf, "spark.sql.shuffle.partitions": "2"}

    # Every query comes to stand where its sink has taken an epoch that has no commit yet.
    for name in SINKS:
        s3.proxy.inject(WireFault(Wire.HOLD, rf"^PUT \S*/{name}/\S*/_metadata", skip=12 if name == "many" else 2, times=None, delay_s=120))
    app = start(*args, conf=conf, **how)
    app.until(lambda: len({line.split("/run-")[0] for line in s3.proxy.struck}) == len(SINKS), "every query between sink and commit")
    app.kill()
    s3.proxy.heal()
    shutil.rmtree(locations)

    start(*args, conf=conf, **how).expect_success()
    assert sum(line.endswith("/fails/failed") for line in map(str, out.rglob("failed"))) == 1, "the user's own fault did not occur"

    for name in EACH_ONCE:
        assert held(out / name) == ids(FEW), name
    assert held(out / "stateless") == repeated(FEW)
    assert held(out / "many") == repeated(MANY)
    assert set(held(out / "appends")) == set(ids(FEW)), "an at-least-once sink lost or invented rows"
    totals: dict[str, list[int]] = {}
    for i in ids(FEW):
        row = event(i)
        n, total = totals.get(str(row["key"]), [0, 0])
        totals[str(row["key"])] = [n + 1, total + int(str(row["value"]))]
    assert json.loads((out / "memory.json").read_text()) == totals
