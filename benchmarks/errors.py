from __future__ import annotations

from spark_ckpt.errors import CheckpointError


class BenchmarkError(CheckpointError):
    """The benchmark cannot go on; one sentence says why and what to do."""
