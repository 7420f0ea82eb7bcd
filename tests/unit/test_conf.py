"""Options, the template, and the Spark settings the plugin makes."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from spark_ckpt.conf.forms import parse_storage
from spark_ckpt.conf.options import Options, parse_options, shown_options
from spark_ckpt.conf.passwords import shown
from spark_ckpt.conf.spark_settings import EXTENSIONS_CLASS, LISTENER_CLASS, spark_settings
from spark_ckpt.conf.table import OPTIONS
from spark_ckpt.conf.template import template
from spark_ckpt.errors import ConfigError
from spark_ckpt.storage.options import S3Options
from spark_ckpt.units import parse_duration, parse_size

ROOT = Path(__file__).resolve().parents[2]
OF_JVM = {"python", "kafka.group"}
"""The interpreter of coordinator and agents: `test_a_python_without_the_packages_is_named` in tests/spark/test_errors.py; the group:
tests/spark/test_kafka.py."""


def ckpt(**values: str) -> dict[str, str]:
    return {f"spark.ckpt.{name}": value for name, value in values.items()}


def test_no_options_gives_the_defaults_of_the_table() -> None:
    options = parse_options({"spark.app.name": "x"})
    assert options == Options()
    table = {o.name: o.default for o in OPTIONS}
    assert options.timeout_ms == parse_duration(table["timeout"] or "")
    assert options.retained == int(table["retained"] or "")
    assert options.s3.max_connections == int(table["s3.maxConnections"] or "")


def test_every_default_of_the_table_is_accepted_when_written_out() -> None:
    written = {o.key: o.default for o in OPTIONS if o.default is not None}
    assert parse_options({**written, "spark.ckpt.restore.path": "/s/chk-1"}) == Options(restore_path=("file:///s/chk-1",))


def test_the_options_that_are_shown_hold_when_they_are_written_out() -> None:
    chosen = {"spark.ckpt.storage": " s3://bkt/x ", "spark.ckpt.retained": "5", "spark.app.name": "x"}
    shown = shown_options(chosen)
    assert (shown["storage"], shown["retained"], shown["timeout"]) == ("s3://bkt/x", "5", "10min")
    assert "spool.dir" not in shown
    written = {f"spark.ckpt.{name}": value for name, value in shown.items() if not name.startswith("restore.")}
    assert parse_options(written) == parse_options(chosen)


def test_every_option_has_an_effect() -> None:
    """What is parsed of each option differs from its default when another value is given; what the JVM alone reads has tests of its own."""
    others = {
        "storage": "/x",
        "mode": "AT_LEAST_ONCE",
        "interval": "11s",
        "timeout": "1s",
        "minPause": "1s",
        "maxConcurrent": "2",
        "tolerableFailures": "2",
        "retained": "4",
        "onStop": "DELETE",
        "restore.path": "/other/chk-1",
        "restore.mode": "CLAIM",
        "restore.plans": "DISCARD",
        "restore.operators": "1:0",
        "restore.allowNonRestoredState": "true",
        "savepointDir": "/s",
        "localRecovery": "false",
        "kafka.group": "orders",
        "python": "/p",
        "spool.dir": "/s",
        "spool.maxSize": "1g",
        "spool.whenFull": "FAIL",
        "hooks.timeout": "2s",
        "hooks.onFailure": "DECLINE",
        "s3.endpoint": "http://minio:9000",
        "s3.region": "eu-central-1",
        "s3.pathStyle": "true",
        "s3.sse": "AES256",
        "s3.kmsKeyId": "alias/x",
        "s3.maxConnections": "8",
    }
    assert list(others) == [option.name for option in OPTIONS]
    base = {"spark.ckpt.interval": "10s", "spark.ckpt.restore.path": "/s/chk-1", "spark.ckpt.s3.sse": "aws:kms"}
    for name, value in others.items():
        if name in OF_JVM:
            continue
        assert parse_options({**base, f"spark.ckpt.{name}": value} if name != "s3.sse" else {f"spark.ckpt.{name}": value}) != (
            parse_options(base if name != "s3.sse" else {})
        ), name


def test_all_options_at_once() -> None:
    given = {
        "spark.ckpt.storage": "s3a://bucket/a//b/",
        "spark.ckpt.mode": "AT_LEAST_ONCE",
        "spark.ckpt.interval": "10s",
        "spark.ckpt.timeout": "90s",
        "spark.ckpt.minPause": "500ms",
        "spark.ckpt.maxConcurrent": "2",
        "spark.ckpt.tolerableFailures": "3",
        "spark.ckpt.retained": "5",
        "spark.ckpt.onStop": "DELETE",
        "spark.ckpt.restore.path": "s3a://bucket/old/run-00000001/chk-7/_metadata",
        "spark.ckpt.restore.mode": "CLAIM",
        "spark.ckpt.restore.plans": "DISCARD",
        "spark.ckpt.savepointDir": "/save points",
        "spark.ckpt.localRecovery": "FALSE",
        "spark.ckpt.python": "/opt/py/bin/python",
        "spark.ckpt.spool.dir": "/mnt/fast",
        "spark.ckpt.spool.maxSize": "512m",
        "spark.ckpt.spool.whenFull": "FAIL",
        "spark.ckpt.s3.endpoint": "http://minio:9000",
        "spark.ckpt.s3.region": "eu-central-1",
        "spark.ckpt.s3.pathStyle": "TRUE",
        "spark.ckpt.s3.sse": "aws:kms",
        "spark.ckpt.s3.kmsKeyId": "alias/x",
        "spark.ckpt.s3.maxConnections": "8",
    }
    assert parse_options(given) == Options(
        storage="s3://bucket/a/b",
        mode="AT_LEAST_ONCE",
        interval_ms=10_000,
        timeout_ms=90_000,
        min_pause_ms=500,
        max_concurrent=2,
        tolerable_failures=3,
        retained=5,
        on_stop="DELETE",
        restore_path=("s3://bucket/old/run-00000001/chk-7",),
        restore_mode="CLAIM",
        restore_plans="DISCARD",
        savepoint_dir="file:///save points",
        local_recovery=False,
        spool_dir="/mnt/fast",
        spool_max_bytes=512 << 20,
        spool_when_full="FAIL",
        s3=S3Options("http://minio:9000", "eu-central-1", True, "aws:kms", "alias/x", 8),
    )


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("intervall", "10s", "spark.ckpt.interval?"),
        ("s3.pathstyle", "true", "spark.ckpt.s3.pathStyle?"),
        ("storge", "/x", "spark.ckpt.storage?"),
        ("qqq", "1", "spark-ckpt conf"),
        ("timeout", "10 minutes", "10min"),
        ("timeout", "0", "above 0"),
        ("mode", "exactly-once", "EXACTLY_ONCE or AT_LEAST_ONCE"),
        ("interval", "10 minutes", "10min"),
        ("maxConcurrent", "0", "1 or more"),
        ("tolerableFailures", "-1", "0 or more"),
        ("onStop", "delete", "RETAIN or DELETE"),
        ("restore.path", "chk-3", "absolute path"),
        ("restore.mode", "LEGACY", "NO_CLAIM or CLAIM"),
        ("restore.plans", "SKIP", "RERUN or DISCARD"),
        ("savepointDir", "hdfs://x/y", "s3://bucket/prefix"),
        ("localRecovery", "yes", "true or false"),
        ("spool.maxSize", "0", "above 0"),
        ("spool.maxSize", "10 gigs", "512m"),
        ("spool.whenFull", "BLOCK", "WAIT or FAIL"),
        ("timeout", "-5s", "duration"),
        ("retained", "0", "1 or more"),
        ("retained", "three", "whole number"),
        ("retained", "²", "whole number"),
        ("storage", "hdfs://x/y", "s3://bucket/prefix"),
        ("storage", "relative/path", "absolute path"),
        ("storage", "s3://", "s3://bucket/prefix"),
        ("storage", "gs://Bucket/x", "Bucket is no bucket's name; that has 3 to 63 characters"),
        ("storage", "az://a_b/x", "a_b is no container's name; that has 3 to 63 characters"),
        ("storage", "abfss://c@x.dfs.core.windows.net/x", "for Azure's abfss:// az://, and the account in AZURE_STORAGE_ACCOUNT_NAME"),
        ("storage", "file:///a/../b", "without . and .."),
        ("storage", "file://host/a", "file:///path"),
        ("storage", "", "s3://bucket/prefix"),
        ("python", " ", "default"),
        ("spool.dir", "tmp", "absolute path"),
        ("s3.pathStyle", "yes", "true or false"),
        ("s3.sse", "rot13", "AES256"),
        ("s3.kmsKeyId", "k", "spark.ckpt.s3.sse=aws:kms"),
        ("s3.maxConnections", "0", "1 or more"),
    ],
)
def test_what_cannot_be_is_one_error_with_the_name_and_the_way_out(key: str, value: str, says: str) -> None:
    with pytest.raises(ConfigError) as e:
        parse_options({f"spark.ckpt.{key}": value})
    assert f"spark.ckpt.{key}" in str(e.value)
    assert says in str(e.value)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("key", "value", "other"),
    [
        ("mode", "AT_LEAST_ONCE", "interval"),
        ("minPause", "1s", "interval"),
        ("maxConcurrent", "2", "interval"),
        ("tolerableFailures", "3", "interval"),
        ("restore.mode", "CLAIM", "restore.path"),
        ("restore.mode", "NO_CLAIM", "restore.path"),
        ("restore.plans", "DISCARD", "restore.path"),
    ],
)
def test_an_option_that_means_nothing_without_another_names_both(key: str, value: str, other: str) -> None:
    with pytest.raises(ConfigError) as e:
        parse_options({f"spark.ckpt.{key}": value})
    assert f"spark.ckpt.{key}={value}" in str(e.value)
    assert f"spark.ckpt.{other}" in str(e.value)


@pytest.mark.parametrize(
    ("key", "value"), [("mode", "AT_LEAST_ONCE"), ("minPause", "1s"), ("maxConcurrent", "2"), ("tolerableFailures", "3")]
)
def test_they_need_an_interval_above_0(key: str, value: str) -> None:
    parse_options({f"spark.ckpt.{key}": value, "spark.ckpt.interval": "10s"})
    with pytest.raises(ConfigError, match=r"contradicts spark\.ckpt\.interval=0"):
        parse_options({f"spark.ckpt.{key}": value, "spark.ckpt.interval": "0s"})


def test_checkpoints_only_when_somebody_asks() -> None:
    options = parse_options(
        {"spark.ckpt.interval": " never", "spark.ckpt.mode": "AT_LEAST_ONCE", "spark.ckpt.maxConcurrent": "2", "spark.ckpt.minPause": "0"}
    )
    assert options.interval_ms is None
    with pytest.raises(ConfigError, match=r"spark\.ckpt\.minPause=1s contradicts spark\.ckpt\.interval=never"):
        parse_options({"spark.ckpt.interval": "never", "spark.ckpt.minPause": "1s"})
    with pytest.raises(ConfigError, match=r"use a duration such as .*, or never"):
        parse_options({"spark.ckpt.interval": "Never!"})


@pytest.mark.parametrize("key", ["s3.secretKey", "s3.accessKey", "s3.sessionToken", "password"])
def test_credentials_are_refused_and_not_shown(key: str) -> None:
    with pytest.raises(ConfigError, match="boto3's own chain") as e:
        parse_options({f"spark.ckpt.{key}": "hush-hush"})
    assert "hush-hush" not in str(e.value)


@pytest.mark.parametrize("url", ["s3://KEY:hush@bucket/x", "s3://KEY:hu/sh@bucket/x", "s3://hush@bucket"])
def test_credentials_in_the_storage_are_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigError) as e:
        parse_options({"spark.ckpt.storage": url})
    assert "hu" not in str(e.value)


@pytest.mark.parametrize(
    ("value", "as_shown"),
    [
        ("s3://KEY:hush@bucket/x", "s3://…@bucket/x"),
        ("https://acct.blob.core.windows.net/c/x?sig=hush", "https://acct.blob.core.windows.net/c/x?…"),
        ("s3://bucket/x?X-Amz-Signature=hu/sh:1", "s3://bucket/x?…"),
        ("s3://KEY:hu?sh@bucket/x?sig=hush", "s3://…"),
        ("https://acct.blob.core.windows.net/c/x?sig=hu@sh", "https://…"),
        ("s3://KEY:hu@sh/hu@bucket/x", "s3://…@bucket/x"),
        ("s3://KEY:hu\nsh@bucket/x", "s3://…@bucket/x"),
        ("s3://KEY:hush@\nbucket/x", "s3://…@ bucket/x"),
        ("KEY:hush@bucket/x", "…@bucket/x"),
        ("KEY:hu//sh@bucket/x", "…@bucket/x"),
        ("s3:/KEY:hush@bucket", "…@bucket"),
        (" https://a.example/,https://me:hush@b.example", " https://…@b.example"),
        ("s3://KEY:hush/x", "s3://…/x"),
        ("s3a://KEY:hush", "s3a://…"),
        ("s3:/KEY:hush/x", "s3:/…/x"),
        ("s3:KEY:hush/x", "s3:…/x"),
        ("[s3:KEY:hush]", "[s3:…"),
        ("'s3://KEY:hush/x'", "'s3://…/x'"),
        ("az:c?sig=hush", "az:c?…"),
        ("(az:/c?sig=hush)", "(az:/c?…"),
        ("hdfs://namenode:9000/x:y", "hdfs://namenode:9000/x:y"),
        ("http://minio:9000", "http://minio:9000"),
        ("'http://minio:9000'", "'http://minio:9000'"),
        ("[hdfs://namenode:9000]", "[hdfs://namenode:9000]"),
        ("file:///2026-01-01T10:b/x", "file:///2026-01-01T10:b/x"),
        ("/data/orders", "/data/orders"),
        ("x" * 201, "x" * 200 + "…"),
    ],
)
def test_no_message_shows_what_may_be_a_password(value: str, as_shown: str) -> None:
    assert shown(value) == as_shown


@pytest.mark.parametrize("value", ["/" * 1_000_000, "s3://" * 200_000, "//@" * 300_000, "a" * 1_000_000])
def test_a_long_value_is_shown_at_once(value: str) -> None:
    began = time.process_time()
    assert len(shown(value)) <= 201
    assert time.process_time() - began < 1


def test_a_name_that_goes_over_into_a_value_is_shown_without_that() -> None:
    with pytest.raises(ConfigError) as raised:
        parse_options({"spark.ckpt.storage/s3://KEY:hush@bucket/x?a": "1"})
    assert str(raised.value) == "spark.ckpt.storage… is not an option; did you mean spark.ckpt.storage?"


def test_several_folders_have_commas_between_and_a_comma_in_a_name_is_none() -> None:
    given = "s3a://bucket/a,b/import-1/_metadata, /tmp/x,y,file:///z"
    assert parse_options({"spark.ckpt.restore.path": given}).restore_path == ("s3://bucket/a,b/import-1", "file:///tmp/x,y", "file:///z")


@pytest.mark.parametrize("key", ["storage", "restore.path", "savepointDir"])
def test_memory_is_no_place_to_store_anything(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"spark\.ckpt\.{key}=memory://x is not possible; use s3://.*nothing would be stored$"):
        parse_options({f"spark.ckpt.{key}": "memory://x"})


@pytest.mark.parametrize("url", ["s3://me:hush/x", "s3://m_e:hush/x", "ftp://me:hush", "gs://me:hu:sh/"])
def test_what_stands_where_a_port_would_is_not_shown(url: str) -> None:
    """The scheme is wrong, and nobody has looked at the port."""
    with pytest.raises(ConfigError) as error:
        parse_options({"spark.ckpt.s3.endpoint": url})
    assert "spark.ckpt.s3.endpoint=" in str(error.value)
    assert "hu" not in str(error.value)


def test_the_endpoint_may_hold_no_credentials() -> None:
    with pytest.raises(ConfigError) as e:
        parse_options({"spark.ckpt.s3.endpoint": "http://me:hush@minio:9000"})
    assert "hush" not in str(e.value)


@pytest.mark.parametrize("key", ["storage", "savepointDir", "restore.path"])
def test_what_is_no_buckets_name_is_refused_with_the_rule(key: str) -> None:
    for name in ("b", "ab", "-abc", "x" * 256):
        with pytest.raises(ConfigError, match=rf"is not possible; use s3://.*; {name} is no bucket's name; that has 3 to 63"):
            parse_options({f"spark.ckpt.{key}": f"s3a://{name}/p"})
    with pytest.raises(ConfigError) as refused:
        parse_options({f"spark.ckpt.{key}": "s3://key:hush/p"})
    assert "; a bucket's name has 3 to 63" in str(refused.value)
    for name in ("abc", "Old_Bucket.1", "x" * 255):
        assert parse_options({f"spark.ckpt.{key}": f"s3://{name}/p"})


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("/data/ckpt/", "file:///data/ckpt"),
        ("file:/data/ckpt", "file:///data/ckpt"),
        ("file:///data//ckpt", "file:///data/ckpt"),
        ("file://localhost/data", "file:///data"),
        ("s3a://bucket", "s3://bucket"),
        ("s3://bucket/pre fix/", "s3://bucket/pre fix"),
        ("gs://bucket/ckpt/", "gs://bucket/ckpt"),
        ("az://container/ckpt", "az://container/ckpt"),
    ],
)
def test_a_storage_has_one_form(text: str, url: str) -> None:
    assert parse_storage(text) == url
    assert parse_storage(url) == url


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("500ms", 500),
        ("10s", 10_000),
        ("10min", 600_000),
        ("2m", 120_000),
        ("1h", 3_600_000),
        ("1d", 86_400_000),
        ("250", 250),
        (" 3 S ", 3000),
    ],
)
def test_durations_as_spark_writes_them(text: str, millis: int) -> None:
    assert parse_duration(text) == millis


@pytest.mark.parametrize(("text", "size"), [("10g", 10 << 30), ("512m", 512 << 20), ("1k", 1024), ("7", 7), ("7b", 7), ("2TB", 2 << 40)])
def test_sizes_as_spark_writes_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "s", "1.5s", "10 minutes", "-1s", "1e3", "1" * 19])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="a plain number is milliseconds"):
        parse_duration(text)


def test_the_longest_duration_is_one_that_every_clock_can_wait_for() -> None:
    """What is longer ended a stream's thread in the middle of its work, and the query waited for ever."""
    longest = parse_duration("100000d")
    assert longest / 1000 < threading.TIMEOUT_MAX
    assert longest * 1_000_000 < 2**63
    with pytest.raises(ConfigError, match=r"interval=100001d is not possible; use a duration such as .*, or never, 100000d at most"):
        parse_options({"spark.ckpt.interval": "100001d"})


