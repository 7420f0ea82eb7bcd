"""The entries of the log: what each says, and its JSON form (one UTF-8 document an entry).

Version 1 had no files that are objects of their own, version 2 no plans that are adopted and no floor, version 3 no records of real-time
epochs. Each entry has the lowest version that can say it: a log without such records stays readable for a release without real time. Fields
that were added later have a default with which older entries are read; one that no older release may overlook takes a new version.
Every entry names the number of the claim under which it was written: a claim its own, a plan that of its run; and a `floor`: nobody asks
for entries with lower numbers any more, except for the claim under which the entry at the floor was written. They may be gone at any moment
(`log_trim.py`). It falls with a claim only, one that goes back behind it to entries which are sure to be there (`restoring.py`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_ckpt.bounded_json import check_values, parse_json
from spark_ckpt.errors import DamagedError, FormatError
from spark_ckpt.model import CheckpointId, Content, FileHandle, Job, objects_of
from spark_ckpt.paths import check_driver_file, file_handle

_ELSEWHERE = (
    "go on from one of the stream's checkpoints with spark.ckpt.restore.path (its URL, from `spark-ckpt list`), a new checkpointLocation "
    "and a new output path"
)
_WAY_OUT = f"the log is damaged: put the entry back as it was, or {_ELSEWHERE}"
VERSION = 4
_BEFORE_REAL_TIME = 3
MAX_NUMBER = 2**63
DEFAULT_TIMEOUT_MS = 600_000
MAX_ADOPTED = 1_000_000
"""Plans that a claim can adopt."""


@dataclass(frozen=True)
class EntryLimits:
    """`bytes`: of the whole. `items`: how many there can be of a kind: files, checkpoints, rows of adopted plans. `values`: of the JSON
    document, of all kinds: more than the items of a claim and its other fields have."""

    bytes: int = 256 * 1024 * 1024
    items: int = 100_000
    values: int = 2_000_000


LIMITS = EntryLimits()
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"

SAVEPOINT, STOP, CHECKPOINT = "savepoint", "stop", "checkpoint"
"""Actions of a `Request`: make a savepoint; make one at the end, and end the query; complete a checkpoint now. A release that does not
know an action answers so: a new one takes no new version, with which a running query of that release would end."""

Files = Mapping[str, Content | None]
"""Path below the `checkpointLocation` -> content or where that is, None where the file was deleted."""


@dataclass(frozen=True)
class Restored:
    """A person chose where the stream goes on from (`spark.ckpt.restore.path`); later starts with the same `path` do not apply it again.

    `imported`: the checkpoint that was copied from there, None where `path` is one of the stream's own and goes on as it is. `owned`: the
    savepoint at `path` is the stream's now, to be deleted with `imported` (CLAIM).
    """

    path: str
    imported: CheckpointId | None = None
    owned: bool = False

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "imported": self.imported.to_json() if self.imported else None, "owned": self.owned}


@dataclass(frozen=True)
class Application:
    """Spark's id and name of the application in which a run lives, and who started it."""

    id: str
    name: str
    user: str

    def to_json(self) -> dict[str, str]:
        return {"id": self.id, "name": self.name, "user": self.user}


@dataclass(frozen=True)
class Adopted:
    """So many entries from number `first` on, each the plan of one epoch: `epoch` and those after it."""

    first: int
    count: int
    epoch: int


def as_adopted(plans: Mapping[int, int]) -> tuple[Adopted, ...]:
    """`plans`: entry -> epoch."""
    found: list[Adopted] = []
    for number, epoch in sorted(plans.items()):
        last = found[-1] if found else None
        if last and (last.first + last.count, last.epoch + last.count) == (number, epoch):
            found[-1] = Adopted(last.first, last.count + 1, last.epoch)
        else:
            found.append(Adopted(number, 1, epoch))
    return tuple(found)


