"""What the memory of an agent is bounded by, in bytes, and whether that held under load.

The bound is the sum of what `docs/operations.md` lists: an idle agent, the blocks of all its threads, a line of the pipe; of each stream
the blocks of what is stored at once; and names of files.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.figures import Case, Estimate, Figures
from benchmarks.judging import MB, Measure, megabytes
from spark_ckpt.agent.agent import FETCHES_AT_ONCE, READS_AT_ONCE
from spark_ckpt.process.pipe import MAX_LINE
from spark_ckpt.storage.checksums import CHUNK

IDLE = 120 * MB
OBJECTS_AT_ONCE, PARTS_AT_ONCE = 4, 4
"""Of each stream, and of an object that is stored on S3 or in a file system."""
OF_A_FILE = 3_000
"""Less than 1 KB for each name: in the commits that are remembered, and in `_metadata` of the two newest checkpoints that were read. Here
each commit is stored soon; while none can be, files that are not stored yet are more than the newest checkpoint has."""
FILES = "files"
"""The metric: how many files the newest checkpoints of all streams of an agent have."""


def bound(streams: int, files: float) -> float:
    blocks = (FETCHES_AT_ONCE + READS_AT_ONCE + streams * OBJECTS_AT_ONCE * PARTS_AT_ONCE) * CHUNK
    return IDLE + MAX_LINE + blocks + OF_A_FILE * files


def over_bound(metric: str, case: Case, streams: int = 1) -> Measure:
    """The most that an agent had, over its bound."""

    def measure(figures: Figures) -> Estimate | str:
        had, files = figures.values(case, metric), figures.median(case, FILES)
        if not had or files is None:
            return ""
        most, limit = max(had), bound(streams, files)
        return replace(Estimate.exact(most / limit), note=f"{megabytes(most)} of {megabytes(limit)}")

    return measure
