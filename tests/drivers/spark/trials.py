"""Queries that are started as often as it takes, and compared with a batch over the same input."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from spark_ckpt import paths
from tests.drivers.spark.harness import Application, Start
from tests.drivers.spark.oracle import differences, read
from tests.drivers.spark.s3_server import Server


def completed(storage: Path, location: Path) -> list[Path]:
    stream = Path(paths.stream_url(f"file://{storage}", f"file:{location}").removeprefix("file://"))
    return sorted(stream.glob("run-*/chk-*/_metadata"))


NAMES = ("windows", "sliding", "timers", "outer", "unique")
"""Four kinds of operators, a foreachBatch that remembers and the file sink."""
PAIR = ("windows", "outer")
INTERVAL = {"spark.ckpt.interval": "2s"}
CLUSTER = "local-cluster[2,1,1024]"


class Trial:
    """Some queries over one storage, as often as it takes, then the comparison."""

    def __init__(self, start: Start, events: Path, tmp_path: Path, names: tuple[str, ...] = NAMES, **how: object) -> None:
        self.storage, self.out, self.locations, self.names = tmp_path / "storage", tmp_path / "out", tmp_path / "locations", names
        self._begin, self._how = start, how
        self._args = ("operators.py", "run", ",".join(names), str(events), str(self.locations), str(self.out))

    def start(self, **conf: str) -> Application:
        self._app = self._begin(*self._args, storage=f"file://{self.storage}", conf={**INTERVAL, **conf}, **self._how)
        return self._app

    def committed(self, name: str) -> int:
        """The newest epoch that Spark has committed, as the checkpointLocation says; -1: none."""
        return max((int(p.name) for p in (self.locations / name / "commits").glob("[0-9]*")), default=-1)

    def durable(self, name: str) -> int:
        """The epoch of the newest completed checkpoint; -1: none."""
        return max((int(p.parent.name.removeprefix("chk-")) for p in completed(self.storage, self.locations / name)), default=-1)

    def runs(self, name: str) -> set[str]:
        return {p.parts[-3] for p in completed(self.storage, self.locations / name)}

    def log(self) -> str:
        return self._app.log.read_text(errors="replace")

    def behind(self) -> bool:
        """Every query has a checkpoint, and most have epochs beyond it: all of many at the same moment need not ever be."""
        reached = {name: (self.durable(name), self.committed(name)) for name in self.names}
        return all(durable >= 0 for durable, _ in reached.values()) and 2 * sum(d < c for d, c in reached.values()) > len(reached)

    def compare(self, oracle: Mapping[str, Path]) -> None:
        for name in self.names:
            assert read(oracle[name]), f"the oracle of {name} is empty: the comparison would show nothing"
            assert differences(self.out / name, oracle[name]) == [], name


class TrialOnS3:
    """The same two queries over one storage, as often as it takes, then the comparison."""

    def __init__(self, start: Start, s3: Server, events: Path, tmp_path: Path, **how: object) -> None:
        self.s3, self.out, self.locations = s3, tmp_path / "out", tmp_path / "locations"
        self._begin, self._how = start, how
        self._args = ("operators.py", "run", ",".join(PAIR), str(events), str(self.locations), str(self.out))

    def start(self, **conf: str) -> Application:
        storage = f"s3://{self.s3.bucket}/ckpt"
        return self._begin(*self._args, storage=storage, conf={**self.s3.conf, **conf}, env=self.s3.env, **self._how)

    def seen(self, part: str) -> int:
        return sum(part in line for line in self.s3.proxy.requests)

    def stored(self) -> int:
        """Puts of `_metadata` so far."""
        return sum(line.startswith("PUT") and "/_metadata" in line for line in self.s3.proxy.requests)

    def waits(self, name: str) -> bool:
        """The newest epoch's tasks have ended, and it is not committed."""
        newest = max((int(p.name) for p in (self.locations / name / "offsets").glob("[0-9]*")), default=-1)
        written = (self.out / name / f"batch={newest}" / "_SUCCESS").exists()
        return written and not (self.locations / name / "commits" / str(newest)).exists()

    def compare(self, oracle: Mapping[str, Path]) -> None:
        for name in PAIR:
            assert differences(self.out / name, oracle[name]) == [], name
