"""The bytes of `_metadata`: one Parquet file that any data tool can open (docs/format.md).

A row is a handle. The file's key-value metadata holds one JSON document (`spark_ckpt`) and, under `spark_ckpt.crc`, two CRC-32 in
hexadecimal with a hyphen between: of the document, in every format to come too, and of the rows. Parquet's own page checksums are
written as well, for readers that are not this one.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from spark_ckpt import paths
from spark_ckpt.bounded_json import check_values, parse_json
from spark_ckpt.errors import CheckpointError, DamagedError, FormatError
from spark_ckpt.model import Checkpoint, CheckpointId, Imported, Job, objects_of
from spark_ckpt.stored.metadata.columns import COLUMNS, DICTIONARY, check_columns, columns_of, crc_of, snapshots_of, to_arrow
from spark_ckpt.stored.metadata.files import files_from_json, files_to_json
from spark_ckpt.stored.metadata.limits import LIMITS, MetadataLimits
from spark_ckpt.stored.metadata.rows import check_sizes, read_columns, read_footer

FORMAT = 5
_IMPORTED = 4
_WITH_HOOKS = 3
_WITHOUT_HOOKS = 2
"""The formats of a checkpoint in which no operator begins: one that was imported, with the state of a hook, and without. Older releases
read it."""
DOCUMENT_KEY = b"spark_ckpt"
CRC_KEY = b"spark_ckpt.crc"

MAX_NUMBER = 2**63
_NUMBERS = ("run", "epoch", "log", "claim", "time_ms")

_NAME = COLUMNS.index("name")

_ENCODINGS = {
    "partition": "DELTA_BINARY_PACKED",
    "offset": "DELTA_BINARY_PACKED",
    "length": "DELTA_BINARY_PACKED",
    "name": "PLAIN",
    "checksum": "PLAIN",
}
"""Parquet's encodings: dictionaries where values repeat, differences where neighbours are near, and names and checksums as they are."""


