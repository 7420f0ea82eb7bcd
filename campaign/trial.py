"""One case: an application that is fed, killed at random moments and started again, then left to finish, and compared."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from itertools import takewhile
from pathlib import Path
from typing import Any

from benchmarks.far_s3 import ENV, FarS3
from campaign.comparison import Comparison, Oracle, SinkError
from campaign.dimensions import Case, Kill, Load, Mode, Place, Spool, Victim, When
from campaign.weather import Weather
from spark_ckpt.paths import stream_url
from tests.drivers.spark.harness import Application, submit
from tests.drivers.spark.inputs import write_events

ROOT = Path(__file__).resolve().parents[1]
EXECUTORS = 2
MASTER = f"local-cluster[{EXECUTORS},1,1024]"
JOB = ROOT / "campaign" / "job.py"
COMMANDS = {
    Victim.EXECUTOR: "CoarseGrainedExecutorBackend",
    Victim.AGENT: "spark_ckpt.agent",
    Victim.COORDINATOR: "spark_ckpt.coordinator",
}
AHEAD = 3
"""Files of input that wait; each is an epoch."""
ROWS, MINUTES = 40, 10
"""Of a file: how many, and the event time that they are spread over."""
POLL_S = 0.05
STUCK_S: Mapping[Load, float] = {Load.FREE: 240.0, Load.STARVED: 600.0}
"""Without any epoch, while there is input."""
LOGGED = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d ")
SEEN = {
    "restored": " goes on from checkpoint ",
    "run again as planned": " runs again as it was planned",
    "run again in place": " is run again: ",
    "gone back in place": "the query goes back to its last completed checkpoint: ",
    "state that moved": "which another executor has and no checkpoint yet",
    "coordinator replaced": r"spark_ckpt\.coordinator [^\n]*; starting another",
}
"""What the drivers' logs say of it: without any of it the kills have hit nothing."""
SPARKS_OWN = ("Python worker failed to connect back",)
"""Ends that need no fault of ours: Spark gives a Python worker 10 s to start, whatever else the processors do
(PythonWorkerFactory.createSimpleWorker)."""
MOST_ENDS = 4
BUSY = 5
"""Processes for each processor, of a case whose processors are starved."""


class Outcome(Enum):
    EQUAL = "equal"
    """And nothing but a kill has ended an application, or a limit of Spark itself."""
    ENDED = "ended"
    """Equal, but an application ended by itself and had to be started again."""
    DIFFERENT = "different"
    DAMAGED = "damaged"
    """Equal, but a checkpoint that is left does not verify."""
    HUNG = "hung"
    FAILED = "failed"
    """An application ended by itself again and again."""


class HungError(Exception):
    """No epoch came for too long."""


class FailedError(Exception):
    """Started again and again, it does not stay."""


@dataclass(frozen=True)
class Observed:
    """At so many seconds since the case began; `epochs` in all streams until then."""

    at_s: float
    epochs: int
    what: str


@dataclass
class Result:
    case: Case
    outcome: Outcome = Outcome.EQUAL
    comparisons: list[Comparison] = field(default_factory=list)
    kills: list[Observed] = field(default_factory=list)
    ends: list[Observed] = field(default_factory=list)
    spells: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    """Lines of the drivers' logs, by SEEN."""
    files: int = 0
    seconds: float = 0.0
    text: str = ""


Tell = Callable[[str], None]


