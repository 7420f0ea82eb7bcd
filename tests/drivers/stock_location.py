"""A `checkpointLocation` as stock Spark leaves it, made without Spark: real RocksDB files, real logs, in checkpoint format 1 and 2."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark_ckpt.state.changelogs import lz4_checksum
from spark_ckpt.stock.layout import STOCK
from tests.drivers.stored_stream import make_store

QUERY = "11111111-2222-3333-4444-555555555555"
CONF = {
    "spark.sql.streaming.stateStore.providerClass": STOCK.decode(),
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.compression.codec": "lz4",
}


def utf(text: bytes) -> bytes:
    return struct.pack(">H", len(text)) + text


def changelog(puts: Iterable[tuple[bytes, bytes]], form: int, lineage: Iterable[tuple[int, str]] = ()) -> bytes:
    """Unpacked, as Spark's `StateStoreChangelogWriterV1` … `V4` write it."""
    out = utf(b"v%d" % form) if form > 1 else b""
    if form > 2:
        out += utf(json.dumps([{"version": v, "checkpointUniqueId": uid} for v, uid in lineage], separators=(",", ":")).encode())
    for key, value in puts:
        out += (b"\x01" if form in (2, 4) else b"") + struct.pack(">i", len(key)) + key + struct.pack(">i", len(value)) + value
    return out + (b"\0" if form in (2, 4) else struct.pack(">i", -1))


def _schema(columns: Iterable[str]) -> bytes:
    """In chunks, each as long as `writeUTF` takes."""
    fields = [{"name": name, "type": "string", "nullable": True, "metadata": {}} for name in columns]
    text = json.dumps({"type": "struct", "fields": fields}).encode()
    chunks = [text[at : at + 65_535] for at in range(0, len(text), 65_535)]
    return struct.pack(">i", len(chunks)) + b"".join(map(utf, chunks))


def packed(data: bytes, codec: str) -> bytes:
    if codec == "zstd":
        return bytes(pa.compress(data, "zstd", asbytes=True))
    out = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) if codec == "snappy" else b""
    for at in range(0, len(data), 32_768):
        block = data[at : at + 32_768]
        body = pa.compress(block, "snappy" if codec == "snappy" else "lz4_raw", asbytes=True)
        if codec == "lz4":
            out += b"LZ4Block\x25" + struct.pack("<iiI", len(body), len(block), lz4_checksum(block))
        out += (struct.pack(">i", len(body)) if codec == "snappy" else b"") + body
    return out + (b"LZ4Block\x15" + struct.pack("<iii", 0, 0, 0) if codec == "lz4" else b"")


@dataclass
class StockLocation:
    """One aggregation, or another operator, with so many partitions.

    `format`: of checkpoints; `form`: of changelogs, 1 or 2, and in format 2 two more.
    """

    folder: Path
    format: int = 1
    form: int = 1
    codec: str = "lz4"
    stores: tuple[str, ...] = ("default",)
    conf: dict[str, str] = field(default_factory=dict)
    partitions: int = 2
    operator: str = "stateStoreSave"
    values: Sequence[str] = ("key",)
    """Names of the value's columns."""
    _chains: dict[tuple[int, str], list[tuple[int, str]]] = field(default_factory=dict)

    def begin(self) -> StockLocation:
        self.write("metadata", json.dumps({"id": QUERY}).encode())
        infos = [{"storeName": name, "numColsPrefixKey": 0, "numPartitions": 2} for name in self.stores]
        operator: dict[str, Any] = {"operatorInfo": {"operatorId": 0, "operatorName": self.operator}, "stateStoreInfo": infos}
        self.write("state/0/_metadata/metadata", b"v1\n" + json.dumps(operator).encode())
        for name in self.stores:
            below = "" if name == "default" else f"{name}/"
            self.write(f"state/0/0/{below}_metadata/schema", utf(b"v2") + _schema(["key"]) + _schema(self.values))
        return self

    def write(self, name: str, content: bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def plan(self, batch: int) -> None:
        conf = {**CONF, "spark.sql.streaming.stateStore.compression.codec": self.codec, **self.conf}
        metadata = {"batchWatermarkMs": 1000 * batch, "batchTimestampMs": 7, "conf": conf}
        self.write(f"offsets/{batch}", b"v1\n" + json.dumps(metadata).encode() + b'\n{"logOffset":%d}' % batch)
        self.write(f"sources/0/{batch}", b'v1\n{"path":"file:/in/%d"}' % batch)

    def batch(self, batch: int, full: bool = False) -> None:
        """Planned, run and committed. `full`: the version is a full snapshot too, as after Spark's maintenance."""
        self.plan(batch)
        version = batch + 1
        ids = [[self._commit(batch, version, partition, store, full) for store in self.stores] for partition in range(self.partitions)]
        said: dict[str, Any] = {"nextBatchWatermarkMs": 1000 * version}
        if self.format == 2:
            said["stateUniqueIds"] = {"0": ids}
        self.write(f"commits/{batch}", b"v%d\n" % self.format + json.dumps(said).encode())

    def _commit(self, batch: int, version: int, partition: int, store: str, full: bool) -> str:
        below = f"state/0/{partition}/" + ("" if store == "default" else f"{store}/")
        uid = f"u-{store}-{partition}-{batch}"
        name = str(version) if self.format == 1 else f"{version}_{uid}"
        chain = self._chains.setdefault((partition, store), [])
        form = self.form if self.format == 1 else self.form + 2
        content = changelog([(b"\0key%d" % batch, b"\0value%d" % batch)], form, chain)
        self.write(f"{below}{name}.changelog", packed(content, self.codec))
        if full:
            made = make_store(self.folder.parent, 5, f"{store}-{partition}-{batch}")
            self.write(f"{below}{name}.zip", made.zip_bytes)
            for sst, data in made.ssts.items():
                self.write(f"{below}SSTs/{sst}", data)
            chain.clear()
        chain.append((version, uid))
        return uid

    def contents(self) -> dict[str, tuple[bytes, int]]:
        """Of every file, with its time of modification."""
        return {str(p.relative_to(self.folder)): (p.read_bytes(), p.stat().st_mtime_ns) for p in self.folder.rglob("*") if p.is_file()}
