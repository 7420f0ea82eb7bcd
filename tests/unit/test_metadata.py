"""`_metadata`: what goes in comes out, and nothing else does."""

from __future__ import annotations

import base64
import json
import random
import subprocess
import sys
import tracemalloc
import uuid
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_ckpt.errors import CheckpointError, DamagedError, FormatError
from spark_ckpt.model import Checkpoint, CheckpointId, Handle, HandleKind, Imported, Job, Snapshot, StoreId, key_count
from spark_ckpt.stored.metadata.codec import CRC_KEY, DOCUMENT_KEY, decode_metadata, encode_metadata
from spark_ckpt.stored.metadata.columns import COLUMNS, STRINGS
from spark_ckpt.stored.metadata.files import LONG, files_from_json
from spark_ckpt.stored.metadata.limits import LIMITS
from spark_ckpt.stored.metadata.rows import MAX_STRING, MAX_STRINGS
from tests.drivers.checkpoints import sample

NAMES = st.text("abcXYZ019._-", min_size=1, max_size=12).filter(lambda n: n not in (".", ".."))
NUMBERS = st.integers(0, 2**63 - 1)


@st.composite
def handles(draw: st.DrawFn) -> Handle:
    kind = draw(st.sampled_from([k for k in HandleKind if k.is_state]))
    folder = draw(st.sampled_from(["seg", "sst", "drv"]))
    run = draw(st.integers(0, 99_999_999))
    key = f"run-{run:08d}/{folder}/{draw(NAMES)}"
    name = ("SSTs/" if kind is HandleKind.SST else "") + draw(NAMES)
    return Handle(kind, name, key, draw(NUMBERS), draw(NUMBERS), draw(st.integers(0, 2**32 - 1)))


STORES = st.builds(StoreId, st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1), st.text(st.characters(codec="utf-8"), max_size=8))
TEXT = st.text(st.characters(codec="utf-8"), max_size=10)


@st.composite
def snapshots(draw: st.DrawFn, store: StoreId) -> Snapshot:
    keys = draw(st.none() | NUMBERS)
    return Snapshot(store, draw(NUMBERS), draw(TEXT), tuple(draw(st.lists(handles(), min_size=1, max_size=4))), keys)


@st.composite
def checkpoints(draw: st.DrawFn) -> Checkpoint:
    stores = draw(st.lists(STORES, max_size=5, unique=True))
    return Checkpoint(
        id=CheckpointId(draw(NUMBERS), draw(NUMBERS)),
        log=draw(NUMBERS),
        claim=draw(NUMBERS),
        query_id=draw(TEXT),
        time_ms=draw(NUMBERS),
        job=Job(tuple(draw(st.lists(TEXT, max_size=3))), tuple(draw(st.lists(TEXT, max_size=3))), draw(TEXT)),
        files=draw(st.dictionaries(NAMES.map(lambda n: f"offsets/{n}"), st.binary(max_size=20), max_size=4)),
        snapshots=tuple(draw(snapshots(store)) for store in stores),
        counters=draw(st.dictionaries(TEXT, st.integers() | st.floats(allow_nan=False) | TEXT | st.none(), max_size=4)),
        unfinished=tuple(draw(st.lists(NUMBERS, max_size=3))),
        given_up=tuple(draw(st.lists(NUMBERS, max_size=3))),
        hooks=draw(st.dictionaries(TEXT, st.binary(max_size=20), max_size=2)),
        imported=draw(st.none() | st.builds(Imported, TEXT, st.none() | st.binary(max_size=20))),
    )


def repacked(data: bytes, document: Any = None, **columns: Any) -> bytes:
    """The same file as a forger would write it: changed, with checksums that match."""
    table = pq.read_table(pa.BufferReader(data))
    doc = pq.read_metadata(pa.BufferReader(data)).metadata[DOCUMENT_KEY]
    if document is not None:
        doc = json.dumps({**json.loads(doc), **document}).encode()
    for name, values in columns.items():
        table = table.set_column(COLUMNS.index(name), name, pa.array(values))
    crc = 0
    for name in COLUMNS:
        column = table.column(name).to_pylist()
        if pa.types.is_string(table.column(name).type):
            crc = zlib.crc32("\n".join(column).encode(), crc)
        else:
            crc = zlib.crc32(b"".join((-1 if v is None else v).to_bytes(8, "little", signed=True) for v in column), crc)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({DOCUMENT_KEY: doc, CRC_KEY: f"{zlib.crc32(doc):08x}-{crc:08x}"})
    out: bytes = sink.getvalue().to_pybytes()
    return out


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
@given(checkpoints())
def test_decode_of_encode_is_the_same(checkpoint: Checkpoint) -> None:
    assert decode_metadata(encode_metadata(checkpoint)) == checkpoint


