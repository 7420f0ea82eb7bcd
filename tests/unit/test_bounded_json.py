"""What a document may hold is known before it is parsed; what it says in its texts counts for nothing."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from spark_ckpt.bounded_json import check_values, parse_json
from spark_ckpt.errors import DamagedError, FormatError
from spark_ckpt.paths import left_acks_key
from spark_ckpt.protocol.checkpoints.required_ids import required_ids
from spark_ckpt.protocol.entries import EntryLimits, decode
from spark_ckpt.protocol.offsets_conf import partitions_of
from spark_ckpt.state.reading import conf_of
from spark_ckpt.storage import open_storage
from spark_ckpt.stored.left_acks import left_acks
from spark_ckpt.stored.state.archive import parse_metadata
from tests.drivers.checkpoints import sample


def document(rng: random.Random, depth: int) -> Any:
    kind = rng.randrange(5 if depth else 3)
    if kind == 3:
        return [document(rng, depth - 1) for _ in range(rng.randrange(4))]
    if kind == 4:
        return {str(number): document(rng, depth - 1) for number in range(rng.randrange(4))}
    return rng.choice([7, None, 'a,[{"', "\\", '\\"', "[" * 9])


def values(found: Any) -> int:
    """What the rule counts at most: values, and keys beside them."""
    if isinstance(found, dict):
        return 1 + sum(2 + values(value) for value in found.values())
    return 1 + sum(map(values, found)) if isinstance(found, list) else 1


def least(found: Any) -> int:
    """Lists, objects, and what is in them beside the first."""
    inside = list(found.values()) if isinstance(found, dict) else found if isinstance(found, list) else []
    return isinstance(found, list | dict) + max(0, len(inside) - 1) + sum(map(least, inside))


def test_it_counts_what_is_there_and_not_what_texts_say() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(500):
        found = document(rng, 4)
        data = json.dumps(found).encode()
        assert parse_json(data, 2 * values(found)) == found
        if least(found):
            with pytest.raises(ValueError, match="values"):
                check_values(data, least(found) - 1)


@pytest.mark.parametrize("piece", [b"[],", b"{},", b"[[", b'"",', b"1,", b'"" ', b'"\\\\",'])
def test_a_small_entry_takes_no_memory(piece: bytes) -> None:
    data = b'{"v":3,"x":[' + piece * 100_000
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="log entry 1 is not JSON of an entry's size"):
            decode(1, data, EntryLimits(values=10_000))
        assert tracemalloc.get_traced_memory()[1] < 2 * len(data)
    finally:
        tracemalloc.stop()


QUOTE = "\u2230"
"""It holds the byte of a quotation mark in UTF-16 and UTF-32: read as ASCII, all that is between the two is a text."""


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
def test_what_is_counted_is_what_is_parsed(encoding: str) -> None:
    data = ('{"v":3,"sstFiles":[],"acks":["' + QUOTE + '"' + ",{}" * 10_000 + ',"' + QUOTE + '"]}').encode(encoding)
    with pytest.raises(ValueError, match=r"utf-8|Expecting"):
        parse_json(data, 1_000_000)
    with pytest.raises(FormatError, match="log entry 1 is not JSON of an entry's size"):
        decode(1, data)
    with pytest.raises(FormatError, match="cannot be read"):
        parse_metadata(b"v1\n" + data, "7_u.zip")
    storage = open_storage(f"memory://bounded-{encoding}")
    storage.put(left_acks_key(1, 5, "forged"), data)
    assert "is not a list of acknowledgements" in left_acks(storage, 1, 5).unreadable[0]


@pytest.mark.timeout(60)
def test_a_text_that_does_not_end_is_looked_through_once() -> None:
    """Not once for each quotation mark in it, which would hold up all threads of the process for hours."""
    data = b'{"v":3,"x":[' + b"1," * 200 + b'"' + b'\\"' * 1_000_000
    with pytest.raises(ValueError, match=r"100 values"):
        parse_json(data, 100)
    with pytest.raises(ValueError, match=r"Unterminated"):
        parse_json(data, 1_000)
    with pytest.raises(ValueError, match=r"Unterminated|escape"):
        parse_json(data + b"\\", 1_000)


@pytest.mark.parametrize("data", [b'\xef\xbb\xbf{"v":3}', b'{"v":"\xff"}', b'{"v":"\xed\xa0\x80"}'])
def test_what_is_not_plain_utf_8_is_not_read(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"BOM|utf-8"):
        parse_json(data, 10)


@contextmanager
def no_more_than(bytes_: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < bytes_
    finally:
        tracemalloc.stop()


MANY = b",[]" * 10_000_001


def test_the_offsets_of_a_forged_checkpoint_take_no_memory() -> None:
    """They are packed in `_metadata`: of some hundred kilobytes there, gigabytes came to be."""
    line = b'{"conf":{"spark.sql.shuffle.partitions":"7"},"x":[[]' + MANY + b"]}"
    forged = sample()
    forged = replace(forged, files={f"offsets/{forged.id.epoch}": b"v1\n" + line + b"\n{}"})
    with no_more_than(100 << 20):
        assert partitions_of(forged) is None
        with pytest.raises(DamagedError, match=r"holds more than .* values.*it is damaged"):
            conf_of(forged)


def test_nor_does_what_committed_it() -> None:
    with no_more_than(100 << 20), pytest.raises(FormatError, match=r"commits/7 is not what Spark writes .*holds more than"):
        required_ids(7, b'v2\n{"x":[[]' + MANY + b"]}")
    with pytest.raises(FormatError, match=r"commits/7 is not what Spark writes .RecursionError"):
        required_ids(7, b"v2\n" + b"[" * 100_000)
