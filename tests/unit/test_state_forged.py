"""State objects that somebody has forged: a few bytes must not become gigabytes, nor an error that names nothing."""

from __future__ import annotations

import json
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_ckpt.errors import DamagedError, FormatError
from spark_ckpt.state import contents as contents_module
from spark_ckpt.state.changelogs import MAX_BYTES, Change, lz4_checksum, read_records
from spark_ckpt.state.contents import Contents
from spark_ckpt.state.rows import Decoder, Encoding
from spark_ckpt.state.schemas import Family, KeyForm, KeyLayout, Variable, read_operators
from spark_ckpt.state.spark_types import Array, Atomic, Field, Map, SparkType, Struct
from spark_ckpt.state.unsafe_rows import rows_of
from spark_ckpt.stock.changelog_forms import with_lineage, without_lineage
from spark_ckpt.storage import open_storage
from spark_ckpt.stored.copies import RestorePath
from spark_ckpt.stored.state.archive import unpack
from tests.drivers.unsafe_rows import row
from tests.stored.earlier import HERE

MIB = 1 << 20
LONG, TEXT = Atomic("long"), Atomic("string")
WIDE = Struct(tuple(Field(f"f{n}", LONG) for n in range(10_000)))
KEY = Struct((Field("key", TEXT),))


@contextmanager
def at_most(bytes_: int) -> Iterator[None]:
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - before < bytes_
    finally:
        tracemalloc.stop()


def pointing(fields: int, size: int, content: bytes) -> bytes:
    """A row whose fields are all the same `size` bytes behind them."""
    head = (fields + 63) // 64 * 8
    return bytes(head) + struct.pack("<q", (head + 8 * fields) << 32 | size) * fields + content


def of(count: int, spark: SparkType) -> Struct:
    return Struct(tuple(Field(f"f{n}", spark) for n in range(count)))


def same_array(elements: int, of_elements: bytes) -> bytes:
    """An array, each of whose elements is the same bytes behind it."""
    head = 8 + (elements + 63) // 64 * 8
    place = struct.pack("<q", (head + 8 * elements) << 32 | len(of_elements))
    return struct.pack("<q", elements) + bytes(head - 8) + place * elements + of_elements


