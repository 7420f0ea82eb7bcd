"""State of `transformWithState` in Avro, with one state variable, `count`, whose schema has evolved."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from spark_ckpt.model import Content
from spark_ckpt.state.changelogs import Change
from spark_ckpt.state.reading import StateOfCheckpoint
from spark_ckpt.storage import open_storage
from tests.drivers.state_versions import StoreVersions


def schema(*fields: tuple[str, str]) -> bytes:
    found = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields]
    return json.dumps({"type": "struct", "fields": found}).encode()


def schema_file(number: int, value: bytes, version: bytes = b"v3") -> bytes:
    """As Spark writes it for one state variable, `count`."""

    def chunk(text: bytes) -> bytes:
        return struct.pack(">iH", 1, len(text)) + text

    layout = b'{"keyStateEncoderType":"NoPrefixKeyStateEncoderSpec"}'
    key = b"\0\0" + chunk(schema(("key", "string")))
    return b"\0\2" + version + b"\0\0\0\1\0\5count" + key + struct.pack(">h", number) + chunk(value) + chunk(layout) + chunk(b"{}")


def evolved(files: Mapping[str, bytes], folder: Path, values: Sequence[bytes], epoch: int = 1) -> StateOfCheckpoint:
    """`files`: schema files by their names, the oldest first. `values`: of the keys A, B and so on."""
    properties = {"stateVariables": [{"stateName": "count", "stateVariableType": "ValueState"}]}
    paths = [f"file:/x/state/0/_stateSchema/default/{name}" for name in files]
    metadata = {
        "operatorInfo": {"operatorId": 0, "operatorName": "transformWithStateExec"},
        "stateStoreInfo": [{"storeName": "default", "numColsPrefixKey": 0, "numPartitions": 1, "stateSchemaFilePaths": paths}],
        "operatorPropertiesJson": json.dumps(properties),
    }
    driver: dict[str, Content] = {f"state/0/_stateSchema/default/{name}": content for name, content in files.items()}
    driver["state/0/_metadata/v2/0"] = b"v2\n" + json.dumps(metadata).encode()
    versions = StoreVersions(open_storage(f"file://{folder}/kept"), driver, {"count": 1})
    records = [(Change.PUT, b"\1\0\0\0\0\2\2" + bytes([65 + n]), value) for n, value in enumerate(values)]
    checkpoint = versions.checkpoint([records] + [[] for _ in range(1, epoch)], 1).checkpoint
    offsets = json.loads(bytes(checkpoint.file(f"offsets/{epoch}") or b"").split(b"\n")[1])
    offsets["conf"]["spark.sql.streaming.stateStore.encodingFormat"] = "avro"
    changed = {**checkpoint.files, f"offsets/{epoch}": b"v1\n" + json.dumps(offsets).encode()}
    return StateOfCheckpoint(open_storage(f"file://{folder}/kept"), replace(checkpoint, files=changed))
