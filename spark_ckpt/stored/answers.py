"""What became of a person's request to a running stream: put by the run that met it, read by who has asked (docs/format.md)."""

from __future__ import annotations

import json

from spark_ckpt.bounded_json import parse_json
from spark_ckpt.errors import CheckpointError, FormatError, ObjectMissingError
from spark_ckpt.paths import answer_key
from spark_ckpt.storage.base import Storage

LARGEST = 1 << 20
"""Bytes of an answer."""
_VALUES = 100
"""Of its JSON, which has two; more than enough for what a later version may add."""


def put_answer(storage: Storage, run: int, number: int, path: str | None, error: str | None) -> None:
    """To the request in log entry `number`: the URL of the savepoint or checkpoint, or why there is none. The first answer counts.
    Raises `StorageError`."""
    doc = {"path": path} if error is None else {"error": error}
    storage.put_if_absent(answer_key(run, number), json.dumps(doc).encode())


def read_answer(storage: Storage, run: int, number: int, what: str = "savepoint") -> str | None:
    """The URL of `what` was asked for, None while there is no answer. Raises `CheckpointError` for an answer that says why there
    will be none."""
    key = answer_key(run, number)
    try:
        doc = parse_json(storage.get(key, limit=LARGEST), _VALUES)
        if "error" in doc:
            raise CheckpointError(f"the run could not make the {what}: {doc['error']}")
        return str(doc["path"])
    except ObjectMissingError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise FormatError(f"{storage.url_of(key)} is not an answer to a request; the {what} may have been made all the same") from e
