"""The files below `state/` that Spark's driver writes for stateful operators, as far as they say what those are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

Columns = Sequence[tuple[str, Any]]
"""Names and types, as Spark's JSON of a schema has them."""


def operator_files(number: int, kind: str, keys: Columns, values: Columns, stores: Sequence[str] = ("default",)) -> dict[str, bytes]:
    """Each of the stores holds the same."""
    infos = [{"storeName": name, "numColsPrefixKey": 0, "numPartitions": 2} for name in stores]
    metadata = {"operatorInfo": {"operatorId": number, "operatorName": kind}, "stateStoreInfo": infos}
    files = {f"state/{number}/_metadata/metadata": b"v1\n" + json.dumps(metadata, separators=(",", ":")).encode()}
    schema = _utf(b"v2") + _chunks(keys) + _chunks(values)
    for name in stores:
        files[f"state/{number}/0/{'' if name == 'default' else name + '/'}_metadata/schema"] = schema
    return files


def a_total(number: int, key: str = "key") -> dict[str, bytes]:
    return operator_files(number, "stateStoreSave", [(key, "string")], [("sum", "long")])


def a_count(number: int, key: str = "key") -> dict[str, bytes]:
    """The kind and the key of `a_total`."""
    return operator_files(number, "stateStoreSave", [(key, "string")], [("count", "long")])


def a_deduplication(number: int, key: str = "id") -> dict[str, bytes]:
    return operator_files(number, "dedupe", [(key, "long")], [("seen", "boolean")])


def _chunks(columns: Columns) -> bytes:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns]
    return (1).to_bytes(4, "big") + _utf(json.dumps({"type": "struct", "fields": fields}).encode())


def _utf(text: bytes) -> bytes:
    return len(text).to_bytes(2, "big") + text
