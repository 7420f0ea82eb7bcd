"""A checkpoint placed as stock Spark has it in a `checkpointLocation`, for Spark's own readers."""

from __future__ import annotations

from pathlib import Path

from spark_ckpt.model import Checkpoint, FileHandle
from spark_ckpt.storage import Storage
from spark_ckpt.stored.ranges import read_to_file

OURS = b"org.apache.spark.sql.execution.streaming.state.ckpt.BarrierStateStoreProvider"
STOCK = b"org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def place(storage: Storage, checkpoint: Checkpoint, location: Path) -> None:
    """Into a new folder `location`, which must be where the query had its `checkpointLocation`: Spark notes whole paths of schemas."""
    (location / "metadata").parent.mkdir(parents=True)
    (location / "metadata").write_text(f'{{"id":"{checkpoint.query_id}"}}')
    for name, content in checkpoint.files.items():
        path = location / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, FileHandle):
            read_to_file(storage, content.whole(name), path)
        else:
            path.write_bytes(content.replace(OURS, STOCK) if name.startswith("offsets/") else content)
    for snapshot in checkpoint.snapshots:
        store = snapshot.store
        folder = location / "state" / str(store.operator) / str(store.partition) / ("" if store.store == "default" else store.store)
        for handle in snapshot.handles:
            (folder / handle.name).parent.mkdir(parents=True, exist_ok=True)
            read_to_file(storage, handle, folder / handle.name)
