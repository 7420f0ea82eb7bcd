"""The coordinator as a real process with `file://` storage: what a JVM sees of it."""

from __future__ import annotations

import base64
import json
import signal

import pytest

from spark_ckpt import __version__
from spark_ckpt.cli.main import run
from spark_ckpt.model import CheckpointId
from spark_ckpt.paths import log_key, metadata_key, run_prefix
from spark_ckpt.stored.metadata.codec import decode_metadata
from tests.drivers.coordinator_process import FakeJvm, Jvm
from tests.drivers.protocol_driving import offsets


def test_the_executors_limits_are_read_by_python_alone(jvm: Jvm) -> None:
    """A space between number and unit is none of Spark's own notation."""
    given = jvm(**{"timeout": "2 min", "spool.maxSize": "3 g", "spool.whenFull": "FAIL"}).hello
    assert given["limits"] == {"timeout_ms": 120_000, "spool_max_bytes": 3 << 30, "full_spool_fails": True}


def names(one: FakeJvm, prefix: str) -> list[str]:
    return [stored.key for stored in one.storage.list(prefix)]


def test_hello_gives_the_settings_and_refuses_an_unknown_option(jvm: Jvm) -> None:
    assert jvm().hello["set"]["spark.sql.streaming.stateStore.checkpointFormatVersion"] == "2"
    refused = jvm(retaind="2").hello
    assert (refused["ok"], refused["error"]["kind"]) == (False, "CONFIG")
    assert "spark.ckpt.retained" in refused["error"]["message"]


def test_a_jar_of_another_version_is_refused_at_the_greeting(jvm: Jvm) -> None:
    one = jvm()
    assert one.hello["version"] == __version__
    for jar in ({"jar": "9.1.0"}, {}):
        refused = one.ask("hello", conf={}, spark={}, **jar)
        assert (refused["ok"], refused["error"]["kind"]) == (False, "CONFIG")
        assert "the JAR is of " in refused["error"]["message"]


def test_epochs_complete_and_old_checkpoints_go(jvm: Jvm) -> None:
    one = jvm(retained="2")
    assert one.ask("open", root=one.root, query_id="q-1")["query_id"] is None
    started = one.start()
    assert (started["run"], started["origin"], started["epoch"], started["files"]) == (1, None, 0, {})
    barrier = json.loads(one.trigger(0, {"sources/0/0": b"v1\n{}"})["barrier"])
    assert (barrier["root"], barrier["stream"], barrier["run"], barrier["epoch"], barrier["base"]) == (one.root, one.url, 1, 0, None)
    one.acks(1, 0)
    done = one.seal(1, 0)["checkpoint"]
    assert (done["acked"], done["required"], done["path"]) == (2, 2, f"{one.url}/run-00000001/chk-0")
    stored = decode_metadata(one.storage.get(metadata_key(CheckpointId(1, 0))))
    assert set(stored.files) == {"offsets/0", "commits/0", "sources/0/0"}
    for epoch in range(1, 5):
        one.epoch(1, epoch)
    assert one.ask("stop", root=one.root, failed=False)["ok"]
    assert one.close() == 0
    assert names(one, run_prefix(1) + "chk-") == [metadata_key(CheckpointId(1, e)) for e in (2, 3, 4)]
    assert len(names(one, run_prefix(1) + "seg/")) == 6
    assert [one.events.get(timeout=5)["event"] for _ in range(4)] == ["TRIGGERED", "COMPLETED", "TRIGGERED", "COMPLETED"]


def test_restart_from_the_storage_runs_the_planned_epoch_again(jvm: Jvm) -> None:
    one = jvm()
    one.start()
    one.epoch(1, 0)
    one.epoch(1, 1)
    one.trigger(2, {"sources/0/2": b"v1\nx"})
    one.kill()
    two = jvm()
    assert two.ask("open", root=two.root, query_id=None)["query_id"] == "q-1"
    started = two.start()
    assert (started["run"], started["origin"], started["epoch"]) == (2, {"run": 1, "epoch": 1}, 2)
    files = {path: base64.b64decode(content) for path, content in started["files"].items()}
    assert files["offsets/2"] == offsets(2)
    assert set(files) == {"offsets/0", "offsets/1", "offsets/2", "commits/0", "commits/1", "sources/0/2"}
    two.acks(2, 2)
    assert two.seal(2, 2)["checkpoint"]["run"] == 2
    assert two.epoch(2, 3)["ok"]


