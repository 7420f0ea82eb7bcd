"""What becomes of a checkpoint's state in a query whose stateful operators are others: what `spark-ckpt restore` shows of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_ckpt.cli.output import Table
from spark_ckpt.errors import DamagedError, FormatError, ObjectMissingError
from spark_ckpt.model import Checkpoint
from spark_ckpt.protocol.operators import Matched, Operator, OperatorChoice, match, replaced
from spark_ckpt.state.operators import describe, state_files
from spark_ckpt.storage import Storage
from spark_ckpt.stored.reading import StreamReader
from spark_ckpt.units import size_text


@dataclass(frozen=True)
class Operators:
    """`theirs`: the checkpoint's, None where Spark's files do not tell. `mine`: those of the query that has run on the stream last, None
    where that is not known; then `matched` is not either."""

    theirs: tuple[Operator, ...] | None
    mine: tuple[Operator, ...] | None = None
    matched: Matched | None = None
    job: tuple[str, ...] | None = None
    """What the checkpoint's job said of them; None: nothing that can be compared."""

    @staticmethod
    def of(checkpoint: Checkpoint, storage: Storage) -> Operators:
        """Raises `StorageError`."""
        return Operators(_described(checkpoint, storage), job=checkpoint.job.operators if checkpoint.job_known else None)

    def in_stream(self, storage: Storage, choice: OperatorChoice) -> Operators:
        """In the query that has completed the newest checkpoint of the stream there. Raises `StorageError`."""
        reader = StreamReader(storage)
        try:
            newest = reader.newest(1)
            last = reader.read(newest) if newest is not None and self.theirs is not None else None
            mine = _described(last, storage) if last is not None else None
        except (DamagedError, ObjectMissingError):
            last = mine = None
        if last is None or mine is None or self.theirs is None:
            return self
        doubtful = self.job is not None and last.job_known and replaced(last.job.operators, self.job)
        return Operators(self.theirs, mine, match(mine, self.theirs, choice, doubtful), self.job)

    def table(self, checkpoint: Checkpoint) -> Table:
        columns, right = ["OPERATOR", "KIND", "KEYS", "SIZE", "IN THE QUERY"], ["OPERATOR", "SIZE"]
        rows = [[_number(row), row["kind"], row["keys"], _size(row), _fate(row)] for row in self.rows(checkpoint)]
        return Table(columns, rows, right) if self.matched is not None else Table(columns[:-1], [row[:-1] for row in rows], right)

    def rows(self, checkpoint: Checkpoint) -> list[dict[str, Any]]:
        """The checkpoint's operators, then those of the query that begin empty."""
        to = {} if self.matched is None else {theirs: mine for mine, theirs in self.matched.kept.items()}
        rows = []
        for o in self.theirs or ():
            size = sum(s.size for s in checkpoint.snapshots if s.store.operator == o.number)
            rows.append({"operator": o.number, "kind": o.kind, "keys": o.keys, "size": size, "in_query": to.get(o.number)})
        new = () if self.matched is None else self.matched.new
        empty = {"operator": None, "size": None}
        return [*rows, *({**empty, "kind": o.kind, "keys": o.keys, "in_query": o.number} for o in self.mine or () if o.number in new)]


def _number(row: Mapping[str, Any]) -> str:
    return "" if row["operator"] is None else str(row["operator"])


def _size(row: Mapping[str, Any]) -> str:
    return "" if row["size"] is None else size_text(row["size"])


def _fate(row: Mapping[str, Any]) -> str:
    if row["size"] is None:
        return f"{row['in_query']}, begins empty"
    return "none" if row["in_query"] is None else str(row["in_query"])


def _described(checkpoint: Checkpoint, storage: Storage) -> tuple[Operator, ...] | None:
    try:
        found = describe(state_files(storage, checkpoint))
        return found if found or not checkpoint.snapshots else None
    except (DamagedError, FormatError, ObjectMissingError):
        return None
