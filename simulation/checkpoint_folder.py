"""What lies in a simulated query's `checkpointLocation`, and what of it the protocol has not been told yet."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from zlib import crc32

from simulation.invariants import Invariant, ViolationError
from simulation.query import SimulatedQuery
from simulation.source_sink import Span
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol import instructions as do
from spark_ckpt.protocol.driver_files import commits_file, offsets_file
from spark_ckpt.protocol.large_files import DIGITS

_REPLACED = re.compile(r"state/\d+/_metadata/large")
"""A large file that is written anew now and then: checkpoints name the newest only, older plans the older ones."""
LARGE_EACH = 4
"""One in so many files of the source is an object of its own."""
COMMITS_KEPT = 2
BEGINNING = "sources/0/begins"


class CheckpointFolder:
    """`resent`: what a coordinator that takes the place of one that dies is told."""

    def __init__(self, query: SimulatedQuery, lists: bool = True) -> None:
        self.query = query
        self._lists = lists
        self._files: dict[str, bytes] = {}
        self._changes: dict[str, bytes | None] = {}
        self._unplanned: dict[str, tuple[int, bytes | None]] = {}
        """What is in no plan yet, with the epoch that it went with: what a seal was told, and in real time a trigger."""
        self._commits: dict[str, bytes] = {}

    def __getitem__(self, path: str) -> bytes:
        return self._files[path]

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(sorted(self._files))

    @property
    def resent(self) -> dict[str, bytes | None]:
        return {**{path: content for path, (_, content) in self._unplanned.items()}, **self._commits}

    def replace(self, files: Mapping[str, bytes]) -> None:
        """A run begins."""
        self._files = dict(files)
        self._changes, self._unplanned, self._commits = {}, {}, {}
        for path in sorted((p for p in self._files if p.startswith("commits/")), key=number_of):
            self._remember(path)

    def plan(self, epoch: int, offsets: bytes) -> dict[str, bytes | ev.LocalFile | None]:
        """Spark writes what the epoch will read. Returns what goes with the plan."""
        self._write({source_file(epoch): offsets} if self._lists else {})
        self._files[offsets_file(epoch)] = offsets
        return self._take_changes()

    def begin(self, epoch: int, first: int) -> dict[str, bytes | ev.LocalFile | None]:
        """An epoch begins in real time: Spark has written where its source does, if that was not there."""
        self._write({} if BEGINNING in self._files else {BEGINNING: Span(first, first).encode()})
        self._keep(epoch)
        return self._take_changes()

    def read(self, epoch: int, offsets: bytes) -> None:
        """It has ended."""
        self._files[offsets_file(epoch)] = offsets

    @property
    def begins(self) -> int | None:
        """Where the source does, as the files say."""
        found = self._files.get(BEGINNING)
        return None if found is None else Span.decode(found).first

    def planned(self, up_to: int) -> None:
        """What went with epochs up to this one is in the log."""
        self._unplanned = {path: (epoch, content) for path, (epoch, content) in self._unplanned.items() if epoch > up_to}

    def write_schemas(self, epoch: int) -> None:
        """What Spark writes once an epoch is planned: it goes with the seal."""
        self._write({path: content for path, content in {**self.query.planned, **self.query.begun}.items() if path not in self._files})
        if epoch % LARGE_EACH == 1:
            self._write({f"state/{self.query.sum}/_metadata/large": b"of epoch %d" % epoch})

    def seal(self, epoch: int) -> dict[str, bytes | ev.LocalFile | None]:
        """Returns what goes with the seal."""
        self._keep(epoch)
        return self._take_changes()

    def commit(self, epoch: int, content: bytes) -> None:
        self._files[commits_file(epoch)] = content
        self._remember(commits_file(epoch))

    def _write(self, files: dict[str, bytes]) -> None:
        self._files.update(files)
        self._changes.update(files)

    def _keep(self, epoch: int) -> None:
        self._unplanned.update({path: (epoch, content) for path, content in self._changes.items()})

    def _take_changes(self) -> dict[str, bytes | ev.LocalFile | None]:
        """Some of the source's files are large."""
        changes, self._changes = self._changes, {}
        return {path: local_file(content) if content and is_large(path) else content for path, content in changes.items()}

    def _remember(self, commit: str) -> None:
        """A coordinator that takes the place of one that dies is told the newest of them."""
        self._commits[commit] = self._files[commit]
        for path in sorted(self._commits, key=number_of)[:-COMMITS_KEPT]:
            del self._commits[path]

    def check_begins(self, run: do.Started | None, i: do.Triggered) -> None:
        """Once the first epoch of a run has ended, no operator begins."""
        due = run.begins if run is not None and run.epoch == i.epoch else ()
        if i.begins != due:
            raise ViolationError(Invariant.STATE_RIGHT, f"run {i.run}: operators {i.begins} begin empty in epoch {i.epoch}, not {due}")

    def wrong(self, i: do.Started, first: int) -> str | None:
        """What a start that puts all that Spark needs in its `checkpointLocation` has left out, or put there wrongly."""
        last = i.epoch if i.rerun else i.epoch - 1
        due = {*self.query.planned, offsets_file(i.epoch - 1), commits_file(i.epoch - 1)} if i.origin else set()
        due |= {offsets_file(i.epoch)} if i.rerun else set()
        missing = sorted(due - self._files.keys())
        if missing:
            return f"restores {i.origin} without {missing}"
        wrong = self.query.wrong(self._files, i.epoch - 1) if i.origin else None
        if wrong is not None:
            return f"restores {i.origin}: {wrong}"
        begins = self.query.due_to_begin(self._files, i.origin is not None)
        if i.begins != begins:
            return f"restores {i.origin}, and is told that the operators {i.begins} begin empty instead of {begins}"
        if not self._lists:
            return None
        at = first
        for file in sorted((path for path in self._files if path.startswith("sources/")), key=number_of):
            span = Span.decode(self._files[file])
            if span.first != at:
                return f"restores {i.origin}, {file} goes on from {span.first} instead of {at}"
            at = span.end
        end = Span.decode(self._files[offsets_file(last)]).end if i.origin or i.rerun else first
        return None if at == end else f"restores {i.origin} up to {end}, its source's files go up to {at}"


def source_file(epoch: int) -> str:
    return f"sources/0/{epoch}"


def number_of(path: str) -> int:
    """The epoch in the name of a file."""
    return int(path.rpartition("/")[2])


def is_large(path: str) -> bool:
    return _REPLACED.fullmatch(path) is not None or (
        path.startswith("sources/") and path != BEGINNING and number_of(path) % LARGE_EACH == 0
    )


def local_file(content: bytes) -> ev.LocalFile:
    """In the place of a path the content."""
    return ev.LocalFile(content.decode(), len(content), crc32(content), sha256(content).hexdigest()[:DIGITS])