def test_who_takes_a_stream_over_from_another_application_that_was_alive_a_moment_ago_says_so(
    jvm: Jvm, capsys: pytest.CaptureFixture[str]
) -> None:
    dev = {"id": "app-1", "name": "orders\n(dev)", "user": "ann"}
    prod = {"id": "app-2", "name": "orders", "user": "batch"}

    def warned(other: FakeJvm) -> list[str]:
        assert other.ask("stop", root=other.root, failed=False)["ok"]
        assert other.close() == 0
        return [text for text in other.logs if "applications share" in text]

    one = jvm()
    one.ask("start", **one.start_fields(), application=dev)
    one.epoch(1, 0)
    two = jvm()
    assert two.ask("start", **two.start_fields(), application=prod)["run"] == 2
    (said,) = warned(two)
    assert "run 1, of application orders\\x0a(dev) (app-1) of ann on host h, appended to the stream's log" in said
    assert "If that application was stopped or has died, all is well." in said
    again = jvm()
    again.ask("start", **again.start_fields(), application=prod)
    assert warned(again) == [], "the same application has begun the query anew"
    assert run(["list", one.url]) == 0
    assert "run-3 was begun by orders (app-2) of batch on host h at 20" in capsys.readouterr().out


def test_a_zombie_is_fenced_and_its_successor_is_not(jvm: Jvm) -> None:
    zombie = jvm()
    zombie.start()
    zombie.epoch(1, 0)
    successor = jvm()
    assert successor.start()["run"] == 2
    refused = zombie.trigger(1)
    assert refused["error"]["kind"] == "FENCED"
    assert "run 2 on host h" in refused["error"]["message"]
    assert zombie.trigger(1)["error"]["kind"] == "FENCED"
    assert successor.epoch(2, 1)["ok"]
    assert names(zombie, run_prefix(1) + "chk-") == [metadata_key(CheckpointId(1, 0))]


@pytest.mark.parametrize("moment", ["before the plan", "in the epoch", "before the answer of the seal"])
def test_a_killed_coordinator_is_replaced(jvm: Jvm, moment: str) -> None:
    one = jvm()
    started = one.start()
    one.epoch(1, 0)
    if moment != "before the plan":
        one.trigger(1)
    if moment == "before the answer of the seal":
        one.acks(1, 1)
        one.seal(1, 1)
    one.kill()
    two = jvm()
    two.say("resume", **two.start_fields(), run=started["run"], claim=started["claim"], epoch=1)
    if moment == "before the plan":
        assert two.trigger(1)["ok"]
    two.acks(1, 1)
    assert two.seal(1, 1)["checkpoint"]["epoch"] == 1
    assert two.epoch(1, 2)["ok"]
    assert len(names(two, "log/")) == 4


def test_a_replaced_coordinator_hears_of_executors_that_were_lost_before_its_time(jvm: Jvm) -> None:
    """Else it waits for their snapshots until the timeout, of ten minutes here."""
    one = jvm()
    started = one.start()
    one.epoch(1, 0)
    one.trigger(1)
    one.acks(1, 1, [0])
    one.kill()
    two = jvm()
    two.say("resume", **two.start_fields(), run=started["run"], claim=started["claim"], epoch=1)
    two.acks(1, 1, [0])
    two.say("executors_lost", executors=["2"])
    assert two.seal(1, 1)["error"]["kind"] == "LOST"


def test_a_replaced_coordinator_of_a_fenced_run_says_so(jvm: Jvm) -> None:
    one = jvm()
    started = one.start()
    one.epoch(1, 0)
    one.kill()
    assert jvm().start()["run"] == 2
    two = jvm()
    two.say("resume", **two.start_fields(), run=started["run"], claim=started["claim"], epoch=1)
    assert two.trigger(1)["error"]["kind"] == "FENCED"


def test_stock_checkpoint_and_other_query_are_conflicts(jvm: Jvm) -> None:
    one = jvm()
    refused = one.start(local=["offsets/0", "offsets/7", "commits/6"])
    assert refused["error"]["kind"] == "CONFLICT"
    assert "new checkpointLocation" in refused["error"]["message"]
    assert names(one, "log/") == []
    one.start()
    other = jvm(query="q-2")
    opened = other.ask("open", root=other.root, query_id="q-2")
    assert opened["error"]["kind"] == "CONFLICT"
    assert "q-1" in opened["error"]["message"]
    assert "q-2" in opened["error"]["message"]
    assert other.start()["error"]["kind"] == "CONFLICT"


