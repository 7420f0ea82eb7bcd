"""Delta and Iceberg, in the versions that there are for each line of Spark."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jvm_shim.sparks import installed_spark
from testbed.maven import Artifact, fetched

_DELTA_SPARK, _DELTA, _CATALOG = "io.delta:delta-spark", "io.delta:delta-", "io.unitycatalog:unitycatalog-"
_ICEBERG = "org.apache.iceberg:iceberg-spark-runtime"
_OF_LINE: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "delta": {
        "4.0": (f"{_DELTA_SPARK}_2.13:4.0.1", f"{_DELTA}storage:4.0.1"),
        "4.1": (f"{_DELTA_SPARK}_4.1_2.13:4.1.0", f"{_DELTA}storage:4.1.0", f"{_CATALOG}client:0.4.0"),
        "4.2": (
            f"{_DELTA_SPARK}_4.2_2.13:4.4.0",
            *(f"{_DELTA}{part}:4.4.0" for part in ("storage", "kernel-api", "kernel-defaults", "kernel-unitycatalog")),
            *(f"{_CATALOG}{part}:0.6.0" for part in ("client", "hadoop")),
        ),
    },
    "iceberg": {"4.0": (f"{_ICEBERG}-4.0_2.13:1.11.0",), "4.1": (f"{_ICEBERG}-4.1_2.13:1.12.0",)},
}
"""Names in Maven Central; whatever else they need Spark has itself."""
NAMES = tuple(_OF_LINE)


@dataclass(frozen=True)
class TableFormat:
    """`jars`: for spark-submit. `folder`: of the one table."""

    name: str
    jars: tuple[Path, ...]
    folder: Path

    @property
    def conf(self) -> dict[str, str]:
        if self.name == "delta":
            catalog = {"spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog"}
            # Of the table's own log, which has a few lines: fifty tasks for each epoch otherwise.
            few = {"spark.databricks.delta.snapshotPartitions": "2"}
            return {"spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension", **catalog, **few}
        return {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": str(self.folder.parent.parent),
        }

    @property
    def table(self) -> str:
        """For the job."""
        return str(self.folder) if self.name == "delta" else f"lake.{self.folder.parent.name}.{self.folder.name}"

    def epochs(self) -> int:
        """How many epochs the table has taken."""
        if self.name == "delta":
            logs = sorted(self.folder.glob("_delta_log/*.json"))
            return sum("txn" in json.loads(line) for log in logs for line in log.read_text().splitlines())
        newest = max(self.folder.glob("metadata/v*.metadata.json"), key=lambda path: int(path.name[1:].split(".")[0]), default=None)
        snapshots = [] if newest is None else json.loads(newest.read_text()).get("snapshots", [])
        return sum("spark.sql.streaming.epochId" in snapshot["summary"] for snapshot in snapshots)


def table_format(name: str, folder: Path) -> TableFormat | None:
    """For the Spark of this interpreter; None if there is none. Raises UnavailableError."""
    wanted = _OF_LINE[name].get(installed_spark().line)
    if wanted is None:
        return None
    kept = Path(sys.prefix) / "table-formats" / wanted[0].replace(":", "-")
    return TableFormat(name, tuple(sorted(fetched(kept, [Artifact(jar, ("*:*",)) for jar in wanted]).iterdir())), folder)
