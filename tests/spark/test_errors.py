"""Bad input and broken surroundings on real Spark: one clear sentence that names the thing and the way out, and nothing is lost.

One JVM does it all, session after session (jobs/told.py). Every test that breaks something ends with a start that works.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import pytest

from spark_ckpt import paths
from spark_ckpt.stored.metadata import codec
from spark_ckpt.stored.metadata.codec import decode_metadata, encode_metadata
from testbed.lossy_proxy import LossyProxy, Wire, WireFault
from tests.drivers.spark.inputs import write_events
from tests.drivers.spark.teller import Told, sentence

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

KEY_ID, SECRET, TOKEN = "AKIARECOGNISABLE0001", "recognisable-secret-of-s3", "recognisable-session-token"
IN_OPTION, IN_URL = "recognisable-secret-in-an-option", "recognisable-secret-in-a-url"
SECRETS = (KEY_ID, SECRET, TOKEN, IN_OPTION, IN_URL)
BUCKET = "errors"
OTHER = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
LONGEST = 700


class World:
    """The application, an S3 server behind a proxy, a folder for everything, and what was stored and said."""

    def __init__(self, told: Told, proxy: LossyProxy, moto_url: str, folder: Path) -> None:
        self.told, self.proxy, self.folder = told, proxy, folder
        self.s3 = boto3.client("s3", endpoint_url=moto_url, region_name="us-east-1", aws_access_key_id=KEY_ID, aws_secret_access_key=SECRET)
        self.s3.create_bucket(Bucket=BUCKET)

    def conf(self, storage: str | None = None, **options: str) -> dict[str, str]:
        conf = {"spark.ckpt.storage": storage or f"file://{self.folder}/storage"}
        if storage is not None:
            conf |= {"spark.ckpt.s3.endpoint": self.proxy.endpoint, "spark.ckpt.s3.region": "us-east-1", "spark.ckpt.s3.pathStyle": "true"}
        return conf | {f"spark.ckpt.{name.replace('_', '.')}": value for name, value in options.items()}

    def run(self, name: str, *, query: str = "totals", located: bool = True, **how: object) -> str | None:
        """A query with input, output and checkpointLocation named after it."""
        location = self.location(name) if located else None
        return self.told.query(query, self.source(name), self.folder / "out" / name, location, **how)  # type: ignore[arg-type]

    def source(self, name: str) -> Path:
        return self.folder / "input" / name

    def location(self, name: str) -> Path:
        return self.folder / "locations" / name

    def feed(self, name: str, first: int = 0, files: int = 2) -> None:
        write_events(self.source(name), first, files)

    def stream(self, name: str) -> Path:
        return Path(paths.stream_url(f"file://{self.folder}/storage", f"file:{self.location(name)}").removeprefix("file://"))

    def checkpoints(self, name: str) -> list[Path]:
        found = self.stream(name).glob("run-*/chk-*/_metadata")
        return sorted(found, key=lambda p: (p.parts[-3], int(p.parts[-2].removeprefix("chk-"))))

    def newest_segment(self, name: str) -> Path:
        newest = decode_metadata(self.checkpoints(name)[-1].read_bytes())
        return self.stream(name) / next(o for o in sorted(newest.objects) if f"/seg/{newest.id.epoch}-" in o)

    def check_sink(self, name: str, epochs: int) -> None:
        """Every batch holds the counts over all files up to its own: what a batch query over them gives."""
        seen: Counter[tuple[str, str]] = Counter()
        totals = [Counter(seen)]
        for file in sorted(self.source(name).glob("events-*.json")):
            for line in file.read_text().splitlines():
                event = json.loads(line)
                seen += Counter({(event["key"], "n"): 1, (event["key"], "total"): event["value"]})
            totals.append(Counter(seen))
        assert len(totals) == epochs + 1, "another number of epochs than the test is about"
        for epoch in range(epochs):
            rows = json.loads((self.folder / "out" / name / f"{epoch}.json").read_text())
            held = Counter({(row["key"], what): row[what] for row in rows for what in ("n", "total")})
            assert held == totals[epoch + 1], f"epoch {epoch} of {name}"

    def log(self) -> str:
        return self.told.log.read_text(errors="replace")

    def refused(self, error: str | None, *parts: str) -> None:
        """One line, not endless, that names all the parts."""
        said = sentence(error)
        print(said)
        assert len(said) <= LONGEST, said
        for part in parts:
            assert part in said, said


@pytest.fixture(scope="module")
def world(moto_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("errors")
    (folder / "events").mkdir()
    env = {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": TOKEN, "AWS_EC2_METADATA_DISABLED": "true"}
    conf = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{folder}/events"}
    with LossyProxy(moto_url) as proxy:
        told = Told(folder / "told", env, conf)
        try:
            yield World(told, proxy, moto_url, folder)
        finally:
            told.app.kill()


@pytest.mark.parametrize(
    ("conf", "parts"),
    [
        ({"spark.ckpt.storge": "x"}, ("spark.ckpt.storge is not an option", "did you mean spark.ckpt.storage?")),
        ({"spark.ckpt.s3.secretKey": IN_OPTION}, ("spark.ckpt.s3.secretKey", "boto3's own chain", "remove it")),
        ({"spark.ckpt.storage": f"s3://me:{IN_URL}@{BUCKET}/x"}, ("spark.ckpt.storage", "without credentials")),
        ({"spark.ckpt.mode": "AT_LEAST_ONCE"}, ("mode=AT_LEAST_ONCE contradicts spark.ckpt.interval=0", "or remove spark.ckpt.mode")),
        ({"spark.ckpt.restore.plans": "DISCARD"}, ("spark.ckpt.restore.plans=DISCARD", "or remove spark.ckpt.restore.plans")),
        ({PROVIDER: OTHER}, (f"{PROVIDER}={OTHER}", "spark.plugins=org.apache.spark.ckpt.CheckpointPlugin", f"remove {PROVIDER}")),
        (
            {"spark.sql.streaming.stateStore.checkpointFormatVersion": "1"},
            ("checkpointFormatVersion=1 contradicts spark.plugins", "remove spark.sql.streaming.stateStore.checkpointFormatVersion"),
        ),
        ({"spark.ckpt.python": "/nowhere/python"}, ("'/nowhere/python'", "set spark.ckpt.python")),
        ({"spark.ckpt.spool.dir": "/proc/nowhere"}, ("spark.ckpt.spool.dir=/proc/nowhere", "give a local folder")),
    ],
)
def test_an_option_that_cannot_be_ends_the_start(world: World, conf: dict[str, str], parts: tuple[str, ...]) -> None:
    world.refused(world.told.session({**world.conf(), **conf}), *parts)


def test_a_python_without_the_packages_is_named(world: World, tmp_path: Path) -> None:
    bare = tmp_path / "bare-python"
    bare.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    world.refused(world.told.session(world.conf(python=str(bare))), str(bare), "lacks spark-ckpt", "set spark.ckpt.python")

    # good enough for the coordinator, not for the executors' agents
    halves = tmp_path / "half-python"
    halves.write_text(f'#!/bin/sh\ncase "$*" in *spark_ckpt.agent*) exec "{bare}" "$@";; esac\nexec "{sys.executable}" "$@"\n')
    halves.chmod(0o755)
    world.feed("python")
    assert world.told.session(world.conf(python=str(halves))) is None
    world.refused(world.run("python"), str(halves), "lacks spark-ckpt", "set spark.ckpt.python")

    assert world.told.session(world.conf()) is None
    assert world.run("python") is None
    world.check_sink("python", 2)


def test_a_storage_that_cannot_be_used_is_named(world: World) -> None:
    world.feed("s3")
    storage = f"s3://{BUCKET}/ckpt"
    assert world.told.session(world.conf(storage, s3_endpoint="http://127.0.0.1:9")) is None
    world.refused(world.run("s3"), "no S3 server can be reached at http://127.0.0.1:9", "check spark.ckpt.s3.endpoint")

    assert world.told.session(world.conf("s3://no-such-bucket/ckpt")) is None
    world.refused(world.run("s3"), "the bucket no-such-bucket does not exist", "correct spark.ckpt.storage")

    assert world.told.session(world.conf(storage)) is None
    for code in ("InvalidAccessKeyId", "SignatureDoesNotMatch"):
        world.proxy.inject(WireFault(Wire.STATUS, times=None, status=403, code=code))
        world.refused(world.run("s3"), f"bucket {BUCKET}", "does not accept the S3 credentials", "correct the access key")
        world.proxy.heal()
    world.proxy.inject(WireFault(Wire.UNCONDITIONAL, "^PUT", times=None))
    world.refused(world.run("s3"), f"{storage}/", "ignores put-if-absent", "another spark.ckpt.storage")
    world.proxy.heal()

    assert world.run("s3") is None
    world.check_sink("s3", 2)


def test_queries_that_cannot_have_checkpoints_are_refused(world: World) -> None:
    assert world.told.session(world.conf()) is None
    every = {"processingTime": "1 second"}
    error = world.run("async", query="rate", options={"asyncProgressTrackingEnabled": "true"}, trigger=every)
    world.refused(error, "asynchronous progress tracking", "remove the option asyncProgressTrackingEnabled")
    error = world.run("continuous", query="rate", trigger={"continuous": "1 second"})
    world.refused(error, "the continuous trigger", "use a processing time trigger")
    error = world.run("real-time", query="rate", trigger={"realTime": "5 minutes"})
    assert error is not None
    assert "STREAMING_REAL_TIME_MODE" in error, "what Spark does not allow in real time gets Spark's own sentence"


def test_a_session_that_takes_a_setting_back_is_refused(world: World) -> None:
    world.feed("taken-back")
    assert world.told.session(world.conf()) is None
    stock = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
    for name, value in ((PROVIDER, OTHER), (MANAGER, stock)):
        world.refused(world.run("taken-back", settings={name: value}), f"{name}={value}", "spark.plugins=", f"leave {name} alone")
    assert world.run("taken-back") is None
    world.check_sink("taken-back", 2)


def test_a_query_without_a_location_runs_and_is_told_once(world: World) -> None:
    world.feed("nowhere")
    assert world.told.session(world.conf()) is None
    told, stored = world.log().count("has no checkpointLocation"), sorted((world.folder / "storage").rglob("*"))
    assert world.run("nowhere", located=False) is None
    world.check_sink("nowhere", 2)
    assert world.log().count("has no checkpointLocation: it runs, but nothing of it is kept; set the option checkpointLocation") == told + 1
    assert sorted((world.folder / "storage").rglob("*")) == stored


def test_somebody_elses_checkpoint_is_left_alone(world: World) -> None:
    world.feed("owner")
    assert world.told.session(world.conf()) is None
    assert world.run("owner") is None
    before = contents(world.stream("owner"))

    of_spark = "Provided value schema does not match existing state value schema"
    world.refused(world.run("owner", query="unique"), "if another job made it, take another checkpointLocation", of_spark)
    names = world.location("owner") / "metadata"
    mine = names.read_text()
    other = "11111111-2222-3333-4444-555555555555"
    names.write_text(json.dumps({"id": other}))
    world.refused(world.run("owner"), json.loads(mine)["id"], other, "checkpointLocation of its own")
    assert contents(world.stream("owner")) == before

    names.write_text(mine)
    world.feed("owner", 2, 1)
    assert world.run("owner") is None
    world.check_sink("owner", 3)


def test_a_stock_checkpoint_is_left_alone(world: World) -> None:
    world.feed("stock")
    assert world.told.session({"spark.plugins": ""}) is None
    assert world.run("stock") is None
    before = contents(world.location("stock"))
    assert any(name.startswith("state/") for name in before)

    assert world.told.session(world.conf()) is None
    world.refused(world.run("stock"), "a checkpoint that Spark wrote without spark-ckpt", "a new checkpointLocation")
    assert contents(world.location("stock")) == before
    assert not world.stream("stock").exists() or not any(p.is_file() for p in world.stream("stock").rglob("*"))

    assert world.told.session({"spark.plugins": ""}) is None
    world.feed("stock", 2, 1)
    assert world.run("stock") is None
    world.check_sink("stock", 3)


def test_damage_is_named_and_the_one_before_is_restored(world: World) -> None:
    # A restart would take its state from the local spool and not meet the damage.
    assert world.told.session({**world.conf(), "spark.ckpt.localRecovery": "false"}) is None
    for name in ("flipped", "missing", "truncated"):
        world.feed(name, files=3)
        assert world.run(name) is None
        world.feed(name, 3, 1)
        newest, segment = world.checkpoints(name)[-1], world.newest_segment(name)
        if name == "flipped":
            flip(segment)
            world.refused(world.run(name), segment.name, "is damaged", "restart the query, it goes back to the newest intact checkpoint")
        elif name == "missing":
            segment.unlink()
        else:
            os.truncate(newest, 200)
        (world.folder / "out" / name / "2.json").unlink()  # the epoch of the damaged checkpoint has to be run again
        assert world.run(name) is None
        world.check_sink(name, 4)
        damaged = newest if name == "truncated" else segment
        assert "epoch 2 is damaged and left out, the one before it is restored: " in world.log()
        assert any("left out" in line and damaged.name in line and name in line for line in world.log().splitlines())


def test_when_nothing_intact_is_left_the_query_does_not_start_from_nothing(world: World) -> None:
    world.feed("ruined", files=2)
    assert world.told.session(world.conf()) is None
    assert world.run("ruined") is None
    held = contents(world.folder / "out" / "ruined")
    for segment in world.stream("ruined").glob("run-*/seg/*"):
        segment.unlink()
    world.feed("ruined", 2, 1)
    error = world.run("ruined")
    world.refused(error, "no checkpoint of the stream can be restored", "run 1 epoch 1", "put their objects back")
    assert contents(world.folder / "out" / "ruined") == held


def test_a_newer_format_and_a_damaged_log_are_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.feed("newer")
    assert world.told.session(world.conf()) is None
    assert world.run("newer") is None
    newest = world.checkpoints("newer")[-1]
    was = newest.read_bytes()
    checkpoint = decode_metadata(was)
    with monkeypatch.context() as later:
        later.setattr(codec, "_WITHOUT_HOOKS", codec.FORMAT + 1)
        overwrite(newest, encode_metadata(checkpoint))
    world.feed("newer", 2, 1)
    world.refused(world.run("newer"), str(newest), f"has format {codec.FORMAT + 1}", "upgrade spark-ckpt")
    overwrite(newest, was)

    entry = max(world.stream("newer").glob("log/*"))
    was = entry.read_bytes()
    overwrite(entry, b"{")
    number = int(entry.name)
    world.refused(world.run("newer"), str(world.stream("newer")), f"log entry {number} is not JSON", "put the entry back")
    overwrite(entry, was)

    assert world.run("newer") is None
    world.check_sink("newer", 3)


def test_a_full_disk_is_named(world: World, tmp_path: Path) -> None:
    world.feed("full")
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(tmp_path)]
    mounted = subprocess.run(mount, check=False, capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here, that takes root: {mounted.stderr.strip()}")
    try:
        assert world.told.session(world.conf(spool_dir=str(tmp_path))) is None
        fill(tmp_path / "ballast")
        world.refused(world.run("full"), str(tmp_path), "No space left", "set spark.ckpt.spool.dir")
        assert world.told.session(world.conf()) is None
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)
    assert world.run("full") is None
    world.check_sink("full", 2)


def totals(folder: Path) -> dict[str, tuple[int, int]]:
    """What a batch query gives: key -> (rows, sum)."""
    n, total = Counter[str](), Counter[str]()
    for event in (json.loads(line) for path in folder.iterdir() for line in path.read_text().splitlines()):
        n[event["key"]] += 1
        total[event["key"]] += event["value"]
    return {key: (n[key], total[key]) for key in n}


def test_a_query_that_does_not_fit_a_chosen_savepoint_is_told_so_before_anything_is_changed(world: World) -> None:
    """Operators, sources, partitions, schemas."""
    world.feed("events", files=3)
    events = world.source("events")

    def run(name: str, query: str = "totals") -> str | None:
        return world.told.query(query, events, world.folder / "out" / name, world.location(name))

    assert world.told.session(world.conf() | {"spark.sql.shuffle.partitions": "2"}) is None
    assert run("first") is None
    newest = world.checkpoints("first")[-1]
    before = contents(world.stream("first"))

    # The number of partitions is the checkpoint's, whatever the session says.
    chosen = f"file://{newest.parent}"
    assert world.told.session(world.conf(restore_path=chosen) | {"spark.sql.shuffle.partitions": "5"}) is None
    whole = newest.read_bytes()
    content = decode_metadata(whole)
    part = replace(content, snapshots=tuple(s for s in content.snapshots if s.store.partition != 1))
    misfits = {
        "unique": ("Provided value schema does not match existing state value schema",),
        "rated": ("its sources are FileSource", "those of the query rate"),
        "wide": ("Provided value schema does not match existing state value schema",),
        "totals": ("operator 0 lacks partitions 1",),
    }
    for query, said in misfits.items():
        newest.write_bytes(encode_metadata(part) if query == "totals" else whole)
        error = sentence(run(query, query))
        print(error)
        assert error.startswith(f"spark.ckpt.restore.path={chosen} does not fit this query: "), error
        for words in said:
            assert words in error, error
        assert not [path for path in world.stream(query).rglob("*") if path.is_file()], "something was written"
        assert not list(world.location(query).rglob("[0-9]*")), "something was written"
    newest.write_bytes(whole)
    assert contents(world.stream("first")) == before

    world.feed("events", 3, 1)
    assert run("fork") is None
    forked = decode_metadata(world.checkpoints("fork")[-1].read_bytes())
    assert {s.store.partition for s in forked.snapshots} == {0, 1}
    rows = json.loads((world.folder / "out" / "fork" / "3.json").read_text())
    assert {row["key"]: (row["n"], row["total"]) for row in rows} == totals(events)


STATE_AWAY = WireFault(Wire.STATUS, r"^PUT \S*/(seg|sst)/", times=None, status=503)


@pytest.mark.parametrize(
    ("name", "conf", "says"),
    [
        ("no-room", {"spool_maxSize": "4k", "spool_whenFull": "FAIL"}, "spark.ckpt.spool.whenFull=FAIL ends the query here"),
        ("too-many", {"timeout": "2s", "tolerableFailures": "1"}, "spark.ckpt.tolerableFailures"),
    ],
    ids=["a full spool", "too many checkpoints that fail"],
)
def test_a_storage_that_takes_no_state_ends_the_query_where_that_is_wanted(
    world: World, name: str, conf: dict[str, str], says: str
) -> None:
    world.feed(name, files=8)
    storage = f"s3://{BUCKET}/{name}"
    assert world.told.session(world.conf(storage, interval="500ms", **conf)) is None
    world.proxy.inject(STATE_AWAY)
    # AvailableNow would end with the failure of its last epoch's checkpoint.
    error = world.run(name, query="unique", trigger={"processingTime": "100 milliseconds"})
    # Nobody waits for what an agent still tries to upload at its end.
    world.proxy.heal()
    assert error is not None
    assert says in error

    assert world.told.session(world.conf(storage)) is None
    assert world.run(name, query="unique") is None
    ids = {json.loads(line)["id"] for path in world.source(name).iterdir() for line in path.read_text().splitlines()}
    assert sum(row["n"] for row in json.loads((world.folder / "out" / name / "7.json").read_text())) == len(ids)


def test_no_port_is_opened_and_no_secret_is_shown(world: World) -> None:
    """Last, so that all that was said and stored by the tests before is looked through."""
    world.feed("safe")
    assert world.told.session(world.conf(f"s3://{BUCKET}/safe")) is None
    assert world.run("safe") is None
    ours = {pid: command for pid, command in world.told.app.descendants() if "spark_ckpt." in command}
    assert {part for part in ("spark_ckpt.coordinator", "spark_ckpt.agent") for command in ours.values() if part in command} == {
        "spark_ckpt.coordinator",
        "spark_ckpt.agent",
    }
    for pid in ours:
        assert not sockets(pid) & listening(), f"{ours[pid]} listens on a port"
    for _, command in world.told.app.descendants():
        assert not [s for s in SECRETS if s in command], "a secret is in a command line"

    world.told.end()
    seen = [path for part in ("events", "storage", "locations") for path in (world.folder / part).rglob("*")]
    files = [path for path in [world.told.log, *seen] if path.is_file()]
    assert any("events" in path.parts for path in files)
    stored = world.s3.list_objects_v2(Bucket=BUCKET)["Contents"]
    bodies = {str(path): path.read_bytes() for path in files}
    bodies |= {o["Key"]: world.s3.get_object(Bucket=BUCKET, Key=o["Key"])["Body"].read() for o in stored}
    for name, body in bodies.items():
        assert not [s for s in SECRETS if s.encode() in body], f"a secret is in {name}"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def overwrite(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def fill(path: Path) -> None:
    """Write until the disk takes no more."""
    with path.open("wb", buffering=0) as ballast, pytest.raises(OSError, match="No space left"):
        for _ in iter(lambda: ballast.write(bytes(1024)), 0):
            pass


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    overwrite(path, bytes(data))


def listening() -> set[str]:
    """Inodes of the TCP sockets of this network that listen (state 0A in proc(5))."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {fields[9] for fields in lines if fields[3] == "0A"}


def sockets(pid: int) -> set[str]:
    links = [os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()]
    return {link.removeprefix("socket:[").rstrip("]") for link in links if link.startswith("socket:[")}
