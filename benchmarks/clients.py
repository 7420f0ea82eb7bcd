"""boto3 and obstore as clients of the same S3 server, each behind this project's storage and in a process of its own.

`main` is that process: it prints what it has measured as a line of JSON.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.access_log import Kind, between, by_kind
from benchmarks.errors import BenchmarkError
from benchmarks.far_s3 import ENV, REGION, FarS3
from benchmarks.processes import resident
from benchmarks.session import ROOT
from spark_ckpt.storage import S3Options, Slice, Storage

CLIENTS = ("boto3", "obstore")
SMALL, ENTRY = 2048, 200
READERS, BLOCK, OBJECT = 16, 8 << 20, 64 << 20
_MIB = 1 << 20
_RUN_S = 1200.0
MEASURED = {
    "open_ms": "open it, and put one object, ms",
    "put_ms": "put of 2 KiB, ms",
    "absent_ms": "put-if-absent of 200 bytes, ms",
    "get_ms": "get of 2 KiB, ms",
    "puts_a_second": "puts of 2 KiB a second, by 16 threads",
    "small_mib": "memory after these, MiB",
    "upload_mb_s": "upload of objects of 64 MiB, MB/s",
    "restore_mb_s": "read into files by 16 threads, MB/s",
    "peak_mib": "memory at most, MiB",
    "cpu_ms": "processor time of all, ms",
    "requests": "requests that reached the server",
}


def run(s3: FarS3, near: bool, megabytes: int, small: int, rounds: int, folder: Path, tell: Callable[[str], None]) -> None:
    """Both in turn, and the medians of the rounds. `near`: without the latency."""
    found: dict[str, dict[str, list[float]]] = {client: {} for client in CLIENTS}
    kinds: dict[str, Mapping[Kind, int]] = {}
    for number in range(rounds):
        for client in CLIENTS if number % 2 == 0 else CLIENTS[::-1]:
            bucket, start = s3.bucket(), s3.log.stat().st_size
            measured = _measured(client, s3.near if near else s3.endpoint, bucket, folder / f"{client}-{number}", megabytes, small)
            kinds[client] = by_kind(request for request in between(s3.log, start, s3.log.stat().st_size) if request.bucket == bucket)
            measured["requests"] = sum(kinds[client].values())
            for name, value in measured.items():
                found[client].setdefault(name, []).append(value)
    tell(f"{'near' if near else 'far'}, {megabytes} MB, {small} small objects, {rounds} rounds: medians of {' and '.join(CLIENTS)}")
    for name, text in MEASURED.items():
        values = [statistics.median(found[client][name]) for client in CLIENTS]
        tell(f"  {text:48} {values[0]:10,.1f} {values[1]:10,.1f}")
    for client in CLIENTS:
        tell(f"  requests of {client}: " + ", ".join(f"{count} {kind.value}" for kind, count in sorted(kinds[client].items(), key=str)))


def _measured(client: str, endpoint: str, bucket: str, folder: Path, megabytes: int, small: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.clients", client, endpoint, bucket, str(folder), str(megabytes), str(small)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **ENV}, capture_output=True, text=True, timeout=_RUN_S, check=False)
    shutil.rmtree(folder, ignore_errors=True)
    if done.returncode != 0:
        raise BenchmarkError(f"{client} ended with {done.returncode}: {done.stderr[-1000:]}")
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def opened(client: str, endpoint: str, bucket: str) -> Storage:
    """The clients are imported here, each in its own process only."""
    if client == "boto3":
        from spark_ckpt.storage.s3 import S3Storage

        return S3Storage(f"s3://{bucket}/bench", S3Options(endpoint=endpoint, region=REGION, path_style=True))
    from obstore.store import S3Store

    from spark_ckpt.storage.cloud import CloudStorage
    from spark_ckpt.storage.cloud_faults import Cloud

    class Obstore(CloudStorage):
        clouds = {"s3": Cloud("s3", "Amazon S3", "bucket", ("AWS_ENDPOINT_URL",), "", "", S3Store)}

    os.environ |= {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}
    return Obstore(f"s3://{bucket}/bench")


def measure(client: str, endpoint: str, bucket: str, folder: Path, megabytes: int, small: int) -> dict[str, float]:
    folder.mkdir(parents=True)
    data = os.urandom(SMALL)
    found: dict[str, float] = {}
    began = time.monotonic()
    with opened(client, endpoint, bucket) as storage:
        storage.put("first", data)
        found["open_ms"] = (time.monotonic() - began) * 1000
        found["put_ms"] = _each(small, lambda n: storage.put(f"put/{n}", data))
        found["absent_ms"] = _each(small, lambda n: storage.put_if_absent(f"log/{n}", data[:ENTRY]))
        found["get_ms"] = _each(small, lambda n: storage.get(f"put/{n}"))
        with ThreadPoolExecutor(READERS) as pool:
            began = time.monotonic()
            list(pool.map(lambda n: storage.put(f"many/{n}", data), range(4 * small)))
            found["puts_a_second"] = 4 * small / (time.monotonic() - began)
            found["small_mib"] = resident(os.getpid()) / _MIB
            source = folder / "source"
            objects = _written(source, megabytes)
            began = time.monotonic()
            for number in range(objects):
                storage.put_slices(f"seg/{number}", [Slice(source, number * OBJECT, OBJECT)])
            found["upload_mb_s"] = objects * OBJECT / (time.monotonic() - began) / 1e6
            ranges = [(number, at) for number in range(objects) for at in range(0, OBJECT, BLOCK)]
            began = time.monotonic()
            list(pool.map(lambda r: storage.get_to_file(f"seg/{r[0]}", r[1], BLOCK, folder / f"{r[0]}-{r[1]}"), ranges))
            found["restore_mb_s"] = objects * OBJECT / (time.monotonic() - began) / 1e6
    used = resource.getrusage(resource.RUSAGE_SELF)
    found["cpu_ms"] = (used.ru_utime + used.ru_stime) * 1000
    found["peak_mib"] = resident(os.getpid(), peak=True) / _MIB
    return found


def _each(count: int, do: Callable[[int], object]) -> float:
    """The median of its times, in milliseconds."""
    times = []
    for number in range(count):
        began = time.monotonic()
        do(number)
        times.append((time.monotonic() - began) * 1000)
    return statistics.median(times)


def _written(path: Path, megabytes: int) -> int:
    """A file of whole objects, of at least so many megabytes; how many they are."""
    objects = -(-megabytes * 1_000_000 // OBJECT)
    block = os.urandom(BLOCK)
    with path.open("wb") as file:
        for _ in range(objects * (OBJECT // BLOCK)):
            file.write(block)
    return objects


def main(arguments: Sequence[str]) -> None:
    client, endpoint, bucket, folder, megabytes, small = arguments
    print(json.dumps(measure(client, endpoint, bucket, Path(folder), int(megabytes), int(small))))


if __name__ == "__main__":
    main(sys.argv[1:])
