"""Every option `spark.ckpt.*`, once: name, default, form, Flink's name for it and what it does; and the Spark settings the plugin makes.

This version knows the every-epoch mode only. Options of other modes are either tied to the one value that describes this mode, or
refused by name (`_NOT_YET`): an option that has no effect would be a promise that is not kept.
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
from spark_ckpt.storage.options import S3Options
from spark_ckpt.units import parse_duration

PREFIX = "spark.ckpt."
PLUGIN_CLASS = "org.apache.spark.ckpt.CheckpointPlugin"
PROVIDER_CLASS = "org.apache.spark.sql.execution.streaming.state.ckpt.BarrierStateStoreProvider"
FILE_MANAGER_CLASS = "org.apache.spark.sql.ckpt.BarrierFileManager"
LISTENER_CLASS = "org.apache.spark.sql.ckpt.CheckpointListener"
EXTENSIONS_CLASS = "org.apache.spark.sql.ckpt.CheckpointExtensions"

_STORAGE_EXPECTED = "s3://bucket/prefix, file:///path or an absolute path"
_ONLY_EVERY_EPOCH = "this version has only the every-epoch mode"
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
    timeout_ms: int = 600_000
    retained: int = 3
    python: str | None = None
    spool_dir: str | None = None
    s3: S3Options = field(default_factory=S3Options)


def parse_storage(text: str) -> str:
    """A storage's URL in its one form: `s3://bucket/prefix`, `file:///path`, `memory://name`; no `/` at the end. Raises ValueError."""
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
    if scheme in ("s3", "memory") and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", authority):
        return f"{scheme}://{authority}{path}"
    raise ValueError(_STORAGE_EXPECTED)


def _positive_duration(text: str) -> int:
    millis = parse_duration(text)
    if millis == 0:
        raise ValueError("a duration above 0 such as 10min")
    return millis


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text.strip()) or int(text) < 1:
        raise ValueError("a whole number, 1 or more")
    return int(text)


def _boolean(text: str) -> bool:
    value = text.strip().lower()
    if value not in ("true", "false"):
        raise ValueError("true or false")
    return value == "true"


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


def _only(value: str, form: Callable[[str], Any] = str.strip) -> Callable[[str], Any]:
    """An option that other modes will vary: here it may be written, with the one value that holds."""

    def parse(text: str) -> Any:
        if form(text) != form(value):
            raise ValueError(f"{value}: {_ONLY_EVERY_EPOCH}")
        return form(text)

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
        "EXACTLY_ONCE",
        _only("EXACTLY_ONCE"),
        "checkpointing mode",
        "What a sink that is idempotent by batch id sees. This version: EXACTLY_ONCE only.",
    ),
    Option(
        "interval",
        "0",
        _only("0", parse_duration),
        "checkpoint interval",
        "0: every epoch is a checkpoint, and an epoch is committed only when its checkpoint is complete. This version: 0 only.",
    ),
    Option(
        "timeout",
        "10min",
        _positive_duration,
        "checkpoint timeout",
        "How long uploads and the final put of one checkpoint are retried before the query fails. A plain number is milliseconds.",
    ),
    Option("minPause", "0", _only("0", parse_duration), "min pause between checkpoints", "This version: 0 only."),
    Option("maxConcurrent", "1", _only("1", _count), "max concurrent checkpoints", "This version: 1 only."),
    Option(
        "tolerableFailures",
        "0",
        _only("0"),
        "tolerable checkpoint failures",
        "An epoch is never committed without its checkpoint, so no failure is tolerated. This version: 0 only.",
    ),
    Option("retained", "3", _count, "retained checkpoints", "How many completed checkpoints are kept; older ones are deleted."),
    Option(
        "onStop",
        "RETAIN",
        _only("RETAIN"),
        "externalized checkpoint cleanup",
        "What happens to checkpoints when the query is stopped. This version: RETAIN only.",
    ),
    Option(
        "python",
        None,
        _words,
        None,
        "The Python that runs coordinator and agents, on the driver and on every executor; it needs this package and its runtime "
        "dependencies. Default: the interpreter of PySpark's workers.",
    ),
    Option(
        "spool.dir",
        None,
        _absolute_path,
        None,
        "Local folder for what the engine has written and the agent has not uploaded yet. Default: Spark's local dir.",
    ),
    Option("s3.endpoint", None, _words, "s3.endpoint", "URL of an S3 server other than AWS, such as http://minio:9000."),
    Option("s3.region", None, _words, "s3.region", "Region. Default: what boto3's chain says."),
    Option(
        "s3.pathStyle", "false", _boolean, "s3.path.style.access", "true: http://server/bucket/key instead of http://bucket.server/key."
    ),
    Option("s3.sse", None, _one_of("AES256", "aws:kms"), None, "Server-side encryption: AES256 or aws:kms. Default: the bucket's own."),
    Option("s3.kmsKeyId", None, _words, None, "Key for s3.sse=aws:kms. Default: the account's key for S3."),
    Option("s3.maxConnections", "32", _count, None, "Connections that each process keeps to the server."),
)