def test_a_newline_beside_a_letter_of_two_bytes() -> None:
    checkpoint = sample(stores=1)
    (snapshot,) = checkpoint.snapshots
    changed = replace(checkpoint, snapshots=(replace(snapshot, uid="\n\u00fc", handles=snapshot.handles[:1]),))
    assert decode_metadata(encode_metadata(changed)) == changed


def test_a_stateless_query_has_no_rows() -> None:
    checkpoint = sample(stores=0)
    assert decode_metadata(encode_metadata(checkpoint)) == checkpoint


@pytest.mark.parametrize("stores", [1023, 1024, 1025, 2500])
def test_the_checksum_of_many_rows(stores: int) -> None:
    checkpoint = sample(stores)
    data = encode_metadata(checkpoint)
    assert decode_metadata(data) == checkpoint
    written, expected = (pq.read_metadata(pa.BufferReader(file)).metadata[CRC_KEY] for file in (data, repacked(data)))
    assert written == expected


def test_the_number_of_keys_is_unknown_everywhere_or_in_places() -> None:
    checkpoint = sample(stores=9)
    nowhere = replace(checkpoint, snapshots=tuple(replace(s, num_keys=None) for s in checkpoint.snapshots))
    assert decode_metadata(encode_metadata(nowhere)) == nowhere
    table = pq.read_table(pa.BufferReader(encode_metadata(checkpoint)))
    assert table.column("num_keys").to_pylist() == [s.num_keys for s in checkpoint.snapshots for _ in s.handles]
    assert table.column("num_keys").null_count == 15


def test_equal_checkpoints_have_equal_bytes() -> None:
    assert encode_metadata(sample()) == encode_metadata(sample())


def test_plain_pyarrow_opens_it() -> None:
    data = encode_metadata(sample())
    table = pq.read_table(pa.BufferReader(data))
    assert tuple(table.column_names) == COLUMNS
    assert table.num_rows == 9
    assert table.column("num_keys").to_pylist() == [None, None, None, 1, 1, 1, None, None, None]
    doc = json.loads(pq.read_metadata(pa.BufferReader(data)).metadata[b"spark_ckpt"])
    assert (doc["format"], doc["run"], doc["epoch"], doc["log"], doc["claim"]) == (2, 1, 7, 12, 3)
    assert base64.b64decode(doc["files"]["commits/7"]) == b"v2\n\xff"


def test_every_flipped_byte_is_found_or_harmless() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    checkpoint = sample()
    data = encode_metadata(checkpoint)
    found = harmless = 0
    for at in rng.sample(range(len(data)), 700):
        damaged = bytearray(data)
        damaged[at] ^= 1 << rng.randrange(8)
        try:
            read = decode_metadata(bytes(damaged), where="s3://b/x")
        except DamagedError as e:
            found += "s3://b/x" in str(e)
        else:
            harmless += 1
            assert read == checkpoint, f"byte {at}"
    assert found + harmless == 700
    assert found > 300


def test_every_truncation_is_found() -> None:
    data = encode_metadata(sample())
    for length in range(0, len(data), 37):
        with pytest.raises(DamagedError, match="chk-7/_metadata"):
            decode_metadata(data[:length], where="chk-7/_metadata")


@pytest.mark.parametrize("data", [b"", b"PAR1", b"hello, this is no parquet", b"\0" * 1000])
def test_what_is_no_parquet(data: bytes) -> None:
    with pytest.raises(DamagedError, match="here"):
        decode_metadata(data, where="here")


def test_a_newer_format_is_refused_by_name() -> None:
    with pytest.raises(FormatError, match=r"here has format 6, written by spark-ckpt 9\.1\.0.*upgrade"):
        decode_metadata(repacked(encode_metadata(sample()), {"format": 6, "writer": "9.1.0"}), where="here")


@pytest.mark.parametrize(("hooks", "number"), [({}, 2), ({"publish": b"\0\xff"}, 3)])
def test_the_format_is_a_new_one_only_where_a_hook_has_a_state(hooks: dict[str, bytes], number: int) -> None:
    data = encode_metadata(replace(sample(), hooks=hooks))
    document = json.loads(pq.read_metadata(pa.BufferReader(data)).metadata[DOCUMENT_KEY])
    assert (document["format"], "hooks" in document) == (number, bool(hooks))
    assert decode_metadata(data).hooks == hooks


