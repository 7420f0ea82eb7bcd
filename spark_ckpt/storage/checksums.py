"""CRC-32 of bytes that were read in pieces, from the pieces' own (zlib's `crc32_combine`, which Python's zlib lacks)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_POLYNOMIAL = 0xEDB88320
_Matrix = Sequence[int]


def combined(pieces: Iterable[tuple[int, int]]) -> int:
    """Of pieces in their order, each with its CRC-32 and its length in bytes."""
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
