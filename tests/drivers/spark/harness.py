"""Starts, watches, kills and restarts real Spark applications in processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from spark_ckpt.process.jar import jar_path, pyspark_home
from testbed.servers import ending_with_starter
from testbed.spark_home import linked_home

JOBS = Path(__file__).parents[2] / "spark" / "jobs"
PLUGIN = "org.apache.spark.ckpt.CheckpointPlugin"
CLASS_ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
"""What `class_archive.py` has made, if it has."""


def class_path(*more: Path) -> str:
    """As spark-submit would have it: JVMs can share the archive's classes only with the class path that it was made with, and `more`."""
    jars = pyspark_home() / "jars"
    return ":".join(map(str, [pyspark_home() / "conf", *jars.glob("slf4j-api-*.jar"), jars / "*", *more]))


SMALL = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:MetaspaceSize=300m")
"""For a JVM that lives for seconds: without the last one it collects all its garbage because it has loaded many classes."""


class Scratch:
    """A folder for all that a killed JVM leaves behind: native libraries, blocks, artifacts, executors' folders, a warehouse."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._temp = folder, folder / "tmp"
        self._temp.mkdir(parents=True, exist_ok=True)

    @property
    def conf(self) -> dict[str, str]:
        return {
            "spark.local.dir": str(self._folder / "local"),
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
            "spark.executor.extraJavaOptions": " ".join([*self.java, *SMALL]),
        }

    @property
    def env(self) -> dict[str, str]:
        """For the driver, whatever starts it."""
        return {"TMPDIR": str(self._temp), "SPARK_SUBMIT_OPTS": " ".join(self.java)}

    def home(self) -> Path:
        return linked_home(self._folder / "home")

    @property
    def java(self) -> list[str]:
        shared = [f"-XX:SharedArchiveFile={CLASS_ARCHIVE}", "-Xlog:cds*=off"] if CLASS_ARCHIVE.exists() else []
        return [f"-Djava.io.tmpdir={self._temp}", *shared]


class Application:
    """One spark-submit and everything it started, in a process group of its own, which ends with the `with` block, or with whoever has
    started it: the driver's JVM, which spark-submit becomes, is killed then, and the others end without it."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str], cwd: Path | None = None) -> None:
        self.log = log
        own = ending_with_starter(command)
        with log.open("ab") as out:
            self._process = subprocess.Popen(own, stdout=out, stderr=subprocess.STDOUT, env=dict(env), cwd=cwd, start_new_session=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def wait(self, timeout: float = 240) -> int:
        return self._process.wait(timeout)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL for the driver's JVM, its Python and all that belongs to them, at one moment, as when a machine dies."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)

    def signal_group(self, number: signal.Signals) -> None:
        """To every process of the application, as a cluster's manager does it."""
        os.killpg(self._process.pid, number)

    def until_gone(self, *parts: str, timeout: float = 60) -> None:
        """Until no process of the application's group has one of the parts in its command line, whoever its parent is by then."""
        deadline = time.monotonic() + timeout
        while found := [command for command in self._group() if any(part in command for part in parts)]:
            assert time.monotonic() < deadline, f"still there: {found}"
            time.sleep(0.05)

    def _group(self) -> Iterator[str]:
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                if entry.name.isdigit() and int((entry / "stat").read_text().rsplit(")", 1)[1].split()[2]) == self._process.pid:
                    yield (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")

    def kill_driver(self) -> None:
        """SIGKILL for the JVM alone, which spark-submit has become: what it started has to see to its own end."""
        self._process.kill()
        self._process.wait(30)

    def descendants(self) -> Iterator[tuple[int, str]]:
        """(process id, command line) of every living process below this application."""
        parents: dict[int, int] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError, ValueError, IndexError):
                    parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        for pid in parents:
            up = pid
            while up in parents and up != self._process.pid:
                up = parents[up]
            if up == self._process.pid and pid != up:
                with contextlib.suppress(OSError):
                    yield pid, Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")

    def kill_one(self, part: str) -> int:
        """SIGKILL for the first process whose command line has `part` in it; its process id."""
        for pid, command in self.descendants():
            if part in command:
                os.kill(pid, signal.SIGKILL)
                return pid
        raise AssertionError(f"no process of the application has {part!r} in its command line")

    def kill_all(self, *parts: str) -> int:
        """SIGKILL for every process whose command line has one of the parts in it; how many there were."""
        victims = [pid for pid, command in self.descendants() if any(part in command for part in parts)]
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(victims)

    def until(self, condition: Callable[[], bool], what: str, timeout: float = 120) -> None:
        """Wait for something that is seen from outside; fail with the log's end if the application ends before."""
        deadline = time.monotonic() + timeout
        while True:
            # A look at logs, folders or processes can cost as much as what is waited for: a tenth of a processor is enough.
            before = time.thread_time()
            if condition():
                return
            cost = time.thread_time() - before
            if not self.running:
                raise AssertionError(f"the application ended with {self._process.returncode} before {what}\n{self.tail()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: not within {timeout} s\n{self.tail()}")
            time.sleep(max(0.02, min(9 * cost, 0.5)))

    def tail(self, lines: int = 60) -> str:
        """The end of the log, and before it what went wrong first: executors that end with their driver say a great deal."""
        told = self.log.read_text(errors="replace").splitlines()
        first = next((i for i, line in enumerate(told) if "Traceback" in line or "terminated with error" in line), len(told))
        return "\n".join([*told[first : max(first, min(first + lines, len(told) - lines))], *told[-lines:]])

    def expect_success(self, timeout: float = 240) -> None:
        status = self.wait(timeout)
        assert status == 0, f"the application ended with {status}\n{self.tail()}"


Start = Callable[..., Application]
"""The fixture `start`: as `submit`, and what it starts ends with the test."""


def submit(
    script: str,
    args: Sequence[str],
    *,
    log: Path,
    storage: str | None,
    master: str = "local[2]",
    conf: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    plugin: bool = True,
    jar: Path | None = None,
    jars: Sequence[Path] = (),
    cwd: Path | None = None,
    properties: Path | None = None,
) -> Application:
    """spark-submit of an unmodified job in the folder `cwd`; with the plugin by configuration alone.

    `jar`: not the installed one. `jars`: the job's own. `properties`: its `--properties-file`.
    """
    scratch = Scratch(log.with_suffix(".scratch"))
    settings = {
        **scratch.conf,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": " ".join(["-Duser.timezone=UTC", *SMALL]),
    }
    if plugin:
        settings["spark.plugins"] = PLUGIN
        if storage is not None:
            settings["spark.ckpt.storage"] = storage
    settings.update(conf or {})
    command = [str(pyspark_home() / "bin" / "spark-submit")]
    command += ["--master", master, "--driver-memory", "1g"]
    given = [*([jar or jar_path()] if plugin else []), *jars]
    if given:
        command += ["--jars", ",".join(map(str, given))]
    if properties is not None:
        command += ["--properties-file", str(properties)]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    command += [str(JOBS / script), *args]
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    home = scratch.home() if master.startswith("local-cluster") else pyspark_home()
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", **python, **scratch.env, **(env or {})}
    return Application(command, log, environment, cwd)


def rows(path: Path) -> list[dict[str, object]]:
    """What an idempotent JSON sink holds, as dictionaries."""
    return [json.loads(line) for part in sorted(path.rglob("part-*.json")) for line in part.read_text().splitlines()]
