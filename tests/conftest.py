"""Every process that a test starts carries a mark in its environment; what is left of them at the end is ended."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from botocore.loaders import JSONFileLoader

# What a driver's own `assert` says when it fails is said in full, as a test's.
pytest.register_assert_rewrite("tests.drivers")

MARK = "CKPT_TESTS"
ENDED_WITHIN_S = 10.0
_session = secrets.token_hex(8)


@pytest.fixture(scope="session", autouse=True)
def _descriptions_of_services_are_parsed_once() -> Iterator[None]:
    """Each session of boto3 parses those of its services anew, which is a tenth of a second for S3; they are files that do not change."""
    parse, parsed = JSONFileLoader.load_file, dict[str, Mapping[str, Any] | None]()

    def once(self: JSONFileLoader, file_path: str) -> Mapping[str, Any] | None:
        if file_path not in parsed:
            parsed[file_path] = parse(self, file_path)
        return parsed[file_path]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", once)
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """pytest-xdist is about to start a worker."""
    node.workerinput["mark"] = f"{_session}-{node.gateway.id}"


def pytest_configure(config: pytest.Config) -> None:
    # A process's own environment never changes in /proc: this one and, below it, xdist's workers are not found by this mark.
    own = getattr(config, "workerinput", {}).get("mark", f"{_session}-main")
    if _starts_tests(config):
        os.environ[MARK] = own


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker looks for its own; the one that has started workers, for those of all: one that crashed has not."""
    mark = os.environ[MARK] if _starts_tests(session.config) else _session
    deadline = time.monotonic() + ENDED_WITHIN_S
    while (left := _marked(f"{MARK}={mark}".encode())) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _starts_tests(config: pytest.Config) -> bool:
    """Not if it is pytest-xdist's other processes that do."""
    return hasattr(config, "workerinput") or not config.getoption("tx", None)


def _marked(start: bytes) -> list[int]:
    """Living processes with such an entry in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if any(variable.startswith(start) for variable in entry.read_bytes().split(b"\0")):
                found.append(int(entry.parent.name))
    return found
