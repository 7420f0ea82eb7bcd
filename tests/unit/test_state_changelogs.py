"""Changelogs in all their forms and compressions, whole and damaged; what they make of a store."""

from __future__ import annotations

import io
import random
import shutil
import struct
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rocksdict import Options, Rdict

from spark_ckpt.errors import CheckpointError, DamagedError, FormatError
from spark_ckpt.state import contents
from spark_ckpt.state.changelogs import Change, Record, lz4_checksum, next_lz4_block, read_records, unpacked
from spark_ckpt.state.contents import Contents

RECORDS: list[Record] = [
    (Change.PUT, b"a", b"1"),
    (Change.PUT, b"", b""),
    (Change.DELETE, b"a", b""),
    (Change.PUT, b"key" * 50, b"value" * 30_000),
]
MERGED: list[Record] = [*RECORDS, (Change.MERGE, b"a", b"2")]


def utf(text: bytes) -> bytes:
    return struct.pack(">H", len(text)) + text


def written(records: Iterable[Record], version: int) -> bytes:
    """As Spark's `StateStoreChangelogWriterV1` … `V4` write them."""
    out = utf(b"v%d" % version) if version > 1 else b""
    if version > 2:
        out += utf(b'[{"version":1,"checkpointUniqueId":"u"}]')
    typed = version in (2, 4)
    for change, key, value in records:
        out += bytes([change.value]) if typed else b""
        out += struct.pack(">i", len(key)) + key
        out += struct.pack(">i", -1) if change is Change.DELETE else struct.pack(">i", len(value)) + value
    return out + (b"\0" if typed else struct.pack(">i", -1))


def lz4(data: bytes, packed: bool = True) -> bytes:
    out = b""
    for at in range(0, len(data), 32_768):
        block = data[at : at + 32_768]
        body = pa.compress(block, "lz4_raw", asbytes=True) if packed else block
        out += b"LZ4Block" + bytes([0x25 if packed else 0x15]) + struct.pack("<iiI", len(body), len(block), lz4_checksum(block)) + body
    return out + b"LZ4Block\x15" + struct.pack("<iii", 0, 0, 0)


def snappy(data: bytes) -> bytes:
    out = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    for at in range(0, len(data), 32_768):
        body = pa.compress(data[at : at + 32_768], "snappy", asbytes=True)
        out += struct.pack(">i", len(body)) + body
    return out


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, "zstd", asbytes=True))


def read(data: bytes, codec: str = "lz4") -> list[Record]:
    return list(read_records(io.BytesIO(data), "7_u.changelog", codec))


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_form_is_read(version: int) -> None:
    records = MERGED if version in (2, 4) else RECORDS
    assert read(lz4(written(records, version))) == records
    assert read(lz4(written([], version))) == []


@pytest.mark.parametrize(("codec", "pack"), [
    ("lz4", lambda data: lz4(data, packed=False)),
    ("org.apache.spark.io.LZ4CompressionCodec", lz4),
    ("snappy", snappy),
    ("zstd", zstd),
    ("org.apache.spark.io.ZStdCompressionCodec", zstd),
])
def test_every_compression_is_read(codec: str, pack: Callable[[bytes], bytes]) -> None:
    assert read(pack(written(MERGED, 4)), codec) == MERGED


def test_a_compression_that_is_not_read_is_named() -> None:
    with pytest.raises(FormatError, match="compressed with 'lzf', and lz4, zstd and snappy are read"):
        read(b"ZV", "lzf")
    with pytest.raises(DamagedError, match="written with another codec"):
        read(zstd(written(RECORDS, 3)), "lz4")
    with pytest.raises(DamagedError, match="written with another codec"):
        read(lz4(written(RECORDS, 3)), "zstd")
    with pytest.raises(DamagedError, match="written with another codec"):
        read(lz4(written(RECORDS, 3)), "snappy")


