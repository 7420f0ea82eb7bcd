"""CRC-32 of what is not in memory at once: of a file, and of pieces that were read apart."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Protocol

CHUNK = 1 << 20
"""Bytes that are in memory at a time."""

_POLYNOMIAL = 0xEDB88320
_Matrix = Sequence[int]


class Readable(Protocol):
    """A binary file."""

    def read(self, size: int, /) -> bytes: ...


def crc32_of(file: Readable) -> int:
    """From where it is read on, to its end."""
    crc = 0
    while chunk := file.read(CHUNK):
        crc = zlib.crc32(chunk, crc)
    return crc


def combined(pieces: Iterable[tuple[int, int]]) -> int:
    """Of pieces in their order, each with its CRC-32 and its length in bytes (zlib's `crc32_combine`, which Python's zlib lacks)."""
    crc = 0
    for checksum, length in pieces:
        crc = _shifted(crc, length) ^ checksum
    return crc


def _shifted(crc: int, length: int) -> int:
    """The effect of so many zero bytes: for each bit of the length the matrix of twice as many is the square of the one before."""
    matrix = _BYTE
    while length and crc:
        if length & 1:
            crc = _times(matrix, crc)
        length >>= 1
        matrix = _square(matrix)
    return crc


def _times(matrix: _Matrix, vector: int) -> int:
    product = 0
    for row in matrix:
        if vector & 1:
            product ^= row
        vector >>= 1
    return product


def _square(matrix: _Matrix) -> _Matrix:
    return [_times(matrix, row) for row in matrix]


_BIT: _Matrix = [_POLYNOMIAL, *(1 << n for n in range(31))]
_BYTE = _square(_square(_square(_BIT)))