@dataclass(frozen=True)
class Claim:
    """A run begins. `claim` is the entry's own number; `origin` the checkpoint it goes on from.

    `inherits` are the older checkpoints that exist and now belong to this run; `bad` those found damaged, which nobody is to restore.
    `nonce` makes two claims of one content differ, so that a driver recognises its own put. `restored` is carried on from claim to claim.
    `spark_run_id`: which start of the query claims, by Spark's run id (stored as `life`).
    `ahead`: so many epochs past the newest one planned under this claim may have run without a plan (at-least-once; else 0).
    `savepoint_dir`: what the run's configuration says (`spark.ckpt.savepointDir`), for who asks it for a savepoint. `application`: whose
    run it is; None: an older release does not say.
    `retained`: so many of the newest checkpoints, but for the `unsure`, no run deletes that came before a later claim; older ones may be
    gone at any moment.
    `first`: the run's first epoch has this number, and all plans past its origin that came before the first claim with it are void; None:
    the epoch after the origin (without one: epoch 0) is the first, and nothing is void.
    `timeout_ms`: the run's `spark.ckpt.timeout`, for who collects its garbage; an older release does not say, and the default is assumed.
    `adopts`: the entries before it that plan what runs again; these plans count under this claim as if each were appended again. None: not
    named (before version 3: each was).
    `used`: the highest number that an epoch of the stream may have had, -1 for none; None: not noted (before version 3).
    `stream`: what tells the stream from every other, whatever its query's id: the nonce of the first claim that says it, carried on by all
    later ones, and noted in `_metadata`.
    `unsure`: of `inherits`, what an earlier run may still delete, which retained less, or counts newer ones that are damaged.
    """

    claim: int
    run: int
    query_id: str
    job: Job
    origin: CheckpointId | None
    inherits: tuple[CheckpointId, ...]
    bad: tuple[CheckpointId, ...]
    host: str
    versions: Mapping[str, str]
    time_ms: int
    nonce: str
    restored: Restored | None = None
    spark_run_id: str = ""
    ahead: int = 0
    first: int | None = None
    retained: int = 1
    savepoint_dir: str = ""
    application: Application | None = None
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    adopts: tuple[Adopted, ...] | None = None
    used: int | None = None
    floor: int = 0
    stream: str = ""
    unsure: tuple[CheckpointId, ...] = ()

    @property
    def copy(self) -> CheckpointId | None:
        """What the run begins with, where it makes that itself, after the claim: a copy of a savepoint, or of one of the stream's own whose
        query has changed."""
        return self.origin if self.origin is not None and self.origin.run == self.run else None

    def adopted_past(self, epoch: int) -> dict[int, int]:
        """Of the plans in `adopts`, those of later epochs: entry -> epoch."""
        return {one.first + i: one.epoch + i for one in self.adopts or () for i in range(one.count) if one.epoch + i > epoch}

    def first_adopted_past(self, epoch: int) -> int | None:
        """The lowest entry among them; None: there is none."""
        past = (one.first + max(0, epoch + 1 - one.epoch) for one in self.adopts or () if one.epoch + one.count - 1 > epoch)
        return min(past, default=None)


@dataclass(frozen=True)
class Plan:
    """An epoch's offsets, before it runs. `files`: the driver's files since the last plan. `rerun`: planned before, and run again.

    `real_time`: no plan, but a record of what a real-time epoch has read, put when it has ended, and never run again. One without offsets
    says that the epoch has begun.
    """

    claim: int
    run: int
    epoch: int
    offsets: bytes
    files: Files = field(default_factory=dict)
    rerun: bool = False
    floor: int = 0
    real_time: bool = False

    @property
    def objects(self) -> frozenset[str]:
        """Every object that the plan names: it takes them to run the epoch again, so they stay as long as the plan does."""
        return objects_of(self.files.values())

    def same_data(self, other: Plan) -> bool:
        """Whether both describe the same epoch of the same input (Spark's `OffsetSeqLog` writes a line of JSON per source).

        Who keeps the state is no part of that: an epoch that stock Spark had begun names another provider.
        """
        return self.epoch == other.epoch and _normal(self.offsets) == _normal(other.offsets)


