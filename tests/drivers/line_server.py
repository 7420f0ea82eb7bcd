"""A server of lines that a test takes away and brings back, on a port that stays the same."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self


class LineServer:
    """Sends to whoever is connected. What is sent while nobody is, is lost, as with any such server."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._changed = threading.Condition()
        self._connections: list[socket.socket] = []
        self.accepted = 0
        self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.go_away()

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)
        self._thread.start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = listener.accept()[0]
                with self._changed:
                    self._connections.append(connection)
                    self.accepted += 1
                    self._changed.notify_all()

    def go_away(self) -> None:
        """Nobody listens any more, and every connection ends."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        self.hang_up()

    def hang_up(self) -> None:
        """Every connection ends; the server goes on."""
        with self._changed:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                connection.close()
            self._connections.clear()

    def come_back(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._begin()

    def until_connected(self, times: int = 1, timeout: float = 60) -> None:
        """Until so many connections have been made in all."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.accepted >= times, timeout), f"{self.accepted} connections, not {times}"

    def send(self, *lines: str) -> None:
        self.send_bytes("".join(f"{line}\n" for line in lines).encode())

    def send_bytes(self, data: bytes) -> None:
        with self._changed:
            for connection in self._connections:
                connection.sendall(data)
