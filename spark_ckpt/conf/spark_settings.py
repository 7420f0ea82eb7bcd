"""The settings of Spark's own that the plugin makes."""

from __future__ import annotations

from collections.abc import Mapping

from spark_ckpt.conf.options import parse_options
from spark_ckpt.conf.passwords import shown
from spark_ckpt.errors import ConfigError

PLUGIN_CLASS = "org.apache.spark.ckpt.CheckpointPlugin"
PROVIDER_CLASS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
FILE_MANAGER_CLASS = "org.apache.spark.sql.ckpt.BarrierFileManager"
LISTENER_CLASS = "org.apache.spark.sql.ckpt.QueryRunListener"
EXTENSIONS_CLASS = "org.apache.spark.sql.ckpt.CheckpointExtensions"

PROVIDER_KEY = "spark.sql.streaming.stateStore.providerClass"
_MANAGER_KEY = "spark.sql.streaming.checkpointFileManagerClass"
FORMAT_KEY = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_CHANGELOG_KEY = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_FILE_CHECKSUM_KEY = "spark.sql.streaming.checkpoint.fileChecksum.enabled"
_LISTENERS_KEY = "spark.sql.streaming.streamingQueryListeners"
_ASYNC_KEY = "spark.sql.streaming.realTimeMode.asyncProgressTrackingByDefault.enabled"
_EXTENSIONS_KEY = "spark.sql.extensions"
_VALIDATION_KEY = "spark.sql.streaming.stateStore.commitValidation.enabled"
_BYPASS_KEY = "spark.shuffle.sort.bypassMergeThreshold"

NEEDED_SETTINGS: Mapping[str, tuple[str, str]] = {
    PROVIDER_KEY: (PROVIDER_CLASS, "the plugin's own provider, which a query gets when it has started, is made of Spark's RocksDB engine"),
    _MANAGER_KEY: (FILE_MANAGER_CLASS, "the plugin sees the query's log through a file manager of its own"),
    FORMAT_KEY: ("2", "checkpoints need the unique ids of format 2"),
    _CHANGELOG_KEY: ("true", "checkpoints are made of changelogs"),
    _FILE_CHECKSUM_KEY: ("false", "the plugin stores and checks checksums of its own, and Spark's side files would get in the way"),
    _ASYNC_KEY: ("false", "a batch in real time has to write what it has read when it ends, and not later"),
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
            raise ConfigError(f"{key}={shown(given)} contradicts {plugin}: {reason}; remove {key}, or the plugin")
    for key in sorted(existing):
        if "asyncprogresstracking" in key.lower() and existing[key].strip().lower() == "true":
            raise ConfigError(
                f"{key}=true contradicts {plugin}: what an epoch reads must be written in its turn; remove {key}, or the plugin"
            )
    settings = {key: needed for key, (needed, _) in NEEDED_SETTINGS.items()}
    settings |= {key: existing.get(key, value) for key, value in SUGGESTED_SETTINGS.items()}
    for key, added in ADDED_SETTINGS.items():
        names = [name.strip() for name in existing.get(key, "").split(",") if name.strip()]
        settings[key] = ",".join([*names, added] if added not in names else names)
    return settings