_NOT_YET: Mapping[str, str] = {
    "restore.path": "the stream goes on from its newest completed checkpoint",
    "restore.mode": "the stream goes on from its newest completed checkpoint",
    "restore.plans": "planned epochs are always run again as planned",
    "savepointDir": "there are no savepoints",
    "localRecovery": "state is fetched from the storage",
    "spool.maxSize": "the spool holds one epoch and has no limit of its own",
    "spool.whenFull": "the spool holds one epoch and has no limit of its own",
}


def parse_options(conf: Mapping[str, str]) -> Options:
    """Parse every `spark.ckpt.*` of `conf`; other keys are ignored. Raises ConfigError naming the option, its value and the way out."""
    table = {option.key: option for option in OPTIONS}
    values: dict[str, Any] = {}
    for key in sorted(k for k in conf if k.startswith(PREFIX)):
        option = table.get(key)
        if option is None:
            raise _unknown(key, conf[key])
        try:
            values[option.name] = option.parse(conf[key])
        except ValueError as e:
            raise ConfigError(f"{key}={_shown(conf[key])} is not possible; use {e}") from None
    return Options(
        storage=values.get("storage"),
        timeout_ms=values.get("timeout", Options.timeout_ms),
        retained=values.get("retained", Options.retained),
        python=values.get("python"),
        spool_dir=values.get("spool.dir"),
        s3=S3Options(
            endpoint=values.get("s3.endpoint"),
            region=values.get("s3.region"),
            path_style=values.get("s3.pathStyle", False),
            sse=values.get("s3.sse"),
            kms_key_id=values.get("s3.kmsKeyId"),
            max_connections=values.get("s3.maxConnections", S3Options.max_connections),
        ),
    )


def _unknown(key: str, value: str) -> ConfigError:
    name = key[len(PREFIX) :]
    if name in _NOT_YET:
        return ConfigError(f"{key}={_shown(value)} is not supported: {_ONLY_EVERY_EPOCH}, {_NOT_YET[name]}; remove the option")
    if _SECRET.search(name):
        return ConfigError(f"{key} is not an option: credentials come from boto3's own chain (environment, profile, role); remove it")
    return unknown_option(name, [option.name for option in OPTIONS], PREFIX)


def unknown_option(given: str, known: Iterable[str], prefix: str = "") -> ConfigError:
    """The error for an option that is not there, with the nearest name that is."""
    names = {name.lower(): name for name in known}
    near = difflib.get_close_matches(given.lower(), names, n=1, cutoff=0.6)
    way_out = f"did you mean {prefix}{names[near[0]]}?" if near else "`spark-ckpt conf` prints every option"
    return ConfigError(f"{prefix}{given} is not an option; {way_out}")


def _shown(value: str) -> str:
    """A value for a message: cut, and without what might be a password in a URL."""
    cut = value if len(value) <= 200 else value[:200] + "…"
    return re.sub(r"//.*@", "//…@", cut)


_PROVIDER_KEY = "spark.sql.streaming.stateStore.providerClass"
_MANAGER_KEY = "spark.sql.streaming.checkpointFileManagerClass"
_FORMAT_KEY = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_CHANGELOG_KEY = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_FILE_CHECKSUM_KEY = "spark.sql.streaming.checkpoint.fileChecksum.enabled"
_LISTENERS_KEY = "spark.sql.streaming.streamingQueryListeners"
_EXTENSIONS_KEY = "spark.sql.extensions"

_SET: Mapping[str, tuple[str, str]] = {
    _PROVIDER_KEY: (PROVIDER_CLASS, "the plugin brings a provider of its own, on Spark's own RocksDB engine"),
    _MANAGER_KEY: (FILE_MANAGER_CLASS, "the plugin sees the query's log through a file manager of its own"),
    _FORMAT_KEY: ("2", "checkpoints need the unique ids of format 2"),
    _CHANGELOG_KEY: ("true", "checkpoints are made of changelogs"),
    _FILE_CHECKSUM_KEY: ("false", "the plugin stores and checks checksums of its own, and Spark's side files would get in the way"),
}
_APPENDED: Mapping[str, str] = {_LISTENERS_KEY: LISTENER_CLASS, _EXTENSIONS_KEY: EXTENSIONS_CLASS}


def spark_settings(conf: Mapping[str, str], existing: Mapping[str, str]) -> dict[str, str]:
    """The Spark settings that the plugin makes, given the user's own. Lists are appended to, never replaced.

    Raises ConfigError where `conf` cannot be parsed, or where a value in `existing` contradicts: both settings and the way out.
    """
    parse_options(conf)
    plugin = f"spark.plugins={PLUGIN_CLASS}"
    for key, (needed, reason) in _SET.items():
        given = existing.get(key)
        if given is not None and given.strip().lower() != needed.lower():
            raise ConfigError(f"{key}={given} contradicts {plugin}: {reason}; remove {key}, or the plugin")
    for key in sorted(existing):
        if "asyncprogresstracking" in key.lower() and existing[key].strip().lower() == "true":
            raise ConfigError(
                f"{key}=true contradicts {plugin}: the log of an epoch must be stored before the epoch runs; remove {key}, or the plugin"
            )
    settings = {key: needed for key, (needed, _) in _SET.items()}
    for key, added in _APPENDED.items():
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
