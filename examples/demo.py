"""The main job, watched: a year of flights through a stateful query whose driver is killed in the middle of an epoch and loses its disk.

    python examples/demo.py [--seed N] [--stock]

The job (flights_job.py) is started twice by the same command; in between its machine is gone: SIGKILL, and the folder with its
`checkpointLocation` and spool deleted. What the sink holds in the end is compared with a batch query over the same data. Exit status 0:
every row is right, and the kill and the restore took place; 1: anything else. `--stock` runs plain Spark, without a kill, to compare with.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import flights_data
from demo_machine import DemoError, Job, Machine, written_since
from demo_storage import Stream
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from spark_ckpt.model import Checkpoint

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parent / ".demo"
FEWEST_EPOCHS = 30
EARLIEST_KILL, LATEST_KILL = 8, 22
PATIENCE = 180.0
"""Seconds without a new epoch after which something is wrong."""
POLL = 0.01

console = Console(highlight=False)


def say(text: str = "") -> None:
    console.print(text, soft_wrap=True)


def size(count: float) -> str:
    """Bytes, for people."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def line(checkpoint: Checkpoint) -> str:
    """One completed checkpoint, as it is shown while the job runs."""
    c = checkpoint.counters
    return (
        f"  [green]✔[/] checkpoint of epoch {checkpoint.id.epoch:>3}   acks {c['acked']:>2}/{c['required']}"
        f"   new {size(c['new_bytes']):>10}   full {size(checkpoint.size):>10}   {c['duration_ms']:>5.0f} ms"
    )


class Watcher:
    """Follows one life of the job: shows its checkpoints, knows how far it is."""

    def __init__(self, machine: Machine, stream: Stream | None, bar: Progress, total: int) -> None:
        self._machine = machine
        self._stream = stream
        self._bar = bar
        self._task = bar.add_task("epochs", total=total)
        self._committed = -1
        self._last_change = time.monotonic()
        self.durations: list[float] = []

    def look(self, job: Job) -> None:
        """Show what is new. Raises `DemoError` if the job has died or hangs."""
        if self._stream is not None:
            for checkpoint in self._stream.completed_since_last_look():
                self._bar.console.print(line(checkpoint), soft_wrap=True)
        committed = self._machine.committed()
        now = time.monotonic()
        if committed > self._committed:
            if self._committed >= 0:
                self.durations.append((now - self._last_change) / (committed - self._committed))
            self._committed = committed
            self._last_change = now
            self._bar.update(self._task, completed=committed + 1)
        if now - self._last_change > PATIENCE:
            raise DemoError(f"nothing has happened for {PATIENCE:.0f} s", job.last_words())

    def finish(self, job: Job) -> None:
        """Watch until the job ends by itself."""
        while job.running():
            self.look(job)
            time.sleep(POLL * 5)
        self.look(job)
        if job.status() != 0:
            raise DemoError(f"the job ended with status {job.status()}", job.last_words())

    def until_epoch(self, job: Job, epoch: int) -> None:
        """Watch until the epoch has been planned."""
        while self._machine.planned() < epoch:
            if not job.running():
                raise DemoError(f"the job ended with status {job.status()} before epoch {epoch}", job.last_words())
            self.look(job)
            time.sleep(POLL)


def kill_in_the_middle(watcher: Watcher, machine: Machine, job: Job, first: int, chance: random.Random) -> int:
    """SIGKILL while an epoch runs; returns which. The group is halted first, so that the look at what is on disk is not out of date."""
    epoch = first
    while True:
        watcher.until_epoch(job, epoch)
        time.sleep(chance.uniform(0.05, 0.6) * statistics.median(watcher.durations or [1.0]))
        job.signal(signal.SIGSTOP)
        planned, committed = machine.planned(), machine.committed()
        if planned > committed:
            job.kill()
            return planned
        job.signal(signal.SIGCONT)
        epoch = planned + 1


def progress() -> Progress:
    columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def path_of_jar() -> str:
    """What `spark-ckpt jar` prints."""
    ask = [sys.executable, "-c", "from spark_ckpt.cli.main import main; main()", "jar"]
    answer = subprocess.run(ask, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise DemoError(f"`spark-ckpt jar` failed: {answer.stderr.strip()}", "")
    return answer.stdout.strip()


def settings(machine: Machine) -> list[str]:
    """What a small machine needs; nothing of spark-ckpt."""
    conf = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(machine.local_dir),
        # What a JVM that is killed has unpacked there goes with the machine.
        "spark.driver.extraJavaOptions": f'-Djava.io.tmpdir="{machine.local_dir}"',
    }
    return ["--master", "local[2]", "--driver-memory", "1g", *(a for k, v in conf.items() for a in ("--conf", f"{k}={v}"))]


def enable(jar: str, storage: str) -> list[str]:
    """All that turns spark-ckpt on."""
    return ["--jars", jar, "--conf", "spark.plugins=org.apache.spark.ckpt.CheckpointPlugin", "--conf", f"spark.ckpt.storage={storage}"]


def compare(machine: Machine, feed: Path, sink: Path, log: Path) -> tuple[bool, str]:
    """Run the batch query and compare; whether every row is right, and what to say."""
    job = Job([*settings(machine), str(HERE / "flights_check.py"), "--input", str(feed), "--output", str(sink)], log, FOLDER)
    answer = job.answer()
    try:
        found = json.loads(answer.splitlines()[-1])
    except (IndexError, ValueError) as e:
        raise DemoError("the batch query did not answer", job.last_words()) from e
    right = job.status() == 0 and found["expected"] > 0 and found["missing"] == 0 and found["excess"] == 0
    text = f"sink {found['found']:,} rows, batch query {found['expected']:,}, missing {found['missing']:,}, in excess {found['excess']:,}"
    for kind in ("missing", "excess"):
        text += "".join(f"\n      {kind}: {row}" for row in found[f"examples_{kind}"])
    return right, text


