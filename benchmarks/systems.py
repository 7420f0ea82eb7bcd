"""The systems that one would choose between, each as the configuration of a Spark application."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import REGION, FarS3
from benchmarks.floor import URL as FLOOR_URL
from benchmarks.floor import write_interpreter
from benchmarks.jars import s3a_jars
from spark_ckpt.conf.options import parse_options
from spark_ckpt.conf.spark_settings import (
    ADDED_SETTINGS,
    FILE_MANAGER_CLASS,
    NEEDED_SETTINGS,
    PLUGIN_CLASS,
    SUGGESTED_SETTINGS,
)
from spark_ckpt.errors import ConfigError
from spark_ckpt.process.jar import jar_path
from testbed.spark_home import linked_home

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_ABORTABLE = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"

_MADE = {**{key: value for key, (value, _) in NEEDED_SETTINGS.items()}, **SUGGESTED_SETTINGS}
HOOKS = frozenset(key for key, value in _MADE.items() if value == FILE_MANAGER_CLASS) | frozenset(ADDED_SETTINGS)
"""Settings of the plugin that name a class of its own: they are the plugin, so stock Spark cannot have them."""
SAME_SETTINGS: Mapping[str, str] = {key: value for key, value in _MADE.items() if key not in HOOKS}
"""All others that it makes, which mean to stock Spark what they mean to the plugin."""
_LOOKED_AT = ("spark.sql.", "spark.shuffle.")
_SPARKS_OWN = frozenset({"spark.sql.artifact.isolation.enabled", "spark.sql.warehouse.dir", "spark.shuffle.readHostLocalDisk"})
"""Made by Spark itself, whoever runs in it; the last one where its master is `local-cluster`."""
VALIDATION, BYPASS = "spark.sql.streaming.stateStore.commitValidation.enabled", "spark.shuffle.sort.bypassMergeThreshold"
_DEFAULTS: Mapping[str, str] = {VALIDATION: "true", BYPASS: "200"}
"""Of Spark, for what the plugin suggests."""

EXECUTORS = 2
"""Of a system that has several."""


class System(Enum):
    """The value is how tables and files call it."""

    STOCK_LOCAL = "stock, local disk"
    SAME_LOCAL = "stock, local disk, same settings"
    STOCK_S3A = "stock, S3A as it comes"
    STOCK_TUNED = "stock, S3A tuned"
    SAME_TUNED = "stock, S3A tuned, same settings"
    FLOOR = "floor"
    FILE = "spark-ckpt, file://"
    S3 = "spark-ckpt, s3://"
    S3_INTERVAL = "spark-ckpt, s3://, every 10 s"
    S3_CLUSTER = "spark-ckpt, s3://, two executors"
    LOCAL_VALIDATES = "stock, local disk, same settings but commitValidation"
    LOCAL_BYPASSES = "stock, local disk, same settings but bypassMergeThreshold"
    S3_VALIDATES = "spark-ckpt, s3://, commitValidation as it comes"
    S3_BYPASSES = "spark-ckpt, s3://, bypassMergeThreshold as it comes"

    @property
    def stock(self) -> bool:
        return self in (System.STOCK_LOCAL, System.SAME_LOCAL, System.LOCAL_VALIDATES, System.LOCAL_BYPASSES) or self.on_s3a

    @property
    def on_s3a(self) -> bool:
        return self in (System.STOCK_S3A, System.STOCK_TUNED, System.SAME_TUNED)

    @property
    def on_s3(self) -> bool:
        return self in (System.S3, System.S3_INTERVAL, System.S3_CLUSTER, System.S3_VALIDATES, System.S3_BYPASSES) or self.on_s3a

    @property
    def unsuggested(self) -> str:
        """The setting that is as Spark has it, of those that the plugin makes where a user has none; empty: all of them are made."""
        if self in (System.LOCAL_VALIDATES, System.S3_VALIDATES):
            return VALIDATION
        return BYPASS if self in (System.LOCAL_BYPASSES, System.S3_BYPASSES) else ""


@dataclass(frozen=True)
class Setup:
    """A system made ready: configuration for a session, and the URL below which its queries have their checkpointLocation.

    `bucket` is where its state ends up; empty: not in S3.
    """

    system: System
    conf: Mapping[str, str]
    locations: str
    bucket: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    def lose_disk(self) -> None:
        """What a new machine does not have goes. A state that lies on the disk alone stays."""
        shutil.rmtree(self.conf["spark.local.dir"], ignore_errors=True)
        if self.bucket and self.locations.startswith("file:"):
            shutil.rmtree(self.locations.removeprefix("file://"), ignore_errors=True)

    def on_new_machine(self, folder: Path, more: Mapping[str, str] | None = None) -> Setup:
        """The same with an empty disk, in `folder`, and what was on the old one lost; `more` settings win."""
        self.lose_disk()
        folder.mkdir(parents=True)
        return replace(self, conf={**self.conf, "spark.local.dir": str(folder / "local"), **(more or {})})


def common(folder: Path) -> dict[str, str]:
    """What all systems have in common. The UI is on, as Spark comes; a fixed heap, so that no system pays for its growth."""
    return {
        "spark.master": "local[2]",
        "spark.app.name": "benchmark",
        "spark.driver.memory": "2g",
        "spark.ui.port": "0",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.network.timeout": "24h",  # an application that waits for its turn is stopped, and sends itself no heartbeats
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC -Xms2g",
    }


def set_up(system: System, s3: FarS3, folder: Path, more: Mapping[str, str] | None = None, jars: Sequence[Path] = ()) -> Setup:
    """`more` settings win; `jars` are the job's own. Raises BenchmarkError (no jars), ConfigError (this version has no such option)."""
    folder.mkdir(parents=True, exist_ok=True)
    bucket = s3.bucket() if system.on_s3 else ""
    conf, locations = _stock(system, s3, folder, bucket) if system.stock else _ours(system, s3, folder, bucket)
    if jars:
        own = [conf["spark.jars"]] if "spark.jars" in conf else []
        conf["spark.jars"] = ",".join([*own, *map(str, jars)])
    if system.unsuggested:
        conf[system.unsuggested] = _DEFAULTS[system.unsuggested]
    environment = {"SPARK_HOME": str(linked_home(folder / "home"))} if system is System.S3_CLUSTER else {}
    return Setup(system, {**common(folder), **conf, **(more or {})}, locations, bucket, environment)