def test_a_form_of_a_newer_spark_is_named() -> None:
    with pytest.raises(FormatError, match="the form 5, known are 1 to 4"):
        read(lz4(utf(b"v5") + b"\0"))


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_an_early_end_and_what_follows_it_are_damage(version: int) -> None:
    data = written(RECORDS, version)
    for cut in (1, 5, 100, 40_000):
        with pytest.raises(DamagedError):
            read(lz4(data[:-cut]))
    with pytest.raises(DamagedError, match="goes on behind its end"):
        read(lz4(data + b"x"))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_bytes_end_with_an_error_of_this_package_or_give_records(data: st.DataObject) -> None:
    codec, pack = data.draw(st.sampled_from([("lz4", lz4), ("snappy", snappy), ("zstd", zstd)]))
    whole = bytearray(pack(written(MERGED, data.draw(st.sampled_from([2, 4])))))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, min(len(whole) - 1, 200)))] = data.draw(st.integers(0, 255))
    try:
        read(bytes(whole), codec)
    except CheckpointError:
        return


@pytest.mark.parametrize("spill", [1, 10_000, 1 << 30])
@settings(max_examples=30, deadline=None)
@given(records=st.lists(st.tuples(st.sampled_from(list(Change)), st.binary(max_size=2), st.binary(max_size=3)), max_size=40))
def test_a_store_is_what_its_changelogs_say(
    records: list[Record], spill: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Held in memory, or put into RocksDB's files on the way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contents, "SPILL_BYTES", spill)
        folder = tmp_path_factory.mktemp("store") / "0"
        expected: dict[bytes, bytes] = {}
        store = Contents(folder, "a store", None, has_snapshot=False, delimiter=b"")
        try:
            for change, key, value in records:
                store.apply(change, key, value)
                if change is Change.DELETE:
                    expected.pop(key, None)
                else:
                    expected[key] = (expected.get(key, b"") if change is Change.MERGE else b"") + value
            assert list(store.entries()) == sorted(expected.items())
            for prefix in (b"", b"\0", b"\1\0", b"\xff", b"\xff\xff"):
                wanted = sorted(item for item in expected.items() if item[0].startswith(prefix))
                assert list(store.entries(prefix)) == wanted
                for rows, size in ((1, 1 << 20), (3, 5), (1000, 1)):
                    found = [list(zip(*batch, strict=True)) for batch in store.batches(prefix, rows, size)]
                    assert [item for batch in found for item in batch] == wanted
                    assert all(1 <= len(batch) <= rows for batch in found)
                    assert all(sum(len(key) + len(value) for key, value in batch[:-1]) < size for batch in found)
        finally:
            store.close()


def stored_families(folder: Path, rows: int) -> dict[bytes, list[tuple[bytes, bytes]]]:
    """RocksDB's files with three column families in one SST; by prefix the entries."""
    rng = random.Random(1)
    made = {
        prefix: [(prefix + n.to_bytes(4, "big"), rng.randbytes(40)) for n in range(rows)] for prefix in (b"\0\0", b"\1\0", b"\2\0")
    }
    with closing(Rdict(str(folder), Options(raw_mode=True))) as db:
        for entries in made.values():
            for key, value in entries:
                db.put(key, value)
        db.flush()
    return made


def test_no_family_ends_silently_at_a_damaged_block(tmp_path: Path) -> None:
    """The block may be the family's first one, or its last."""
    made = stored_families(tmp_path / "whole", 1000)
    (sst,) = (tmp_path / "whole").glob("*.sst")
    whole = sst.read_bytes()
    complete = damaged = 0
    for number, at in enumerate(range(100, len(whole), len(whole) // 40)):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "whole", folder)
        (folder / sst.name).write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            store = Contents(folder, "a store", {}, has_snapshot=True, delimiter=b"")
        except DamagedError:
            continue
        with closing(store):
            for prefix, entries in made.items():
                found: list[tuple[bytes, bytes]] = []
                try:
                    found.extend(store.entries(prefix))
                except DamagedError:
                    damaged += 1
                    assert found == entries[: len(found)]
                else:
                    complete += 1
                    assert found == entries
    assert complete > 30
    assert damaged > 30


def test_a_block_that_is_bad_once_and_good_again_is_damage(tmp_path: Path) -> None:
    """As of a disk that answers wrongly for a moment: RocksDB has ended there, and would find more now."""
    made = stored_families(tmp_path / "0", 1000)
    (sst,) = (tmp_path / "0").glob("*.sst")
    whole = sst.read_bytes()
    at = len(whole) // 2
    sst.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
    with closing(Contents(tmp_path / "0", "a store", {}, has_snapshot=True, delimiter=b"")) as store:
        read = store.batches(b"", 10, 1 << 20)
        first = next(read)
        assert list(zip(*first, strict=True)) == made[b"\0\0"][:10]
        sizes = iter(map(len, (keys for keys, _ in read)))
        assert any(size < 10 for size in sizes), "it has come to the bad block"
        sst.write_bytes(whole)
        with pytest.raises(DamagedError, match=r"it ended behind .*, and there is more"):
            next(sizes)


def test_a_folder_that_is_no_rocksdb_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "CURRENT").write_text("MANIFEST-000001\n")
    with pytest.raises(DamagedError, match="RocksDB cannot read a store"):
        Contents(tmp_path / "0", "a store", {}, has_snapshot=True, delimiter=b"")


@pytest.mark.parametrize(
    ("stream", "holds"),
    [
        ("4c5a34426c6f636b15030000000300000022b24c0d6162634c5a34426c6f636b15000000000000000000000000", b"abc"),
        (
            "4c5a34426c6f636b250e0000002c0100009bc0af053f6b65790300ff125065796b65794c5a34426c6f636b15000000000000000000000000",
            b"key" * 100,
        ),
    ],
)
def test_streams_of_lz4_java(stream: str, holds: bytes) -> None:
    """Written by lz4-java 1.11.0's `LZ4BlockOutputStream`, as it is in Spark."""
    assert b"".join(unpacked(io.BytesIO(bytes.fromhex(stream)), "x", "lz4")) == holds


@pytest.mark.parametrize("packed", [True, False])
def test_a_block_with_another_checksum_is_damage(packed: bool) -> None:
    whole = lz4(written(RECORDS[:1], 2), packed)
    damaged = whole.replace(b"\0\0\0\1a", b"\0\0\0\1b")
    assert damaged != whole
    with pytest.raises(DamagedError, match="x has a block whose checksum is another one; it is damaged"):
        list(read_records(io.BytesIO(damaged), "x", "lz4"))


@pytest.mark.parametrize("at", [9, 13])
def test_a_block_of_no_bytes_is_not_the_end(at: int) -> None:
    """One bit of the length of a block that is as long as Spark's usually are."""
    whole = bytearray(lz4(bytes(32_768)))
    assert b"".join(unpacked(io.BytesIO(bytes(whole)), "x", "lz4")) == bytes(32_768)
    whole[at : at + 4] = bytes(4)
    with pytest.raises(DamagedError, match="the changelog x "):
        list(unpacked(io.BytesIO(bytes(whole)), "x", "lz4"))


def test_what_stands_behind_the_end_is_damage() -> None:
    with pytest.raises(DamagedError, match="the changelog x goes on behind its end"):
        list(unpacked(io.BytesIO(lz4(b"abc") + lz4(b"d")), "x", "lz4"))


@pytest.mark.parametrize(
    ("method", "packed", "size", "checksum"),
    [(0x25, 3, 0, 0), (0x25, 0, 3, 0), (0x15, 0, 0, 1), (0x15, 3, 4, lz4_checksum(b"abc")), (0x15, -1, 3, lz4_checksum(b"abc"))],
)
def test_a_head_that_lz4_java_refuses_is_damage(method: int, packed: int, size: int, checksum: int) -> None:
    block = b"LZ4Block" + bytes([method]) + struct.pack("<iiI", packed, size, checksum) + b"abc"
    with pytest.raises(DamagedError, match=r"the changelog x has a block of \d+ bytes; it is damaged"):
        next_lz4_block(io.BytesIO(block), "x")