def verdict(checks: list[tuple[bool, str]], began: float) -> int:
    say()
    for right, text in checks:
        say(f"  {'[green]✔[/]' if right else '[red]✘[/]'} {text}")
    failed = not all(right for right, _ in checks)
    word = "[bold red]FAILED[/]" if failed else "[bold green]EXACT[/]"
    say(f"\n{word} after {time.monotonic() - began:.0f} s; everything is in {FOLDER}")
    return 1 if failed else 0


def run(seed: int, stock: bool) -> int:
    began = time.monotonic()
    chance = random.Random(seed)
    if FOLDER.exists():
        shutil.rmtree(FOLDER)
    machine, feed, sink = Machine(FOLDER / "machine"), FOLDER / "feed", FOLDER / "sink"
    storage = (FOLDER / "storage").as_uri()

    say(f"[bold]The feed[/]   seed {seed}: it decides which flights come twice and when to kill (make demo SEED={seed})")
    files, flights, twice = flights_data.write(feed, seed)
    say(f"  {flights:,} flights in {files} files, one an epoch; {twice:,} of them are delivered twice")

    arguments = [str(HERE / "flights_job.py"), "--input", str(feed), "--output", str(sink), "--checkpoint", str(machine.checkpoint)]
    if stock:
        say("\n[bold]The job[/]   on stock Spark, not killed")
        with progress() as bar:
            job = Job([*settings(machine), *arguments], FOLDER / "driver-1.log", FOLDER)
            Watcher(machine, None, bar, files + 1).finish(job)
        return verdict([compare(machine, feed, sink, FOLDER / "check.log")], began)

    enabled = enable(path_of_jar(), storage)
    stream = Stream(storage, str(machine.checkpoint))
    first = chance.randint(EARLIEST_KILL, LATEST_KILL)
    say(f"\n[bold]The job[/]   epoch {first} will be its driver's last")
    say('  spark-submit --jars "$(spark-ckpt jar)" ' + " ".join(shlex.quote(a) for a in enabled[2:]) + " … examples/flights_job.py …")
    with progress() as bar:
        job = Job([*settings(machine), *enabled, *arguments], FOLDER / "driver-1.log", FOLDER)
        watcher = Watcher(machine, stream, bar, files + 1)
        killed = kill_in_the_middle(watcher, machine, job, first, chance)
        for checkpoint in stream.completed_since_last_look():
            bar.console.print(line(checkpoint), soft_wrap=True)
    newest = stream.newest_completed()
    death, died_ns = job.status(), time.time_ns()
    planned = machine.input(killed)
    say(f"\n[bold red]SIGKILL[/]   in the middle of epoch {killed}: process group {job.group} is dead (status {death})")
    machine.lose()
    say(f"  {machine.folder} is deleted: checkpointLocation and spool are gone, the storage is all there is")
    if newest is None:
        raise DemoError("no checkpoint was complete when the driver died", job.last_words())
    say(f"  newest completed checkpoint: run {newest.run}, epoch {newest.epoch}")

    say("\n[bold]The job again[/]   by the same command")
    with progress() as bar:
        second = Job([*settings(machine), *enabled, *arguments], FOLDER / "driver-2.log", FOLDER)
        watcher = Watcher(machine, stream, bar, files + 1)
        claim = stream.wait_for_claim(2, second)
        origin = claim.origin
        if origin is not None:
            say(f"  [bold green]RESTORE[/] run {claim.run} goes on from the checkpoint of run {origin.run}, epoch {origin.epoch}")
        watcher.finish(second)
    say(f"  all input is processed, up to epoch {machine.committed()}")

    say("\n[bold]The verdict[/]   a batch query over the same data")
    again = written_since(sink, died_ns)
    restored = origin is not None and origin.run == 1 and newest.epoch <= origin.epoch <= killed
    began_with = again[0] if again else None
    went_on = origin is not None and again == list(range(origin.epoch + 1, machine.committed() + 1))
    checks = [
        (death == -signal.SIGKILL, f"the driver was killed in the middle of epoch {killed}"),
        (restored and went_on, f"run 2 started from the storage alone, with epoch {began_with}: nothing before it ran again"),
        (machine.input(killed) == planned, f"epoch {killed} had the same input in both runs"),
        (machine.committed() + 1 >= FEWEST_EPOCHS, f"{machine.committed() + 1} epochs, {stream.seen} checkpoints seen complete"),
        compare(machine, feed, sink, FOLDER / "check.log"),
    ]
    return verdict(checks, began)


def _ends_by_signal(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


def main() -> int:
    parser = argparse.ArgumentParser(description="A stateful query is killed, loses its disk, goes on from its checkpoints, and is exact.")
    parser.add_argument("--seed", type=int, help="repeat a run (default: a new one, which is printed)")
    parser.add_argument("--stock", action="store_true", help="plain Spark without a kill, to compare times with")
    options = parser.parse_args()
    handle: Callable[[int, FrameType | None], None] = _ends_by_signal
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handle)
    try:
        return run(secrets.randbelow(1_000_000) if options.seed is None else options.seed, options.stock)
    except DemoError as e:
        say(f"{os.linesep if e.log else ''}{e.log}")
        say(f"[bold red]FAILED[/]   {e}; the logs are in {FOLDER}")
        return 1
    except KeyboardInterrupt:
        say("\nstopped")
        return 130
    finally:
        Job.end_all()


if __name__ == "__main__":
    sys.exit(main())