@dataclass(frozen=True)
class Request:
    """A person asks a running stream for something; it is taken up by the run that meets it, and answered under `paths.answer_key`.

    `action` is SAVEPOINT, STOP or CHECKPOINT. `target`: URL of the folder in which the savepoint is made, empty for the run's own choice;
    `name` is the savepoint's, empty likewise. `drain`: the watermark goes to the end of time before a STOP. `nonce` makes two requests
    differ.
    """

    claim: int
    action: str
    target: str
    by: str
    name: str = ""
    drain: bool = False
    nonce: str = ""
    floor: int = 0


@dataclass(frozen=True)
class Damage:
    """A run found that checkpoints it needed are damaged; the next claim names them bad. It is a run's last entry, so it names all."""

    claim: int
    run: int
    bad: tuple[CheckpointId, ...]
    cause: str
    floor: int = 0


@dataclass(frozen=True)
class End:
    """The stream was deleted on purpose: the next start has no origin, and its first epoch comes after `used`.

    `used`: the highest number that an epoch may have had, -1 for none; None: not noted (version 1).
    """

    claim: int
    run: int
    used: int | None = None
    floor: int = 0


Entry = Claim | Plan | Request | Damage | End


def encode(entry: Entry, limits: EntryLimits = LIMITS) -> bytes:
    """The bytes to store; equal entries give equal bytes. Raises `FormatError` for all that `decode` would refuse."""
    version = VERSION if isinstance(entry, Plan) and entry.real_time else _BEFORE_REAL_TIME
    doc: dict[str, Any] = {"v": version, "type": type(entry).__name__.lower(), "claim": entry.claim, "floor": entry.floor}
    if isinstance(entry, Claim):
        doc["run"] = entry.run
        doc["query_id"] = entry.query_id
        doc["job"] = entry.job.to_json()
        doc["origin"] = entry.origin.to_json() if entry.origin else None
        doc["inherits"] = [c.to_json() for c in entry.inherits]
        doc["bad"] = [c.to_json() for c in entry.bad]
        doc["host"] = entry.host
        doc["versions"] = dict(entry.versions)
        doc["time_ms"] = entry.time_ms
        doc["nonce"] = entry.nonce
        doc["restored"] = entry.restored.to_json() if entry.restored else None
        doc["life"] = entry.spark_run_id
        doc["ahead"] = entry.ahead
        doc["first"] = entry.first
        doc["retained"] = entry.retained
        doc["savepoint_dir"] = entry.savepoint_dir
        doc["application"] = entry.application.to_json() if entry.application else None
        doc["timeout_ms"] = entry.timeout_ms
        adopts = entry.adopts or ()
        if len(adopts) > limits.items or sum(one.count for one in adopts) > MAX_ADOPTED:
            raise FormatError(
                f"{sum(one.count for one in adopts)} epochs in {len(adopts)} parts of the log would have to run again, more than a claim "
                "can name; go on from the checkpoint without them, with spark.ckpt.restore.path and spark.ckpt.restore.plans=DISCARD"
            )
        doc["used"] = entry.used
        doc["stream"] = entry.stream
        if entry.unsure:
            doc["unsure"] = [c.to_json() for c in entry.unsure]
        doc["adopts"] = None if entry.adopts is None else [[one.first, one.count, one.epoch] for one in entry.adopts]
    elif isinstance(entry, Plan):
        doc["run"] = entry.run
        doc["epoch"] = entry.epoch
        doc["offsets"] = _content(entry.offsets)
        doc["files"] = {path: None if data is None else _content(data) for path, data in entry.files.items()}
        doc["rerun"] = entry.rerun
        if entry.real_time:
            doc["real_time"] = True
    elif isinstance(entry, Request):
        doc["action"] = entry.action
        doc["target"] = entry.target
        doc["by"] = entry.by
        doc["name"] = entry.name
        doc["drain"] = entry.drain
        doc["nonce"] = entry.nonce
    elif isinstance(entry, Damage):
        doc["run"] = entry.run
        doc["bad"] = [c.to_json() for c in entry.bad]
        doc["cause"] = entry.cause
    else:
        doc["run"] = entry.run
        doc["used"] = entry.used
    try:
        _entry(doc, limits)
        data = json.dumps(doc, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("utf-8")
    except (TypeError, ValueError) as e:
        raise FormatError(
            f"a log entry cannot be written ({type(e).__name__}: {e}); an earlier one that it follows from is damaged or forged, most "
            f"likely the last claim: {_ELSEWHERE}"
        ) from e
    if len(data) > limits.bytes:
        raise FormatError(f"a log entry would have {len(data)} bytes; more than {limits.bytes} cannot be an entry")
    try:
        check_values(data, limits.values)
    except ValueError as e:
        raise FormatError(f"a log entry cannot be written: {e}") from e
    return data


def decode(number: int, data: bytes, limits: EntryLimits = LIMITS) -> Entry:
    """Read entry `number`. Raises `FormatError` for a newer version, an oversized or a malformed document."""
    if len(data) > limits.bytes:
        raise FormatError(f"log entry {number} has {len(data)} bytes; more than {limits.bytes} cannot be an entry")
    try:
        doc = parse_json(data, limits.values)
    except (ValueError, RecursionError) as e:
        raise FormatError(f"log entry {number} is not JSON of an entry's size; {_WAY_OUT}") from e
    if not isinstance(doc, dict) or not isinstance(doc.get("v"), int):
        raise FormatError(f"log entry {number} has no version; {_WAY_OUT}")
    if doc["v"] > VERSION:
        raise FormatError(f"log entry {number} has format version {doc['v']}, this release reads up to {VERSION}; use a newer spark-ckpt")
    try:
        entry = _entry(doc, limits)
    except (KeyError, TypeError, ValueError, AttributeError, DamagedError) as e:
        raise FormatError(f"log entry {number} is malformed ({type(e).__name__}: {e}); {_WAY_OUT}") from e
    if isinstance(entry, Claim) and entry.claim != number:
        raise FormatError(f"log entry {number} says it is claim {entry.claim}; {_WAY_OUT}")
    if entry.claim > number:
        raise FormatError(f"log entry {number} names claim {entry.claim}, which cannot be before it; {_WAY_OUT}")
    if entry.floor > number:
        raise FormatError(f"log entry {number} says that entries below {entry.floor} are not asked for, itself among them; {_WAY_OUT}")
    return entry


def is_request(entry: Entry | None, claim: int) -> bool:
    """Of a person to the run of that claim: it stands where any number of them may, and stands for nobody else."""
    return isinstance(entry, Request) and entry.claim == claim


def entry_in(number: int, data: bytes | None) -> Entry | None:
    """None for what this release cannot read."""
    try:
        return decode(number, data) if data is not None else None
    except FormatError:
        return None


def _entry(doc: Mapping[str, Any], limits: EntryLimits) -> Entry:
    kind, claim, floor = doc["type"], _number(doc["claim"]), _number(doc.get("floor", 0))
    if claim == 0:
        raise ValueError("claim 0, which there is not")
    if kind == "claim":
        if floor > claim:
            raise ValueError(f"a floor of {floor}, above the claim itself")
        origin = doc["origin"]
        return Claim(
            claim,
            _number(doc["run"]),
            _text(doc["query_id"]),
            Job.from_json(doc["job"]),
            _checkpoints([origin], limits)[0] if origin is not None else None,
            _checkpoints(doc["inherits"], limits),
            _checkpoints(doc["bad"], limits),
            _text(doc["host"]),
            {_text(k): _text(v) for k, v in doc["versions"].items()},
            _number(doc["time_ms"]),
            _text(doc["nonce"]),
            _restored(doc.get("restored"), limits),
            _text(doc.get("life", "")),
            _number(doc.get("ahead", 0)),
            None if doc.get("first") is None else _number(doc["first"]),
            _number(doc.get("retained", 1)),
            _text(doc.get("savepoint_dir", "")),
            _application(doc.get("application")),
            _number(doc.get("timeout_ms", DEFAULT_TIMEOUT_MS)),
            None if doc.get("adopts") is None else _adopted(doc["adopts"], claim, limits),
            _used(doc.get("used")),
            floor,
            _text(doc.get("stream", "")),
            _checkpoints(doc.get("unsure", []), limits),
        )
    if kind == "plan":
        files = doc["files"]
        _bounded(files, limits)
        changes = {check_driver_file(path): None if content is None else _file(content) for path, content in files.items()}
        given = (_number(doc["run"]), _number(doc["epoch"]), _bytes(doc["offsets"]), changes, doc["rerun"] is True)
        return Plan(claim, *given, floor, doc.get("real_time") is True)
    if kind == "request":
        return Request(
            claim,
            _text(doc["action"]),
            _text(doc["target"]),
            _text(doc["by"]),
            _text(doc.get("name", "")),
            doc.get("drain") is True,
            _text(doc.get("nonce", "")),
            floor,
        )
    if kind == "damage":
        return Damage(claim, _number(doc["run"]), _checkpoints(doc["bad"], limits), _text(doc["cause"]), floor)
    if kind == "end":
        return End(claim, _number(doc["run"]), _used(doc.get("used")), floor)
    raise ValueError(f"unknown type {kind!r}")


def _application(doc: Mapping[str, Any] | None) -> Application | None:
    return None if doc is None else Application(_text(doc["id"]), _text(doc["name"]), _text(doc["user"]))


def _restored(doc: Mapping[str, Any] | None, limits: EntryLimits) -> Restored | None:
    if doc is None:
        return None
    imported = doc["imported"]
    return Restored(_text(doc["path"]), _checkpoints([imported], limits)[0] if imported is not None else None, doc["owned"] is True)


def _content(data: Content) -> str | dict[str, Any]:
    """Text stays readable in the log; anything else goes as base64."""
    if isinstance(data, FileHandle):
        return data.to_json()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def _bytes(content: Any) -> bytes:
    if isinstance(content, str):
        return content.encode("utf-8")
    return base64.b64decode(_text(content["base64"]), validate=True)


def _file(content: Any) -> Content:
    return file_handle(content) if isinstance(content, dict) and "object" in content else _bytes(content)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected text, found {value!r:.40}")
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MAX_NUMBER:
        raise ValueError(f"expected a number, found {value!r:.40}")
    return value


def _used(value: Any) -> int | None:
    return value if value is None or value == -1 else _number(value)


def _bounded(items: Any, limits: EntryLimits) -> None:
    if len(items) > limits.items:
        raise ValueError(f"{len(items)} items, at most {limits.items} are allowed")


def _adopted(rows: Any, before: int, limits: EntryLimits) -> tuple[Adopted, ...]:
    """In order, and all before the claim that names them."""
    _bounded(rows, limits)
    found, following, total = [], 1, 0
    for row in rows:
        one = Adopted(*map(_number, row))
        total += one.count
        if one.first < following or one.count < 1 or one.first + one.count > before or total > MAX_ADOPTED:
            raise ValueError(f"the adopted entries {row!r:.80} are not in order, or too many")
        following = one.first + one.count
        found.append(one)
    return tuple(found)


def _checkpoints(rows: Any, limits: EntryLimits) -> tuple[CheckpointId, ...]:
    _bounded(rows, limits)
    return tuple(CheckpointId(_number(row["run"]), _number(row["epoch"])) for row in rows)


def _normal(offsets: bytes) -> list[Any]:
    lines = [_line(line) for line in offsets.splitlines()]
    metadata = lines[1] if len(lines) > 1 else None
    if isinstance(metadata, dict) and isinstance(metadata.get("conf"), dict):
        lines[1] = {**metadata, "conf": {name: value for name, value in metadata["conf"].items() if name != _PROVIDER}}
    return lines


def _line(line: bytes) -> Any:
    try:
        return parse_json(line, LIMITS.values)
    except (ValueError, RecursionError):
        return line
