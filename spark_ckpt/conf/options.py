"""The options that hold for an application, parsed from what the user chose.

An option that could have no effect beside the others is an error that names both (`_refuse_contradictions`): it would be a promise not
kept.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_ckpt.conf.passwords import shown, shown_key
from spark_ckpt.conf.table import OPTIONS, PREFIX
from spark_ckpt.conf.words import EXACTLY_ONCE, FAIL, NEVER, NO_CLAIM, RERUN, RETAIN, WAIT
from spark_ckpt.errors import ConfigError
from spark_ckpt.storage.options import S3Options

_SECRET = re.compile(r"secret|access.?key|password|credential|token|session", re.IGNORECASE)


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
    restore_path: tuple[str, ...] = ()
    restore_mode: str = NO_CLAIM
    restore_plans: str = RERUN
    restore_operators: Mapping[int, int] = field(default_factory=dict)
    restore_allow_non_restored: bool = False
    savepoint_dir: str | None = None
    local_recovery: bool = True
    spool_dir: str | None = None
    spool_max_bytes: int = 10 << 30
    spool_when_full: str = WAIT
    hooks_timeout_ms: int = 60_000
    hooks_on_failure: str = FAIL
    s3: S3Options = field(default_factory=S3Options)


def parse_options(conf: Mapping[str, str]) -> Options:
    """Parse every `spark.ckpt.*` of `conf`; other keys are ignored. Raises ConfigError naming the option, its value and the way out."""
    values = parse_values(conf)
    _refuse_contradictions({key: value for key, value in conf.items() if key in _TABLE}, values)
    return Options(
        **{_FIELDS[name]: value for name, value in values.items() if name in _FIELDS},
        s3=S3Options(**{_S3_FIELDS[name]: value for name, value in values.items() if name in _S3_FIELDS}),
    )


def parse_values(conf: Mapping[str, str]) -> dict[str, Any]:
    """The same, of each option alone: what contradicts another one is not looked for."""
    values: dict[str, Any] = {}
    for key in sorted(k for k in conf if k.startswith(PREFIX)):
        option = _TABLE.get(key)
        if option is None:
            raise _unknown(key)
        try:
            values[option.name] = option.parse(conf[key])
        except ValueError as e:
            raise ConfigError(f"{key}={shown(conf[key])} is not possible; use {e}") from None
    return values


_TABLE = {option.key: option for option in OPTIONS}
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
    "restore.operators": "restore_operators",
    "restore.allowNonRestoredState": "restore_allow_non_restored",
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
    name = shown_key(key[len(PREFIX) :])
    if _SECRET.search(name):
        way_out = "credentials come from boto3's own chain (environment, profile, role); remove it"
        return ConfigError(f"{PREFIX}{name} is not an option: {way_out}")
    return unknown_option(name, [option.name for option in OPTIONS], PREFIX)


def unknown_option(given: str, known: Iterable[str], prefix: str = "") -> ConfigError:
    """The error for an option that is not there, with the nearest name that is."""
    names = {name.lower(): name for name in known}
    near = difflib.get_close_matches(given.lower(), names, n=1, cutoff=0.6)
    way_out = f"did you mean {prefix}{names[near[0]]}?" if near else "`spark-ckpt conf` prints every option"
    return ConfigError(f"{prefix}{given} is not an option; {way_out}")
