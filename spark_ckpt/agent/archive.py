"""The zip of a full snapshot, read as data: nothing is unpacked.

Member `metadata` (Spark: `RocksDBCheckpointMetadata.writeToFile`): a line with the version, then one JSON document whose `sstFiles`
list `localFileName`, `dfsSstFileName` (name below `SSTs/`) and `sizeBytes`, and whose `numKeys` counts the keys (-1: not tracked).
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spark_ckpt.errors import FormatError

_MAX_METADATA = 64 << 20
_SST_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*\.sst$")


@dataclass(frozen=True)
class FullSnapshot:
    """What a zip says: SSTs by their name below `SSTs/` with their length in bytes, and the number of keys where it is tracked."""

    ssts: Mapping[str, int]
    num_keys: int | None


def read_full_snapshot(path: Path) -> FullSnapshot:
    """Raises `FormatError` for anything that is not such a zip (also one that is still being written), and OSError."""
    try:
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo("metadata")
            if info.file_size > _MAX_METADATA:
                raise FormatError(f"{path.name} has {info.file_size} bytes of file names, more than any store can have; it is damaged")
            with archive.open(info) as member:
                text = member.read(_MAX_METADATA + 1)
        version, _, body = text.partition(b"\n")
        if version.strip() != b"v1":
            raise FormatError(f"{path.name} has the format {version[:20]!r}, known is v1; this Spark version needs a newer spark-ckpt")
        document = json.loads(body)
        ssts = {str(f["dfsSstFileName"]): int(f["sizeBytes"]) for f in document.get("sstFiles") or ()}
        if document.get("logFiles"):
            raise FormatError(f"{path.name} names write-ahead log files, which Spark's state store does not write; it cannot be stored")
        num_keys = int(document.get("numKeys", -1))
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError, AttributeError, NotImplementedError, RuntimeError) as error:
        raise FormatError(f"{path.name} is not a complete snapshot of Spark's state store ({type(error).__name__}: {error})") from error
    for name in ssts:
        if not _SST_NAME.match(name):
            raise FormatError(f"{path.name} names the SST {name!r}, which would leave its folder; it is damaged or forged")
    return FullSnapshot(ssts, num_keys if num_keys >= 0 else None)
