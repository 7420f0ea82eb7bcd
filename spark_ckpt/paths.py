"""Every object key, built and parsed here and nowhere else (layout: docs/format.md)."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from spark_ckpt.errors import ConfigError, DamagedError, FormatError, without_password
from spark_ckpt.model import CheckpointId, FileHandle

LOG_PREFIX = "log/"
METADATA_NAME = "_metadata"
RUN_PREFIX = "run-"

PROBE_PREFIX = "probe/"
SAVEPOINTS_FOLDER = "savepoints"

DRIVER_FOLDERS = ("offsets", "commits", "sources", "state")
"""What makes up a stream below its `checkpointLocation`, less the query's id."""

_RUN = re.compile(r"run-(\d{8,})/?", re.ASCII)
_CHECKPOINT = re.compile(r"run-(\d{8,})/chk-(\d+)/?", re.ASCII)
_OBJECT_FORM = r"run-\d{8,19}/(?:seg|sst|drv)/(?!_metadata\Z)[A-Za-z0-9._-]{1,255}"
_OBJECT = re.compile(_OBJECT_FORM, re.ASCII)
"""No longer than every storage takes: what is longer would seem to be a storage that does not answer, and is tried again and again. And
`_metadata` is that of a savepoint which somebody has given such a name."""
_DRIVER_OBJECT = re.compile(r"run-\d{8,19}/drv/\d{1,19}-([0-9a-f]{32})(\.[0-9a-f]{8}){,24}", re.ASCII)
_PACK = re.compile(r"run-\d{8,}/sst/[0-9a-f]+-(\d+)\.pack", re.ASCII)
_COPIED = re.compile(r"(.+?)((?:\.[0-9a-f]{8})+)")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_LOG = re.compile(r"log/(\d{20})", re.ASCII)
_PROBE = re.compile(r"probe/[0-9a-f]{32}", re.ASCII)
_SAVED = re.compile(rf"(savepoints/(?:[^/]+/)+?)(?:_metadata|{_OBJECT_FORM})", re.ASCII)
_LEAVABLE = re.compile(r"run-(\d{8,})/(?:(seg|ack)/(\d+)-[^/]+|(sst|answer)/[^/]+)", re.ASCII)


class Kind(Enum):
    """What may come to lie below a run's prefix without that anybody knows of it."""

    SEGMENT = "seg"
    SHARED = "sst"
    LEFT_ACKS = "ack"
    ANSWER = "answer"


@dataclass(frozen=True)
class Leavable:
    """What the key of such an object tells. `epoch`: of the commits that a segment was stored for, of acknowledgements; else None."""

    run: int
    kind: Kind
    epoch: int | None


def stream_url(storage: str | None, checkpoint_location: str) -> str:
    """Where a stream's objects live: told by the letters of its location, and by nothing else.

    `/data/ckpt/orders` below `s3://bucket/ckpt` is `s3://bucket/ckpt/data/ckpt/orders`; a location on another file system keeps
    scheme and authority. So `hdfs://nn/data` has the stream of the local folder `/hdfs/nn/data`; and one location has as many streams as
    ways to write it: links, and below a storage `s3`, `s3a` and `s3n`. Without a storage it is `<checkpointLocation>/_ckpt`.
    """
    scheme, authority, path = split(checkpoint_location)
    scheme = scheme or "file"
    if not storage:
        if scheme == "file":
            return f"file://{path}/_ckpt"
        return f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{authority}{path}/_ckpt"
    base = storage.rstrip("/")
    if scheme == "file":
        return f"{base}{path}"
    return f"{base}/{scheme}/{authority}{path}"


def split(location: str) -> tuple[str, str, str]:
    """Scheme, authority and path of a location that escapes nothing, as Hadoop's `Path.toString`: `#`, `?` and `%` are part of the path."""
    m = re.match(r"^(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/]*))?(.*)$", location, re.DOTALL)
    assert m is not None  # every part of it is optional
    return (m.group(1) or "").lower(), m.group(2) or "", re.sub(r"/{2,}", "/", m.group(3)).rstrip("/")


def log_key(number: int) -> str:
    """Key of a log entry; numbers start at 1."""
    return f"{LOG_PREFIX}{number:020d}"


def parse_log_key(key: str) -> int | None:
    m = _LOG.fullmatch(key)
    return int(m.group(1)) if m else None


def run_prefix(run: int) -> str:
    return f"{RUN_PREFIX}{run:08d}/"


