"""Changelogs as the other checkpoint format has them, as lz4-java reads them."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa
import pytest

from spark_ckpt.errors import CheckpointError
from spark_ckpt.state.changelogs import lz4_checksum
from spark_ckpt.stock.changelog_forms import check_changelog, with_lineage
from tests.drivers.stock_location import changelog, packed


def test_blocks_of_any_size_have_their_checksums(tmp_path: Path) -> None:
    """As lz4-java writes and compares them."""
    puts = [(b"k%d" % n, bytes(50)) for n in range(3000)]
    (tmp_path / "old").write_bytes(packed(changelog(puts, 2), "lz4"))
    with_lineage(tmp_path / "old", tmp_path / "new", [(n, "u" * 36) for n in range(1, 500)], "x", "lz4")
    data, at, found = (tmp_path / "new").read_bytes(), 0, b""
    while data[at : at + 8] == b"LZ4Block":
        size, plain, checksum = struct.unpack("<iiI", data[at + 9 : at + 21])
        block = data[at + 21 : at + 21 + size]
        assert plain <= 1 << (10 + (data[at + 8] & 15))
        if data[at + 8] & 0xF0 == 0x10 and size:
            assert checksum == lz4_checksum(block)
        found += block if data[at + 8] & 0xF0 == 0x10 else pa.decompress(block, plain, "lz4_raw", asbytes=True)
        at += 21 + size
    assert at == len(data)
    assert found == changelog(puts, 4, [(n, "u" * 36) for n in range(1, 500)])


def test_a_lineage_longer_than_spark_writes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(packed(changelog([], 1), "lz4"))
    with pytest.raises(CheckpointError, match="the last of 2000, more than Spark can name in one; run the query once more"):
        with_lineage(tmp_path / "old", tmp_path / "new", [(n, "u" * 36) for n in range(2000)], "x", "lz4")


def test_an_empty_stream_is_no_changelog(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"LZ4Block\x15" + bytes(12))
    with pytest.raises(CheckpointError, match="the changelog x is empty; it is damaged"):
        with_lineage(tmp_path / "old", tmp_path / "new", [], "x", "lz4")


@pytest.mark.parametrize("codec", ["snappy", "org.apache.spark.io.SnappyCompressionCodec"])
def test_a_snappy_stream_that_was_cut_between_two_blocks_is_refused(codec: str, tmp_path: Path) -> None:
    """It has no mark at its end."""
    puts = [(b"k%d" % n, bytes(50)) for n in range(3000)]
    whole = packed(changelog(puts, 2), "snappy")
    (tmp_path / "one").write_bytes(whole)
    check_changelog(tmp_path / "one", "x", codec)
    first = 20 + int.from_bytes(whole[16:20], "big")
    (tmp_path / "one").write_bytes(whole[:first])
    with pytest.raises(CheckpointError, match="the changelog x ends within a record; it is damaged"):
        check_changelog(tmp_path / "one", "x", codec)
