"""Every option `spark.ckpt.*`, once: name, default, form, Flink's name for it and what it does; and the Spark settings the plugin makes.

An option that could have no effect beside the others is an error that names both (`_contradictions`): it would be a promise not kept.
"""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_ckpt.errors import ConfigError
from spark_ckpt.paths import split
from spark_ckpt.storage.options import S3Options, bucket_problem
from spark_ckpt.units import parse_duration, parse_size

PREFIX = "spark.ckpt."
PLUGIN_CLASS = "org.apache.spark.ckpt.CheckpointPlugin"
PROVIDER_CLASS = "org.apache.spark.sql.execution.streaming.state.ckpt.BarrierStateStoreProvider"
FILE_MANAGER_CLASS = "org.apache.spark.sql.ckpt.BarrierFileManager"
LISTENER_CLASS = "org.apache.spark.sql.ckpt.QueryRunListener"
EXTENSIONS_CLASS = "org.apache.spark.sql.ckpt.CheckpointExtensions"

EXACTLY_ONCE, AT_LEAST_ONCE = "EXACTLY_ONCE", "AT_LEAST_ONCE"
RETAIN, DELETE, NO_CLAIM, CLAIM = "RETAIN", "DELETE", "NO_CLAIM", "CLAIM"
RERUN, DISCARD = "RERUN", "DISCARD"
WAIT, FAIL, NEVER, DECLINE = "WAIT", "FAIL", "never", "DECLINE"

_STORAGE_EXPECTED = "s3://bucket/prefix, file:///path or an absolute path"
_SECRET = re.compile(r"secret|access.?key|password|credential|token|session", re.IGNORECASE)


@dataclass(frozen=True)
class Option:
    """`name` without the prefix. `default` as a user would write it; None: unset. `parse` raises ValueError with the form it expects."""

    name: str
    default: str | None
    parse: Callable[[str], Any]
    flink_name: str | None
    help: str

    @property
    def key(self) -> str:
        return PREFIX + self.name


@dataclass(frozen=True)
class Options:
    """What the user chose, parsed. None: the default that depends on the surroundings, as the table says."""

    storage: str | None = None
    mode: str = EXACTLY_ONCE
    interval_ms: int | None = 0
    timeout_ms: int = 600_000
    min_pause_ms: int = 0
    max_concurrent: int = 1
    tolerable_failures: int = 0
    retained: int = 3
    on_stop: str = RETAIN
    restore_path: str | None = None
    restore_mode: str = NO_CLAIM
    restore_plans: str = RERUN
    savepoint_dir: str | None = None
    local_recovery: bool = True
    spool_dir: str | None = None
    spool_max_bytes: int = 10 << 30
    spool_when_full: str = WAIT
    hooks_timeout_ms: int = 60_000
    hooks_on_failure: str = FAIL
    s3: S3Options = field(default_factory=S3Options)


def parse_storage(text: str) -> str:
    """A storage's URL in its one form: `s3://bucket/prefix` or `file:///path`; no `/` at the end. Raises ValueError."""
    url = parse_stream(text)
    if "?" in url or "#" in url:
        raise ValueError(f"{_STORAGE_EXPECTED}, without ? and #")
    return url


def parse_stream(text: str) -> str:
    """The same for a stream's URL, which ends in a checkpointLocation: that may have `?` and `#` in it. Raises ValueError."""
    value = text.strip()
    scheme, authority, path = split("file://" + value if value.startswith("/") else value)
    scheme = {"s3a": "s3", "s3n": "s3"}.get(scheme, scheme)
    if "@" in authority:
        raise ValueError(f"{_STORAGE_EXPECTED}, without credentials in it; give those to boto3's own chain")
    if any(part in (".", "..") for part in path.split("/")):
        raise ValueError(f"{_STORAGE_EXPECTED}, without . and .. in it")
    if scheme == "file":
        if authority not in ("", "localhost") or not path.startswith("/"):
            raise ValueError(_STORAGE_EXPECTED)
        return f"file://{path}"
    if scheme == "memory":
        raise ValueError(f"{_STORAGE_EXPECTED}: memory:// is each process's own, so that nothing would be stored")
    if scheme == "s3":
        problem = bucket_problem(authority)
        if problem is not None:
            raise ValueError(f"{_STORAGE_EXPECTED}; {problem}")
        return f"s3://{authority}{path}"
    raise ValueError(_STORAGE_EXPECTED)


def _interval(text: str) -> int | None:
    return None if text.strip() == NEVER else parse_duration(text, f", or {NEVER}")


