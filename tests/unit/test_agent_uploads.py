"""Commits in, acks out: chains, segments, reuse, declines."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt import __version__, paths
from spark_ckpt.agent.staging import Staging, local_error
from spark_ckpt.agent.stream import Pauses
from spark_ckpt.errors import StorageError
from spark_ckpt.model import Ack, CheckpointId, HandleKind
from spark_ckpt.storage import Storage, open_storage
from testbed.faulty import Fault, FaultyStorage, Moment
from tests.drivers.agent_stores import ROOT, AgentProcess, FakeStore, LocalAgent, check_loads, complete


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4()}/orders"


def commit(agent: LocalAgent | AgentProcess, url: str, store: FakeStore, epoch: int, base: CheckpointId | None) -> Ack:
    store.commit()
    agent.send(store.message(url, epoch, base))
    agent.send({"type": "flush"})
    return agent.ack(store.uid)


def load(url: str, store: FakeStore, ack: Ack, tmp_path: Path, epoch: int = 900) -> None:
    """Into an empty folder, by an agent that knows nothing."""
    base = complete(open_storage(url), CheckpointId(9, epoch), [ack.snapshot])
    other = LocalAgent(tmp_path / f"fresh-{epoch}")
    folder = tmp_path / f"fresh-{epoch}" / "store"
    answer = other.ask(store.fetch_message(url, base, folder))
    assert answer["ok"] is True, answer
    assert answer["bytes"] == ack.snapshot.size
    check_loads(folder, store, ack.snapshot)
    other.close()


def test_a_chain_of_changelogs_grows_and_loads(url: str, spool: Path, tmp_path: Path) -> None:
    agent, store = LocalAgent(spool), FakeStore(spool / "0-0")
    for epoch in range(3):
        ack = commit(agent, url, store, epoch, CheckpointId(1, epoch - 1) if epoch else None)
        assert [h.kind for h in ack.snapshot.handles] == [HandleKind.CHANGELOG] * (epoch + 1)
        assert ack.new_bytes == ack.snapshot.handles[-1].length
        assert (ack.run, ack.epoch, ack.sync_ms, ack.start_delay_ms, ack.commit_delay_ms) == (1, epoch, 1.5, 2.0, 3.5)
        assert ack.executor == "1"
        assert all(h.object.startswith("run-00000001/seg/") for h in ack.snapshot.handles)
    load(url, store, ack, tmp_path)
    agent.close()


def test_all_stores_of_an_epoch_share_one_segment_and_one_line(url: str, spool: Path) -> None:
    storage = open_storage(url)
    agent = LocalAgent(spool, lambda *_: storage)
    stores = [FakeStore(spool / f"0-{p}", partition=p) for p in range(20)]
    for store in stores:
        store.commit()
        agent.send(store.message(url, 0, None))
    agent.send({"type": "flush"})
    acks = [agent.ack(s.uid) for s in stores]
    assert len({h.object for a in acks for h in a.snapshot.handles}) == 1
    assert len([line for line in agent.lines if line.get("type") == "acks"]) == 1
    assert storage.requests["put"] == 1
    agent.close()


def test_a_segment_holds_one_checkpoint_only(url: str, spool: Path) -> None:
    agent, a, b = LocalAgent(spool), FakeStore(spool / "a"), FakeStore(spool / "b", partition=1)
    a.commit()
    b.commit()
    agent.send(a.message(url, 4, None))
    agent.send(b.message(url, 5, None))
    agent.send({"type": "flush"})
    objects = [agent.ack(s.uid).snapshot.handles[0].object for s in (a, b)]
    assert [o.split("/seg/")[1].split("-")[0] for o in objects] == ["4", "5"]
    agent.close()


def test_a_flush_of_another_stream_is_nobodys_business(url: str, spool: Path) -> None:
    agent, store = LocalAgent(spool), FakeStore(spool / "0-0")
    store.commit()
    agent.send(store.message(url, 0, None))
    agent.send({"type": "flush", "root": "file:/data/ckpt/other"})
    agent.ask(store.fetch_message(url, None, spool / "elsewhere"))  # answered after what came before it
    assert agent.acks == []
    agent.send({"type": "flush", "root": ROOT})
    assert agent.ack(store.uid).snapshot.version == 1
    agent.close()


def test_without_a_flush_the_upload_comes_by_itself(url: str, spool: Path) -> None:
    agent, store = LocalAgent(spool, pauses=Pauses(queued=0.2)), FakeStore(spool / "0-0")
    store.commit()
    agent.send(store.message(url, 0, None))
    assert agent.ack(store.uid).snapshot.version == 1
    agent.close()


def test_a_full_snapshot_restarts_the_chain_and_its_ssts_are_reused(url: str, spool: Path, tmp_path: Path) -> None:
    agent, store = LocalAgent(spool), FakeStore(spool / "0-0")
    commit(agent, url, store, 0, None)
    commit(agent, url, store, 1, CheckpointId(1, 0))
    store.snapshot(2, (50, (1 << 20) + 3))
    ack = commit(agent, url, store, 2, CheckpointId(1, 1))
    kinds = [h.kind.value for h in ack.snapshot.handles]
    assert kinds == ["SST", "SST", "SNAPSHOT", "CHANGELOG"]
    small, large = ack.snapshot.handles[:2]
    assert paths.parse_pack_key(small.object) == 50
    assert "/sst/" in large.object
    load(url, store, ack, tmp_path)
    store.snapshot(3, (60,))
    later = commit(agent, url, store, 3, CheckpointId(1, 2))
    assert {small, large} <= set(later.snapshot.handles)
    assert later.new_bytes == sum(h.length for h in later.snapshot.handles) - small.length - large.length
    load(url, store, later, tmp_path, 901)
    agent.close()


def test_a_full_snapshot_of_the_version_itself_comes_last_and_counts_its_keys(url: str, spool: Path, tmp_path: Path) -> None:
    agent, store = LocalAgent(spool), FakeStore(spool / "0-0")
    commit(agent, url, store, 0, None)
    store.commit()
    store.snapshot(2)
    agent.send(store.message(url, 1, CheckpointId(1, 0)))
    agent.send({"type": "flush"})
    ack = agent.ack(store.uid)
    assert [h.kind.value for h in ack.snapshot.handles] == ["SST", "SNAPSHOT"]
    assert ack.snapshot.num_keys == 97
    load(url, store, ack, tmp_path)
    agent.close()


def test_a_snapshot_of_another_attempt_is_not_used(url: str, spool: Path) -> None:
    agent, store = LocalAgent(spool), FakeStore(spool / "0-0")
    commit(agent, url, store, 0, None)
    real = store.lineage[1]
    store.lineage[1] = str(uuid.uuid4())
    store.snapshot(1)
    store.lineage[1], store.snapshots = real, set()
    ack = commit(agent, url, store, 1, CheckpointId(1, 0))
    assert [h.kind.value for h in ack.snapshot.handles] == ["CHANGELOG", "CHANGELOG"]
    agent.close()


@pytest.mark.parametrize("damage", ["half", "no sst", "short sst", "not a zip"])
def test_a_snapshot_that_is_not_whole_waits_for_the_next_commit(url: str, spool: Path, tmp_path: Path, damage: str) -> None:
    agent, store = LocalAgent(spool), FakeStore(spool / "0-0")
    commit(agent, url, store, 0, None)
    store.snapshot(1)
    name = f"1_{store.uid}.zip"
    sst = next(iter((store.folder / "SSTs").iterdir()))
    if damage == "half":
        (store.folder / name).write_bytes(store.files[name][:50])
    elif damage == "no sst":
        sst.unlink()
    elif damage == "short sst":
        sst.write_bytes(b"x")
    else:
        (store.folder / name).write_bytes(b"PK nothing")
    store.snapshots = set()
    ack = commit(agent, url, store, 1, CheckpointId(1, 0))
    assert [h.kind.value for h in ack.snapshot.handles] == ["CHANGELOG", "CHANGELOG"]
    load(url, store, ack, tmp_path)
    agent.close()


def test_a_restarted_agent_reads_the_base_checkpoint_and_goes_on(url: str, spool: Path, tmp_path: Path) -> None:
    agent, store = LocalAgent(spool), FakeStore(spool / "0-0")
    commit(agent, url, store, 0, None)
    store.snapshot(1, ((1 << 20) + 1,))
    first = commit(agent, url, store, 1, CheckpointId(1, 0))
    base = complete(open_storage(url), CheckpointId(1, 1), [first.snapshot])
    agent.kill()
    for file in store.folder.rglob("*.*"):
        file.unlink()
    again = LocalAgent(spool)
    ack = commit(again, url, store, 2, base)
    assert ack.snapshot.handles[:-1] == first.snapshot.handles
    assert ack.new_bytes == ack.snapshot.handles[-1].length
    load(url, store, ack, tmp_path)
    again.close()


def test_a_restarted_agent_without_a_base_builds_from_the_folder(url: str, spool: Path, tmp_path: Path) -> None:
    store = FakeStore(spool / "0-0")
    for _ in range(4):
        store.commit()
    store.snapshot(3)
    agent = LocalAgent(spool)
    ack = commit(agent, url, store, 4, None)
    assert [h.kind.value for h in ack.snapshot.handles] == ["SST", "SNAPSHOT", "CHANGELOG", "CHANGELOG"]
    load(url, store, ack, tmp_path)
    agent.close()


def test_an_unknown_chain_is_declined_and_says_why(url: str, spool: Path) -> None:
    store = FakeStore(spool / "0-0")
    store.commit()
    store.commit()
    (store.folder / f"1_{store.lineage[1]}.changelog").unlink()
    agent = LocalAgent(spool)
    agent.send(store.message(url, 1, CheckpointId(1, 0)))
    cause = agent.decline(store.uid)
    assert f"1_{store.lineage[1]}.changelog is neither stored nor in" in cause
    assert "run-00000001/chk-0/_metadata is missing" in cause
    agent.close()


def test_a_lineage_whose_full_snapshot_is_gone_is_declined(url: str, spool: Path) -> None:
    agent, store = LocalAgent(spool), FakeStore(spool / "0-0")
    commit(agent, url, store, 0, None)
    store.snapshot(1)
    store.commit()
    store.snapshot(2)
    (store.folder / f"2_{store.lineage[2]}.zip").unlink()
    store.commit()
    agent.send(store.message(url, 2, CheckpointId(1, 1)))
    assert "its lineage begins at version 2" in agent.decline(store.uid)
    agent.close()


def test_a_missing_changelog_is_declined_and_others_go_on(url: str, spool: Path) -> None:
    agent, bad, good = LocalAgent(spool), FakeStore(spool / "a"), FakeStore(spool / "b", partition=1)
    bad.commit()
    good.commit()
    (bad.folder / f"1_{bad.uid}.changelog").unlink()
    agent.send(bad.message(url, 0, None))
    agent.send(good.message(url, 0, None))
    agent.send({"type": "flush"})
    assert "is neither stored nor in" in agent.decline(bad.uid)
    assert agent.ack(good.uid).snapshot.version == 1
    agent.close()


def test_a_file_that_changes_before_its_upload_is_declined_alone(url: str, spool: Path) -> None:
    agent, bad, good = LocalAgent(spool), FakeStore(spool / "a"), FakeStore(spool / "b", partition=1)
    bad.commit()
    good.commit()
    agent.send(bad.message(url, 0, None))
    agent.send(good.message(url, 0, None))
    agent.ask({"type": "hello", "jar": __version__, "conf": {}, "executor": "1", "spool": str(spool)})  # both have been taken in
    with (bad.folder / f"1_{bad.uid}.changelog").open("ab") as file:
        file.write(b"more")
    agent.send({"type": "flush"})
    assert "was changed in the spool" in agent.decline(bad.uid)
    assert agent.ack(good.uid).snapshot.version == 1
    agent.close()


def test_what_was_taken_in_survives_the_removal_of_the_folder(url: str, spool: Path, tmp_path: Path) -> None:
    agent, store = LocalAgent(spool), FakeStore(spool / "0-0")
    store.commit()
    agent.send(store.message(url, 0, None))
    agent.ask({"type": "hello", "jar": __version__, "conf": {}, "executor": "1", "spool": str(spool)})
    (store.folder / f"1_{store.uid}.changelog").unlink()
    agent.send({"type": "flush"})
    load(url, store, agent.ack(store.uid), tmp_path)
    agent.close()


def test_a_failed_upload_is_tried_again(url: str, spool: Path, tmp_path: Path) -> None:
    storage = FaultyStorage(open_storage(url), [Fault(Moment.FAIL_BEFORE, operations=frozenset({"put"}), times=2)])
    agent, store = LocalAgent(spool, lambda *_: storage), FakeStore(spool / "0-0")
    load(url, store, commit(agent, url, store, 0, None), tmp_path)
    assert len(storage.hits) == 2
    logged = [line for line in agent.lines if line.get("type") == "log"]
    assert [line["level"] for line in logged] == ["WARN", "WARN"]
    told = [line for line in agent.lines if line.get("type") == "trouble"]
    assert [(line["executor"], line["of"]) for line in told] == [("1", "upload")] * 2
    assert [line["message"] for line in told] == [line["message"] for line in logged]
    agent.close()


def test_requests_that_are_sent_again_are_told_to_the_driver(url: str, spool: Path) -> None:
    storage = open_storage(url)
    agent, store = LocalAgent(spool, lambda *_: storage), FakeStore(spool / "0-0")
    commit(agent, url, store, 0, None)
    storage.traffic.retried("attempt 2 failed")
    told = {"type": "trouble", "executor": "1", "of": "request", "message": "attempt 2 failed"}
    agent.wait_for(lambda line: line.items() >= told.items())
    agent.close()


def test_a_lost_answer_is_sent_again_under_the_same_key(url: str, spool: Path) -> None:
    inner = open_storage(url)
    storage = FaultyStorage(inner, [Fault(Moment.LOSE_ANSWER, operations=frozenset({"put"}))])
    agent, store = LocalAgent(spool, lambda *_: storage), FakeStore(spool / "0-0")
    commit(agent, url, store, 0, None)
    assert len(list(inner.list("run-"))) == 1
    agent.close()


def test_an_upload_that_keeps_failing_is_declined_and_so_is_what_builds_on_it(url: str, spool: Path) -> None:
    storage = FaultyStorage(open_storage(url), [Fault(Moment.FAIL_BEFORE, operations=frozenset({"put"}), times=None)])
    agent, store = LocalAgent(spool, lambda *_: storage, {"spark.ckpt.timeout": "300ms"}), FakeStore(spool / "0-0")
    store.commit()
    first = store.uid
    agent.send(store.message(url, 0, None))
    agent.send({"type": "flush"})
    store.commit()
    agent.send(store.message(url, 1, None))
    agent.send({"type": "flush"})
    assert agent.decline(first)
    assert agent.decline(store.uid)
    agent.close()


def test_a_commit_that_meets_a_fault_of_this_package_is_declined(url: str, spool: Path) -> None:
    def replaced(*_: object) -> Storage:
        raise ImportError("the package was installed anew")

    agent, store = LocalAgent(spool, replaced), FakeStore(spool / "0-0")
    store.commit()
    agent.send(store.message(url, 0, None))
    assert "ImportError: the package was installed anew" in agent.decline(store.uid)
    agent.close()


def test_a_commit_waits_for_the_one_it_builds_on(url: str, spool: Path, tmp_path: Path) -> None:
    hold, second_put = threading.Event(), threading.Event()

    def held() -> None:
        hold.wait(20)

    faults = [Fault(Moment.DELAY, "*/seg/0-*", pause=held), Fault(Moment.DELAY, "*/seg/1-*", pause=second_put.set)]
    storage = FaultyStorage(open_storage(url), faults)
    agent, store = LocalAgent(spool, lambda *_: storage), FakeStore(spool / "0-0")
    other = FakeStore(spool / "0-1", partition=1)
    for s, epoch in ((store, 0), (store, 1), (other, 2)):
        s.commit()
        agent.send(s.message(url, epoch, None))
        agent.send({"type": "flush"})
    assert second_put.wait(20)
    agent.ack(other.uid)  # does not wait for the held one
    assert [a["uid"] for a in agent.acks] == [other.uid]
    hold.set()
    ack = agent.ack(store.uid)
    assert [h.object.split("/seg/")[1][:2] for h in ack.snapshot.handles] == ["0-", "1-"]
    load(url, store, ack, tmp_path)
    agent.close()


def test_a_commit_sent_again_is_answered_again_without_an_upload(url: str, spool: Path) -> None:
    storage = open_storage(url)
    agent, store = LocalAgent(spool, lambda *_: storage), FakeStore(spool / "0-0")
    first = commit(agent, url, store, 0, None)
    agent.send(store.message(url, 0, None))
    agent.send({"type": "flush"})
    assert agent.ack(store.uid, 2).snapshot == first.snapshot
    assert storage.requests["put"] == 1
    agent.close()


def test_a_storage_that_cannot_be_opened_is_a_decline(spool: Path) -> None:
    agent, store = LocalAgent(spool), FakeStore(spool / "0-0")
    store.commit()
    agent.send(store.message("ftp://host/x", 0, None))
    assert "ftp://host/x" in agent.decline(store.uid)
    agent.close()


def test_staging_is_empty_after_acks_and_gone_at_the_end(url: str, spool: Path) -> None:
    agent, store = LocalAgent(spool), FakeStore(spool / "0-0")
    commit(agent, url, store, 0, None)
    (folder,) = spool.glob(".agent-*")
    assert [p.name for p in folder.iterdir()] == ["lock"]
    agent.close()
    assert list(spool.glob(".agent-*")) == []


# -- real processes


def test_the_end_of_stdin_finishes_what_is_queued(tmp_path: Path, spool: Path) -> None:
    url = f"file://{tmp_path}/storage/orders"
    agent, store = AgentProcess(spool), FakeStore(spool / "0-0")
    store.commit()
    agent.send(store.message(url, 0, None))
    assert agent.end() == 0
    assert agent.ack(store.uid).snapshot.version == 1
    assert list(spool.glob(".agent-*")) == []


def test_kill_and_restart_with_the_commit_sent_again(tmp_path: Path, spool: Path) -> None:
    url = f"file://{tmp_path}/storage/orders"
    agent, store = AgentProcess(spool), FakeStore(spool / "0-0")
    ack = commit(agent, url, store, 0, None)
    base = complete(open_storage(url), CheckpointId(1, 0), [ack.snapshot])
    store.snapshot(1)
    store.commit()
    message = store.message(url, 1, base)
    agent.send(message)
    agent.kill()
    assert len(list(spool.glob(".agent-*"))) == 1
    again = AgentProcess(spool)
    assert len(list(spool.glob(".agent-*"))) == 1  # the dead one's was removed
    again.send(message)
    again.send({"type": "flush"})
    load(url, store, again.ack(store.uid), tmp_path)
    assert again.end() == 0


def test_without_a_readable_lineage_the_known_chain_is_enough(url: str, spool: Path) -> None:
    """Another codec than lz4: the lineage at a changelog's head cannot be read."""
    agent, store = LocalAgent(spool), FakeStore(spool / "0-0")
    for epoch in range(4):
        store.commit()
        store.write(f"{store.version}_{store.uid}.changelog", b"\x28\xb5\x2f\xfd" + bytes([epoch] * 30))
        if epoch == 3:
            store.snapshot(2)
        agent.send(store.message(url, epoch, None))
        agent.send({"type": "flush"})
        ack = agent.ack(store.uid)
    names = [h.name for h in ack.snapshot.handles]
    assert names[-3:] == [f"2_{store.lineage[2]}.zip", f"3_{store.lineage[3]}.changelog", f"4_{store.lineage[4]}.changelog"]
    agent.close()


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.ENOSPC, "is full; free some space"), (errno.EROFS, "cannot be written"), (errno.EIO, "must be on a local disk")],
)
def test_trouble_with_the_disk_names_the_folder(number: int, words: str) -> None:
    message = str(local_error(OSError(number, os.strerror(number)), Path("/spool/1")))
    assert "/spool/1" in message
    assert words in message


