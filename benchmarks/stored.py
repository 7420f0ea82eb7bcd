"""What a stream has in S3: its newest checkpoint, and how much of the packs it names it does not need."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import FarS3
from spark_ckpt.model import Checkpoint, Snapshot
from spark_ckpt.paths import METADATA_NAME, parse_driver_file_key, parse_leavable, parse_pack_key
from spark_ckpt.stored.metadata.codec import decode_metadata


def kind_of_object(key: str) -> str:
    """What an object is for, by its key below the stream's root: the name of its folder or file."""
    if leavable := parse_leavable(key):
        return leavable.kind.value
    if parse_driver_file_key(key):
        return "drv"
    return METADATA_NAME if key.endswith(f"/{METADATA_NAME}") else key.split("/")[0]


_METADATA = re.compile(r"/run-(\d+)/chk-(\d+)/_metadata$")
_LISTED = 3


def newest(s3: FarS3, bucket: str, name: str) -> tuple[str, Checkpoint] | None:
    """Of the stream whose folder has this name: its prefix in the bucket, and the newest checkpoint there, if there is one."""
    client = s3.client(near=True)
    try:
        for _ in range(_LISTED):
            found = {(int(m[1]), int(m[2])): key for key in s3.sizes(bucket) if (m := _METADATA.search(key)) and f"/{name}/run-" in key}
            if not found:
                return None
            for _, key in sorted(found.items(), reverse=True):
                try:
                    body = client.get_object(Bucket=bucket, Key=key)["Body"].read()
                except client.exceptions.NoSuchKey:
                    continue  # a stream that goes on deletes it once there are newer ones
                return key.split("/run-")[0], decode_metadata(body, where=key)
    finally:
        client.close()
    raise BenchmarkError(f"each checkpoint of {name} was gone before it could be read")


def files(s3: FarS3, bucket: str, name: str) -> int:
    """How many files of state stores the newest checkpoint of that stream has; 0 where there is none."""
    found = newest(s3, bucket, name)
    return sum(len(snapshot.handles) for snapshot in found[1].snapshots) if found else 0


def dead_share(snapshots: Iterable[Snapshot]) -> float | None:
    """The part of all packs named by a checkpoint that none of its snapshots needs; None where it names no pack."""
    needed: Counter[str] = Counter()
    for snapshot in snapshots:
        for handle in snapshot.handles:
            needed[handle.object] += handle.length
    packs = {name: size for name in needed if (size := parse_pack_key(name))}
    return 1 - sum(needed[name] for name in packs) / sum(packs.values()) if packs else None


def spans(snapshots: Iterable[Snapshot]) -> dict[str, tuple[int, int]]:
    """Of each object that these name: from its first byte to behind its last one that is named."""
    found: dict[str, tuple[int, int]] = {}
    for snapshot in snapshots:
        for handle in snapshot.handles:
            low, high = found.get(handle.object, (handle.offset, 0))
            found[handle.object] = min(low, handle.offset), max(high, handle.offset + handle.length)
    return found
