"""Flink as its users would set it up, beside Spark on the same machine and the same S3."""
