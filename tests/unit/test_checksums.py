"""Checksums of pieces, put together."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from spark_ckpt.storage.checksums import combined


@given(st.lists(st.binary(max_size=300), max_size=6))
def test_pieces_have_the_checksum_of_the_whole(pieces: list[bytes]) -> None:
    assert combined((zlib.crc32(piece), len(piece)) for piece in pieces) == zlib.crc32(b"".join(pieces))


def test_long_pieces() -> None:
    zeros, ones = bytes(5_000_011), b"\x01" * 7
    parts = [(zlib.crc32(zeros), len(zeros)), (zlib.crc32(ones), len(ones)), (0, 0)]
    assert combined(parts) == zlib.crc32(zeros + ones)
