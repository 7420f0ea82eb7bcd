"""Real servers for the campaign and the benchmark: found on the PATH, or brought by Go or npm into the virtual environment, once."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ACCESS, SECRET = "test", "test-secret"
BUILT = Path(sys.prefix) / "servers"
BUILD_S, START_S = 900, 60
_ENDING_WITH_STARTER = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""


class UnavailableError(Exception):
    """The server is not on this machine and cannot be built; says what to install."""


@dataclass(frozen=True)
class Kind:
    """`arguments` may use {port} and {folder}; `module` is what `go install` takes, `package` what `npm install` does.

    `built` is the name that `go install` gives the program, where that is another one.
    """

    name: str
    module: str
    arguments: Sequence[str]
    env: Mapping[str, str]
    built: str = ""
    package: str = ""


VERSITYGW = Kind(
    "versitygw",
    "github.com/versity/versitygw/cmd/versitygw@v1.8.0",
    ("--port", "127.0.0.1:{port}", "--quiet", "posix", "{folder}"),
    {"ROOT_ACCESS_KEY": ACCESS, "ROOT_SECRET_KEY": SECRET},
)
MINIO = Kind(
    "minio",
    "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c",
    ("server", "--quiet", "--address", "127.0.0.1:{port}", "{folder}"),
    {"MINIO_ROOT_USER": ACCESS, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_BROWSER": "off"},
)
TOXIPROXY = Kind(
    "toxiproxy-server",
    "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0",
    ("-host", "127.0.0.1", "-port", "{port}"),
    {},
    built="server",
)
"""What answers at its URL is its own API, by which proxies are made."""
FAKE_GCS = Kind(
    "fake-gcs-server",
    "github.com/fsouza/fake-gcs-server@v1.56.1",
    ("-scheme", "http", "-host", "127.0.0.1", "-port", "{port}", "-public-host", "127.0.0.1:{port}", "-filesystem-root", "{folder}"),
    {},
)
AZURITE = Kind(
    "azurite-blob",
    "",
    ("--blobHost", "127.0.0.1", "--blobPort", "{port}", "--location", "{folder}", "--silent", "--disableTelemetry"),
    {},
    package="azurite@3.35.0",
)
S3_KINDS = {kind.name: kind for kind in (VERSITYGW, MINIO)}


def binary(kind: Kind) -> Path:
    """Raises UnavailableError."""
    return _found(kind) or (_from_npm(kind) if kind.package else _from_go(kind))


@contextmanager
def _alone(kind: Kind) -> Iterator[None]:
    """A build takes minutes and all processors: whoever wants the same meanwhile waits, and finds it built."""
    BUILT.mkdir(exist_ok=True)
    with (BUILT / f"{kind.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _found(kind: Kind) -> Path | None:
    found = shutil.which(kind.name, path=f"{os.environ.get('PATH', '')}{os.pathsep}{BUILT}")
    return Path(found) if found is not None else None


def _from_go(kind: Kind) -> Path:
    """Raises UnavailableError."""
    go = shutil.which("go")
    if go is None:
        raise UnavailableError(f"{kind.name} is not on the PATH, and there is no Go to build it with: install one of the two")
    with _alone(kind), tempfile.TemporaryDirectory(dir=BUILT) as folder:
        if (found := _found(kind)) is not None:
            return found
        built = _run([go, "install", kind.module], {"GOBIN": folder})
        if built.returncode != 0:
            raise UnavailableError(f"{kind.name} is not on the PATH, and `go install {kind.module}` failed: {built.stderr.strip()[-300:]}")
        return (Path(folder) / (kind.built or kind.name)).rename(BUILT / kind.name)


def _run(command: Sequence[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = ending_with_starter(command)
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=BUILD_S, check=False)


def _from_npm(kind: Kind) -> Path:
    """Raises UnavailableError."""
    npm = shutil.which("npm")
    if npm is None:
        raise UnavailableError(f"{kind.name} is not on the PATH, and there is no npm to get it with: install one of the two")
    home = BUILT / kind.package
    program = home / "node_modules" / ".bin" / kind.name
    if program.exists():
        return program
    with _alone(kind), tempfile.TemporaryDirectory(dir=BUILT) as folder:
        if not program.exists():
            command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", f"{folder}/new", kind.package]
            done = _run(command, {})
            if done.returncode != 0:
                raise UnavailableError(f"{kind.name} is not on the PATH, and npm cannot get it: {done.stderr.strip()[-300:]}")
            (Path(folder) / "new").rename(home)
    return program


@contextmanager
def running(kind: Kind, folder: Path, *options: str) -> Iterator[str]:
    """Start the server over a folder of its own; its URL. `options` come before the arguments. Raises UnavailableError."""
    program = binary(kind)
    data = folder / "data"
    data.mkdir(parents=True)
    port = free_port()
    arguments = [*options, *(part.format(port=port, folder=data) for part in kind.arguments)]
    with (folder / "server.log").open("wb") as log:
        command = ending_with_starter([str(program), *arguments])
        process = subprocess.Popen(command, env={**os.environ, **kind.env}, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
    try:
        _wait(process, port, folder / "server.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)


def ending_with_starter(command: Sequence[str]) -> list[str]:
    """The same, as a process that the kernel kills when the thread ends that has started it (prctl(2)): also when that is killed."""
    return [sys.executable, "-ISc", _ENDING_WITH_STARTER, str(os.getpid()), *command]


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        assert process.poll() is None, f"the server ended with {process.returncode}: {log.read_text(errors='replace')[-2000:]}"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, f"the server does not answer: {log.read_text(errors='replace')[-2000:]}"
            time.sleep(0.05)
