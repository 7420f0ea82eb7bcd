"""One case: an application with a stream into each kind of sink, one kill after the other, and what the sinks hold after each."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaign.comparison import Oracle
from campaign.dimensions import Mode, Victim
from campaign.sinks.application import OPERATOR
from campaign.sinks.dimensions import ON_KAFKA, STRIKES, Group, SinkCase, SinkKind, Strike, forbidden_twice
from campaign.sinks.holdings import Held, Holding, compared, holding, increase
from campaign.sinks.topics import NumberError, Topics
from campaign.trial import (
    AHEAD,
    COMMANDS,
    MOST_ENDS,
    POLL_S,
    ROOT,
    ROWS,
    FailedError,
    HungError,
    Observed,
    Outcome,
    Tell,
    cause,
    sparks_own,
)
from testbed.lossy_proxy import Wire, WireFault
from tests.drivers.spark.harness import Application, submit
from tests.drivers.spark.inputs import write_events
from tests.drivers.spark.s3_server import Server

JOB = ROOT / "campaign" / "sinks" / "application.py"
PYTHON_PATH = os.pathsep.join(map(str, (ROOT, ROOT / "tests" / "spark" / "jobs", ROOT / "examples")))
INTERVAL = "1s"
BEHIND, AFTER = 3, 1
"""Where epochs do not wait, so many that no checkpoint holds before a kill; files that come after it, and that every stream has to take."""
MASTERS = {Group.DRIVER: "local[2]", Group.EXECUTORS: "local-cluster[2,1,1024]", Group.HELPERS: "local[2]"}
UPLOADED = (Strike.EXECUTORS, Strike.AGENT)
"""What dies has not uploaded the snapshots yet; otherwise only `_metadata` is not stored."""
HOLD_S = 600
QUIET_S = 3.0
STUCK_S = 900.0


@dataclass(frozen=True)
class Struck:
    """A kill. For each sink: epochs that no checkpoint held then; rows that came twice because of it, at a reader and in the topic."""

    strike: Strike
    at: Observed
    behind: Mapping[SinkKind, int]
    twice: Mapping[SinkKind, tuple[int, int | None]]


@dataclass
class SinkResult:
    case: SinkCase
    outcome: Outcome = Outcome.EQUAL
    held: list[Held] = field(default_factory=list)
    kills: list[Struck] = field(default_factory=list)
    ends: list[Observed] = field(default_factory=list)
    files: int = 0
    seconds: float = 0.0
    text: str = ""


class SinkTrial:
    """`folder` is the case's own. `classes`: class path of Spark's Kafka connector."""

    def __init__(self, case: SinkCase, folder: Path, s3: Server, topics: Topics, classes: str, oracle: Oracle, tell: Tell) -> None:
        self.result = SinkResult(case)
        self._case, self._folder, self._s3, self._topics, self._classes = case, folder, s3, topics, classes
        self._oracle, self._tell = oracle, tell
        slug = re.sub(r"\W+", "-", case.name)
        self._names = {sink: f"{sink.value}-{slug}" for sink in SinkKind}
        self._source, self._out, self._locations = folder / "in", folder / "out", folder / "locations"
        self._progress = folder / "progress.json"
        self._began = self._moved = time.monotonic()
        self._files = 0
        self._told: dict[str, Any] = {}
        self._before: dict[SinkKind, Holding] = {}
        self._applications = ExitStack()
        self._earlier: list[Application] = []

    def run(self) -> SinkResult:
        with self._applications:
            try:
                self._live()
            except HungError as e:
                self.result.outcome, self.result.text = Outcome.HUNG, str(e)
            except FailedError as e:
                self.result.outcome, self.result.text = Outcome.FAILED, str(e)
            except NumberError as e:
                self.result.outcome, self.result.text = Outcome.DIFFERENT, f"numbered: {e}"
        if self.result.outcome is Outcome.EQUAL:
            self._judge()
        self.result.files, self.result.seconds = self._files, self._now()
        return self.result

    def _live(self) -> None:
        (self._folder / "spec.json").write_text(json.dumps(self._spec()))
        self._topics.make([self._names[sink] for sink in ON_KAFKA])
        self._feed(AHEAD)
        self._app = self._start()
        for strike in STRIKES[self._case.group]:
            if strike is Strike.WRITING:
                for sink in ON_KAFKA:
                    self._until(self._writing(sink))
                    self._strike(strike)
            else:
                self._hold(strike)
                self._strike(strike)
        wanted = self._files
        self._until(lambda: self._taken() >= wanted, feeding=False)

    def _spec(self) -> dict[str, Any]:
        streams = [{"name": name, "sink": sink.value} for sink, name in self._names.items()]
        paths = {"source": self._source, "locations": self._locations, "out": self._out, "progress": self._progress}
        spec = {"streams": streams, "servers": self._topics.servers, "end": str(self._folder / "end")}
        return {**spec, **{name: str(path) for name, path in paths.items()}}

    def _start(self) -> Application:
        conf = {
            **self._s3.conf,
            "spark.local.dir": str(self._folder / "local"),
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraClassPath": self._classes,
            "spark.executor.extraClassPath": self._classes,
        }
        if self._case.mode is not Mode.EVERY_EPOCH:
            conf["spark.ckpt.interval"] = INTERVAL
        if self._case.mode is Mode.AT_LEAST_ONCE:
            conf["spark.ckpt.mode"] = "AT_LEAST_ONCE"
        log = self._folder / f"application-{len(self._earlier)}.log"
        storage, env = f"s3://{self._s3.bucket}/ckpt", {**self._s3.env, "PYTHONPATH": PYTHON_PATH}
        arguments, master = [str(self._folder / "spec.json")], MASTERS[self._case.group]
        app = submit(str(JOB), arguments, log=log, storage=storage, master=master, conf=conf, env=env)
        self._moved = time.monotonic()
        self._earlier.append(app)
        return self._applications.enter_context(app)

    def _now(self) -> float:
        return round(time.monotonic() - self._began, 1)

    def _feed(self, files: int) -> None:
        write_events(self._source, self._files, files, per_file=ROWS)
        self._files += files

    def _taken(self) -> int:
        """Files of which every stream has told."""
        return min((self._told.get(name, {}).get("files", 0) for name in self._names.values()), default=0)

    def _numbers(self, name: str, kind: str) -> set[int]:
        return {int(path.name) for path in (self._locations / name / kind).glob("[0-9]*")}

    def _newest(self, name: str, kind: str) -> int:
        return max(self._numbers(name, kind), default=-1)

    def _checkpoints(self, name: str) -> list[tuple[int, int]]:
        """(run, epoch) of the stream's puts of `_metadata` that have got through to the storage."""
        proxy, pattern = self._s3.proxy, re.compile(rf"^PUT \S*/{name}/run-(\d+)/chk-(\d+)/_metadata")
        held = set(proxy.struck)
        found = (pattern.match(line) for line in proxy.requests if line not in held)
        return [(int(match[1]), int(match[2])) for match in found if match]

    def _hold(self, strike: Strike) -> None:
        """Each stream gets one checkpoint more, and then none: until every sink has taken epochs that none holds."""
        names = list(self._names.values())
        before = {name: len(self._checkpoints(name)) for name in names}
        self._until(lambda: all(len(self._checkpoints(name)) > before[name] for name in names))
        proxy, struck = self._s3.proxy, len(self._s3.proxy.struck)
        what = "(seg|sst)/" if strike in UPLOADED else "_metadata"
        proxy.inject(WireFault(Wire.HOLD, rf"^PUT \S*/{what}", times=None, delay_s=HOLD_S))
        # A stream that was ahead of the others has nothing left, and would never come to what is held.
        self._feed(1)
        begun = {name: len(self._numbers(name, "commits")) for name in names}
        self._until(lambda: all(any(f"/{name}/" in line for line in proxy.struck[struck:]) for name in names))
        if self._case.mode is Mode.EVERY_EPOCH:
            self._until(self._quiet())
        else:
            self._until(lambda: all(len(self._numbers(name, "commits")) >= count + BEHIND for name, count in begun.items()))

    def _quiet(self) -> Callable[[], bool]:
        """Nothing has come to any sink for QUIET_S: they have taken their epochs, which wait for their checkpoints."""
        seen: list[object] = [None]
        since = [time.monotonic()]

        def quiet() -> bool:
            files = sorted(str(path) for path in self._out.rglob("*"))
            now = (files, [self._topics.ends(self._names[sink]) for sink in ON_KAFKA])
            if now != seen[0]:
                seen[0], since[0] = now, time.monotonic()
            return time.monotonic() > since[0] + QUIET_S

        return quiet

    def _writing(self, sink: SinkKind) -> Callable[[], bool]:
        """Some rows of an epoch have come to the topic, and others have not."""
        name = self._names[sink]
        before = [-1, 0]

        def writing() -> bool:
            planned, rows = self._newest(name, "offsets"), sum(self._topics.ends(name))
            if planned != before[0]:
                before[:] = planned, rows
                return False
            return planned > self._newest(name, "commits") and before[1] + ROWS // 8 <= rows <= before[1] + ROWS // 2

        return writing

    def _strike(self, strike: Strike) -> None:
        """Kill, and go on until every stream has run again what it has to, and more."""
        at = Observed(self._now(), sum(len(self._numbers(name, "offsets")) for name in self._names.values()), strike.value)
        behind = {sink: self._behind(name) for sink, name in self._names.items()}
        self._tell(f"{self._now():6.1f} s: kill of {strike.value}")
        self._kill(strike)
        self._s3.proxy.heal()
        if strike in (Strike.DRIVER, Strike.MACHINE):
            self._app = self._start()
        wanted = self._files + AFTER
        self._until(lambda: self._taken() >= wanted)
        now = {sink: holding(sink, self._out / name, self._topics, name) for sink, name in self._names.items()}
        twice = {sink: increase(self._before.get(sink), held) for sink, held in now.items()}
        self._before = now
        self.result.kills.append(Struck(strike, at, behind, twice))
        self._tell(f"  {', '.join(f'{sink.value} {rows} twice ({topic or rows})' for sink, (rows, topic) in twice.items())}")

    def _behind(self, name: str) -> int:
        newest = max(self._checkpoints(name), default=(0, -1))[1]
        return len({epoch for epoch in self._numbers(name, "offsets") if epoch > newest})

    def _kill(self, strike: Strike) -> None:
        app = self._app
        if strike is Strike.DRIVER:
            app.kill_driver()
        elif strike is Strike.MACHINE:
            for every in self._earlier:  # what a driver has left behind that died alone
                every.kill()
            for folder in (self._locations, self._folder / "local", app.log.with_suffix(".scratch")):
                shutil.rmtree(folder, ignore_errors=True)
        else:
            executors, agents = COMMANDS[Victim.EXECUTOR], COMMANDS[Victim.AGENT]
            one = {Strike.AGENT: (agents,), Strike.COORDINATOR: (COMMANDS[Victim.COORDINATOR],), Strike.WRITING: (executors,)}
            assert app.kill_all(*one.get(strike, (executors, agents))), f"{strike.value}: there were none"

    def _until(self, condition: Callable[[], bool], feeding: bool = True) -> None:
        while not condition():
            self._look(feeding)
            time.sleep(POLL_S)

    def _look(self, feeding: bool) -> None:
        """See how far it is, feed it, start it again if it has ended by itself. Raises HungError, FailedError."""
        with contextlib.suppress(FileNotFoundError):
            told = json.loads(self._progress.read_text())
            if told != self._told:
                self._told, self._moved = told, time.monotonic()
        if feeding and self._taken() + AHEAD > self._files:
            self._feed(1)
        if not self._app.running:
            self._ended()
        if time.monotonic() > self._moved + STUCK_S:
            raise HungError(f"no epoch for {STUCK_S:.0f} s after {self._now():.0f} s, in {self._app.log.name}")

    def _ended(self) -> None:
        what = cause(self._app.log)
        self.result.ends.append(Observed(self._now(), 0, f"{self._app.log.name}, status {self._app.wait()}: {what}"))
        self._tell(f"{self._now():6.1f} s: ended by itself: {what}")
        if len(self.result.ends) > MOST_ENDS:
            raise FailedError(f"it ended by itself {len(self.result.ends)} times, at last: {what}")
        self._app = self._start()

    def _judge(self) -> None:
        if not all(sparks_own(end) for end in self.result.ends):
            self.result.outcome = Outcome.ENDED
        expected = self._oracle.expected(OPERATOR, self._source)
        for sink, name in self._names.items():
            held = compared(sink, holding(sink, self._out / name, self._topics, name), expected)
            self.result.held.append(held)
            if not held.rows.equal or (held.rows.twice and forbidden_twice(self._case.mode, sink)):
                self.result.outcome = Outcome.DIFFERENT
                self.result.text += f"{sink.value}: {held.rows.twice} rows twice, {'; '.join(held.rows.examples)}. "
