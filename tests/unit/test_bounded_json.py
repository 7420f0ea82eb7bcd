"""What a document may hold is known before it is parsed; what it says in its texts counts for nothing."""

from __future__ import annotations

import json
import random
import tracemalloc
from typing import Any

import pytest

from spark_ckpt.bounded_json import check_values, parse_json
from spark_ckpt.errors import FormatError
from spark_ckpt.protocol.entries import EntryLimits, decode


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
