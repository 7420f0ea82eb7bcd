"""A query that goes on evenly over an S3 server, and what is seen of it."""

from __future__ import annotations

import json
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from spark_ckpt import paths
from spark_ckpt.storage import S3Options, open_storage
from spark_ckpt.stored.reading import StreamReader
from spark_ckpt.stored.verify import Verifier
from tests.drivers.spark.harness import Application, Start
from tests.drivers.spark.s3_server import Server
from tests.drivers.spark.sightings import lines, told


def keys_of(s3: Server, url: str) -> int:
    """How many keys the state of the newest checkpoint's deduplication really has, its stores opened and counted."""
    with closing(open_storage(url, S3Options(s3.proxy.endpoint, "us-east-1", True))) as storage:
        reader = StreamReader(storage)
        newest = reader.read(max(c for c, _ in reader.checkpoints()))
        verifier = Verifier(storage)
        found = verifier.verify(newest)
        verifier.open_stores(found)
        assert found.problems == []
        last = max(s.store.operator for s in newest.snapshots)  # the operator that comes first has the highest number or the only one
        return sum(s.num_keys or 0 for s in newest.snapshots if s.store.operator == last)


STALLED_S = 10


class Steady:
    """jobs/steady.py over an S3 server, and what is seen of it from outside."""

    def __init__(self, start: Start, s3: Server, tmp_path: Path, names: tuple[str, ...], rows: int, size: int) -> None:
        self.s3, self.out, self.locations, self.folder = s3, tmp_path / "out", tmp_path / "locations", tmp_path / "told"
        self.folder.mkdir()
        self.env = dict(s3.env)
        """Of the driver; executors of another machine's worker have that worker's."""
        self._begin, self._names = start, names
        self._args = ("steady.py", ",".join(names), str(self.locations), str(self.out), str(self.folder), str(rows), str(size))

    def start(self, master: str = "local[2]", maintenance: str = "60s", **conf: str) -> Application:
        settings = {n if n.startswith("spark.") else f"spark.ckpt.{n.replace('_', '.')}": value for n, value in conf.items()}
        settings |= {**self.s3.conf, "spark.ui.enabled": "true", "spark.ui.port": "0"}
        settings["spark.sql.streaming.stateStore.maintenanceInterval"] = maintenance
        storage = f"s3://{self.s3.bucket}/ckpt"
        self.app = self._begin(*self._args, storage=storage, conf=settings, env=self.env, master=master)
        return self.app

    def stream(self, name: str) -> str:
        return paths.stream_url(f"s3://{self.s3.bucket}/ckpt", f"file:{self.locations}/{name}")

    def heard(self, name: str, *kinds: str) -> list[dict[str, Any]]:
        return [event for event in told(self.app, "HEARD") if event["root"].endswith(f"/{name}") and (not kinds or event["kind"] in kinds)]

    def count(self, name: str, kind: str) -> int:
        return len(self.heard(name, kind))

    def committed(self, name: str) -> int:
        return max((int(p.name) for p in (self.locations / name / "commits").glob("[0-9]*")), default=-1)

    def until(self, condition: Callable[[], bool], what: str, timeout: float = 90) -> None:
        self.app.until(condition, what, timeout)

    def until_epochs(self, name: str, more: int) -> None:
        wanted = self.committed(name) + more
        self.until(lambda: self.committed(name) >= wanted, f"{more} more epochs of {name}")

    def lag(self) -> dict[str, int]:
        """As the Checkpoints tab says it."""
        [url] = lines(self.app, "UI")
        with urllib.request.urlopen(f"{url}/checkpoints/json/", timeout=30) as answer:
            lag: dict[str, int] = json.load(answer)["lag"]
        return lag

    def until_stalled(self, name: str) -> None:
        seen, since = self.committed(name), time.monotonic()

        def still() -> bool:
            nonlocal seen, since
            if self.committed(name) != seen:
                seen, since = self.committed(name), time.monotonic()
            return time.monotonic() - since > STALLED_S

        self.until(still, f"the end of {name}'s epochs")

    def until_quiet(self, seconds: float) -> None:
        """Nothing is asked of the storage for so long."""
        asked, since = len(self.s3.proxy.requests), time.monotonic()

        def quiet() -> bool:
            nonlocal asked, since
            if len(self.s3.proxy.requests) != asked:
                asked, since = len(self.s3.proxy.requests), time.monotonic()
            return time.monotonic() - since > seconds

        self.until(quiet, f"{seconds} s without a request", 60)

    def tell(self, what: str) -> None:
        (self.folder / what).touch()

    def stop(self) -> None:
        self.tell("stop")
        self.until(lambda: bool(lines(self.app, "STOPPED")), "the queries' end")

    def numbers(self, name: str) -> list[int]:
        """What the sink holds, each epoch once: all numbers from 0 on, none twice."""
        numbers = [n for path in (self.out / name).glob("[0-9]*.json") for n in json.loads(path.read_text())]
        assert [n for n, times in Counter(numbers).items() if times > 1] == []
        assert sorted(numbers) == list(range(len(numbers)))
        return numbers
