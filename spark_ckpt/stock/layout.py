"""Where stock Spark has what in a `checkpointLocation`, and what there depends on the state store's provider and on the place itself.

- `metadata`: the query's id; `offsets/N`, `commits/N`: JSON lines; `sources/<i>/…`: the logs of the sources
- `state/<operator>/_metadata/…`, `state/<operator>/_stateSchema/…`: of the driver (`state/schemas.py`)
- `state/<operator>/<partition>/[<store>/]`: `7.changelog`, `7.zip`, `SSTs/…` (Spark: `RocksDBFileManager`). In checkpoint format 2
  (`spark.sql.streaming.stateStore.checkpointFormatVersion`) `7_<uid>.changelog` and `7_<uid>.zip`, and `commits/N` has the unique ids
"""

from __future__ import annotations

import json
import re
from enum import IntEnum

from spark_ckpt.bounded_json import parse_json
from spark_ckpt.errors import ConfigError, DamagedError, without_password
from spark_ckpt.model import Handle, StoreId
from spark_ckpt.paths import split

METADATA = "metadata"
OURS = b"org.apache.spark.sql.execution.streaming.state.ckpt.BarrierStateStoreProvider"
STOCK = b"org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
"""State store providers. Spark notes with an epoch's offsets which one it has, and that wins over the configuration at the next start."""
DEFAULT_STORE = "default"
"""The store of an operator that has only one; it lies in the partition's own folder."""


class CheckpointFormat(IntEnum):
    """`spark.sql.streaming.stateStore.checkpointFormatVersion`. Files and commits as this package has them are of V2."""

    V1 = 1
    V2 = 2


_OFFSETS = re.compile(r"offsets/\d+", re.ASCII)
_COMMITS = re.compile(r"commits/\d+", re.ASCII)
_VERSION = re.compile(r"(\d+)_[^/]+(\.(?:zip|changelog))", re.ASCII)
_OPERATOR = re.compile(r"state/\d+/_metadata/v2/\d+", re.ASCII)
_SCHEMA = re.compile(r".*?(/state/\d+/_stateSchema/.+)", re.ASCII | re.DOTALL)
_AZURE = re.compile(r"abfss?://[a-z0-9-]+@[a-z0-9.-]+")
"""Container and account, which look like a user and a host."""
_MAX_VALUES = 2_000_000
_MAX_IDS = 10_000_000


def store_folder(store: StoreId) -> str:
    """Below the `checkpointLocation`, without a `/` at its end."""
    folder = f"state/{store.operator}/{store.partition}"
    return folder if store.store == DEFAULT_STORE else f"{folder}/{store.store}"


def state_file(store: StoreId, handle: Handle, form: CheckpointFormat) -> str:
    """A file of ours under the name that it has there."""
    version = _VERSION.fullmatch(handle.name) if form is CheckpointFormat.V1 else None
    return f"{store_folder(store)}/{version.group(1) + version.group(2) if version else handle.name}"


def query_metadata(query_id: str) -> bytes:
    """What the file `metadata` says."""
    return json.dumps({"id": query_id}, separators=(",", ":")).encode()


def is_changed(path: str) -> bool:
    """Whether `for_stock` changes this file of the driver."""
    return any(pattern.fullmatch(path) is not None for pattern in (_OFFSETS, _COMMITS, _OPERATOR))


def for_stock(path: str, content: bytes, location: str, form: CheckpointFormat) -> bytes:
    """A file of the driver as stock Spark has it in the `checkpointLocation` `location`, which is written as Spark writes it.

    With an epoch's offsets stands the provider; what committed it are unique ids, unless the format has none; an operator's metadata names
    its schema files by their whole paths. Raises `DamagedError`.
    """
    if _OFFSETS.fullmatch(path):
        return with_provider(content, OURS, STOCK)
    if _COMMITS.fullmatch(path):
        return _without_ids(path, content) if form is CheckpointFormat.V1 else content
    return at_location(path, content, location) if _OPERATOR.fullmatch(path) else content


def with_provider(offsets: bytes, before: bytes, after: bytes) -> bytes:
    """In the line of `offsets/N` that has the epoch's configuration: what sources have written behind it stays as it is."""
    lines = offsets.split(b"\n", 2)
    if len(lines) > 1:
        lines[1] = lines[1].replace(b'"' + before + b'"', b'"' + after + b'"')
    return b"\n".join(lines)


def at_location(path: str, content: bytes, location: str) -> bytes:
    """An operator's metadata (v2) with its schema files below `location`."""
    version, newline, body = content.partition(b"\n")
    try:
        document = parse_json(body, _MAX_VALUES)
        for store in document["stateStoreInfo"]:
            named = store.get("stateSchemaFilePaths")
            if named:
                store["stateSchemaFilePaths"] = [_moved(path, str(name), location) for name in named]
        return version + newline + json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as e:
        raise DamagedError(f"{path} cannot be read ({type(e).__name__}: {e}); it is damaged, choose another checkpoint") from e


def _without_ids(path: str, content: bytes) -> bytes:
    """`commits/N` of format 2 as one of format 1. The form v3 has what sinks say besides, and stays."""
    version, newline, body = content.partition(b"\n")
    if version not in (b"v2", b"v3"):
        return content
    try:
        document = parse_json(body, _MAX_IDS)
        document.pop("stateUniqueIds", None)
        return (b"v1" if version == b"v2" else version) + newline + json.dumps(document, separators=(",", ":")).encode()
    except (TypeError, ValueError, AttributeError, RecursionError) as e:
        raise DamagedError(f"{path} cannot be read ({type(e).__name__}: {e}); it is damaged, choose another checkpoint") from e


def _moved(path: str, name: str, location: str) -> str:
    found = _SCHEMA.fullmatch(name)
    if found is None:
        raise DamagedError(f"{path} names the schema file {name!r:.200}, which lies in no state folder; choose another checkpoint")
    return location.rstrip("/") + found.group(1)


def location_of(text: str) -> str:
    """A `checkpointLocation`, a URL or an absolute path, as Spark writes it: `file:/x` for a local one. Raises `ConfigError`."""
    scheme, authority, path = split(text)
    server = f"{scheme}://{authority}"
    if (without_password(server) != server and not _AZURE.fullmatch(server)) or not path.startswith("/"):
        raise ConfigError(f"{without_password(text)!r:.200} is no checkpointLocation; write a path or a URL, without credentials")
    return f"file:{path}" if scheme in ("", "file") else f"{scheme}://{authority}{path}"
