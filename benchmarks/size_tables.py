"""Tables of what is large."""

from __future__ import annotations

from benchmarks import large_state
from benchmarks.cells import Table, spreads
from benchmarks.figures import Figures


def large_state_table(figures: Figures) -> Table:
    times = (("early_epoch_ms", 1, 0), ("late_epoch_ms", 1, 0))
    asked = (("requests", 1, 1), ("put_bytes", 1e-6, 1), ("unknown_objects", 1, 2), ("again_bytes", 1e-6, 1))
    memory = [(f"{when}_{name}_memory_bytes", 1e-6, 0) for name in ("agent", "coordinator", "JVM") for when in ("early", "late", "most")]
    disk = (("late_disk_bytes", 1e-9, 1), ("most_disk_bytes", 1e-9, 1))
    rows = [
        (case.system, f"{case.partitions}", f"{case.size:,}", *spreads(figures, case, *times, *asked, *memory, *disk))
        for case in figures.cases(large_state.EXPERIMENT)
    ]
    about = (
        f"Each key has 1 KiB. When all were made, {large_state.ROWS:,} rows an epoch update keys at random, as fast as they come. An epoch "
        f"is from the end of one to the end of the next; early and late are the first and last of {large_state.PARTS} parts of all. MB put "
        "are of an epoch, full snapshots among them. Stored again: SST files that an earlier checkpoint had in another object. Memory: "
        "resident, early and late, and at most since the application began. Disk: all that it has there, stock's checkpoints among it. "
        "Stock keeps ten versions of the state, where Spark's default is a hundred."
    )
    columns = ("system", "partitions", "MB of state", "epoch early ms", "late ms", "requests", "MB put", "objects of unknown size")
    resident = [f"{name}{when}" for name in ("agent", "coordinator", "JVM") for when in (" early MB", " late", " most")]
    return Table("An hour of large state", about, (*columns, "MB stored again", *resident, "disk late GB", "disk most"), rows)
