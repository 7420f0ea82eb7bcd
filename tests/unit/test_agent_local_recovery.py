"""State that an earlier run or a dead executor of the machine has left is linked, and the rest is downloaded."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from spark_ckpt.agent.spools import Spools, _remove_abandoned, left_spools
from spark_ckpt.model import CheckpointId
from spark_ckpt.process.scratch import if_free
from spark_ckpt.storage import Storage, open_storage
from tests.drivers.agent_stores import AgentProcess, FakeStore, LocalAgent, check_loads, complete

BASE = CheckpointId(1, 3)
STREAM = "0b6f1c5e"


class World:
    """A stream with `spool.dir`: executor 1 has run it, its checkpoint 3 is complete."""

    def __init__(self, tmp_path: Path, **conf: str) -> None:
        self.base = tmp_path / "spools"
        self.url = f"file://{tmp_path}/storage"
        self.storage: Storage = open_storage(self.url)
        self.conf = {"spark.ckpt.spool.dir": str(self.base), **{f"spark.ckpt.{k}": v for k, v in conf.items()}}
        self.agent = self.start("1")
        self.store = FakeStore(self.folder("1", 1))
        for epoch in range(4):
            self.store.commit()
            self.agent.send(self.store.message(self.url, epoch, None))
            self.agent.send({"type": "flush"})
            ack = self.agent.ack(self.store.uid)
            if epoch == 1:
                self.store.snapshot(2, (30, 1 << 20))
        self.snapshot = ack.snapshot
        complete(self.storage, BASE, [ack.snapshot])

    def spool(self, executor: str) -> Path:
        return self.base / f"spark-ckpt-{executor}"

    def folder(self, executor: str, run: int) -> Path:
        return self.spool(executor) / STREAM / f"run-{run:08d}" / "0" / "0" / "default"

    def start(self, executor: str) -> LocalAgent:
        return LocalAgent(self.spool(executor), lambda *_: self.storage, self.conf)

    def fetch(self, agent: LocalAgent, folder: Path) -> tuple[int, int]:
        """Files (downloaded, linked)."""
        answer = agent.ask(self.store.fetch_message(self.url, BASE, folder))
        assert answer["ok"] is True, answer
        check_loads(folder, self.store, self.snapshot)
        assert answer["bytes"] == 0 or answer["files"] > 0
        return answer["files"], answer["linked"]


def test_the_next_run_of_the_same_executor_downloads_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    folder = world.folder("1", 2)
    assert world.fetch(world.agent, folder) == (0, len(world.snapshot.handles))
    name = world.snapshot.handles[-1].name
    assert (folder / name).samefile(world.folder("1", 1) / name)
    world.agent.close()


def test_another_executor_of_the_machine_takes_what_is_right_and_downloads_the_rest(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.agent.kill()
    left = world.folder("1", 1)
    changed, short, gone = (h.name for h in world.snapshot.handles[-3:])
    (left / changed).write_bytes(b"\0" * (left / changed).stat().st_size)
    (left / short).write_bytes(b"x")
    (left / gone).unlink()
    agent = world.start("2")
    assert world.fetch(agent, world.folder("2", 2)) == (3, len(world.snapshot.handles) - 3)
    agent.close()


def test_a_link_to_elsewhere_is_not_taken(tmp_path: Path) -> None:
    world = World(tmp_path)
    handle = world.snapshot.handles[-1]
    other = tmp_path / "elsewhere"
    (world.folder("1", 1) / handle.name).rename(other)
    (world.folder("1", 1) / handle.name).symlink_to(other)
    assert world.fetch(world.agent, world.folder("1", 2)) == (1, len(world.snapshot.handles) - 1)
    world.agent.close()


def test_without_local_recovery_everything_is_downloaded(tmp_path: Path) -> None:
    world = World(tmp_path, localRecovery="false")
    assert world.fetch(world.agent, world.folder("1", 2)) == (len(world.snapshot.handles), 0)
    world.agent.close()


@pytest.mark.parametrize(("conf", "left"), [({"spark.ckpt.localRecovery": "true"}, True), ({"spark.ckpt.localRecovery": "false"}, False)])
def test_a_killed_executor_leaves_its_spool_where_the_next_one_finds_it(tmp_path: Path, conf: dict[str, str], left: bool) -> None:
    for more, expected in (({"spark.ckpt.spool.dir": str(tmp_path)}, left), ({}, False)):
        spool = tmp_path / f"spark-ckpt-{uuid.uuid4()}"
        agent = AgentProcess(spool, **conf, **more)
        (spool / "file").touch()
        assert agent.end() == 0
        assert spool.exists() == expected


def watch_until_gone(watching: Path, left: Path) -> None:
    """The agent of a spool beside it looks for what others have left."""
    watcher = Spools(watching, persistent=True)
    deadline = time.monotonic() + 30
    while left.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    watcher.end()
    assert not left.exists()


def test_an_abandoned_spool_goes_after_an_hour_and_a_living_one_stays(tmp_path: Path) -> None:
    names = ("spark-ckpt-old", "spark-ckpt-recent", "spark-ckpt-living", "spark-ckpt-starting", "something-else", "spark-ckpt-mine")
    old, recent, living, starting, foreign, mine = (tmp_path / name for name in names)
    for spool in (old, recent, living, starting, foreign, mine):
        (spool / STREAM).mkdir(parents=True)
    agent = Spools(living, persistent=False)
    for spool in (old, recent, foreign):
        (spool / ".lock").touch()
    for spool in (old, living, foreign):
        os.utime(spool / ".lock", (time.time() - 7200, time.time() - 7200))
    watch_until_gone(mine, old)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(n for n in names if n != "spark-ckpt-old")
    agent.end()
    assert not living.exists()


def test_an_abandoned_spool_without_a_lock_goes_at_once(tmp_path: Path) -> None:
    """Of an older version, or of an executor whose agent never began."""
    old, recent = tmp_path / "spark-ckpt-old", tmp_path / "spark-ckpt-recent"
    for spool in (old, recent):
        (spool / STREAM).mkdir(parents=True)
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    for spool in (old, recent):
        _remove_abandoned(spool)
    assert not old.exists()
    assert [path.name for path in recent.iterdir()] == [STREAM]


_AGENT = """
import sys
from pathlib import Path
from spark_ckpt.agent.spools import Spools, _remove_abandoned, left_spools
spools = Spools(Path(sys.argv[1]), persistent=True)
print("holds", flush=True)
sys.stdin.read()
"""


def test_an_agent_that_replaces_one_that_is_not_quite_dead_keeps_the_spool(tmp_path: Path) -> None:
    """It hangs in the kernel, or is stopped; and the clock may jump."""
    base = tmp_path / "spools"
    living, old, mine = (base / f"spark-ckpt-{name}" for name in ("living", "old", "zz-mine"))
    for spool in (living, old, mine):
        (spool / STREAM).mkdir(parents=True)
    (old / ".lock").touch()
    agents = []
    for _ in range(2):
        agent = subprocess.Popen([sys.executable, "-c", _AGENT, str(living)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        agents.append(agent)
        assert agent.stdout is not None
        assert agent.stdout.readline() == b"holds\n"
    agents[0].kill()
    agents[0].communicate()
    assert [path for path, _ in left_spools(base)] == [old]
    for spool in (living, old):
        os.utime(spool / ".lock", (time.time() - 7200, time.time() - 7200))
    watch_until_gone(mine, old)
    _remove_abandoned(living)
    assert (living / STREAM).exists()
    agents[1].kill()
    agents[1].communicate()
    assert [path for path, _ in left_spools(base)] == [living, mine]


def test_a_spool_that_somebody_looks_at_while_its_agent_begins_is_held_all_the_same(tmp_path: Path) -> None:
    spool = tmp_path / "spark-ckpt-new"
    spool.mkdir()
    with if_free(spool / ".lock", os.O_CREAT | os.O_RDWR) as free:
        assert free
        spools = Spools(spool, persistent=True)
    deadline = time.monotonic() + 30
    while left_spools(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert left_spools(tmp_path) == []
    spools.end()
