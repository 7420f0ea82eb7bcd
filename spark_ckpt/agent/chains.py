"""Which files load a store's version: newest full snapshot, then changelogs along the lineage of unique ids."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from spark_ckpt.agent.changelog import parse_name
from spark_ckpt.agent.staging import FileState, StateFile
from spark_ckpt.model import Handle, HandleKind, Snapshot


@dataclass(frozen=True, eq=False)
class Chain:
    """All files of one version of a store, in the order of `Snapshot.handles`."""

    version: int
    uid: str
    files: tuple[StateFile, ...]
    num_keys: int | None = None

    @staticmethod
    def of(snapshot: Snapshot) -> Chain:
        return Chain(snapshot.version, snapshot.uid, tuple(StateFile.stored(h) for h in snapshot.handles), snapshot.num_keys)

    @cached_property
    def start(self) -> int:
        """Version of the full snapshot it begins with; 0: it begins with the changelog of version 1."""
        for file in self.files:
            if file.kind is HandleKind.CHANGELOG:
                break
            if file.kind is HandleKind.SNAPSHOT and (parsed := parse_name(file.name)):
                return parsed[0]
        return 0

    @property
    def lineage(self) -> dict[int, str]:
        """version -> unique id, of every version it passes."""
        named = (parse_name(file.name) for file in self.files if file.kind is not HandleKind.SST)
        return {**{p[0]: p[1] for p in named if p}, self.version: self.uid}

    @property
    def handles(self) -> tuple[Handle, ...]:
        """Those of the stored files: of all, once it is durable."""
        return tuple(p.handle for p in self.files if p.handle is not None)

    @property
    def broken(self) -> str:
        """Why it cannot become durable any more; empty if it can."""
        for file in reversed(self.files):
            if file.state is FileState.GONE:
                return file.cause
        return ""

    @property
    def durable(self) -> bool:
        return all(p.state is FileState.STORED for p in reversed(self.files))


def loads(start: int, oldest: int) -> bool:
    """Whether Spark loads a version from a chain that starts there when the version's lineage begins at `oldest`: only from a full
    snapshot that this lineage names, or from version 1 (`RocksDB.loadWithCheckpointId`)."""
    return start >= oldest or (start == 0 and oldest == 1)
