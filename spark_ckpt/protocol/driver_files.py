"""Which of the driver's files a checkpoint must hold, so that a `checkpointLocation` can be rebuilt from it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from spark_ckpt.model import Content

_NUMBERED = re.compile(r"^(offsets|commits)/(\d+)$")
_SOURCE = re.compile(r"^sources/([^/]+)/(.+)$")
"""By its position, or its name where it has one."""
_SOURCE_ENTRY = re.compile(r"^(\d+)(\.compact)?$")


def offsets_file(epoch: int) -> str:
    return f"offsets/{epoch}"


def commits_file(epoch: int) -> str:
    return f"commits/{epoch}"


def missing_files(epoch: int, files: Collection[str]) -> list[str]:
    """What is not among a checkpoint's `files`, and nothing can go on without."""
    return [name for name in (offsets_file(epoch), commits_file(epoch)) if name not in files]


def is_numbered(path: str) -> bool:
    """`offsets/N` or `commits/N`."""
    return _NUMBERED.match(path) is not None


def sources_of(files: Mapping[str, Content | None]) -> dict[str, Content | None]:
    """Of what changed, the logs of the sources."""
    return {path: content for path, content in files.items() if _SOURCE.match(path)}


def beside_state(files: Mapping[str, Content | None]) -> dict[str, Content | None]:
    """Of what went with a plan that runs again, all but the files of operators. What was there before that epoch is in the checkpoint,
    under other numbers if the query has changed since; and what the epoch makes, it makes again."""
    return {path: content for path, content in files.items() if not path.startswith("state/")}


class DriverFiles:
    """All driver files of a stream as they are now: path below the `checkpointLocation` -> content, of large ones where it is."""

    def __init__(self, files: Mapping[str, Content] | None = None) -> None:
        self._files: dict[str, Content] = dict(files or {})
        self._changes: dict[str, Content | None] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def get(self, path: str) -> Content | None:
        return self._files.get(path)

    def as_mapping(self) -> dict[str, Content]:
        return dict(self._files)

    def apply(self, changes: Mapping[str, Content | None]) -> None:
        """Files written (content) or deleted (None) on the driver. The query's `metadata` is made from the claim, not kept here."""
        for path, content in changes.items():
            if path == "metadata":
                continue
            if content is None:
                self._files.pop(path, None)
            else:
                self._files[path] = content
            if not _NUMBERED.match(path):
                self._changes[path] = content

    def take_changes(self) -> dict[str, Content | None]:
        """What changed since the last call, for the next plan; without `offsets/` and `commits/`, which plans and checkpoints hold."""
        changes, self._changes = self._changes, {}
        return changes

    def carry(self, changes: Mapping[str, Content | None]) -> None:
        """What was taken for a plan that does not have it. What has changed since counts."""
        self._changes = {**changes, **self._changes}

    def forget_before(self, epoch: int) -> None:
        """Drop `offsets/` and `commits/` below `epoch`: no checkpoint to come needs them."""
        for path in [p for p in self._files if (m := _NUMBERED.match(p)) and int(m.group(2)) < epoch]:
            del self._files[path]


def needed(files: Mapping[str, Content], epoch: int) -> dict[str, Content]:
    """The files that restore epoch `epoch`.

    `offsets` and `commits` of the epoch and of the one before (Spark's `MicroBatchExecution.populateStartOffsets` reads both), all of
    `state/`, and of each source's log everything from its second newest compact file on. Two compact files, because Spark's
    `CompactibleFileStreamLog` derives its interval from the distance between them; without any, all.
    """
    keep: dict[str, Content] = {}
    sources: dict[str, list[tuple[int, bool, str]]] = {}
    for path, content in files.items():
        numbered, source = _NUMBERED.match(path), _SOURCE.match(path)
        if numbered:
            if epoch - 1 <= int(numbered.group(2)) <= epoch:
                keep[path] = content
        elif source and (entry := _SOURCE_ENTRY.match(source.group(2))):
            sources.setdefault(source.group(1), []).append((int(entry.group(1)), entry.group(2) is not None, path))
        elif source or path.startswith("state/"):
            keep[path] = content
    for entries in sources.values():
        compacts = sorted(number for number, compact, _ in entries if compact)
        first = compacts[-2] if len(compacts) >= 2 else compacts[0] if compacts else 0
        for number, compact, path in entries:
            if number > first or (number == first and (compact or not compacts)):
                keep[path] = files[path]
    return keep
