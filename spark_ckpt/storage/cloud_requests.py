"""Requests to Google Cloud Storage or Azure, by obstore, and the client that makes them.

All that the client is told comes from its own environment: `GOOGLE_*` and `AZURE_*`. Here it is told only how long to wait.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, TypeVar
from urllib.parse import urlsplit

from spark_ckpt.errors import StorageSetupError
from spark_ckpt.storage.attempts import Attempts, Done, Fault, Place, Reach
from spark_ckpt.storage.base import OPTION, Traffic
from spark_ckpt.storage.cloud_faults import Cloud, CloudError, asked, code_of, fault_of, setup_error, unreachable_error

T = TypeVar("T")


@dataclass(frozen=True)
class CloudLimits:
    """Sizes in bytes, times in seconds. `read_s`: of silence, which for the client is also the time that sending takes; so `send_s` is in
    its place for puts of `large` bytes or more, and for parts. `whole_s`: of one request, however much comes; `idle_s`: for so long a
    connection is kept for the next one, and not until the server closes it. The last four are its `Patience`."""

    single_put_max: int = 16 << 20
    part_size: int = 8 << 20
    part_threads: int = 4
    page_size: int = 1000
    large: int = 1 << 20
    connect_s: float = 5.0
    read_s: float = 30.0
    send_s: float = 120.0
    whole_s: float = 1800.0
    idle_s: float = 20.0
    part_attempts: int = 10
    patience_s: float = 60.0
    first_contact_s: float = 8.0
    backoff_s: float = 0.1
    backoff_max_s: float = 5.0


class _For(Enum):
    """What one of obstore's stores is made for, when it is first needed: each takes some hundredths of a second."""

    SMALL = "SMALL"
    LARGE = "LARGE"
    PARTS = "PARTS"


class CloudRequests(Attempts):
    """Those of one storage, of all threads."""

    def __init__(
        self,
        cloud: Cloud,
        url: str,
        bucket: str,
        reach: Reach,
        limits: CloudLimits,
        traffic: Traffic,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        chance: random.Random,
        called: str = OPTION,
    ) -> None:
        super().__init__(Place(url, bucket, _endpoint(cloud), called), reach, limits, traffic, clock, sleep, chance)
        self._cloud, self._limits = cloud, limits
        self._lock = threading.Lock()
        self._made: dict[_For, Any] = {}
        self._given_up = 0
        try:
            self._client(_For.SMALL)
        except CloudError as error:
            if not self._has_worked:
                raise self._setup_error(error, "connect") from error

    @property
    def single(self) -> Any:
        """obstore's store. Raises `CloudError`, which `run` knows."""
        return self._client(_For.SMALL)

    def for_put(self, size: int) -> Any:
        """The same for a put of so many bytes."""
        return self._client(_For.SMALL if size < self._limits.large else _For.LARGE)

    @property
    def parts(self) -> Any:
        """The same for uploads of many parts, of which it tries each again itself: a part may be sent as often as one likes."""
        return self._client(_For.PARTS)

    def once(self, send: Callable[[], T]) -> T | None:
        """What is good to know, and not worth waiting for. None: it is not known."""
        found = self._attempt(send)
        return None if isinstance(found, Exception) else found.result

    def close(self) -> None:
        with self._lock:
            self._made.clear()

    def _client(self, kind: _For) -> Any:
        with self._lock:
            if kind not in self._made:
                self._made[kind] = self._store(kind)
            return self._made[kind]

    def _store(self, kind: _For) -> Any:
        limits = self._limits
        silence_s = limits.read_s if kind is _For.SMALL else limits.send_s
        retries = limits.part_attempts - 1 if kind is _For.PARTS else 0
        # Not as `client_options`: those would take the place of what the environment says, of proxies for example.
        config = {
            "connect_timeout": f"{limits.connect_s} seconds",
            "read_timeout": f"{silence_s} seconds",
            "timeout": f"{limits.whole_s} seconds",
            "pool_idle_timeout": f"{limits.idle_s} seconds",
        }
        backoff = {
            "init_backoff": timedelta(seconds=limits.backoff_s),
            "max_backoff": timedelta(seconds=limits.backoff_max_s),
            "base": 2.0,
        }
        retry = {"max_retries": retries, "backoff": backoff, "retry_timeout": timedelta(seconds=limits.patience_s)}
        return asked(lambda: self._cloud.client(self.place.bucket, config=config, retry_config=retry))

    def _attempt(self, send: Callable[[], T]) -> Done[T] | Exception:
        try:
            return Done(send())
        except CloudError as error:
            return error

    def _fault(self, error: Exception) -> Fault:
        return fault_of(error)

    def _is_answer(self, error: Exception) -> bool:
        return isinstance(error, CloudError) and error.answered

    def _code(self, error: Exception) -> str:
        return code_of(error)

    def _setup_error(self, error: Exception, doing: str) -> StorageSetupError:
        return setup_error(error, doing, self.place, self._cloud)

    def _unreachable_error(self, error: Exception) -> StorageSetupError:
        return unreachable_error(error, self.place, self._cloud)

    def _generation(self) -> int:
        return self._given_up

    def _renew(self, generation: int) -> None:
        with self._lock:
            if generation == self._given_up:
                self._made.clear()
                self._given_up += 1


def _endpoint(cloud: Cloud) -> str:
    """What messages name: host and port, for a URL may hold a password."""
    for name in cloud.endpoints:
        parts = urlsplit(os.environ.get(name, ""))
        try:
            port = parts.port
        except ValueError:
            continue
        if parts.scheme and parts.hostname:
            return f"{parts.scheme}://{parts.hostname}" + (f":{port}" if port is not None else "")
    account = " ".join(filter(None, map(os.environ.get, cloud.account)))
    return f"{cloud.name}, account {account}" if account else cloud.name
