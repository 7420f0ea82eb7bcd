"""boto3's client of one storage, and the credentials that it signs with.

boto3 looks for credentials once, when a client is made, and reads most kinds never again. Here they are looked at before each request: so
what keeps them away (a token file that is not there, a service that does not answer) is told from what the S3 server says, and a client
whose credentials are of no use is made anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import boto3
from botocore import session as botocore_sessions
from botocore.config import Config
from botocore.exceptions import BotoCoreError, InvalidRegionError, NoCredentialsError
from botocore.handlers import add_expect_header
from botocore.loaders import Loader, create_loader
from botocore.utils import determine_content_length

from spark_ckpt.errors import ConfigError
from spark_ckpt.storage.attempts import Place
from spark_ckpt.storage.options import ENDPOINT, S3Options, check_endpoint, not_an_endpoint
from spark_ckpt.storage.s3_faults import CredentialsError, setup_error

_EXPECT_FROM = 1 << 20
_ENVIRONMENT = "the endpoint in AWS_ENDPOINT_URL, AWS_ENDPOINT_URL_S3 or ~/.aws/config"


@dataclass(frozen=True)
class _Made:
    client: Any
    credentials: Any


class Connection:
    """One client with pooled connections, shared by all threads. `sent`: called by botocore for every attempt that goes to the wire."""

    def __init__(self, options: S3Options, place: Place, connect_s: float, read_s: float, sent: Callable[..., None]) -> None:
        self._options = options
        self._place = place
        self._connect_s, self._read_s = connect_s, read_s
        self._sent = sent
        self._lock = threading.Lock()
        self._made: _Made | None = None
        self.generation = 0
        """Counts the clients that were given up."""

    @property
    def client(self) -> Any:
        """Ready to sign. Raises `CredentialsError`, `ConfigError`, `StorageSetupError`."""
        with self._lock:
            if self._made is None:
                self._made = self._make()
            made = self._made
        try:
            made.credentials.get_frozen_credentials()  # refreshes those that expire
        except Exception as error:  # providers raise whatever they meet: of the network, of a file, of another service
            raise CredentialsError from error
        return made.client

    def renew(self, generation: int) -> None:
        """The credentials of that generation's client are of no use: where they came from there may be others by now."""
        with self._lock:
            if self._made is not None and generation == self.generation:
                self._made.client.close()
                self._made = None
                self.generation += 1

    def close(self) -> None:
        with self._lock:
            if self._made is not None:
                self._made.client.close()

    def _make(self) -> _Made:
        try:
            session = _session()
            credentials = session.get_credentials()
        except Exception as error:
            raise CredentialsError from error
        if credentials is None:
            raise CredentialsError from NoCredentialsError()
        options = self._options
        config = Config(
            max_pool_connections=options.max_connections,
            connect_timeout=self._connect_s,
            read_timeout=self._read_s,
            tcp_keepalive=True,
            retries={"mode": "standard", "total_max_attempts": 1},
            # a CRC-32 goes with every put as a plain header: botocore's default over TLS is a trailer, which some servers refuse
            request_checksum_calculation="when_required",
            # servers differ in what they answer to a ranged read; whole reads ask for validation one by one
            response_checksum_validation="when_required",
            s3={"addressing_style": "path"} if options.path_style else {},
        )
        try:
            client: Any = session.client("s3", endpoint_url=options.endpoint, region_name=options.region, config=config)
        except InvalidRegionError:
            raise ConfigError("spark.ckpt.s3.region, or the region in AWS_REGION or ~/.aws/config, is malformed; correct it") from None
        except ValueError:
            raise not_an_endpoint(_ENVIRONMENT if options.endpoint is None else ENDPOINT) from None
        except BotoCoreError as error:
            raise setup_error(error, "connect", self._place) from error
        try:
            check_endpoint(_ENVIRONMENT, client.meta.endpoint_url)
        except ConfigError:
            client.close()
            raise
        events = client.meta.events
        events.unregister("before-call.s3", add_expect_header)
        events.register("before-call.s3", _expect_if_large)
        events.register("before-send.s3", self._sent)
        return _Made(client, credentials)


_models: Loader | None = None
_models_lock = threading.Lock()


def _session() -> Any:
    """A new one, which looks for credentials anew. What boto3 knows of S3 is one for all: each client would read it for itself, in a tenth
    of a second of processor, and keep 12 MB of it, and an application may have many streams."""
    global _models
    found = botocore_sessions.get_session()
    with _models_lock:
        if _models is None:
            _models = create_loader(found.get_config_variable("data_path"))
        found.register_component("data_loader", _models)
        session = boto3.Session(botocore_session=found)
        _models.search_paths[:] = dict.fromkeys(_models.search_paths)  # boto3 has added its own to them once more
    return session


def _expect_if_large(model: Any, params: dict[str, Any], **_: object) -> None:
    """`Expect: 100-continue` costs a round trip: worth it only where a refusal would waste a large body."""
    body = params.get("body")
    if model.http.get("method") == "PUT" and body is not None and (determine_content_length(body) or 0) >= _EXPECT_FROM:
        params["headers"]["Expect"] = "100-continue"
