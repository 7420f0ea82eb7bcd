"""Processes of an application and what they have used: an application is a session of processes of its own (`setsid`)."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.errors import BenchmarkError

OWN = {"coordinator": "spark_ckpt.coordinator", "agent": "spark_ckpt.agent"}
"""Our processes by a part of their command line."""


def of_session(session: int) -> Iterator[tuple[int, str]]:
    """(process id, command line) of every process of a session; one that has ended has no command line."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                if int(_stat(int(entry.name))[3]) == session:
                    yield int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def own(session: int) -> dict[str, int]:
    """Process ids of coordinator and agent, if they are there."""
    return {name: pid for pid, command in of_session(session) for name, part in OWN.items() if part in command}


def cpu_ms(pid: int) -> float:
    """Processor time of a process and of those it has waited for, in milliseconds."""
    return sum(int(field) for field in _stat(pid)[11:15]) / os.sysconf("SC_CLK_TCK") * 1000


def session_cpu_ms(session: int) -> dict[str, float]:
    """The same by what a process is: `coordinator`, `agent`, and `all` for the whole session."""
    used = dict.fromkeys((*OWN, "all"), 0.0)
    for pid, command in of_session(session):
        with contextlib.suppress(OSError):
            spent = cpu_ms(pid)
            used["all"] += spent
            for name, part in OWN.items():
                if part in command:
                    used[name] += spent
    return used


def tree_cpu_ms(pid: int) -> float:
    """Processor time of a process and of all that it has started, those of them that have ended and were waited for included."""
    return _cpu_ms(_tree(pid))


def _tree(pid: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                children.setdefault(int(_stat(int(entry.name))[1]), []).append(int(entry.name))
    found, left = set[int](), [pid]
    while left:
        one = left.pop()
        found.add(one)
        left += children.get(one, ())
    return found


def _cpu_ms(pids: Iterable[int]) -> float:
    """Of those that are still there."""
    used = 0.0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError):
            used += cpu_ms(pid)
    return used


def machine_cpu_ms() -> float:
    """Processor time of everything on this machine since it started, and what other machines on the same host took from it."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK") * 1000


class Elsewhere:
    """How much of the machine's processors others had since an application was begun.

    S3 server and proxy are none of them: they are started by this process, and work the more the faster an application asks.
    """

    def __init__(self) -> None:
        self._began, self._machine_ms = time.monotonic(), machine_cpu_ms()
        self._own_ms = tree_cpu_ms(os.getpid())

    def percent(self, session: int) -> float:
        there_was = (time.monotonic() - self._began) * 1000 * (os.cpu_count() or 1)
        tree = _tree(os.getpid())
        own = _cpu_ms(tree) - self._own_ms + _cpu_ms(pid for pid, _ in of_session(session) if pid not in tree)
        return 100 * max(0.0, machine_cpu_ms() - self._machine_ms - own) / there_was


def tell_session(session: int, number: signal.Signals) -> None:
    """A signal to every process of a session, those that it starts meanwhile included."""
    told: set[int] = set()
    while new := {pid for pid, _ in of_session(session)} - told:
        for pid in new:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        told |= new


def resident(pid: int, peak: bool = False) -> int:
    """Bytes of a process that are in memory, those it shares with others included; `peak`: at most so far."""
    name = "VmHWM:" if peak else "VmRSS:"
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise BenchmarkError(f"/proc/{pid}/status has no {name}")


def _stat(pid: int) -> list[str]:
    """Fields of /proc/<pid>/stat from the third one on (the second may have blanks in it)."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