def test_a_damaged_origin_is_left_out_and_named_bad(jvm: Jvm) -> None:
    one = jvm()
    one.start()
    for epoch in range(3):
        one.epoch(1, epoch)
    one.kill()
    one.storage.delete([next(name for name in names(one, run_prefix(1) + "seg/") if "/2-" in name)])
    two = jvm()
    started = two.start()
    assert (started["origin"], started["epoch"]) == ({"run": 1, "epoch": 1}, 2)
    assert "offsets/2" in started["files"]
    claim = json.loads(two.storage.get(log_key(started["claim"])))
    assert claim["bad"] == [{"run": 1, "epoch": 2}]
    two.acks(2, 2)
    assert two.seal(2, 2)["ok"]


def test_time_out_and_decline_fail_the_query(jvm: Jvm) -> None:
    one = jvm(timeout="1s")
    one.start()
    one.trigger(0)
    one.acks(1, 0, partitions=[0])
    refused = one.seal(1, 0)
    assert refused["error"]["kind"] == "TIMEOUT"
    assert "1 of 2 snapshots" in refused["error"]["message"]
    assert one.trigger(1)["error"]["kind"] == "TIMEOUT"
    assert one.start()["run"] == 2
    request = one.send("seal", **one.seal_fields(2, 0))
    decline = {"run": 2, "epoch": 0, "op": 0, "part": 1, "store": "default", "uid": "u-2-0-1", "executor": "1", "decline": "disk full"}
    one.say("acks", root=one.root, acks=[decline])
    refused = one.answer(request)
    assert refused["error"]["kind"] == "DECLINED"
    assert "disk full" in refused["error"]["message"]


def test_a_lost_executor_lets_the_epoch_run_again(jvm: Jvm) -> None:
    one = jvm()
    one.start()
    one.trigger(0)
    one.acks(1, 0, partitions=[0])
    request = one.send("seal", **one.seal_fields(1, 0))
    one.say("executors_lost", executors=["2"])
    assert one.answer(request)["error"]["kind"] == "LOST"
    one.acks(1, 0)
    assert one.seal(1, 0)["ok"]


def test_two_streams_at_once_and_bad_messages(jvm: Jvm) -> None:
    one = jvm()
    assert one.ask("seal", root=one.root, epoch=0, commit="", files={})["error"]["kind"] == "INTERNAL"
    assert one.ask("nonsense")["error"]["kind"] == "INTERNAL"
    one.start()
    assert one.ask("start", **{**one.start_fields(), "root": "file:/data/ckpt/other"})["run"] == 1
    assert one.epoch(1, 0)["ok"]
    assert one.ask("trigger", root="file:/data/ckpt/other", epoch=5, offsets="", files={})["error"]["kind"] == "INTERNAL"
    assert one.epoch(1, 1)["ok"]


def test_a_signal_to_the_whole_group_does_not_end_a_coordinator_before_its_jvm(jvm: Jvm) -> None:
    one = jvm()
    one.start()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        one.process.send_signal(number)
    assert one.epoch(1, 0)["ok"]
    assert one.close() == 0


def test_a_ping_is_answered_when_every_stream_goes_on(jvm: Jvm) -> None:
    one = jvm()
    assert one.ask("ping")["ok"]
    one.start()
    one.root = "file:/data/ckpt/other"
    one.start()
    assert one.ask("ping")["ok"]
    assert one.ask("stop", root=one.root, failed=False)["ok"]
    assert one.ask("ping")["ok"]


def test_a_stop_of_another_start_does_not_end_the_run(jvm: Jvm) -> None:
    """The end of a query that Spark has replaced may be heard of after its successor has begun."""
    one = jvm()
    one.start()
    assert one.ask("stop", root=one.root, run_id="the one before", failed=False)["ok"]
    assert one.epoch(1, 0)["ok"]
    assert one.ask("stop", root=one.root, run_id="r", failed=False)["ok"]
    assert not one.trigger(1)["ok"]


def test_queries_that_are_analysed_and_never_start_leave_a_live_run_alone(jvm: Jvm) -> None:
    one = jvm()
    assert one.ask("open", root=one.root, query_id=None)["ok"]
    one.start()
    one.epoch(1, 0)
    for _ in range(3):
        assert one.ask("open", root=one.root, query_id="q-1")["query_id"] == "q-1"
    for number in range(20):
        assert one.ask("open", root=f"file:/data/ckpt/other-{number}", query_id=None)["query_id"] is None
    assert one.epoch(1, 1)["ok"]
    assert one.close() == 0