LONGS = struct.pack("<q", 100_000) + bytes((100_000 + 63) // 64 * 8) + bytes(8 * 100_000)


@pytest.mark.parametrize(("spark", "fields", "content"), [
    (TEXT, 1000, bytes(MIB)),
    (Array(LONG), 1000, LONGS),
    (Array(TEXT), 1, same_array(50_000, bytes(MIB))),
    (Array(Array(LONG)), 1, same_array(50_000, LONGS)),
    (Map(TEXT, TEXT), 500, struct.pack("<q", 400_024) + 2 * same_array(1000, bytes(392_000 - 128 - 8 + 8))),
    (Array(Struct((Field("a", TEXT),))), 1, same_array(20_000, pointing(1, MIB, bytes(MIB)))),
], ids=["texts", "arrays", "texts of an array", "arrays of an array", "maps", "structs of an array"])
def test_values_that_lie_over_each_other_are_refused(spark: SparkType, fields: int, content: bytes) -> None:
    forged = pointing(fields, len(content), content)
    with at_most(200 * MIB), pytest.raises(DamagedError, match=r"lie over each other|longer than its bytes"):
        rows_of([forged], 0).decode(of(fields, spark))


def test_null_structs_are_not_more_than_their_rows_can_be() -> None:
    nulls = struct.pack("<q", 100_000) + b"\xff" * ((100_000 + 63) // 64 * 8) + bytes(8 * 100_000)
    with at_most(400 * MIB), pytest.raises(DamagedError, match="structs of 10000 fields are null 100000 times"):
        rows_of([pointing(1, len(nulls), nulls)], 0).decode(of(1, Array(WIDE)))


def test_rows_of_null_structs_become_small_batches() -> None:
    family = Family("default", KEY, of(1, WIDE), KeyLayout(KeyForm.PLAIN))
    assert Decoder(family, Encoding(avro=False, delimiter=b""), has_families=False).rows_at_once < 1000
    narrow = Family("default", KEY, of(1, LONG), KeyLayout(KeyForm.PLAIN))
    assert Decoder(narrow, Encoding(avro=False, delimiter=b""), has_families=False).rows_at_once > 100_000


def test_a_large_key_of_a_long_list_is_not_repeated_in_one_batch() -> None:
    value = Struct((Field("n", LONG),))
    family = Family("best", KEY, value, KeyLayout(KeyForm.PLAIN), Variable.LIST)
    element = b"\0" + row(value, [7])
    values = (struct.pack("<i", len(element)) + element) * 1000
    decoder = Decoder(family, Encoding(avro=False, delimiter=b""), has_families=False)
    small, large = (b"\0" + row(KEY, [text]) for text in ("a", "b" * 3 * MIB))
    rows = 0
    with at_most(200 * MIB):
        for batch in decoder.batches([small, large, small], [values] * 3, 0):
            batch.validate(full=True)
            rows += batch.num_rows
            assert batch.nbytes < 40 * MIB
    assert rows == 3000


def zigzag(number: int) -> bytes:
    out, number = b"", number << 1
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


@pytest.mark.parametrize(("element", "count", "said"), [
    (LONG, 50_000_000, "50000000 items, more than its bytes can hold"),
    (WIDE, 900_000, "so many structs of so many fields"),
])
def test_an_avro_array_is_no_longer_than_its_bytes(element: SparkType, count: int, said: str) -> None:
    family = Family("default", KEY, of(1, Array(element)), KeyLayout(KeyForm.PLAIN))
    decoder = Decoder(family, Encoding(avro=True, delimiter=b""), has_families=False)
    key = b"\0\0\0" + zigzag(1) + zigzag(1) + b"a"
    with at_most(100 * MIB), pytest.raises(DamagedError, match=said):
        decoder.decode([key], [b"\0\0\0" + zigzag(1) + zigzag(count) + bytes(MIB)], 0)


def bomb(size: int, form: bytes = b"\0\2v4\0\2[]\1") -> bytes:
    """A changelog of a few KiB whose first key has `size` bytes."""
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as stream:
        stream.write(form + struct.pack(">i", size))
        for _ in range(size // MIB + 1):
            stream.write(bytes(MIB))
    return bytes(out.getvalue())


@pytest.mark.parametrize("form", [b"\0\2v4\0\2[]\1", b"\0\2v3\0\2[]"])
def test_a_record_of_a_changelog_has_a_bound(form: bytes) -> None:
    data = bomb(2 * MAX_BYTES, form)
    assert len(data) < MIB
    with at_most(20 * MIB), pytest.raises(DamagedError, match=r"the changelog 7_u\.changelog has a key or value of \d+ bytes"):
        list(read_records(BytesIO(data), "7_u.changelog", "zstd"))


def claiming(more: int, codec: str) -> bytes:
    """A changelog whose only block is said to hold so many bytes more than it does."""
    text = b"\0\2v4\0\2[]\1" + struct.pack(">i", more) + b"k"
    if codec == "snappy":
        block = bytes(pa.compress(text, "snappy", asbytes=True))
        size = len(text) + more
        block = bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14]) + block[1:]
        return b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block
    block = bytes(pa.compress(text, "lz4_raw", asbytes=True))
    end = b"LZ4Block\x15" + struct.pack("<iii", 0, 0, 0)
    return b"LZ4Block\x25" + struct.pack("<iiI", len(block), len(text) + more, lz4_checksum(text)) + block + end


@pytest.mark.parametrize("more", [1, 100, 100_000])
@pytest.mark.parametrize("codec", ["lz4", "snappy"])
def test_no_memory_of_this_process_is_read_as_state(more: int, codec: str, tmp_path: Path) -> None:
    """What a block lacks would be filled with it: other keys and values, or secrets, in what is exported or stored."""
    forged = claiming(more, codec)
    with pytest.raises(DamagedError, match=r"7_u\.changelog (has a block that holds less than its \d+ bytes|cannot be unpacked)"):
        list(read_records(BytesIO(forged), "7_u.changelog", codec))
    (tmp_path / "old").write_bytes(forged)
    with pytest.raises(DamagedError, match=r"7_u\.changelog (has a block that holds less than its \d+ bytes|cannot be unpacked)"):
        without_lineage(tmp_path / "old", tmp_path / "export", "7_u.changelog", codec)
    with pytest.raises(DamagedError, match=r"7_u\.changelog (has a block that holds less than its \d+ bytes|cannot be unpacked)"):
        with_lineage(tmp_path / "old", tmp_path / "import", [], "7_u.changelog", codec)


@pytest.mark.parametrize("spill", [1, 1 << 30])
def test_what_is_appended_to_a_list_has_a_bound(spill: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents_module, "SPILL_BYTES", spill)
    monkeypatch.setattr("spark_ckpt.state.changelogs.MAX_BYTES", 10 * MIB)
    store = Contents(tmp_path / "0", "a store", None, has_snapshot=False, delimiter=b"")
    try:
        with pytest.raises(DamagedError, match="a store has a key or value of"):
            _append(store, 12)
    finally:
        store.close()


def _append(store: Contents, times: int) -> None:
    for _ in range(times):
        store.apply(Change.MERGE, b"key", bytes(MIB))
    list(store.entries())


def test_large_values_are_not_taken_out_of_rocksdb_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents_module, "SPILL_BYTES", 1)
    store = Contents(tmp_path / "0", "a store", None, has_snapshot=False, delimiter=b"")
    try:
        for number in range(200):
            store.apply(Change.PUT, b"key%03d" % number, bytes(MIB))
        with at_most(20 * MIB):
            assert [key for key, _ in store.entries()] == [b"key%03d" % number for number in range(200)]
    finally:
        store.close()


