"""Flink's checkpoint mechanism for Spark Structured Streaming. Cheap to import: Spark, pyarrow and boto3 are loaded when needed."""

from __future__ import annotations

__version__ = "0.1.0"
