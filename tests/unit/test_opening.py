"""What a URL names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_ckpt.errors import StorageSetupError
from spark_ckpt.storage import S3Options, open_storage
from spark_ckpt.storage.base import Stored
from spark_ckpt.storage.file import FileStorage
from spark_ckpt.stored.copies import store_savepoint
from spark_ckpt.stored.opening import opened_stream
from tests.drivers.stored_stream import begun


def test_who_may_read_a_savepoint_need_not_be_allowed_to_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_storage(f"file://{tmp_path}/stream") as stream, open_storage(f"file://{tmp_path}/kept") as target:
        made = store_savepoint(stream, begun(stream, tmp_path, 1).checkpoints[0], target)

    def refused(self: FileStorage, prefix: str, start_after: str = "") -> Iterator[Stored]:
        raise StorageSetupError(f"{self.url} may not be listed: {prefix}{start_after}")

    monkeypatch.setattr(FileStorage, "list", refused)
    with opened_stream(f"file://{tmp_path}/kept", S3Options()) as (_, reader):
        assert reader.read(made.id) == made
