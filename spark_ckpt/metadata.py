"""The bytes of `_metadata`: one Parquet file that any data tool can open (docs/format.md).

A row is a handle. The file's key-value metadata holds one JSON document (`spark_ckpt`) and, under `spark_ckpt.crc`, two CRC-32 in
hexadecimal with a hyphen between: of the document, in every format to come too, and of the rows. Parquet's own page checksums are
written as well, for readers that are not this one. There may be a million rows: nothing here takes a step of Python per value where a
step per column does.
"""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain, pairwise, repeat
from typing import Any

from spark_ckpt import paths
from spark_ckpt.errors import CheckpointError, DamagedError, FormatError
from spark_ckpt.metadata_files import pack_files, unpack_files
from spark_ckpt.model import Checkpoint, CheckpointId, Handle, HandleKind, Job, Snapshot, StoreId

FORMAT = 1
DOCUMENT_KEY = b"spark_ckpt"
CRC_KEY = b"spark_ckpt.crc"

MAX_FILE = 512 * 1024 * 1024
"""Bytes of a whole `_metadata`."""
MAX_DOCUMENT = 64 * 1024 * 1024
"""Bytes of the JSON document. Files of the driver are in it, base64."""
MAX_ROWS = 5_000_000

COLUMNS = ("operator", "partition", "store", "version", "uid", "kind", "name", "object", "offset", "length", "checksum", "num_keys")
_STRINGS = ("store", "uid", "kind", "name", "object")
_OF_SNAPSHOTS = ("operator", "partition", "store", "version", "uid", "num_keys")
_NAME = COLUMNS.index("name")
_MAX_FIELD = {"operator": 2**31, "partition": 2**31, "checksum": 2**32}

_DICTIONARY = ["operator", "store", "version", "uid", "kind", "object", "num_keys"]
_ENCODINGS = {
    "partition": "DELTA_BINARY_PACKED",
    "offset": "DELTA_BINARY_PACKED",
    "length": "DELTA_BINARY_PACKED",
    "name": "PLAIN",
    "checksum": "PLAIN",
}
"""Parquet's encodings: dictionaries where values repeat, differences where neighbours are near, and names and checksums as they are."""

_Columns = Sequence[Sequence[Any]]


