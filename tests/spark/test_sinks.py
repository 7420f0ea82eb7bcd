"""Every kind of sink, trigger and way to start, on real Spark; after each, no process and no folder of ours is left."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spark_ckpt.process.jar import pyspark_home
from testbed.lossy_proxy import Wire, WireFault
from tests.drivers.spark.harness import JOBS, Application, Scratch, Start
from tests.drivers.spark.s3_server import Server
from tests.drivers.spark.steady_trial import keys_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(500)]

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


def log_of(stream: Path, kind: str) -> list[str]:
    """The entries of that kind in a stream's log."""
    return [entry.name for entry in sorted((stream / "log").iterdir()) if json.loads(entry.read_text())["type"] == kind]


@pytest.mark.campaign
def test_every_sink_killed_between_its_epoch_and_the_commit(
    start: Start, s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_overlapping(tmp_path / "in/few", 0, FEW)
    write_overlapping(tmp_path / "in/many", 0, MANY)
    locations, out = tmp_path / "locations", tmp_path / "out"
    args = ("sinks.py", ",".join(SINKS), str(tmp_path / "in"), str(locations), str(out))
    how = {"storage": f"s3://{s3.bucket}/ckpt", "env": {**s3.env, "TEST_SCRATCH": str(tmp_path)}}
    conf = {**s3.conf, "spark.sql.shuffle.partitions": "2"}

    # Every query comes to stand where its sink has taken an epoch that has no commit yet.
    for name in SINKS:
        s3.proxy.inject(WireFault(Wire.HOLD, rf"^PUT \S*/{name}/\S*/_metadata", skip=12 if name == "many" else 2, times=None, delay_s=120))
    app = start(*args, conf=conf, **how)
    app.until(lambda: len({line.split("/run-")[0] for line in s3.proxy.struck}) == len(SINKS), "every query between sink and commit")
    app.kill_driver()
    until_gone(tmp_path)  # though the server does not answer what they are waiting for
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
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.env["AWS_ACCESS_KEY_ID"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.env["AWS_SECRET_ACCESS_KEY"])
    for name in SINKS:
        if name not in ("stateless", "many"):
            assert keys_of(s3, f"s3://{s3.bucket}/ckpt{locations}/{name}") == len(ids(FEW)), name


def ours(scratch: Path) -> list[str]:
    """Command lines of coordinators and agents whose environment names this folder, alive or not yet buried."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str(scratch).encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
    return [line for line in found if "-m spark_ckpt." in line]


def until_gone(scratch: Path, seconds: float = 60) -> None:
    """Coordinator and agents end by themselves, within the time that they are given for what is in hand."""
    deadline = time.monotonic() + seconds
    while left := ours(scratch):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def until_empty(scratch: Path, seconds: float = 60) -> None:
    """The JVM of a plain Python process ends after it, and its own folders go last."""
    deadline = time.monotonic() + seconds
    # os.walk passes over a folder that goes while it is read
    while left := [f"{folder}/{name}" for folder, folders, files in os.walk(scratch) for name in folders + files]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def test_a_plain_python_process_starts_stops_and_changes_sessions(tmp_path: Path) -> None:
    write_overlapping(tmp_path / "src", 0, MANY)
    out, log = tmp_path / "out", tmp_path / "application.log"
    out.mkdir()
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK_", "SPARK_"))}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "TEST_SCRATCH": str(tmp_path), **Scratch(tmp_path / "application.scratch").env}
    command = [sys.executable, str(JOBS / "lifecycle.py"), str(tmp_path / "src"), str(out), f"file://{tmp_path}/storage"]
    with log.open("wb") as to:
        status = subprocess.run(command, cwd=tmp_path, env=environment, stdout=to, stderr=subprocess.STDOUT, timeout=150, check=False)
    assert status.returncode == 0, log.read_text(errors="replace")[-4000:]
    facts = json.loads((out / "facts.json").read_text())

    for name in ("odd", "new session"):
        assert held(out / name) == ids(10), name
    assert held(out / "once") == ids(6)
    assert held(out / "many") == repeated(MANY)
    assert (held(out / "outer"), held(out / "inner")) == (ids(2), ids(4))
    assert "was not told that the query at" in facts["unheard"]
    for name in ("rate", "micro"):
        rows = held(out / name)
        assert rows, name
        assert rows == Counter(range(len(rows))), f"{name}: a number is missing or came twice"

    location = tmp_path / "places" / "a b & 'ü' #1 100%25 ?x=[1]{2}"
    for folder, runs in ((location, 5), (location / "nested", 5), (tmp_path / "places/once", 3), (tmp_path / "places/rate", 2)):
        assert len(log_of(folder / "_ckpt", "claim")) == runs, folder
    many = tmp_path / "storage" / str(tmp_path).lstrip("/") / "places/many"
    assert len(log_of(many, "claim")) == 3
    assert any("9.compact" in names and "19.compact" in names for names in facts["source log"]), facts["source log"]
    assert not list((tmp_path / "places").rglob("many")), "the second session did not use its storage"

    assert facts["children"] == ["spark_ckpt.agent", "spark_ckpt.coordinator"], "one of each, however many queries there were"
    assert facts["children"] == facts["children again"]
    assert facts["threads"] == facts["threads again"]
    assert len(facts["threads"]) == len(set(facts["threads"])), "a thread was started twice"
    assert facts["spools"], "the test looks for spools in the wrong place"
    assert {s.rsplit("/", 1)[1] for s in facts["spools"]} == {"run-00000004", "run-00000005"}
    assert facts["children between"] == facts["children after"] == []
    assert facts["scratch between"] == []
    until_gone(tmp_path)
    until_empty(tmp_path / "scratch")


def fired(out: Path) -> list[dict[str, object]]:
    """What the timers have given so far, in the order of the epochs."""
    parts = sorted(out.glob("batch=*.json"), key=lambda part: int(part.stem.removeprefix("batch=")))
    rows = [json.loads(line) for part in parts for line in part.read_text().splitlines()]
    return [row for row in rows if row["key"] != "wake"]


@contextmanager
def executors_folders_removed(app: Application) -> Iterator[None]:
    """Which `spark-ckpt submit` leaves in PySpark's own folder, whatever SPARK_HOME says."""
    names: set[str] = set()
    try:
        app.until(lambda: "CoarseGrainedExecutorBackend" in "".join(command for _, command in app.descendants()), "an executor")
        names = {found[1] for _, command in app.descendants() if (found := re.search(r" --app-id (\S+)", command))}
        yield
    finally:
        app.kill()
        for name in names:
            shutil.rmtree(pyspark_home() / "work" / name, ignore_errors=True)


@pytest.mark.campaign
def test_timers_and_ttl_survive_the_driver_and_no_process_is_left(tmp_path: Path) -> None:
    write_overlapping(tmp_path / "in", 0, 1)
    storage, location, out = tmp_path / "storage", tmp_path / "location", tmp_path / "out"
    scratch = tmp_path / "scratch"
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "TEST_SCRATCH": str(tmp_path), "PYSPARK_PYTHON": sys.executable}
    others = Scratch(tmp_path / "application.scratch")
    env |= others.env
    conf = {**others.conf, "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.local.dir": str(scratch)}
    conf.update({"spark.ckpt.spool.dir": str(scratch), "spark.ckpt.localRecovery": "false"})  # with it, the spool would stay for an hour
    scratch.mkdir()

    def submitted(log: str, master: str) -> Application:
        command = [str(Path(sys.executable).parent / "spark-ckpt"), "submit", "--storage", str(storage), "--master", master]
        command += [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        return Application([*command, str(JOBS / "timers.py"), str(tmp_path / "in"), str(location), str(out)], tmp_path / log, env)

    stream = storage / str(location).lstrip("/")
    with submitted("first.log", "local[2]") as app:
        app.until(lambda: (stream / "run-00000001/chk-0/_metadata").exists(), "a checkpoint", 120)
        assert ours(tmp_path), "the test looks for processes in the wrong place"
        app.kill_driver()
        until_gone(tmp_path)
        assert list(scratch.glob("spark-ckpt-*")) == []
    assert not fired(out), "the timers fired before the kill: the test has lost its point"
    shutil.rmtree(location)

    # Spark runs an epoch without data only after another of the same run: something has to come first.
    (tmp_path / "in/wake.json").write_text('{"id": -1, "key": "wake", "value": 0}\n')
    os.utime(tmp_path / "in/wake.json", (1_700_000_000, 1_700_000_000))  # the source leaves out what is a week older than the newest
    with submitted("second.log", "local-cluster[2,1,1024]") as again, executors_folders_removed(again):
        again.until(lambda: len(fired(out)) >= 5, "every timer", 200)
        again.kill_one("CoarseGrainedExecutorBackend")  # its partition moves to another
        write_overlapping(tmp_path / "in", 1, 1)
        again.until(lambda: len(fired(out)) >= 10, "every second timer", 200)
        (tmp_path / "end").touch()
        again.expect_success(60)
        until_gone(tmp_path)
    assert list(scratch.glob("spark-ckpt-*")) == []
    assert len(log_of(stream, "claim")) == 2, "the query was to survive the loss of an executor"

    rows = fired(out)
    for files, some in ((1, rows[:5]), (2, rows[5:])):
        everything = repeated(files)
        for row in some:
            mine = {i: n for i, n in everything.items() if event(i)["key"] == row["key"]}
            assert row == {"key": row["key"], "n": sum(mine.values()), "long": len(mine), "short": 0}
        assert {row["key"] for row in some} == {f"k{i}" for i in range(5)}