@pytest.mark.parametrize("hooks", [{}, {"publish": b"1"}])
def test_an_imported_checkpoint_has_a_format_of_its_own(hooks: dict[str, bytes]) -> None:
    made = replace(sample(), hooks=hooks, imported=Imported("file:///stock", b"v1\n{}\n{}"))
    data = encode_metadata(made)
    assert json.loads(pq.read_metadata(pa.BufferReader(data)).metadata[DOCUMENT_KEY])["format"] == 4
    assert decode_metadata(data) == made


@pytest.mark.parametrize("imported", [None, Imported("file:///stock", b"v1\n{}\n{}")])
def test_a_checkpoint_whose_operators_begin_empty_has_a_format_of_its_own(imported: Imported | None) -> None:
    """An older release would have Spark look for state that is not there."""
    made = replace(sample(), begins=(1, 3), imported=imported)
    data = encode_metadata(made)
    assert json.loads(pq.read_metadata(pa.BufferReader(data)).metadata[DOCUMENT_KEY])["format"] == 5
    assert decode_metadata(data) == made


@pytest.mark.parametrize("begins", [[-1], ["1"], [True], 1])
def test_operators_that_are_no_numbers_are_damage(begins: object) -> None:
    with pytest.raises(DamagedError):
        decode_metadata(repacked(encode_metadata(sample()), {"begins": begins}))


@pytest.mark.parametrize("imported", [{"location": "x"}, {"location": "x", "planned": "no base64!"}, ["x"], "x"])
def test_what_does_not_say_where_it_was_imported_from_is_damage(imported: Any) -> None:
    with pytest.raises(DamagedError, match="imported"):
        decode_metadata(repacked(encode_metadata(sample()), {"format": 4, "imported": imported}))


@pytest.mark.parametrize("hooks", [{"publish": "no base64!"}, {"publish": 3}, ["publish"], "publish"])
def test_a_hooks_state_that_is_none_is_damage(hooks: Any) -> None:
    with pytest.raises(DamagedError):
        decode_metadata(repacked(encode_metadata(sample()), {"format": 3, "hooks": hooks}))


