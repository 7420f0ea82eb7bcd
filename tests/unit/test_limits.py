"""What is written can be read: `encode` and `decode` refuse the same sizes, whichever way these are met. The limits are made small."""

from __future__ import annotations

import io
import json
from bisect import bisect_left
from contextlib import suppress
from dataclasses import fields, replace
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_ckpt.bounded_json import check_values
from spark_ckpt.errors import DamagedError, FormatError
from spark_ckpt.model import Checkpoint, CheckpointId, FileHandle, Job
from spark_ckpt.paths import driver_file_key
from spark_ckpt.process.pipe import Pipe
from spark_ckpt.protocol.entries import MAX_NUMBER, Adopted, Claim, Damage, End, Entry, EntryLimits, Plan, Request, decode, encode
from spark_ckpt.stored.metadata.codec import DOCUMENT_KEY, decode_metadata, encode_metadata
from spark_ckpt.stored.metadata.limits import MetadataLimits
from tests.drivers.checkpoints import sample

MANY = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
SMALL = MetadataLimits(file=9000, document=4000, files=3000, rows=12)
SMALL_ENTRIES = EntryLimits(bytes=400, items=4, values=60)
NONE = MetadataLimits(1 << 28, 1 << 28, 1 << 28, 1 << 28)
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
NUMBERS = st.integers(-2, 3) | st.integers(MAX_NUMBER - 2, MAX_NUMBER + 1) | st.integers(0, 10**6)
CHECKPOINTS = st.lists(st.builds(CheckpointId, NUMBERS, NUMBERS), max_size=6).map(tuple)
JOBS = st.builds(Job, st.lists(TEXT, max_size=2).map(tuple), st.lists(TEXT, max_size=2).map(tuple), TEXT)
FILES = st.dictionaries(PATHS, st.binary(max_size=60) | HANDLES | st.none(), max_size=6)
VERSIONS = st.dictionaries(TEXT, TEXT, max_size=2)
ADOPTED = st.none() | st.lists(st.builds(Adopted, NUMBERS, NUMBERS, NUMBERS), max_size=3).map(tuple)
ENTRIES = st.one_of(
    st.builds(Plan, NUMBERS, NUMBERS, NUMBERS, st.binary(max_size=60), FILES, floor=NUMBERS),
    st.builds(
        Claim,
        NUMBERS,
        NUMBERS,
        TEXT,
        JOBS,
        st.none(),
        CHECKPOINTS,
        CHECKPOINTS,
        TEXT,
        VERSIONS,
        NUMBERS,
        TEXT,
        adopts=ADOPTED,
        used=st.none() | NUMBERS,
        floor=NUMBERS,
        stream=TEXT,
    ),
    st.builds(Damage, NUMBERS, NUMBERS, CHECKPOINTS, TEXT, NUMBERS),
    st.builds(Request, NUMBERS, TEXT, TEXT, TEXT, floor=NUMBERS),
    st.builds(End, NUMBERS, NUMBERS, NUMBERS, NUMBERS),
)


def number_of(entry: Entry) -> int:
    """A number that the entry can have."""
    return entry.claim if isinstance(entry, Claim) else max(entry.claim, entry.floor)


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
def test_a_metadata_that_is_written_is_read(checkpoint: Checkpoint) -> None:
    try:
        data = encode_metadata(checkpoint, SMALL)
    except FormatError:
        return
    assert decode_metadata(data, limits=SMALL) == checkpoint


@MANY
@given(checkpoint=checkpoints(), limit=st.sampled_from([field.name for field in fields(MetadataLimits)]), at=st.integers(-3, 3))
def test_each_limit_of_a_metadata_is_the_same_in_both_directions(checkpoint: Checkpoint, limit: str, at: int) -> None:
    """Whatever is stored, and wherever the limit is: who reads it refuses it exactly if who writes it does."""
    stored = encode_metadata(checkpoint, NONE)
    size = {
        "document": len(_document(stored)),
        "values": _values(_document(stored)),
        "files": sum(len(c) for c in checkpoint.files.values() if isinstance(c, bytes)),
        "rows": sum(len(s.handles) for s in checkpoint.snapshots),
        "file": len(stored),
    }[limit]
    limits = replace(NONE, **{limit: max(0, size + at)})
    assert _writes(checkpoint, limits) == _reads(stored, limits) == (max(0, size + at) >= size)


def _document(stored: bytes) -> bytes:
    found: bytes = pq.read_metadata(pa.BufferReader(stored)).metadata[DOCUMENT_KEY]
    return found


def _values(document: bytes) -> int:
    """The fewest that it passes for."""

    def passes(values: int) -> bool:
        with suppress(ValueError):
            check_values(document, values)
            return True
        return False

    return bisect_left(range(1 << 20), True, key=passes)


def _writes(checkpoint: Checkpoint, limits: MetadataLimits) -> bool:
    try:
        encode_metadata(checkpoint, limits)
    except FormatError:
        return False
    return True


def _reads(stored: bytes, limits: MetadataLimits) -> bool:
    try:
        decode_metadata(stored, limits=limits)
    except DamagedError:
        return False
    return True


@MANY
@given(entry=ENTRIES)
def test_an_entry_that_is_written_is_read(entry: Entry) -> None:
    try:
        data = encode(entry, SMALL_ENTRIES)
    except FormatError:
        return
    assert decode(number_of(entry), data, SMALL_ENTRIES) == entry


@MANY
@given(entry=ENTRIES, at=st.integers(-3, 3))
def test_the_limit_of_an_entry_is_the_same_in_both_directions(entry: Entry, at: int) -> None:
    try:
        data = encode(entry)
    except FormatError:
        return
    limits = EntryLimits(bytes=len(data) + at)
    for how in (lambda: encode(entry, limits), lambda: decode(number_of(entry), data, limits)):
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
