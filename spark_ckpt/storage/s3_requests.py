"""Requests to an S3 server, by boto3."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from spark_ckpt.errors import CheckpointError, StorageSetupError
from spark_ckpt.storage.attempts import Attempts, Done, Fault, Place
from spark_ckpt.storage.base import OPTION, Traffic
from spark_ckpt.storage.options import S3Options
from spark_ckpt.storage.s3_connection import Connection
from spark_ckpt.storage.s3_faults import CredentialsError, ShortAnswerError, code_of, fault_of, setup_error, unreachable_error

T = TypeVar("T")

_COUNTED_AS = {
    "GetObject": "get",
    "HeadObject": "head",
    "HeadBucket": "head",
    "ListObjectsV2": "list",
    "DeleteObject": "delete",
    "DeleteObjects": "delete",
    "AbortMultipartUpload": "delete",
}


@dataclass(frozen=True)
class S3Limits:
    """Sizes in bytes, times in seconds. The last four are its `Patience`."""

    single_put_max: int = 16 << 20
    part_size: int = 16 << 20
    part_threads: int = 4
    page_size: int = 1000
    connect_s: float = 5.0
    read_s: float = 30.0
    patience_s: float = 60.0
    first_contact_s: float = 8.0
    backoff_s: float = 0.1
    backoff_max_s: float = 5.0


class S3Requests(Attempts):
    """Those of one storage, of all threads."""

    def __init__(
        self,
        url: str,
        bucket: str,
        options: S3Options,
        limits: S3Limits,
        traffic: Traffic,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        chance: random.Random,
        called: str = OPTION,
    ) -> None:
        super().__init__(Place(url, bucket, options.endpoint or "Amazon S3", called), options, limits, traffic, clock, sleep, chance)
        self._connection = Connection(options, self.place, limits.connect_s, limits.read_s, self._count)
        try:
            self.place = Place(url, bucket, self.client.meta.endpoint_url, called)
        except CredentialsError as error:
            if not self._has_worked:
                raise setup_error(error, "connect", self.place) from error

    @property
    def client(self) -> Any:
        """boto3's. Raises `CredentialsError`, which `run` knows."""
        return self._connection.client

    def close(self) -> None:
        self._connection.close()

    def _attempt(self, send: Callable[[], T]) -> Done[T] | Exception:
        try:
            return Done(send())
        except (BotoCoreError, ClientError, ResponseParserError, HTTPError, ShortAnswerError, CredentialsError) as error:
            cause = getattr(error, "kwargs", {}).get("error")
            if isinstance(cause, CheckpointError):  # botocore wraps what reading the body raises: a local file that shrank
                raise cause from None
            return error

    def _fault(self, error: Exception) -> Fault:
        return fault_of(error)

    def _is_answer(self, error: Exception) -> bool:
        return isinstance(error, (ClientError, ShortAnswerError))

    def _code(self, error: Exception) -> str:
        return code_of(error)

    def _setup_error(self, error: Exception, doing: str) -> StorageSetupError:
        return setup_error(error, doing, self.place)

    def _unreachable_error(self, error: Exception) -> StorageSetupError:
        return unreachable_error(error, self.place)

    def _generation(self) -> int:
        return self._connection.generation

    def _renew(self, generation: int) -> None:
        self._connection.renew(generation)

    def _count(self, request: Any, event_name: str, **_: object) -> None:
        operation = _COUNTED_AS.get(event_name.rsplit(".", 1)[-1], "put")
        if operation == "put":
            self._traffic.sent(int(request.headers.get("Content-Length", 0)))
            if "If-None-Match" in request.headers:
                operation = "put_if_absent"
        self._traffic.request(operation)
