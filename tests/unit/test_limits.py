"""What is written can be read: `encode` and `decode` refuse the same sizes, whichever way these are met. The limits are made small."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_ckpt import metadata, metadata_rows
from spark_ckpt.errors import DamagedError, FormatError
from spark_ckpt.model import Checkpoint, CheckpointId, FileHandle, Job
from spark_ckpt.paths import driver_file_key
from spark_ckpt.pipe import Pipe
from spark_ckpt.protocol import entries
from spark_ckpt.protocol.entries import Claim, Damage, End, Entry, Plan, Request
from tests.unit.test_metadata import sample

MANY = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
LIMITS = {"MAX_DOCUMENT": metadata, "MAX_FILES": metadata, "MAX_ROWS": metadata_rows, "MAX_FILE": metadata}
"""Name -> the module that has it."""
MAX_LINE = 300
"""Bytes, of the pipes here."""
TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
HANDLES = st.builds(
    FileHandle,
    st.builds(driver_file_key, st.integers(0, 10**8 - 1), st.integers(0, 10**6), st.text("0123456789abcdef", min_size=32, max_size=32)),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**32 - 1),
)
PATHS = st.integers(0, 99).map(lambda n: f"sources/0/{n}")
NUMBERS = st.integers(-2, 3) | st.integers(entries.MAX_NUMBER - 2, entries.MAX_NUMBER + 1) | st.integers(0, 10**6)
CHECKPOINTS = st.lists(st.builds(CheckpointId, NUMBERS, NUMBERS), max_size=6).map(tuple)
JOBS = st.builds(Job, st.lists(TEXT, max_size=2).map(tuple), st.lists(TEXT, max_size=2).map(tuple), TEXT)
FILES = st.dictionaries(PATHS, st.binary(max_size=60) | HANDLES | st.none(), max_size=6)
VERSIONS = st.dictionaries(TEXT, TEXT, max_size=2)
ENTRIES = st.one_of(
    st.builds(Plan, NUMBERS, NUMBERS, NUMBERS, st.binary(max_size=60), FILES),
    st.builds(Claim, NUMBERS, NUMBERS, TEXT, JOBS, st.none(), CHECKPOINTS, CHECKPOINTS, TEXT, VERSIONS, NUMBERS, TEXT),
    st.builds(Damage, NUMBERS, NUMBERS, CHECKPOINTS, TEXT),
    st.builds(Request, NUMBERS, TEXT, TEXT, TEXT),
    st.builds(End, NUMBERS, NUMBERS),
)


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "MAX_DOCUMENT", 4000)
    monkeypatch.setattr(metadata, "MAX_FILES", 3000)
    monkeypatch.setattr(metadata_rows, "MAX_ROWS", 12)
    monkeypatch.setattr(metadata, "MAX_FILE", 9000)
    monkeypatch.setattr(entries, "MAX_ENTRY_BYTES", 400)
    monkeypatch.setattr(entries, "MAX_ITEMS", 4)


def of_size(draw: st.DrawFn, limit: int) -> bytes:
    """Near a limit, far from it; that compresses well, and not at all; with ids that rows hold, with NULs."""
    size = draw(st.integers(limit - 5, limit + 5) | st.integers(0, limit + limit // 2))
    kind = draw(st.sampled_from(["same", "random", "ids", "short ids", "nul"]))
    if kind == "same":
        return b"x" * size
    if kind == "random":
        return Random(draw(st.integers(0, 9))).randbytes(size)
    if kind == "nul":
        return b"\0" * size
    return (b'"v1"' if kind == "ids" else b'"",') * (size // 4) + b"-" * (size % 4)


@st.composite
def checkpoints(draw: st.DrawFn) -> Checkpoint:
    files: dict[str, bytes | FileHandle] = {}
    for n in range(draw(st.integers(0, 3))):
        files[f"sources/0/{n}"] = draw(HANDLES) if draw(st.booleans()) else of_size(draw, draw(st.sampled_from([1024, 1500, 3000])))
    counters = {"said": "y" * draw(st.integers(0, 10) | st.integers(2500, 4500))} if draw(st.booleans()) else {}
    return replace(sample(draw(st.integers(0, 5))), files=files, counters=counters)


@MANY
@given(checkpoint=checkpoints())
@pytest.mark.usefixtures("_small")
def test_a_metadata_that_is_written_is_read(checkpoint: Checkpoint) -> None:
    try:
        data = metadata.encode(checkpoint)
    except FormatError:
        return
    assert metadata.decode(data) == checkpoint


def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in LIMITS.items():
        monkeypatch.setattr(module, name, 1 << 28)


@MANY
@given(checkpoint=checkpoints(), limit=st.sampled_from(sorted(LIMITS)), at=st.integers(-3, 3))
def test_each_limit_of_a_metadata_is_the_same_in_both_directions(checkpoint: Checkpoint, limit: str, at: int) -> None:
    """Whatever is stored, and wherever the limit is: who reads it refuses it exactly if who writes it does."""
    with pytest.MonkeyPatch.context() as patch:
        unlimited(patch)
        stored = metadata.encode(checkpoint)
        size = {
            "MAX_DOCUMENT": _document_size(stored),
            "MAX_FILES": sum(len(c) for c in checkpoint.files.values() if isinstance(c, bytes)),
            "MAX_ROWS": sum(len(s.handles) for s in checkpoint.snapshots),
            "MAX_FILE": len(stored),
        }[limit]
        patch.setattr(LIMITS[limit], limit, max(0, size + at))
        assert _writes(checkpoint) == _reads(stored) == (max(0, size + at) >= size)


def _document_size(stored: bytes) -> int:
    return len(pq.read_metadata(pa.BufferReader(stored)).metadata[metadata.DOCUMENT_KEY])


def _writes(checkpoint: Checkpoint) -> bool:
    try:
        metadata.encode(checkpoint)
    except FormatError:
        return False
    return True


def _reads(stored: bytes) -> bool:
    try:
        metadata.decode(stored)
    except DamagedError:
        return False
    return True


@MANY
@given(entry=ENTRIES)
@pytest.mark.usefixtures("_small")
def test_an_entry_that_is_written_is_read(entry: Entry) -> None:
    try:
        data = entries.encode(entry)
    except FormatError:
        return
    assert entries.decode(entry.claim, data) == entry


@MANY
@given(entry=ENTRIES, at=st.integers(-3, 3))
def test_the_limit_of_an_entry_is_the_same_in_both_directions(entry: Entry, at: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        try:
            data = entries.encode(entry)
        except FormatError:
            return
        patch.setattr(entries, "MAX_ENTRY_BYTES", len(data) + at)
        for how in (lambda: entries.encode(entry), lambda: entries.decode(entry.claim, data)):
            if at < 0:
                with pytest.raises(FormatError, match=f"{len(data)} bytes"):
                    how()
            else:
                how()


@MANY
@given(sizes=st.lists(st.integers(0, 40) | st.integers(230, 420), max_size=6), one_way=st.booleans())
def test_a_line_that_is_written_is_read_and_one_that_is_too_long_is_an_error_of_its_request(sizes: list[int], one_way: bool) -> None:
    out = io.BytesIO()
    writer = Pipe(io.BytesIO(), out, MAX_LINE)
    for number, size in enumerate(sizes):
        said = {"text": "z" * size}
        writer.send({"type": "x", **said} if one_way else {"re": number, "ok": True, **said})
    lines = out.getvalue().splitlines(keepends=True)
    assert len(lines) == len(sizes), "each request is answered, one way or the other"
    assert all(len(line) - 1 <= MAX_LINE for line in lines)
    told = io.BytesIO()
    heard = list(Pipe(io.BytesIO(out.getvalue()), told, MAX_LINE).read())
    assert told.getvalue() == b""
    for size, message in zip(sizes, heard, strict=True):
        if message.get("text") is None:
            error = message["message"] if one_way else message["error"]["message"]
            assert "does not fit the pipe" in error
            assert size > 200
        else:
            assert len(message["text"]) == size


@MANY
@given(sizes=st.lists(st.integers(0, 40) | st.integers(230, 400_000), max_size=5))
def test_a_line_that_is_too_long_is_skipped_and_the_next_is_read(sizes: list[int]) -> None:
    lines = [json.dumps({"n": n, "text": "z" * size}).encode() + b"\n" for n, size in enumerate(sizes)]
    told = io.BytesIO()
    heard = [m["n"] for m in Pipe(io.BytesIO(b"".join(lines)), told, MAX_LINE).read()]
    assert heard == [n for n, line in enumerate(lines) if len(line) - 1 <= MAX_LINE]
    assert len(told.getvalue().splitlines()) == len(lines) - len(heard)