def test_appending_takes_as_long_as_what_is_appended(tmp_path: Path) -> None:
    """What was there before is not copied with each value."""
    store = Contents(tmp_path / "0", "a store", None, has_snapshot=False, delimiter=b",")
    copied = 0

    class Counted(bytes):
        def __add__(self, other: bytes) -> bytes:  # type: ignore[override]
            nonlocal copied
            copied += len(self)
            return bytes.__add__(self, other)

    for _ in range(2000):
        store.apply(Change.MERGE, b"key", Counted(b"x" * 100))
    assert copied == 0
    (entry,) = store.entries()
    assert entry == (b"key", b",".join([b"x" * 100] * 2000))



TTL_SCHEMA = "state/0/_stateSchema/default/0_e6380154-55df-4681-9d2a-f7010e78753f"
METADATA = "state/0/_metadata/v2/0"


def _driver_files(query: str) -> dict[str, bytes]:
    storage = open_storage(f"file://{HERE}/states/{query}")
    files = RestorePath.at(storage.url).read(storage).files
    return {name: content for name, content in files.items() if isinstance(content, bytes) and name.startswith("state/")}


@pytest.mark.parametrize(("query", "file", "old", "new", "said"), [
    ("ttl", TTL_SCHEMA, b'"orderingOrdinals":[0]', b'"orderingOrdinals":[9]', "lays a key of 2 columns out as .*which cannot be"),
    ("ttl", TTL_SCHEMA, b'"orderingOrdinals":[0]', b'"orderingOrdinals":[] ', "lays a key of 2 columns out as"),
    ("ttl", TTL_SCHEMA, b'"orderingOrdinals":[0]', b'"orderingOrdinal":1e9 ', "lays a key of 2 columns out as"),
    ("ttl", TTL_SCHEMA, b'"numColsPrefixKey":1', b'"numColsPrefixKey":9', "lays a key of 2 columns out as"),
    ("ttl", TTL_SCHEMA, b'"numColsPrefixKey":1', b'"numColsPrefix":1e99', "lays a key of 2 columns out as"),
    ("ttl", TTL_SCHEMA, b'"expiryTimestampMs"', b'"expiryTimestampMx"', "keys of .procTimers_keyToTimestamp, a TimerState, have no exp"),
    ("ttl", TTL_SCHEMA, b'"userKey"', b'"userKex"', "keys of parity, a MapState, have no userKey; it is damaged"),
    ("ttl", METADATA, b'"numPartitions":2', b'"numPartitions":1e400', "cannot be read .OverflowError: .*; it is damaged"),
    ("update", "state/0/_metadata/metadata", b'"numColsPrefixKey":0', b'"numColsPrefixKey":1e400', "OverflowError"),
    ("update", "state/0/_metadata/metadata", b'"numColsPrefixKey":0', b'"numColsPrefixKey":7', "lays a key of 1 columns out as"),
    ("ttl", METADATA, b'"MapState', b'"BagState', "of a newer Spark, has a state variable of the kind 'BagState.*take a newer spark-ckpt"),
])
def test_forged_schemas_end_with_a_sentence(query: str, file: str, old: bytes, new: bytes, said: str) -> None:
    files = _driver_files(query)
    old, new = (text.replace(b'"', b'\\"') if text.endswith(b"State") else text for text in (old, new))
    assert old in files[file]
    read_operators(files)
    with pytest.raises(DamagedError, match=said) as e:
        read_operators({**files, file: files[file].replace(old, new)})
    assert "damaged" in str(e.value) or isinstance(e.value, FormatError)
    assert ("BagState" in str(e.value)) <= ("damaged" not in str(e.value))


