"""Types of Spark's, and values of theirs, for hypothesis."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from spark_ckpt.state.spark_types import Array, Atomic, Field, Map, SparkType, Struct
from tests.drivers.unsafe_rows import EXACT

TEXT = Atomic("string")
_INTS = {"byte": 8, "short": 16, "integer": 32, "long": 64, "year_month": 32}


def _ints(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _decimals(precision: int) -> st.SearchStrategy[Decimal]:
    return st.integers(-(10**precision) + 1, 10**precision - 1).map(lambda n: Decimal(n).scaleb(-2, EXACT))


ATOMIC: list[tuple[Atomic, st.SearchStrategy[Any]]] = [
    *((Atomic(name), _ints(bits)) for name, bits in _INTS.items()),
    (Atomic("boolean"), st.booleans()),
    (Atomic("float"), st.floats(width=32, allow_nan=False)),
    (Atomic("double"), st.floats(allow_nan=False)),
    (TEXT, st.text(st.characters(codec="utf-8"), max_size=40)),
    (Atomic("binary"), st.binary(max_size=200)),
    (Atomic("decimal", 10, 2), _decimals(10)),
    (Atomic("decimal", 38, 2), _decimals(38)),
]
Typed = tuple[SparkType, st.SearchStrategy[Any]]


def _nested(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    def list_of(one: Typed) -> Typed:
        return Array(one[0]), st.lists(st.none() | one[1], max_size=4)

    def map_of(one: Typed) -> Typed:
        pair = st.tuples(st.text(st.characters(codec="ascii"), max_size=3), st.none() | one[1])
        return Map(TEXT, one[0]), st.lists(pair, max_size=3, unique_by=lambda p: p[0])

    def struct_of(many: list[Typed]) -> Typed:
        return Struct(tuple(Field(f"f{n}", one[0]) for n, one in enumerate(many))), st.tuples(*(st.none() | one[1] for one in many))

    return inner.map(list_of) | inner.map(map_of) | st.lists(inner, min_size=1, max_size=3).map(struct_of)


TYPES: st.SearchStrategy[Typed] = st.recursive(st.sampled_from(ATOMIC), _nested, max_leaves=4)