def check_settings(setup: Setup, effective: Mapping[str, str]) -> None:
    """`effective`: what the application runs with. Raises BenchmarkError where the plugin makes a setting that stock is not given."""
    if setup.system.stock:
        return
    made = {key: value for key, value in effective.items() if key.startswith(_LOOKED_AT) and setup.conf.get(key) != value}
    unknown = {key: value for key, value in made.items() if SAME_SETTINGS.get(key) != value and key not in HOOKS | _SPARKS_OWN}
    if unknown:
        told = ", ".join(f"{key}={value}" for key, value in sorted(unknown.items()))
        raise BenchmarkError(
            f"{setup.system.value} runs with {told}, which stock is not given: it belongs into spark_ckpt/conf/spark_settings.py"
        )


def _stock(system: System, s3: FarS3, folder: Path, bucket: str) -> tuple[dict[str, str], str]:
    conf = {
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    if system in (System.SAME_LOCAL, System.SAME_TUNED) or system.unsuggested:
        conf |= SAME_SETTINGS
    if not system.on_s3a:
        return conf, (folder / "ckpt").as_uri()
    conf |= {
        "spark.driver.extraClassPath": f"{s3a_jars()}/*",
        "spark.hadoop.fs.s3a.endpoint": s3.endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": REGION,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    }
    if system in (System.STOCK_TUNED, System.SAME_TUNED):
        conf["spark.sql.streaming.checkpointFileManagerClass"] = _ABORTABLE
    return conf, f"s3a://{bucket}/ckpt"


def _ours(system: System, s3: FarS3, folder: Path, bucket: str) -> tuple[dict[str, str], str]:
    conf = {"spark.jars": str(jar_path()), "spark.plugins": PLUGIN_CLASS}
    if system is System.FLOOR:
        conf |= {"spark.ckpt.storage": FLOOR_URL, "spark.ckpt.python": str(write_interpreter(folder / "python"))}
    elif system is System.FILE:
        conf["spark.ckpt.storage"] = (folder / "storage").as_uri()
    else:
        conf |= {
            "spark.ckpt.storage": f"s3://{bucket}/ckpt",
            "spark.ckpt.s3.endpoint": s3.endpoint,
            "spark.ckpt.s3.region": REGION,
            "spark.ckpt.s3.pathStyle": "true",
        }
        if system is System.S3_INTERVAL:
            conf["spark.ckpt.interval"] = "10s"
        elif system is System.S3_CLUSTER:
            conf["spark.master"] = f"local-cluster[{EXECUTORS},1,1024]"
    parse_options(conf)
    return conf, (folder / "ckpt").as_uri()


def lacks(system: System) -> str:
    """Why this version of the package cannot run it; empty if it can."""
    if system is System.S3_INTERVAL:
        try:
            parse_options({"spark.ckpt.interval": "10s"})
        except ConfigError as e:
            return str(e)
    return ""
