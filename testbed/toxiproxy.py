"""Toxiproxy's own API: proxies, and what happens on their wire."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Mapping
from typing import Any

ANSWER_S = 30
COUNTING = "-proxy-metrics"
"""Option of a server that counts bytes."""
_BROUGHT = r'^toxiproxy_proxy_received_bytes_total\{direction="downstream",[^}]*proxy="%s"[^}]*\} (\S+)$'


class Toxiproxy:
    """`api`: URL of a running toxiproxy-server. Each call raises OSError where it does not answer, or refuses."""

    def __init__(self, api: str) -> None:
        self._api = api

    def make(self, name: str, port: int, upstream: str) -> None:
        """A proxy on 127.0.0.1:`port` before the server at that URL."""
        document = {"name": name, "listen": f"127.0.0.1:{port}", "upstream": upstream.removeprefix("http://"), "enabled": True}
        self._ask("POST", "/proxies", document)

    def add(self, name: str, toxic: str, kind: str, stream: str, attributes: Mapping[str, int]) -> None:
        """`stream` is "upstream" or "downstream"; open connections have it from now on too."""
        document = {"name": toxic, "type": kind, "stream": stream, "attributes": dict(attributes)}
        self._ask("POST", f"/proxies/{name}/toxics", document)

    def remove(self, name: str, toxic: str) -> None:
        self._ask("DELETE", f"/proxies/{name}/toxics/{toxic}")

    def enable(self, name: str, enabled: bool) -> None:
        """Disabled, it closes all connections and takes none."""
        self._ask("POST", f"/proxies/{name}", {"enabled": enabled})

    def brought(self, name: str) -> int:
        """Bytes that came from the server behind a proxy, headers among them, over all connections that are closed by now."""
        with urllib.request.urlopen(f"{self._api}/metrics", timeout=ANSWER_S) as answer:  # noqa: S310
            found = re.findall(_BROUGHT % re.escape(name), answer.read().decode(), re.MULTILINE)
        return sum(int(float(number)) for number in found)

    def _ask(self, method: str, path: str, document: Any = None) -> None:
        data = None if document is None else json.dumps(document).encode()
        request = urllib.request.Request(self._api + path, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310
        urllib.request.urlopen(request, timeout=ANSWER_S).close()  # noqa: S310