def test_the_largest_size_is_one_that_the_jvm_can_count() -> None:
    assert parse_size("8191p") < 2**63
    with pytest.raises(ConfigError, match=r"spark\.ckpt\.spool\.maxSize=8192p is not possible; use a size such as .*, 8191p at most"):
        parse_options({"spark.ckpt.spool.maxSize": "8192p"})


def test_settings_append_to_lists() -> None:
    listeners, extensions = "spark.sql.streaming.streamingQueryListeners", "spark.sql.extensions"
    made = spark_settings({}, {listeners: "a.B, c.D", extensions: ""})
    assert made[listeners] == f"a.B,c.D,{LISTENER_CLASS}"
    assert made[extensions] == EXTENSIONS_CLASS
    assert spark_settings({}, made) == made


@pytest.mark.parametrize(
    ("key", "value"),
    [("spark.sql.streaming.stateStore.commitValidation.enabled", "true"), ("spark.shuffle.sort.bypassMergeThreshold", "200")],
)
def test_what_the_user_says_about_what_only_costs_time_stays(key: str, value: str) -> None:
    assert spark_settings({}, {key: value})[key] == value


def test_settings_made_without_any_of_the_users_own() -> None:
    assert spark_settings({}, {}) == {
        "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.ckpt.BarrierFileManager",
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        "spark.sql.streaming.realTimeMode.asyncProgressTrackingByDefault.enabled": "false",
        "spark.sql.streaming.stateStore.commitValidation.enabled": "false",
        "spark.shuffle.sort.bypassMergeThreshold": "1",
        "spark.sql.streaming.streamingQueryListeners": "org.apache.spark.sql.ckpt.QueryRunListener",
        "spark.sql.extensions": "org.apache.spark.sql.ckpt.CheckpointExtensions",
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.sql.streaming.stateStore.providerClass", "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"),
        ("spark.sql.streaming.checkpointFileManagerClass", "x.Y"),
        ("spark.sql.streaming.stateStore.checkpointFormatVersion", "1"),
        ("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "false"),
        ("spark.sql.streaming.checkpoint.fileChecksum.enabled", "true"),
        ("spark.sql.streaming.realTimeMode.asyncProgressTrackingByDefault.enabled", "true"),
    ],
)
def test_a_contradicting_setting_is_named_with_the_plugin(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match="contradicts") as e:
        spark_settings({}, {key: value})
    assert f"{key}={value}" in str(e.value)
    assert "spark.plugins=org.apache.spark.ckpt.CheckpointPlugin" in str(e.value)
    assert f"remove {key}" in str(e.value)


def test_settings_check_the_options_too() -> None:
    with pytest.raises(ConfigError, match=r"spark\.ckpt\.timeout"):
        spark_settings(ckpt(timeout="x"), {})


def test_the_template_is_the_table() -> None:
    text = (ROOT / "conf" / "spark-defaults.conf.template").read_text(encoding="utf-8")
    assert text == template()
    for option in OPTIONS:
        assert f"# {option.key} " in text
    assert all(line.startswith("#") or not line for line in text.splitlines())