def encode(checkpoint: Checkpoint) -> bytes:
    """Serialise. Raises DamagedError for what `decode` would refuse: no handles, a store twice, a name that escapes, too large."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for snapshot in checkpoint.snapshots:
        if not snapshot.handles:
            raise FormatError(f"the snapshot of {snapshot.store} has no handles and cannot be stored")
    if len({s.store for s in checkpoint.snapshots}) != len(checkpoint.snapshots):
        raise FormatError("two snapshots of one store cannot be in one checkpoint")
    narrow = _columns(checkpoint.snapshots)
    _check_columns(narrow)
    columns = _widened(narrow, [len(s.handles) for s in checkpoint.snapshots])
    for path in checkpoint.files:
        paths.check_file(path)
    names = {row: columns[_NAME][row] for row in _last_rows(checkpoint.snapshots)}
    document = json.dumps(_document(checkpoint, names), separators=(",", ":"), sort_keys=True).encode()
    if len(document) > MAX_DOCUMENT:
        raise FormatError(
            f"the driver's files of epoch {checkpoint.id.epoch} are too large for a checkpoint: {len(document)} bytes of {MAX_DOCUMENT}; "
            "compact the source's log more often (spark.sql.streaming.fileSource.log.compactInterval, cleanupDelay)"
        )
    schema = pa.schema([pa.field(name, _type(name), nullable=name == "num_keys") for name in COLUMNS])
    blocks = _blocks(columns)
    arrays = [_array(field.type, column, block) for field, column, block in zip(schema, columns, blocks, strict=True)]
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        use_dictionary=_DICTIONARY,
        column_encoding=_ENCODINGS,
        write_page_checksum=True,
        store_schema=False,
    ) as writer:
        writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
        writer.add_key_value_metadata({DOCUMENT_KEY: document, CRC_KEY: f"{zlib.crc32(document):08x}-{_crc(blocks):08x}"})
    data: bytes = sink.getvalue().to_pybytes()
    return data


def decode(data: bytes, *, where: str = "") -> Checkpoint:
    """Parse and verify. `where` (a URL or key) is named in errors.

    Raises DamagedError if a byte is wrong, FormatError for a newer format, an oversized document, or a handle that points elsewhere.
    """
    name = where or "this _metadata"
    if len(data) > MAX_FILE:
        raise FormatError(f"{name} has {len(data)} bytes, more than the {MAX_FILE} of any checkpoint's metadata; it is not one")
    try:
        return _decode(data, name)
    except CheckpointError as e:
        raise (e if name in str(e) else type(e)(f"{name}: {e}")) from e.__cause__
    # Whatever pyarrow or json make of damaged bytes, it is damage; which type they raise differs between their versions.
    except Exception as e:
        raise DamagedError(f"{name} is damaged ({type(e).__name__}); restore from an older checkpoint") from e


def _decode(data: bytes, name: str) -> Checkpoint:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True, thrift_string_size_limit=MAX_DOCUMENT * 2)
    pairs: Mapping[bytes, bytes] = file.metadata.metadata or {}
    document = pairs.get(DOCUMENT_KEY)
    if document is None:
        raise FormatError(
            f"{name} is a Parquet file, but not a checkpoint's metadata: it has no key-value metadata {DOCUMENT_KEY.decode()}"
        )
    if len(document) > MAX_DOCUMENT or file.metadata.num_rows > MAX_ROWS:
        size = f"{len(document)} bytes, {file.metadata.num_rows} rows"
        raise FormatError(f"{name} is larger than any checkpoint's metadata ({size}); it is not one")
    document_crc, _, rows_crc = pairs[CRC_KEY].decode().partition("-")
    if int(document_crc, 16) != zlib.crc32(document):
        raise DamagedError(f"{name} is damaged: its document's checksum does not match; restore from an older checkpoint")
    doc = json.loads(document)
    version = doc["format"]
    if not isinstance(version, int) or version < 1:
        raise DamagedError(f"{name} is damaged: its format is {version!r}")
    if version > FORMAT:
        writer = doc.get("writer", "of an unknown version")
        raise FormatError(f"{name} has format {version}, written by spark-ckpt {writer}; this one reads up to {FORMAT}: upgrade spark-ckpt")
    table = file.read(columns=list(COLUMNS))
    for column in COLUMNS:
        values = table.column(column)
        if not values.type.equals(pa.string() if column in _STRINGS else pa.int64()):
            raise DamagedError(f"{name} is damaged: column {column} is of type {values.type}")
    columns = [table.column(column).to_pylist() for column in COLUMNS]
    if int(rows_crc, 16) != _crc(_blocks(columns)):
        raise DamagedError(f"{name} is damaged: its rows' checksum does not match; restore from an older checkpoint")
    # Only now the content can be trusted to be what its writer wrote; what follows guards against a forged one.
    _check_columns(columns)
    snapshots = _snapshots(columns)
    if len(snapshots) != doc["num_snapshots"]:
        raise DamagedError(f"{name} is damaged: {len(snapshots)} snapshots of {doc['num_snapshots']}")
    return Checkpoint(
        id=CheckpointId(int(doc["run"]), int(doc["epoch"])),
        log=int(doc["log"]),
        claim=int(doc["claim"]),
        query_id=str(doc["query_id"]),
        time_ms=int(doc["time_ms"]),
        job=Job.from_json(doc["job"]),
        files={paths.check_file(path): content for path, content in unpack_files(doc["files"], columns[_NAME], MAX_DOCUMENT).items()},
        snapshots=snapshots,
        counters=dict(doc["counters"]),
    )


def _document(checkpoint: Checkpoint, names: Mapping[int, str]) -> dict[str, Any]:
    from spark_ckpt import __version__

    return {
        "format": FORMAT,
        "writer": __version__,
        "epoch": checkpoint.id.epoch,
        "run": checkpoint.id.run,
        "log": checkpoint.log,
        "claim": checkpoint.claim,
        "query_id": checkpoint.query_id,
        "time_ms": checkpoint.time_ms,
        "job": checkpoint.job.to_json(),
        "files": pack_files(checkpoint.files, names),
        "counters": dict(checkpoint.counters),
        "num_snapshots": len(checkpoint.snapshots),
    }


def _type(column: str) -> Any:
    import pyarrow as pa

    return pa.string() if column in _STRINGS else pa.int64()


def _array(kind: Any, values: Sequence[Any], block: bytes | array[int]) -> Any:
    """From buffers: `pyarrow.array` would load pandas, where it is installed, to ask whether the list is one of its own (50 MB)."""
    import pyarrow as pa

    if isinstance(block, bytes):
        data, lengths = block.replace(b"\n", b""), list(map(len, values))
        if not block.isascii() or len(data) != sum(lengths):  # newlines of its own; one and a letter of two bytes add up to nothing
            texts = [text.encode() for text in values]
            data, lengths = b"".join(texts), list(map(len, texts))
        offsets = array("i", [0, *accumulate(lengths)])
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    missing = [at for at, value in enumerate(values) if value is None] if None in values else []
    valid = None
    if missing:
        bits = bytearray(b"\xff" * (-(-len(values) // 8)))
        for at in missing:
            bits[at // 8] &= ~(1 << at % 8)
        valid = pa.py_buffer(bytes(bits))
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(block)], len(missing))


def _last_rows(snapshots: Sequence[Snapshot]) -> Iterable[int]:
    """Of each snapshot the files of its version and of the one before: `commits/` of the epoch and of the one before name those."""
    for snapshot, end in zip(snapshots, accumulate(len(s.handles) for s in snapshots), strict=True):
        yield from range(end - min(2, len(snapshot.handles)), end)


def _columns(snapshots: Sequence[Snapshot]) -> _Columns:
    """What belongs to a snapshot has a value for each (`_OF_SNAPSHOTS`), all else for each handle.

    Rows of one snapshot are adjacent and in the order in which its files are put in place.
    """
    handles = [h for s in snapshots for h in s.handles]
    return (
        [s.store.operator for s in snapshots],
        [s.store.partition for s in snapshots],
        [s.store.store for s in snapshots],
        [s.version for s in snapshots],
        [s.uid for s in snapshots],
        [h.kind._value_ for h in handles],
        [h.name for h in handles],
        [h.object for h in handles],
        [h.offset for h in handles],
        [h.length for h in handles],
        [h.checksum for h in handles],
        [s.num_keys for s in snapshots],
    )


def _widened(columns: _Columns, lengths: Sequence[int]) -> _Columns:
    """A value for each handle everywhere; `lengths`: how many each snapshot has."""
    return tuple(
        list(chain.from_iterable(map(repeat, values, lengths))) if column in _OF_SNAPSHOTS else values
        for column, values in zip(COLUMNS, columns, strict=True)
    )


def _snapshots(columns: _Columns) -> tuple[Snapshot, ...]:
    operators, partitions, stores, versions, uids, kinds, names, objects, offsets, lengths, checksums, num_keys = columns
    rows = list(zip(operators, partitions, stores, versions, uids, num_keys, strict=True))
    handles = list(map(Handle, map(_kind, kinds), names, objects, offsets, lengths, checksums))
    starts = [at for at, (row, before) in enumerate(zip(rows, [None, *rows], strict=False)) if row != before]
    found: list[Snapshot] = []
    for start, end in pairwise([*starts, len(rows)]):
        operator, partition, store, version, uid, keys = rows[start]
        found.append(Snapshot(StoreId(operator, partition, store), version, uid, tuple(handles[start:end]), keys))
    if len({s.store for s in found}) != len(found):
        raise DamagedError("a store appears twice in a checkpoint's metadata; the metadata is damaged")
    return tuple(found)


_kind = {kind.value: kind for kind in HandleKind}.__getitem__


def _check_columns(columns: _Columns) -> None:
    for column, values in zip(COLUMNS, columns, strict=True):
        if column == "name":
            paths.check_files(values)
        elif column == "object":
            for text in set(values):
                paths.check_object(text)
        elif column not in _STRINGS:
            numbers = [v for v in values if v is not None] if column == "num_keys" else values
            low, high = min(numbers, default=0), max(numbers, default=0)
            if low < 0 or high >= _MAX_FIELD.get(column, 2**63):
                wrong = low if low < 0 else high
                raise DamagedError(f"{column}={wrong!r} in a checkpoint's metadata is out of range; the metadata is damaged")


def _blocks(columns: _Columns) -> list[bytes | array[int]]:
    """The columns as bytes (docs/format.md): strings with a newline between, numbers as 64 bits, no number as -1."""
    blocks: list[bytes | array[int]] = []
    for column, values in zip(COLUMNS, columns, strict=True):
        if column in _STRINGS:
            blocks.append("\n".join(values).encode())
        else:
            blocks.append(array("q", [-1 if v is None else v for v in values] if column == "num_keys" else values))
    return blocks


def _crc(blocks: Iterable[bytes | array[int]]) -> int:
    """Numbers are little-endian, as on every machine that Spark and pyarrow run on."""
    crc = 0
    for block in blocks:
        crc = zlib.crc32(block, crc)
    return crc