def test_a_library_that_is_not_there_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would send a person back to an older checkpoint."""
    data = encode_metadata(sample())
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError):
        decode_metadata(data)


def test_another_parquet_file_is_refused() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1]}), sink)
    with pytest.raises(FormatError, match="not a checkpoint's metadata"):
        decode_metadata(sink.getvalue().to_pybytes())


@pytest.mark.parametrize(
    "forged",
    [
        {"object": ["../../etc/passwd"] * 3},
        {"object": ["run-00000001/chk-1/_metadata"] * 3},
        {"object": ["/etc/passwd"] * 3},
        {"name": ["SSTs/../../x", "a", "b"]},
        {"name": ["/a", "b", "c"]},
        {"length": [-1, 1, 1]},
        {"checksum": [2**32, 1, 1]},
        {"kind": ["PICKLE", "SST", "SST"]},
        {"partition": [0, 1, 0]},
        {"offset": ["0", "1", "2"]},
        {"num_keys": [-5, -5, -5]},
        {"object": ["run-00000001/seg/" + "a" * 256] * 3},
        {"object": [f"run-{10**19}/seg/a"] * 3},
    ],
)
def test_forged_rows_are_refused(forged: dict[str, list[Any]]) -> None:
    with pytest.raises(DamagedError, match="here"):
        decode_metadata(repacked(encode_metadata(sample(stores=1)), **forged), where="here")


@pytest.mark.parametrize("name", ["run", "epoch", "log", "claim", "time_ms"])
@pytest.mark.parametrize("value", [-1, 2**63, 10**300, 1.5, "7", True, None])
def test_forged_numbers_are_refused(name: str, value: Any) -> None:
    """A log entry of a number with 300 digits would seem to be a storage that does not answer."""
    with pytest.raises(DamagedError, match=f"here: {name}=.* is out of range"):
        decode_metadata(repacked(encode_metadata(sample()), {name: value}), where="here")


def test_a_forged_epoch_among_the_unfinished_is_refused() -> None:
    for field in ("unfinished", "given_up"):
        with pytest.raises(DamagedError, match=f"{field}={2**63} in a checkpoint's metadata is out of range"):
            decode_metadata(repacked(encode_metadata(sample()), {field: [2**63]}))


def test_a_number_that_would_not_be_read_is_not_written() -> None:
    with pytest.raises(DamagedError, match="log="):
        encode_metadata(replace(sample(), log=2**63))


@pytest.mark.parametrize(
    "files",
    [
        {"../x": ""},
        {"file:/etc/cron.d/x": ""},
        {"metadata": ""},
        {"/x": ""},
        {"offsets/1": "no base64!"},
        {"offsets/1": 1},
        [],
        {"offsets/1": {"zlib": "bm8gemxpYg=="}},
        {"offsets/1": {"zlib": base64.b64encode(zlib.compress(b"cut short" * 50)[:-8]).decode()}},
        {"offsets/1": {"zlib": base64.b64encode(zlib.compress(b"\x009\x00")).decode(), "rows": True}},
    ],
)
def test_forged_files_are_refused(files: Any) -> None:
    with pytest.raises(DamagedError, match="here"):
        decode_metadata(repacked(encode_metadata(sample()), {"files": files}), where="here")


@pytest.mark.parametrize(("size", "count"), [(LIMITS.document + 1, 1), (LIMITS.document * 3 // 4, 2)])
def test_a_bomb_is_not_unpacked(size: int, count: int) -> None:
    bomb = {"zlib": base64.b64encode(zlib.compress(bytes(size))).decode()}
    with pytest.raises(DamagedError, match="longer than any"):
        decode_metadata(repacked(encode_metadata(sample()), {"files": {f"sources/0/{n}": bomb for n in range(count)}}))


def test_references_to_a_long_name_are_not_all_written_out() -> None:
    """Three bytes of a file stand for a thousand, and compress to nothing."""
    limit = 10_000
    names = [f"7_{'u' * 1000}.zip"]
    forged = {"sources/0/0": {"zlib": base64.b64encode(zlib.compress(b"\x000\x00" * (limit // 3))).decode(), "rows": True}}
    tracemalloc.start()
    try:
        with pytest.raises(DamagedError, match="longer than any"):
            files_from_json(forged, names, limit)
        assert tracemalloc.get_traced_memory()[1] < 20 * limit
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("handles", [1, 4])
def test_the_ids_in_commits_are_not_written_twice(handles: int) -> None:
    """`commits/N`, and the one before it as far as its changelogs are still needed."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    ids = [[str(uuid.UUID(int=rng.getrandbits(128))) for _ in range(handles)] for _ in range(400)]
    found = []
    for partition, uids in enumerate(ids):
        key = "run-00000001/seg/7-a"
        logs = tuple(Handle(HandleKind.CHANGELOG, f"{v}_{u}.changelog", key, 9 * v, 9, v) for v, u in enumerate(uids))
        found.append(Snapshot(StoreId(0, partition, "default"), handles, uids[-1], logs))

    def commits(at: int) -> bytes:
        return b"v2\n" + json.dumps({"nextBatchWatermarkMs": 0, "stateUniqueIds": {"0": [[uids[at]] for uids in ids]}}).encode()

    other = b"".join(b"%032x" % rng.getrandbits(128) for _ in range(100))
    before = commits(-2) if handles > 1 else b"v2\n{}"
    files = {"commits/7": commits(-1), "commits/6": before, "sources/0/7": other, "sources/1/7": bytes(2000)}
    checkpoint = sample(snapshots=tuple(found), files=files)
    data = encode_metadata(checkpoint)
    assert decode_metadata(data) == checkpoint
    packed = json.loads(pq.read_metadata(pa.BufferReader(data)).metadata[DOCUMENT_KEY])["files"]
    assert all(len(packed[f"commits/{n}"]["zlib"]) < 400 * 8 for n in ((6, 7) if handles > 1 else (7,)))


def test_missing_snapshots_are_noticed() -> None:
    with pytest.raises(DamagedError, match="3 snapshots of 4"):
        decode_metadata(repacked(encode_metadata(sample()), {"num_snapshots": 4}))


def test_a_document_of_too_many_values_is_neither_written_nor_parsed() -> None:
    """A byte of it may be a hundred in memory."""
    few = replace(LIMITS, values=1000)
    forged = repacked(encode_metadata(sample(), few), {"later": [[]] * 1000})
    assert decode_metadata(forged) == sample()
    with pytest.raises(DamagedError, match="damaged"):
        decode_metadata(forged, limits=few)
    many = sample(files={f"sources/0/{n}": b"" for n in range(1001)})
    with pytest.raises(FormatError, match=r"more than 1000 values.*compact"):
        encode_metadata(many, few)


