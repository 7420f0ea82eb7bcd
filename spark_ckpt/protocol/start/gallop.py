"""Finding the log's last entry with few questions, without ever listing it."""

from __future__ import annotations


class Gallop:
    """Exponential, then binary search for the highest number that exists, upwards from one that is known to (0: none is known).

    Right because the log has no gap. Ask `probe`, answer with `tell`, until `probe` is None; then `found` is the tail as it was at some
    moment of the search. That is enough: whoever appends after it either gets the next number or is told EXISTS.
    """

    def __init__(self, known: int = 0) -> None:
        self.found = known
        self._stride = 1
        self._absent: int | None = None

    @property
    def probe(self) -> int | None:
        """The number to look at next."""
        if self._absent is None:
            return self.found + self._stride
        if self._absent - self.found <= 1:
            return None
        return (self.found + self._absent) // 2

    def tell(self, number: int, exists: bool) -> None:
        if exists:
            self.found = number
            if self._absent is None:
                self._stride *= 2
        else:
            self._absent = number