def parse_run_prefix(key: str) -> int | None:
    """None also for what only reads like one: no object of a run lies below it."""
    m = _RUN.fullmatch(key)
    run = int(m.group(1)) if m else None
    return run if run is not None and run_prefix(run) == key.rstrip("/") + "/" else None


def checkpoint_prefix(checkpoint: CheckpointId) -> str:
    return f"{run_prefix(checkpoint.run)}chk-{checkpoint.epoch}/"


def checkpoint_url(stream: str, checkpoint: CheckpointId) -> str:
    """URL of the folder of its `_metadata`."""
    return f"{stream}/{checkpoint_prefix(checkpoint)}".rstrip("/")


def checkpoints_prefix(run: int) -> str:
    """What every checkpoint of a run starts with."""
    return f"{run_prefix(run)}chk-"


def parse_checkpoint_prefix(key: str) -> CheckpointId | None:
    """None also for what only reads like one, for example with more zeros: nobody would find its `_metadata` again."""
    m = _CHECKPOINT.fullmatch(key)
    found = CheckpointId(int(m.group(1)), int(m.group(2))) if m else None
    return found if found is not None and checkpoint_prefix(found) == key.rstrip("/") + "/" else None


def checkpoint_name(checkpoint: CheckpointId) -> str:
    """`run-3/chk-42`, as people write it."""
    return f"run-{checkpoint.run}/chk-{checkpoint.epoch}"


def parse_checkpoint_name(text: str) -> CheckpointId:
    """`run-3/chk-42` or with the zeros of the stored key. Raises ConfigError."""
    run, slash, epoch = text.strip("/").partition("/")
    if slash and all(re.fullmatch(rf"{kind}-\d{{1,19}}", part, re.ASCII) for kind, part in (("run", run), ("chk", epoch))):
        return CheckpointId(int(run[4:]), int(epoch[4:]))
    raise ConfigError(f"{without_password(text)!r:.100} is not a checkpoint; write it as run-3/chk-42, as `spark-ckpt list` prints it")


def metadata_key(checkpoint: CheckpointId) -> str:
    return checkpoint_prefix(checkpoint) + METADATA_NAME


def segment_key(run: int, epoch: int, unique: str) -> str:
    return f"{run_prefix(run)}seg/{epoch}-{unique}"


def sst_key(run: int, unique: str) -> str:
    return f"{run_prefix(run)}sst/{unique}.sst"


def pack_key(run: int, unique: str, size: int) -> str:
    """Small SSTs of many stores, `size` bytes together: the name tells it, so that it is known how much of it is not needed any more."""
    return f"{run_prefix(run)}sst/{unique}-{size}.pack"


def parse_pack_key(key: str) -> int | None:
    """The size in bytes of the pack that this is the key of; None for anything else, copies of packs among them."""
    m = _PACK.fullmatch(key)
    return int(m.group(1)) if m else None


def driver_file_key(run: int, epoch: int, digest: str) -> str:
    """A large file of the driver, first named by a plan or checkpoint of `epoch`. `digest`: the first 32 digits of its SHA-256 in
    hexadecimal, so that one content has one name, however often it is put."""
    return f"{run_prefix(run)}drv/{epoch}-{digest}"


def parse_driver_file_key(key: str) -> str | None:
    """The digest in the key of a large file of the driver, or of a copy of one; None for any other key."""
    m = _DRIVER_OBJECT.fullmatch(key)
    return m.group(1) if m else None


def check_driver_object(key: str) -> str:
    """Refuse what is not the key of a large file of the driver."""
    if parse_driver_file_key(key) is None:
        raise FormatError(f"the object name {key!r} is not that of a file of the driver; what names it is damaged or forged")
    return key


def file_handle(doc: Mapping[str, Any]) -> FileHandle:
    """What `FileHandle.to_json` gave. Raises FormatError for an object that is none of the driver's, DamagedError for a wrong number."""
    length, checksum = doc["length"], doc["checksum"]
    for number, limit in ((length, 2**63), (checksum, 2**32)):
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < limit:
            raise DamagedError(f"a driver file is said to have the length or checksum {number!r:.40}; what says so is damaged")
    return FileHandle(check_driver_object(str(doc["object"])), length, checksum)


def left_acks_prefix(run: int, epoch: int) -> str:
    """What agents that outlive their executor leave there starts with this: JSON documents `{"acks": [...]}`, as on the pipe."""
    return f"{run_prefix(run)}ack/{epoch}-"