def test_an_oversized_document_is_not_written() -> None:
    small = {f"sources/0/{n}": bytes(LONG) for n in range(LIMITS.document // LONG)}  # longer than that as base64
    with pytest.raises(FormatError, match="compact"):
        encode_metadata(sample(files=small))


def alone(document: bytes, rows: int = 1) -> bytes:
    """A Parquet file with this document, and of any rows."""
    table = pa.table({"anything": pa.nulls(rows, pa.bool_())})
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({DOCUMENT_KEY: document})
    out: bytes = sink.getvalue().to_pybytes()
    return out


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (lambda: alone(bytes(LIMITS.document + 1)), FormatError, "larger than any"),
        (lambda: alone(bytes(2 * LIMITS.document + 1)), DamagedError, "damaged"),
        (lambda: alone(b"{}", LIMITS.rows + 1), FormatError, "more than the 5000000 of any checkpoint"),
        (lambda: bytes(LIMITS.file + 1), FormatError, "more than the"),
    ],
    ids=["document", "very long document", "rows", "file"],
)
def test_what_is_oversized_is_refused(data: Callable[[], bytes], error: type[CheckpointError], message: str) -> None:
    with pytest.raises(error, match=rf"here:? .*{message}"):
        decode_metadata(data(), where="here")


def bomb(rows: int, text: str) -> bytes:
    """All rows the same: some hundred kilobytes, whatever the text."""
    document = json.dumps({"format": 1}).encode()
    same = {name: pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([text])) for name in STRINGS}
    table = pa.table({name: same.get(name, pa.array([0] * rows, pa.int64())) for name in COLUMNS})
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, compression="zstd", store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({DOCUMENT_KEY: document, CRC_KEY: f"{zlib.crc32(document):08x}-0"})
    out: bytes = sink.getvalue().to_pybytes()
    return out


@pytest.mark.parametrize("text", ["x" * 20_000, "x" * MAX_STRING])
def test_strings_are_not_expanded_before_their_size_is_known(text: str) -> None:
    rows = MAX_STRINGS // MAX_STRING // len(STRINGS) + 1
    data = bomb(rows, text)
    assert len(data) < 1 << 20
    code = (
        "import resource, sys; from spark_ckpt.stored.metadata.codec import decode_metadata; import pyarrow.parquet\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))\n"
        "try: decode_metadata(sys.stdin.buffer.read())\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    said = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, timeout=60, check=True).stdout.decode()
    assert said.startswith(("FormatError", "DamagedError"))
    assert "a string of more than 1024 bytes" in said or f"have more than {MAX_STRINGS} bytes" in said


def test_a_string_may_be_as_long_as_any_can_be() -> None:
    one = sample(stores=1).snapshots[0]

    def named(length: int, letter: str = "x") -> Checkpoint:
        return sample(snapshots=(replace(one, store=StoreId(0, 0, letter * length)),))

    assert decode_metadata(encode_metadata(named(MAX_STRING))) == named(MAX_STRING)
    assert decode_metadata(encode_metadata(named(MAX_STRING // 2, "\u00e4"))) == named(MAX_STRING // 2, "\u00e4")
    for longer in (named(MAX_STRING + 1), named(MAX_STRING // 2 + 1, "\u00e4")):
        with pytest.raises(FormatError, match="column store holds a string of more than 1024 bytes"):
            encode_metadata(longer)


def test_what_decode_would_refuse_is_not_written() -> None:
    one = sample(stores=1).snapshots[0]
    with pytest.raises(CheckpointError, match="no handles"):
        encode_metadata(sample(snapshots=(Snapshot(one.store, 1, "u", ()),)))
    with pytest.raises(CheckpointError, match="two snapshots"):
        encode_metadata(sample(snapshots=(one, one)))
    with pytest.raises(CheckpointError, match="leave its folder"):
        encode_metadata(sample(files={"../x": b""}))


@pytest.mark.parametrize(("counts", "together"), [((), None), ((3, None), None), ((None,), None), ((3, 4), 7)])
def test_a_sum_of_some_is_no_number_of_keys(counts: tuple[int | None, ...], together: int | None) -> None:
    snapshots = [Snapshot(StoreId(0, n, "default"), 1, f"u{n}", (), count) for n, count in enumerate(counts)]
    assert key_count(snapshots) == together