class Trial:
    """`folder` is the case's own, and all there is to look at afterwards."""

    def __init__(self, case: Case, folder: Path, s3: FarS3 | None, oracle: Oracle, tell: Tell) -> None:
        assert s3 is not None or case.place is Place.FILE
        self.result = Result(case)
        self._case, self._folder, self._s3, self._oracle = case, folder, s3, oracle
        self._tell = tell
        self._rng = random.Random(f"{case.seed}-{case.number}-moments")
        self._names = [f"{number}-{stream.operator}" for number, stream in enumerate(case.streams)]
        self._source, self._out, self._locations = folder / "in", folder / "out", folder / "locations"
        self._local, self._spool, self._end = folder / "local", folder / "spool", folder / "end"
        self._progress = folder / "progress.json"
        self._bucket = s3.bucket() if s3 is not None and case.place is Place.S3 else ""
        self._storage = f"s3://{self._bucket}/ckpt" if self._bucket else f"file://{folder}/storage"
        self._began = time.monotonic()
        self._files = self._epochs = self._started = 0
        self._feeding = True
        self._told: dict[str, Any] = {}
        self._moved = self._began
        self._applications = ExitStack()
        self._earlier: list[Application] = []

    def run(self) -> Result:
        with ExitStack() as env:
            env.enter_context(self._applications)
            if self._case.load is Load.STARVED:
                env.enter_context(busy((os.cpu_count() or 1) * BUSY))
            if self._bucket:
                assert self._s3 is not None
                weather = env.enter_context(Weather(self._s3, self._case.fault, f"{self._case.seed}-{self._case.number}"))
            try:
                self._live()
            except HungError as e:
                self.result.outcome, self.result.text = Outcome.HUNG, str(e)
            except FailedError as e:
                self.result.outcome, self.result.text = Outcome.FAILED, str(e)
            if self._bucket:
                self.result.spells = weather.spells
        if self.result.outcome is Outcome.EQUAL:
            self._judge()
        logs = [app.log.read_text(errors="replace") for app in self._earlier]
        self.result.seen = {name: sum(len(re.findall(words, log)) for log in logs) for name, words in SEEN.items()}
        self.result.files = self._files
        self.result.seconds = round(time.monotonic() - self._began, 1)
        return self.result

    def _live(self) -> None:
        (self._folder / "spec.json").write_text(json.dumps(self._spec()))
        self._feed(AHEAD)
        self._app = self._start()
        for number, kill in enumerate(self._case.kills, 1):
            self._wait(kill)
            if kill.collect:
                self._collect()
            self._strike(kill)
            self.result.kills.append(Observed(self._now(), self._epochs, kill.victim.value))
            self._tell(f"{self._now():6.1f} s, epoch {self._epochs:3}: kill {number} of {len(self._case.kills)}, {kill.victim.value}")
        self._until(self._epochs_more(2))
        self._feeding = False
        write_events(self._source, self._files, 1, per_file=ROWS, minutes=MINUTES, closing=True)
        self._files += 3
        self._end.touch()
        while self._app.running or self._look():
            self._look()
            time.sleep(POLL_S)

    def _spec(self) -> dict[str, Any]:
        streams = [
            {"name": name, "operator": stream.operator, "sink": stream.sink.value}
            for name, stream in zip(self._names, self._case.streams, strict=True)
        ]
        paths = {"source": self._source, "locations": self._locations, "out": self._out, "progress": self._progress, "end": self._end}
        return {"streams": streams, **{name: str(path) for name, path in paths.items()}}

    def _start(self) -> Application:
        conf = {**dict(self._case.conf), "spark.local.dir": str(self._local), "spark.sql.shuffle.partitions": str(EXECUTORS)}
        if self._case.mode is Mode.AT_LEAST_ONCE:
            conf["spark.ckpt.mode"] = "AT_LEAST_ONCE"
        if self._case.spool is Spool.KEPT:
            conf["spark.ckpt.spool.dir"] = str(self._spool)
        env = {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'spark' / 'jobs'}"}
        if self._s3 is not None and self._bucket:
            options = self._s3.options
            conf |= {
                "spark.ckpt.s3.endpoint": str(options.endpoint),
                "spark.ckpt.s3.region": str(options.region),
                "spark.ckpt.s3.pathStyle": "true",
            }
            env |= ENV
        log = self._folder / f"application-{self._started}.log"
        self._started += 1
        app = submit(str(JOB), [str(self._folder / "spec.json")], log=log, storage=self._storage, master=MASTER, conf=conf, env=env)
        self._moved = time.monotonic()
        self._earlier.append(app)
        return self._applications.enter_context(app)

    def _now(self) -> float:
        return round(time.monotonic() - self._began, 1)

    def _feed(self, files: int) -> None:
        write_events(self._source, self._files, files, per_file=ROWS, minutes=MINUTES)
        self._files += files

    def _taken(self) -> int:
        """Files that every stream has taken."""
        return min((self._told.get(name, {}).get("files", 0) for name in self._names), default=0)

    def _look(self) -> bool:
        """See how far it is, feed it, start it again if it has ended by itself; whether it was started. Raises HungError, FailedError."""
        with contextlib.suppress(FileNotFoundError):
            told = json.loads(self._progress.read_text())
            for name, now in told.items():
                before = self._told.get(name, {})
                if now != before:
                    self._epochs += now["batch"] != before.get("batch")
                    self._moved = time.monotonic()
            self._told = told
        if self._feeding and self._taken() + AHEAD > self._files:
            self._feed(1)
        if not self._app.running:
            return self._ended()
        if not self._end.exists() and self._taken() >= self._files:
            self._moved = time.monotonic()  # nothing to do
        silent = time.monotonic() - self._moved
        if silent > STUCK_S[self._case.load]:
            self._dump()
            raise HungError(f"no epoch for {silent:.0f} s after {self._now():.0f} s, in {self._app.log.name}")
        return False

    def _ended(self) -> bool:
        status = self._app.wait()
        if status == 0 and self._end.exists():
            return False
        what = cause(self._app.log)
        self.result.ends.append(Observed(self._now(), self._epochs, f"{self._app.log.name}, status {status}: {what}"))
        self._tell(f"{self._now():6.1f} s, epoch {self._epochs:3}: ended by itself with {status}: {what}")
        if len(self.result.ends) > MOST_ENDS:
            raise FailedError(f"it ended by itself {len(self.result.ends)} times, at last: {what}")
        self._app = self._start()
        return True

    def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._look()
            time.sleep(POLL_S)

    def _epochs_more(self, epochs: int) -> Callable[[], bool]:
        wanted = self._epochs + epochs
        return lambda: self._epochs >= wanted

    def _wait(self, kill: Kill) -> None:
        if kill.when is When.RUNNING:
            self._until(self._epochs_more(kill.epochs))
        elif kill.when is When.IDLE:
            self._feeding = False
            self._until(lambda: self._taken() >= self._files)
        else:
            self._until(lambda: bool(self._victims(Victim.COORDINATOR)))
        over = time.monotonic() + kill.seconds
        self._until(lambda: time.monotonic() >= over)
        self._feeding = True

    def _strike(self, kill: Kill) -> None:
        if kill.victim in COMMANDS:
            self._until(lambda: self._kill_one(kill.victim))
            return
        if kill.alone:
            self._app.kill_driver()
        else:
            self._app.kill()
        if kill.victim is Victim.MACHINE:
            for app in self._earlier:  # what a driver has left behind that died alone
                app.kill()
            for folder in (self._locations, self._local, self._spool, self._app.log.with_suffix(".scratch")):
                shutil.rmtree(folder, ignore_errors=True)
        self._app = self._start()

    def _kill_one(self, kind: Victim) -> bool:
        """False: there is none at this moment."""
        victims = self._victims(kind)
        try:
            os.kill(self._rng.choice(victims), signal.SIGKILL)
        except (IndexError, ProcessLookupError):
            return False
        return True

    def _victims(self, kind: Victim) -> list[int]:
        return sorted(pid for pid, command in self._app.descendants() if COMMANDS[kind] in command)

    def _dump(self) -> None:
        """What the threads of its JVMs and Pythons do, into the logs."""
        for pid, command in self._app.descendants():
            if "java" in command:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGQUIT)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._app.pid, signal.SIGQUIT)
        time.sleep(2)

    def _cli(self, verb: str, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "spark_ckpt.cli.main", verb, stream_url(self._storage, f"file:{self._locations / name}"), "--json"]
        command += arguments
        if self._s3 is not None and self._bucket:
            command += ["--endpoint", self._s3.near, "--region", str(self._s3.options.region), "--path-style"]
        return subprocess.run(command, env={**os.environ, **ENV}, capture_output=True, text=True, timeout=600, check=False)

    def _collect(self) -> None:
        """`gc` beside the running query, with no belt: what it takes must not be missed."""
        name = self._rng.choice(self._names)
        done = self._cli("gc", name, "--delete", "--min-age", "0")
        kind = (json.loads(done.stdout).get("error") or {}).get("kind") if done.stdout else ""
        if done.returncode != 0 and kind not in ("MISSING", "CONFLICT"):
            self.result.ends.append(Observed(self._now(), self._epochs, f"gc of {name}, status {done.returncode}: {done.stderr[-300:]}"))

    def _judge(self) -> None:
        """Compare, collect the garbage, and verify all checkpoints that are left."""
        if not all(sparks_own(end) for end in self.result.ends):
            self.result.outcome = Outcome.ENDED
        for name, stream in zip(self._names, self._case.streams, strict=True):
            try:
                compared = self._oracle.compare(stream, self._source, self._out / name, self._case.mode)
            except SinkError as e:
                self.result.outcome, self.result.text = Outcome.DIFFERENT, str(e)
                continue
            self.result.comparisons.append(compared)
            if not compared.equal:
                self.result.outcome = Outcome.DIFFERENT
                self.result.text += f"{name}: {'; '.join(compared.examples)}. "
        for name in self._names:
            for verb, arguments in (("gc", ("--delete", "--min-age", "0")), ("verify", ("--deep",))):
                done = self._cli(verb, name, *arguments)
                if done.returncode != 0:
                    if self.result.outcome in (Outcome.EQUAL, Outcome.ENDED):
                        self.result.outcome = Outcome.DAMAGED
                    self.result.text += f"{verb} of {name}, status {done.returncode}: {(done.stdout + done.stderr)[-500:]}. "


def sparks_own(end: Observed) -> bool:
    return any(words in end.what for words in SPARKS_OWN)


def cause(log: Path) -> str:
    """What tells most of why an application ended by itself: of the first query that failed, else at the end of the log."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    first = next((number for number, line in enumerate(lines) if "terminated with error" in line), None)
    if first is not None:
        lines = list(takewhile(lambda line: not LOGGED.match(line), lines[first + 1 :])) or lines[first : first + 1]
    told = [line for line in lines if re.match(r"(Caused by: )?\S*(Exception|Error|Interrupted)\b", line)]
    what = dict.fromkeys([*(told[:1] if first is not None else []), *(told or lines or ["it said nothing"])[-1:]])
    return " … ".join(line[:400] for line in what)


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that do nothing but take time from the processors."""
    program = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(1000000))"
    started = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()
