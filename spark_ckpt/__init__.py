"""Flink's checkpoint mechanism for Spark Structured Streaming. Cheap to import: Spark, pyarrow and boto3 are loaded when needed."""

from __future__ import annotations

from spark_ckpt.errors import CheckpointError, ConfigError
from spark_ckpt.jar import jar_path
from spark_ckpt.session import configure

__version__ = "0.1.0"

__all__ = ["CheckpointError", "ConfigError", "__version__", "configure", "jar_path"]