def left_acks_key(run: int, epoch: int, unique: str) -> str:
    return left_acks_prefix(run, epoch) + unique


def answer_key(run: int, number: int) -> str:
    """Where run `run` answers the request in log entry `number`: JSON, `{"path": …}` or `{"error": …}`."""
    return f"{run_prefix(run)}answer/{number}"


def parse_leavable(key: str) -> Leavable | None:
    """None for everything else, driver files and `_metadata` among it: what those are for is known from the log and the checkpoints."""
    m = _LEAVABLE.fullmatch(key)
    return Leavable(int(m.group(1)), Kind(m.group(2) or m.group(4)), int(m.group(3)) if m.group(3) else None) if m else None


def probe_key(unique: str) -> str:
    """A small object that a test of the storage puts and deletes. `unique`: 32 hexadecimal digits."""
    return f"{PROBE_PREFIX}{unique}"


def is_probe(key: str) -> bool:
    """Anything else below `probe/` is not the stream's: a query's `checkpointLocation` may have that name, or a savepoint."""
    return _PROBE.fullmatch(key) is not None


def savepoint_url(stream: str, target: str, name: str) -> str:
    """A savepoint's folder: below `target`, a URL, or if that is empty below the stream's own folder. Raises ConfigError for a bad name."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{without_password(name)!r} cannot be the name of a savepoint; use letters, digits, '.', '_' and '-', and begin with no sign"
        )
    return f"{target.rstrip('/') or f'{stream}/{SAVEPOINTS_FOLDER}'}/{name}"


def parse_saved(key: str) -> str | None:
    """The folder, with a `/` at its end, of a savepoint below the stream's `savepoints/`, for the key of something in it."""
    m = _SAVED.fullmatch(key)
    return m.group(1) if m else None


def parse_checkpoint_url(url: str) -> tuple[str, CheckpointId] | None:
    """The stream's URL and the checkpoint, for the folder of a checkpoint; None for any other, a savepoint's among them."""
    stream, slash, rest = url.rpartition(f"/{RUN_PREFIX}")
    checkpoint = parse_checkpoint_prefix(RUN_PREFIX + rest) if slash else None
    return (stream, checkpoint) if checkpoint is not None else None


def copied_key(key: str, ranges: int, run: int | None = None) -> str:
    """The key of a copy of some ranges of an object, under the prefix of `run` or where it was. `ranges`: a checksum of what was chosen.

    The copy of a copy has one checksum too, of both choices: else names would grow with every savepoint and fork, to what no file system
    takes.
    """
    first, _, rest = check_object(key).partition("/")
    copied = _COPIED.fullmatch(rest)
    if copied is not None:
        rest, ranges = copied.group(1), zlib.crc32(f"{copied.group(2)}.{ranges:08x}".encode())
    return f"{first if run is None else run_prefix(run).rstrip('/')}/{rest}.{ranges:08x}"


def is_object(key: str) -> bool:
    """Whether a run's objects have such keys, below a stream's root or in a savepoint's folder."""
    return _OBJECT.fullmatch(key) is not None


def check_object(key: str) -> str:
    """Refuse a handle that points anywhere but at a run's own objects below the stream's root."""
    if not is_object(key):
        raise FormatError(
            f"the object name {key!r} in a checkpoint's metadata does not belong to a stream; the metadata is damaged or forged"
        )
    return key


def check_files(names: Sequence[str]) -> None:
    """`check_file` for very many: one by one only if a part of a path among them is too short, or holds what no name may."""
    together = "/".join(names)
    if "\\" in together or "\0" in together or min(map(len, together.split("/"))) <= len(".."):
        for name in names:
            check_file(name)


def check_file(name: str) -> str:
    """Refuse a file name that would leave the folder it is unpacked into."""
    if not name or name.startswith("/") or "\\" in name or "\0" in name or any(p in ("", ".", "..") for p in name.split("/")):
        raise FormatError(f"the file name {name!r} in a checkpoint would leave its folder; the checkpoint is damaged or forged")
    return name


def check_driver_file(name: str) -> str:
    """Refuse what is no file of the folders that make up a stream; Hadoop takes `file:/etc/x` below a folder for another place."""
    if check_file(name).partition("/")[0] not in DRIVER_FOLDERS or "/" not in name:
        raise FormatError(f"the driver file {name!r} is not below {', '.join(DRIVER_FOLDERS)}; it is damaged or forged")
    return name