def _positive_duration(text: str) -> int:
    millis = parse_duration(text)
    if millis == 0:
        raise ValueError("a duration above 0 such as 10min")
    return millis


def _whole(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text.strip()) or int(text) < least:
            raise ValueError(f"a whole number, {least} or more")
        return int(text)

    return parse


def _positive_size(text: str) -> int:
    size = parse_size(text)
    if size == 0:
        raise ValueError("a size above 0 such as 10g")
    return size


def _boolean(text: str) -> bool:
    value = text.strip().lower()
    if value not in ("true", "false"):
        raise ValueError("true or false")
    return value == "true"


def _folder(text: str) -> str:
    """A checkpoint's or savepoint's folder; its `_metadata` in it means the same."""
    return parse_stream(text).removesuffix("/_metadata")


def _words(text: str) -> str:
    if not text.strip():
        raise ValueError("a value; leave the option out for its default")
    return text.strip()


def _absolute_path(text: str) -> str:
    value = text.strip()
    if not value.startswith("/"):
        raise ValueError("an absolute path, which means the same on driver and executors")
    return value


def _one_of(*values: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.strip() not in values:
            raise ValueError(" or ".join(values))
        return text.strip()

    return parse


OPTIONS: tuple[Option, ...] = (
    Option(
        "storage",
        None,
        parse_storage,
        "checkpoint dir",
        "Where checkpoints live: s3://bucket/prefix, file:///path or an absolute path. Every stream has its own folder below it, named "
        "after its checkpointLocation, which may then be a local path that vanishes. Default: <checkpointLocation>/_ckpt.",
    ),
    Option(
        "mode",
        EXACTLY_ONCE,
        _one_of(EXACTLY_ONCE, AT_LEAST_ONCE),
        "checkpointing mode",
        "What a sink that is idempotent by batch id sees. EXACTLY_ONCE: an epoch's plan is stored before the epoch runs, so after a crash "
        "it runs again with the same data. AT_LEAST_ONCE (with an interval only): epochs do not wait for their plans. The next start goes "
        "on under new batch ids: rows since the last checkpoint may come twice, and none is lost.",
    ),
    Option(
        "interval",
        "0",
        _interval,
        "checkpoint interval",
        "0: every epoch is a checkpoint, and an epoch is committed only when its checkpoint is complete. A duration such as 10s: "
        "checkpoints complete in the background, and the query does not wait for them. After a crash the epochs since the last checkpoint "
        "run again. While an epoch runs longer than the interval, the epoch before it becomes the checkpoint. never: checkpoints are "
        "completed in the background when somebody asks (`spark-ckpt checkpoint`, spark_ckpt.checkpoint, savepoints), when the query "
        "comes to its own end (AvailableNow), when a spool is half full, and after 100,000 epochs without one. With sources that cannot "
        "give the same data twice every epoch is a checkpoint, whatever is set here.",
    ),
    Option(
        "timeout",
        "10min",
        _positive_duration,
        "checkpoint timeout",
        "How long the storage may take, retries included, for each of two things. The plan of an epoch, counted from the epoch's trigger: "
        "when the time is over the query fails, in every mode. The uploads and the final put of a checkpoint, counted from the end of its "
        "epoch, so a long epoch fails no checkpoint: when the time is over the query fails; with an interval, the checkpoint fails, and "
        "tolerableFailures says when the query does. A plain number is milliseconds.",
    ),
    Option(
        "minPause",
        "0",
        parse_duration,
        "min pause between checkpoints",
        "At least this long between the end of one checkpoint and the beginning of the next. Needs an interval.",
    ),
    Option(
        "maxConcurrent",
        "1",
        _whole(1),
        "max concurrent checkpoints",
        "How many checkpoints may be under way at a time. More than 1 needs an interval. While an epoch runs longer than the interval, "
        "the checkpoint of the epoch before it comes on top.",
    ),
    Option(
        "tolerableFailures",
        "0",
        _whole(0),
        "tolerable checkpoint failures",
        "How many checkpoints may fail in a row before the query fails; a success starts the count again. More than 0 needs an interval.",
    ),
    Option("retained", "3", _whole(1), "retained checkpoints", "How many completed checkpoints are kept; older ones are deleted."),
    Option(
        "onStop",
        RETAIN,
        _one_of(RETAIN, DELETE),
        "externalized checkpoint cleanup",
        "DELETE: checkpoints are deleted when a person stops the query, never after a crash or a failure; savepoints stay.",
    ),
    Option(
        "restore.path",
        None,
        _folder,
        "restore path",
        "Begin from this checkpoint or savepoint: the URL of its folder, as `spark-ckpt savepoint` and `spark-ckpt list --json` print it. "
        "It is applied once: later starts with the same value go on from the newest checkpoint. Default: the stream's newest checkpoint.",
    ),
    Option(
        "restore.mode",
        NO_CLAIM,
        _one_of(NO_CLAIM, CLAIM),
        "restore mode",
        "Who owns the savepoint in restore.path. Both modes copy its objects: once the query runs, it does not need it. NO_CLAIM: you do; "
        "it is left as it is. CLAIM: the stream does; it deletes the folder together with the copy, when `retained` newer checkpoints are "
        "complete. A checkpoint in restore.path stays with the stream that made it, in both modes.",
    ),
    Option(
        "restore.plans",
        RERUN,
        _one_of(RERUN, DISCARD),
        None,
        "What happens to epochs that this stream has planned after the checkpoint in restore.path. RERUN: they run again with the same "
        "data, under the same batch ids. DISCARD: they are planned anew, under new batch ids; sinks may get their rows twice.",
    ),
    Option(
        "savepointDir",
        None,
        parse_stream,
        "savepoint dir",
        "Folder in which savepoints are made when none is given with the request. Default: savepoints/ in the stream's own folder.",
    ),
    Option(
        "localRecovery",
        "true",
        _boolean,
        "local recovery",
        "true: state that an earlier run has left in the spool of the same machine is used if its checksums match. Only the rest is "
        "downloaded.",
    ),
    Option(
        "kafka.group",
        None,
        _words,
        "group.id, commit.offsets.on.checkpoint",
        "Consumer group to which the end offsets of each completed checkpoint are committed, for tools that show a group's lag. Nothing is "
        "read from it: the checkpoint decides. With several queries write {query} into it, which stands for the query's name. No consumer "
        "may be a member of that group. Default: no offsets are committed.",
    ),
    Option(
        "python",
        None,
        _words,
        None,
        "The Python that runs the coordinator on the driver and an agent on every executor. It needs this package and what the package "
        "depends on. Default: the driver's Python for the coordinator, the Python of PySpark's workers for agents, as Spark finds them.",
    ),
    Option(
        "spool.dir",
        None,
        _absolute_path,
        None,
        "Local folder for what the state stores have written and the agent has not uploaded yet. Default: Spark's local dir.",
    ),
    Option(
        "spool.maxSize",
        "10g",
        _positive_size,
        None,
        "How much state that is not stored yet an executor may hold in its spool. A plain number is bytes.",
    ),
    Option(
        "spool.whenFull",
        WAIT,
        _one_of(WAIT, FAIL),
        None,
        "What a task does when the spool is full: WAIT until uploads have made room, or FAIL.",
    ),
    Option("hooks.timeout", "1min", _positive_duration, None, "How long each call of a hook (`spark_ckpt.register_hook`) may take."),
    Option(
        "hooks.onFailure",
        FAIL,
        _one_of(FAIL, DECLINE),
        None,
        "When a hook raises, or exceeds hooks.timeout. FAIL: the query fails. DECLINE: the epoch becomes no checkpoint; needs an interval.",
    ),
    Option("s3.endpoint", None, _words, "s3.endpoint", "URL of an S3 server other than AWS, such as http://minio:9000."),
    Option("s3.region", None, _words, "s3.region", "Region. Default: what boto3's chain says."),
    Option(
        "s3.pathStyle", "false", _boolean, "s3.path.style.access", "true: http://server/bucket/key instead of http://bucket.server/key."
    ),
    Option("s3.sse", None, _one_of("AES256", "aws:kms"), None, "Server-side encryption: AES256 or aws:kms. Default: the bucket's own."),
    Option("s3.kmsKeyId", None, _words, None, "Key for s3.sse=aws:kms. Default: the account's key for S3."),
    Option("s3.maxConnections", "32", _whole(1), None, "Connections to the server that each process keeps for each stream."),
)


def parse_options(conf: Mapping[str, str]) -> Options:
    """Parse every `spark.ckpt.*` of `conf`; other keys are ignored. Raises ConfigError naming the option, its value and the way out."""
    table = {option.key: option for option in OPTIONS}
    values: dict[str, Any] = {}
    for key in sorted(k for k in conf if k.startswith(PREFIX)):
        option = table.get(key)
        if option is None:
            raise _unknown(key)
        try:
            values[option.name] = option.parse(conf[key])
        except ValueError as e:
            raise ConfigError(f"{key}={shown(conf[key])} is not possible; use {e}") from None
    _refuse_contradictions({key: value for key, value in conf.items() if key in table}, values)
    return Options(
        **{_FIELDS[name]: value for name, value in values.items() if name in _FIELDS},
        s3=S3Options(**{_S3_FIELDS[name]: value for name, value in values.items() if name in _S3_FIELDS}),
    )


# What is not here (python, kafka.group) is read by the JVM alone.
_FIELDS: Mapping[str, str] = {
    "storage": "storage",
    "mode": "mode",
    "interval": "interval_ms",
    "timeout": "timeout_ms",
    "minPause": "min_pause_ms",
    "maxConcurrent": "max_concurrent",
    "tolerableFailures": "tolerable_failures",
    "retained": "retained",
    "onStop": "on_stop",
    "restore.path": "restore_path",
    "restore.mode": "restore_mode",
    "restore.plans": "restore_plans",
    "savepointDir": "savepoint_dir",
    "localRecovery": "local_recovery",
    "spool.dir": "spool_dir",
    "spool.maxSize": "spool_max_bytes",
    "spool.whenFull": "spool_when_full",
    "hooks.timeout": "hooks_timeout_ms",
    "hooks.onFailure": "hooks_on_failure",
}
_S3_NAMES = ("endpoint", "region", "pathStyle", "sse", "kmsKeyId", "maxConnections")
_S3_FIELDS: Mapping[str, str] = {f"s3.{name}": re.sub("[A-Z]", lambda c: f"_{c[0].lower()}", name) for name in _S3_NAMES}


def shown_options(conf: Mapping[str, str]) -> dict[str, str]:
    """Every option that holds, as the Checkpoints tab shows it: what the user chose, else the default where it is a value."""
    chosen = {option.name: conf.get(option.key, option.default) for option in OPTIONS}
    return {name: value.strip() for name, value in chosen.items() if value is not None}


def _refuse_contradictions(given: Mapping[str, str], values: Mapping[str, Any]) -> None:
    """Raise a ConfigError naming both settings where one could have no effect beside the other."""
    if values.get("interval", 0) is None and values.get("minPause", 0):
        raise ConfigError(
            f"{PREFIX}minPause={given[PREFIX + 'minPause']} contradicts {PREFIX}interval={NEVER}: no checkpoint begins by itself, and one "
            f"that is asked for waits for no pause; set {PREFIX}interval to a duration such as 10s, or remove {PREFIX}minPause"
        )
    if values.get("interval", 0) == 0:
        numbers = (("minPause", 0), ("maxConcurrent", 1), ("tolerableFailures", 0))
        for name, needless in (("mode", EXACTLY_ONCE), ("hooks.onFailure", FAIL), *numbers):
            if values.get(name, needless) != needless:
                raise ConfigError(
                    f"{PREFIX}{name}={given[PREFIX + name]} contradicts {PREFIX}interval=0: every epoch is a checkpoint and waits for it; "
                    f"set {PREFIX}interval to a duration such as 10s, or remove {PREFIX}{name}"
                )
    if "restore.path" not in values:
        for name in ("restore.mode", "restore.plans"):
            if name in values:
                raise ConfigError(
                    f"{PREFIX}{name}={given[PREFIX + name]} means nothing without {PREFIX}restore.path; "
                    f"name the checkpoint or savepoint there, or remove {PREFIX}{name}"
                )


def _unknown(key: str) -> ConfigError:
    name = key[len(PREFIX) :]
    if _SECRET.search(name):
        return ConfigError(f"{key} is not an option: credentials come from boto3's own chain (environment, profile, role); remove it")
    return unknown_option(name, [option.name for option in OPTIONS], PREFIX)


def unknown_option(given: str, known: Iterable[str], prefix: str = "") -> ConfigError:
    """The error for an option that is not there, with the nearest name that is."""
    names = {name.lower(): name for name in known}
    near = difflib.get_close_matches(given.lower(), names, n=1, cutoff=0.6)
    way_out = f"did you mean {prefix}{names[near[0]]}?" if near else "`spark-ckpt conf` prints every option"
    return ConfigError(f"{prefix}{given} is not an option; {way_out}")


def shown(value: str) -> str:
    """A value for a message: without what might be a password in a URL, and cut."""
    without = re.sub(r"//.*@", "//…@", value)
    return without if len(without) <= 200 else without[:200] + "…"


_PROVIDER_KEY = "spark.sql.streaming.stateStore.providerClass"
_MANAGER_KEY = "spark.sql.streaming.checkpointFileManagerClass"
_FORMAT_KEY = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_CHANGELOG_KEY = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_FILE_CHECKSUM_KEY = "spark.sql.streaming.checkpoint.fileChecksum.enabled"
_LISTENERS_KEY = "spark.sql.streaming.streamingQueryListeners"
_EXTENSIONS_KEY = "spark.sql.extensions"
_VALIDATION_KEY = "spark.sql.streaming.stateStore.commitValidation.enabled"
_BYPASS_KEY = "spark.shuffle.sort.bypassMergeThreshold"

NEEDED_SETTINGS: Mapping[str, tuple[str, str]] = {
    _PROVIDER_KEY: (PROVIDER_CLASS, "the plugin brings a provider of its own, on Spark's own RocksDB engine"),
    _MANAGER_KEY: (FILE_MANAGER_CLASS, "the plugin sees the query's log through a file manager of its own"),
    _FORMAT_KEY: ("2", "checkpoints need the unique ids of format 2"),
    _CHANGELOG_KEY: ("true", "checkpoints are made of changelogs"),
    _FILE_CHECKSUM_KEY: ("false", "the plugin stores and checks checksums of its own, and Spark's side files would get in the way"),
}
"""Setting -> value, and why the plugin cannot do without it."""
SUGGESTED_SETTINGS: Mapping[str, str] = {
    # After each commit of a store its task would ask the driver twice; with format 2 the driver counts the unique ids anyway.
    _VALIDATION_KEY: "false",
    # With up to 200 partitions each task before a shuffle would write a file for every one of them (BypassMergeSortShuffleWriter): an
    # epoch has few rows for each, and files are what it costs. 1 leaves that to shuffles into one partition.
    _BYPASS_KEY: "1",
}
"""Made where the user has none: they only save time."""
ADDED_SETTINGS: Mapping[str, str] = {_LISTENERS_KEY: LISTENER_CLASS, _EXTENSIONS_KEY: EXTENSIONS_CLASS}
"""Added to the user's own lists."""


def spark_settings(conf: Mapping[str, str], existing: Mapping[str, str]) -> dict[str, str]:
    """The Spark settings that the plugin makes, given the user's own. Lists are appended to, never replaced.

    Raises ConfigError where `conf` cannot be parsed, or where a value in `existing` contradicts: both settings and the way out.
    """
    parse_options(conf)
    plugin = f"spark.plugins={PLUGIN_CLASS}"
    for key, (needed, reason) in NEEDED_SETTINGS.items():
        given = existing.get(key)
        if given is not None and given.strip().lower() != needed.lower():
            raise ConfigError(f"{key}={given} contradicts {plugin}: {reason}; remove {key}, or the plugin")
    for key in sorted(existing):
        if "asyncprogresstracking" in key.lower() and existing[key].strip().lower() == "true":
            raise ConfigError(
                f"{key}=true contradicts {plugin}: the log of an epoch must be stored before the epoch runs; remove {key}, or the plugin"
            )
    settings = {key: needed for key, (needed, _) in NEEDED_SETTINGS.items()}
    settings |= {key: existing.get(key, value) for key, value in SUGGESTED_SETTINGS.items()}
    for key, added in ADDED_SETTINGS.items():
        names = [name.strip() for name in existing.get(key, "").split(",") if name.strip()]
        settings[key] = ",".join([*names, added] if added not in names else names)
    return settings


def template() -> str:
    """`conf/spark-defaults.conf.template`: every option, commented out, with its default."""
    lines = [
        "# spark-ckpt: Flink's checkpoint mechanism for Spark Structured Streaming.",
        "# Copy what you need into spark-defaults.conf. Printed by `spark-ckpt conf`, from the same table that parses the options.",
        "",
        "# These lines enable it; the path of the JAR is what `spark-ckpt jar` prints.",
        "# spark.jars                        /path/to/spark-ckpt.jar",
        f"# spark.plugins                     {PLUGIN_CLASS}",
        "",
    ]
    for option in OPTIONS:
        text = option.help + (f" (Flink: {option.flink_name})" if option.flink_name else "")
        lines += [f"# {line}" for line in _wrapped(text)]
        lines += [f"# {option.key:<33} {option.default if option.default is not None else '(unset)'}", ""]
    lines += [
        "# Durations are written as Spark writes them: 500ms, 10s, 10min, 1h; a plain number is milliseconds.",
        "# Credentials come from boto3's own chain (environment, profile, role), never from here.",
    ]
    return "\n".join(lines) + "\n"


def _wrapped(text: str, width: int = 110) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