def test_a_spool_that_is_no_folder_is_an_error_that_names_it(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.write_text("a file where the folder should be")
    with pytest.raises(StorageError, match=str(spool)):
        Staging(spool)


def test_the_agent_starts_without_what_it_may_never_need() -> None:
    code = "import sys, spark_ckpt.agent.__main__; print([m for m in ('pyarrow', 'boto3', 'pyspark', 'rocksdict') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout


def test_an_agent_whose_executor_is_gone_leaves_its_acks_in_the_storage(spool: Path, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/storage"
    agent, store = AgentProcess(spool), FakeStore(spool / "0-0")
    store.commit()
    agent.send(store.message(url, 4, None))
    assert agent.end() == 0
    storage = open_storage(url)
    left = [json.loads(storage.get(s.key)) for s in storage.list(paths.left_acks_prefix(1, 4))]
    acks = [Ack.from_json(row) for document in left for row in document["acks"]]
    assert [a.snapshot.uid for a in acks] == [store.uid]
    load(url, store, acks[0], tmp_path)


def test_what_waits_for_a_slow_storage_is_reported(url: str, spool: Path) -> None:
    hold = threading.Event()

    def held() -> None:
        hold.wait(20)

    storage = FaultyStorage(open_storage(url), [Fault(Moment.DELAY, "*/seg/*", pause=held)])
    agent, store = LocalAgent(spool, lambda *_: storage), FakeStore(spool / "0-0")
    store.commit()
    agent.send(store.message(url, 0, None))
    agent.send({"type": "flush"})

    def reported(snapshots: int, puts: int) -> Callable[[dict[str, Any]], bool]:
        def is_it(line: dict[str, Any]) -> bool:
            told = line.get("storage", {})
            waits = told.get("queued_snapshots") == snapshots and (told["queued_bytes"] > 0) == (snapshots > 0)
            return line.get("type") == "storage" and waits and told["process"].startswith("agent 1 ") and told["requests"] >= puts

        return is_it

    agent.wait_for(reported(1, 0))
    hold.set()
    agent.ack(store.uid)
    agent.wait_for(reported(0, 1))
    agent.close()
