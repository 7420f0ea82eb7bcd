"""A stream that has garbage, and what `spark-ckpt gc` says of it."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt import paths
from spark_ckpt.cli.main import run
from spark_ckpt.model import CheckpointId
from spark_ckpt.storage import Storage
from tests.drivers.stored_stream import StreamWriter, make_store

HOUR = 3_600_000


def refuse(monkeypatch: pytest.MonkeyPatch, call: str, name: str | None = None) -> None:
    """The system's answer where a person has protected a file, or all: tests run as root, whom no permissions hold up."""
    real = getattr(os, call)

    def refused(path: str, *others: object, **more: object) -> None:
        if name is not None and path != name:
            real(path, *others, **more)
            return
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, call, refused)


def crashed_once(storage: Storage, tmp_path: Path) -> StreamWriter:
    """Run 1 completed 0 and 1 and crashed in 2; run 2 goes on from 1, owns nothing else of run 1, and completed 2."""
    writer = StreamWriter(storage)
    writer.begin(1)
    writer.complete(1, 0, [make_store(tmp_path, 5, "a")])
    writer.complete(1, 1, [make_store(tmp_path, 5, "b")])
    storage.put(paths.segment_key(1, 2, "crashed"), b"x" * 100)
    storage.put(paths.left_acks_key(1, 2, "left"), b"{}")
    writer.begin(2, origin=CheckpointId(1, 1), inherits=(CheckpointId(1, 1),))
    writer.complete(2, 2, [], changelogs_only=1)
    storage.put(paths.segment_key(2, 3, "running"), b"y")
    storage.put("savepoints/mine/_metadata", b"mine")
    return writer


def gc(capsys: pytest.CaptureFixture[str], url: str, *arguments: str) -> tuple[int, Any]:
    status = run(["gc", url, "--json", *arguments])
    return status, json.loads(capsys.readouterr().out)


def keys(storage: Storage) -> set[str]:
    return {stored.key for stored in storage.list("")}


def expected_garbage(writer: StreamWriter) -> set[str]:
    first = writer.checkpoints[0]
    return {paths.metadata_key(first.id), *first.objects, paths.segment_key(1, 2, "crashed"), paths.left_acks_key(1, 2, "left")}


def now(storage: Storage) -> int:
    return max(s.modified_ms for s in storage.list("")) + HOUR