class Counted(bytes):
    """How often a part of it was read."""

    parts = 0

    def __getitem__(self, at: Any) -> Any:
        self.parts += 1
        return bytes.__getitem__(self, at)


def test_a_schema_is_read_once_however_often_it_is_named() -> None:
    """Of a checkpoint of some hundred kilobytes, days of work came to be."""
    files = _driver_files("ttl")
    version, _, body = files[METADATA].partition(b"\n")
    document = json.loads(body)
    document["stateStoreInfo"][0]["stateSchemaFilePaths"] *= 1000
    once, often = Counted(files[TTL_SCHEMA]), Counted(files[TTL_SCHEMA])
    as_it_was = read_operators({**files, TTL_SCHEMA: once})
    assert read_operators({**files, TTL_SCHEMA: often, METADATA: version + b"\n" + json.dumps(document).encode()}) == as_it_was
    assert often.parts == once.parts > 0
    document["stateStoreInfo"] *= 2
    with pytest.raises(DamagedError, match=r"it names a store twice\); it is damaged"):
        read_operators({**files, METADATA: version + b"\n" + json.dumps(document).encode()})


def test_no_query_has_a_hundred_thousand_operators() -> None:
    with pytest.raises(FormatError, match="files of 100000 stateful operators, more than any query"):
        read_operators({f"state/{n}/_metadata/metadata": b"v1\n{}" for n in range(100_000)})


@pytest.mark.parametrize("name", ["state/{}/x", "state/0/_metadata/v2/{}"])
def test_a_number_that_is_none_in_the_name_of_a_file_is_no_number(name: str) -> None:
    files = _driver_files("ttl")
    assert read_operators({**files, name.format("1" * 5000): b"v1\n{}"}) == read_operators(files)


def test_a_full_snapshot_is_called_by_its_own_name(tmp_path: Path) -> None:
    (tmp_path / ".snapshot.zip").write_bytes(b"no zip")
    with pytest.raises(FormatError, match=r"^7_u\.zip is not a snapshot"):
        unpack(tmp_path / ".snapshot.zip", tmp_path, "7_u.zip")
