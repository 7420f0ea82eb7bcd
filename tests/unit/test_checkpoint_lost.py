"""`verify` tells of a checkpoint that is lost, and of nothing that was never made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from spark_ckpt.model import CheckpointId
from spark_ckpt.paths import metadata_key
from spark_ckpt.storage import open_storage
from spark_ckpt.stored.log_check import checkpoint_lost
from spark_ckpt.stored.reading import StreamReader
from tests.drivers.stored_stream import begun


def test_a_copy_that_a_start_was_about_to_make_is_not_lost(tmp_path: Path) -> None:
    """The query's operators have changed, so it goes on from a copy, which comes after the claim."""
    with open_storage(f"file://{tmp_path}/stream") as storage:
        writer = begun(storage, tmp_path, 2)
        older, newest = (checkpoint.id for checkpoint in writer.checkpoints)
        copy = replace(newest, run=2)
        writer.begin(2, copy, inherits=(older, newest, copy))
        reader = StreamReader(storage)
        assert checkpoint_lost(reader, reader.overview()) is None
        storage.delete([metadata_key(CheckpointId(1, 0))])
        assert "run-1/chk-0" in (checkpoint_lost(reader, reader.overview()) or "")