def encode_metadata(checkpoint: Checkpoint, limits: MetadataLimits = LIMITS) -> bytes:
    """Serialise. Raises FormatError for what `decode_metadata` would refuse: no handles, a store twice, a name that escapes, too large."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for snapshot in checkpoint.snapshots:
        if not snapshot.handles:
            raise FormatError(f"the snapshot of {snapshot.store} has no handles and cannot be stored")
    columns = columns_of(checkpoint.snapshots)
    operators, partitions, stores, *_ = columns
    if len(set(zip(operators, partitions, stores, strict=True))) != len(checkpoint.snapshots):
        raise FormatError("two snapshots of one store cannot be in one checkpoint")
    check_columns(columns)
    lengths = [len(s.handles) for s in checkpoint.snapshots]
    check_sizes(columns, lengths, limits)
    for path in checkpoint.files:
        paths.check_driver_file(path)
    for key in objects_of(checkpoint.files.values()):
        paths.check_driver_object(key)
    inline = sum(len(content) for content in checkpoint.files.values() if isinstance(content, bytes))
    if inline > limits.files:
        raise _too_large(checkpoint, f"{inline} bytes of {limits.files}")
    fields = _document(checkpoint, columns[_NAME], _last_rows(lengths))
    for field in (*_NUMBERS, *(["log_from"] if checkpoint.log_from is not None else [])):
        _number(fields, field)
    document = json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()
    if len(document) > limits.document:
        raise _too_large(checkpoint, f"{len(document)} bytes of {limits.document}, packed")
    try:
        check_values(document, limits.values)
    except ValueError as e:
        raise _too_large(checkpoint, str(e)) from None
    table, crc = to_arrow(columns, lengths)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression="zstd",
        use_dictionary=list(DICTIONARY),
        column_encoding=_ENCODINGS,
        write_page_checksum=True,
        write_statistics=False,
        store_schema=False,
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({DOCUMENT_KEY: document, CRC_KEY: f"{zlib.crc32(document):08x}-{crc:08x}"})
    data: bytes = sink.getvalue().to_pybytes()
    if len(data) > limits.file:
        raise FormatError(f"_metadata of epoch {checkpoint.id.epoch} would have {len(data)} bytes, more than the {limits.file} of any")
    return data


def _too_large(checkpoint: Checkpoint, size: str) -> FormatError:
    return FormatError(
        f"the driver's small files of epoch {checkpoint.id.epoch} are too large for a checkpoint: {size}; let a file source's log be "
        "compacted more often (spark.sql.streaming.fileSource.log.compactInterval)"
    )


def decode_metadata(data: bytes, *, where: str = "", limits: MetadataLimits = LIMITS) -> Checkpoint:
    """Parse and verify. `where` (a URL or key) is named in errors.

    Raises DamagedError if a byte is wrong, FormatError for a newer format, an oversized document, or a handle that points elsewhere.
    """
    name = where or "this _metadata"
    if len(data) > limits.file:
        raise FormatError(f"{name} has {len(data)} bytes, more than the {limits.file} of any checkpoint's metadata; it is not one")
    try:
        return _decode(data, name, limits)
    except CheckpointError as e:
        raise (e if name in str(e) else type(e)(f"{name}: {e}")) from e.__cause__
    except ImportError:
        raise  # it says nothing of these bytes
    # Whatever pyarrow or json make of damaged bytes, it is damage; which type they raise differs between their versions.
    except Exception as e:
        raise DamagedError(f"{name} is damaged or cut short ({type(e).__name__}); restore from an older checkpoint") from e


def _decode(data: bytes, name: str, limits: MetadataLimits) -> Checkpoint:
    footer = read_footer(data, limits)
    pairs: Mapping[bytes, bytes] = footer.metadata or {}
    document = pairs.get(DOCUMENT_KEY)
    if document is None:
        raise FormatError(
            f"{name} is a Parquet file, but not a checkpoint's metadata: it has no key-value metadata {DOCUMENT_KEY.decode()}"
        )
    if len(document) > limits.document:
        raise FormatError(f"{name} is larger than any checkpoint's metadata (a document of {len(document)} bytes); it is not one")
    document_crc, _, rows_crc = pairs[CRC_KEY].decode().partition("-")
    if int(document_crc, 16) != zlib.crc32(document):
        raise DamagedError(f"{name} is damaged: its document's checksum does not match; restore from an older checkpoint")
    doc = parse_json(document, limits.values)
    version = doc["format"]
    if not isinstance(version, int) or version < 1:
        raise DamagedError(f"{name} is damaged: its format is {version!r}")
    if version > FORMAT:
        writer = doc.get("writer", "of an unknown version")
        raise FormatError(f"{name} has format {version}, written by spark-ckpt {writer}; this one reads up to {FORMAT}: upgrade spark-ckpt")
    columns = read_columns(data, footer, limits)
    if int(rows_crc, 16) != crc_of(columns):
        raise DamagedError(f"{name} is damaged: its rows' checksum does not match; restore from an older checkpoint")
    # Only now the content can be trusted to be what its writer wrote; what follows guards against a forged one.
    check_columns(columns)
    snapshots = snapshots_of(columns)
    if len(snapshots) != doc["num_snapshots"]:
        raise DamagedError(f"{name} is damaged: {len(snapshots)} snapshots of {doc['num_snapshots']}")
    return Checkpoint(
        id=CheckpointId(_number(doc, "run"), _number(doc, "epoch")),
        log=_number(doc, "log"),
        claim=_number(doc, "claim"),
        query_id=str(doc["query_id"]),
        time_ms=_number(doc, "time_ms"),
        job=Job.from_json(doc["job"]),
        files={paths.check_driver_file(path): data for path, data in files_from_json(doc["files"], columns[_NAME], limits.files).items()},
        snapshots=snapshots,
        counters=dict(doc["counters"]),
        unfinished=tuple(_in_range("unfinished", epoch) for epoch in doc.get("unfinished", ())),
        stream=str(doc.get("stream", "")),
        hooks=_hooks(doc.get("hooks", {})),
        imported=_imported(doc["imported"]) if doc.get("imported") is not None else None,
        begins=tuple(_in_range("begins", operator) for operator in doc.get("begins", ())),
        given_up=tuple(_in_range("given_up", epoch) for epoch in doc.get("given_up", ())),
        log_from=None if doc.get("log_from") is None else _in_range("log_from", doc["log_from"]),
    )


def _number(doc: Mapping[str, Any], name: str) -> int:
    return _in_range(name, doc[name])


def _in_range(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MAX_NUMBER:
        raise DamagedError(f"{name}={value!r:.40} in a checkpoint's metadata is out of range; the metadata is damaged")
    return value


def _document(checkpoint: Checkpoint, names: Sequence[str], last_rows: Iterable[int]) -> dict[str, Any]:
    from spark_ckpt import __version__

    hooks = {name: base64.b64encode(state).decode() for name, state in sorted(checkpoint.hooks.items())}
    return {
        "format": _format_of(checkpoint),
        "writer": __version__,
        "epoch": checkpoint.id.epoch,
        "run": checkpoint.id.run,
        "log": checkpoint.log,
        "claim": checkpoint.claim,
        "query_id": checkpoint.query_id,
        "time_ms": checkpoint.time_ms,
        "job": checkpoint.job.to_json(),
        "files": files_to_json(checkpoint.files, names, last_rows),
        "counters": dict(checkpoint.counters),
        "unfinished": list(checkpoint.unfinished),
        "log_from": checkpoint.log_from,
        "stream": checkpoint.stream,
        "num_snapshots": len(checkpoint.snapshots),
        **({"hooks": hooks} if hooks else {}),
        **({"begins": list(checkpoint.begins)} if checkpoint.begins else {}),
        **({"given_up": list(checkpoint.given_up)} if checkpoint.given_up else {}),
        **({"imported": _imported_json(checkpoint.imported)} if checkpoint.imported is not None else {}),
    }


def _format_of(checkpoint: Checkpoint) -> int:
    """The oldest that has all of it."""
    if checkpoint.begins:
        return FORMAT
    return _IMPORTED if checkpoint.imported is not None else _WITH_HOOKS if checkpoint.hooks else _WITHOUT_HOOKS


def _hooks(doc: Mapping[str, Any]) -> dict[str, bytes]:
    try:
        return {name: base64.b64decode(state, validate=True) for name, state in doc.items()}
    except (AttributeError, TypeError, ValueError) as e:
        raise DamagedError("the state of a hook in a checkpoint's metadata is not base64; the metadata is damaged") from e


def _imported_json(imported: Imported) -> dict[str, Any]:
    planned = imported.planned
    return {"location": imported.location, "planned": None if planned is None else base64.b64encode(planned).decode()}


def _imported(doc: Mapping[str, Any]) -> Imported:
    try:
        planned = doc["planned"]
        return Imported(str(doc["location"]), None if planned is None else base64.b64decode(planned, validate=True))
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        raise DamagedError("where a checkpoint was imported from cannot be read in its metadata; the metadata is damaged") from e


def _last_rows(lengths: Sequence[int]) -> list[int]:
    """Of each snapshot the files of its version and of the one before: `commits/` of the epoch and of the one before name those.

    `lengths`: how many handles each has.
    """
    ends = list(accumulate(lengths))
    return [*(end - 2 for end, length in zip(ends, lengths, strict=True) if length > 1), *(end - 1 for end in ends)]
