"""The simulated query as people change it: a sum alone, or with a deduplication, which moves the sum to another number.

The deduplication has no state stores here: what counts is that the sum's state is found under the number that it has, and that an operator
which has never run is told to begin empty.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from spark_ckpt.model import Job
from spark_ckpt.protocol.driver_files import commits_file
from spark_ckpt.protocol.operators import Operator

SUM, DEDUPLICATION = "stateStoreSave", "dedupe"


@dataclass(frozen=True)
class SimulatedQuery:
    """`sum`: number of the operator that has the state; those before it are deduplications."""

    sum: int = 0

    @property
    def job(self) -> Job:
        return Job((*("dedupe id" for _ in range(self.sum)), f"{SUM} key"), ("simulated",), "simulated")

    @property
    def planned(self) -> dict[str, bytes]:
        """What Spark writes for it as a new query."""
        return {metadata_file(n): metadata(n, SUM if n == self.sum else DEDUPLICATION) for n in range(self.sum + 1)}

    @property
    def begun(self) -> dict[str, bytes]:
        """What lies there once a deduplication has run an epoch."""
        return {begun_file(n): b"" for n in range(self.sum)}

    def due_to_begin(self, files: Mapping[str, bytes], origin: bool) -> tuple[int, ...]:
        """Operators that have no state in what a run begins with."""
        return tuple(n for n in range(self.sum) if begun_file(n) not in files) if origin else ()

    def wrong(self, files: Mapping[str, bytes], epoch: int) -> str | None:
        """What lies there of another query, or is not numbered as this one has it."""
        there = {n: one.kind for n, one in enumerate(described(files))}
        due = {n: one.kind for n, one in enumerate(described(self.planned))}
        if there != due:
            return f"the operators in its folder are {there}, those of the query {due}"
        ids = json.loads(files[commits_file(epoch)].partition(b"\n")[2])["stateUniqueIds"]
        return None if list(ids) == [str(self.sum)] else f"commits/{epoch} has ids of the operators {list(ids)}, the sum is {self.sum}"


def metadata_file(number: int) -> str:
    return f"state/{number}/_metadata/metadata"


def begun_file(number: int) -> str:
    return f"state/{number}/begun"


def metadata(number: int, kind: str) -> bytes:
    return b"v1\n" + json.dumps({"operatorInfo": {"operatorId": number, "operatorName": kind}, "stateStoreInfo": []}).encode()


def described(files: Mapping[str, object]) -> tuple[Operator, ...]:
    """As `spark_ckpt.state.operators.describe` does it of real files."""
    found = []
    for path, content in sorted(files.items()):
        if path.endswith("/_metadata/metadata") and isinstance(content, bytes):
            info = json.loads(content.partition(b"\n")[2])["operatorInfo"]
            if path != metadata_file(info["operatorId"]):
                raise ValueError(f"{path} is of operator {info['operatorId']}")
            found.append(Operator(info["operatorId"], info["operatorName"], "", "", ""))
    return tuple(found)
