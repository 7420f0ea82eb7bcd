"""A checkpoint as another query has it: its operators under the numbers that they have there.

An operator's number stands in the names of its files below `state/`, in its own metadata, in `commits/N`, and with each of its snapshots.
What a snapshot consists of does not depend on it, so no byte of state is touched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from spark_ckpt.bounded_json import parse_json
from spark_ckpt.errors import ConflictError, FormatError
from spark_ckpt.model import Checkpoint, Content, FileHandle, Snapshot
from spark_ckpt.protocol.operators import Matched

_OF_OPERATOR = re.compile(r"state/(\d+)/(.+)", re.DOTALL)
_METADATA = re.compile(r"state/\d+/_metadata/(metadata|v2/\d+)")
_COMMITS = re.compile(r"commits/\d+")
_MAX_VALUES = 10_000_000
"""Of the JSON of `commits/N`, as in `required_ids.py`; an operator's metadata has few."""
_SCHEMA_PATH = re.compile(r"(.*/|)state/\d+/_stateSchema/(.+)", re.DOTALL)


def without_gone(checkpoint: Checkpoint, matched: Matched) -> Checkpoint:
    """Less what no operator takes: nothing of that is copied."""
    snapshots = tuple(s for s in checkpoint.snapshots if s.store.operator not in matched.gone)
    files = {path: content for path, content in checkpoint.files.items() if operator_of(path) not in matched.gone}
    return replace(checkpoint, snapshots=snapshots, files=files)


def renumbered(checkpoint: Checkpoint, matched: Matched, planned: Mapping[str, bytes]) -> Checkpoint:
    """`planned`: the files below `state/` that Spark has written for the query as a new one; those of operators that are new are taken.

    Raises `FormatError` for what Spark has not written, `ConflictError` where a file that names the number is too large to be here.
    """
    to = {theirs: mine for mine, theirs in matched.kept.items()}
    files = {path: content for path, content in planned.items() if operator_of(path) in matched.new}
    return replace(
        checkpoint,
        snapshots=tuple(_moved(s, to[s.store.operator]) for s in checkpoint.snapshots if s.store.operator in to),
        files={**_files(checkpoint.files, to), **files},
        begins=tuple(sorted({*matched.new, *(to[operator] for operator in checkpoint.begins if operator in to)})),
    )


def operator_of(path: str) -> int | None:
    """Whose file it is; None: no operator's."""
    m = _OF_OPERATOR.fullmatch(path)
    return int(m.group(1)) if m is not None else None


def _moved(snapshot: Snapshot, operator: int) -> Snapshot:
    return snapshot if snapshot.store.operator == operator else replace(snapshot, store=replace(snapshot.store, operator=operator))


def _files(files: Mapping[str, Content], to: Mapping[int, int]) -> dict[str, Content]:
    moved: dict[str, Content] = {}
    for path, content in files.items():
        m = _OF_OPERATOR.fullmatch(path)
        if m is not None:
            if int(m.group(1)) in to:
                operator = to[int(m.group(1))]
                names_it = _METADATA.fullmatch(path) is not None and operator != int(m.group(1))
                moved[f"state/{operator}/{m.group(2)}"] = _edited(path, content, partial(_own, operator)) if names_it else content
        elif _COMMITS.fullmatch(path):
            moved[path] = _edited(path, content, partial(_ids, to))
        else:
            moved[path] = content
    return moved


def _edited(path: str, content: Content, edit: Callable[[dict[str, Any]], None]) -> bytes:
    """A line with the version, and a JSON document behind it."""
    if isinstance(content, FileHandle):
        raise ConflictError(f"{path} has {content.length} bytes, too many for its operator to get another number; leave that as it was")
    version, newline, body = content.partition(b"\n")
    if not body.strip():
        return content
    try:
        document = parse_json(body, _MAX_VALUES)
        edit(document)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as e:
        raise FormatError(f"{path} is not what Spark writes ({type(e).__name__}: {e}); the file is damaged") from e
    return version + newline + json.dumps(document, separators=(",", ":")).encode()


def _own(operator: int, document: dict[str, Any]) -> None:
    """The paths of schema files are made whole where they are put in place; here it is their end that counts."""
    document["operatorInfo"]["operatorId"] = operator
    for store in document["stateStoreInfo"]:
        paths = store.get("stateSchemaFilePaths")
        if paths:
            there = rf"\g<1>state/{operator}/_stateSchema/\g<2>"
            store["stateSchemaFilePaths"] = [_SCHEMA_PATH.sub(there, path) for path in paths]


def _ids(to: Mapping[int, int], document: dict[str, Any]) -> None:
    ids = document.get("stateUniqueIds")
    if ids:
        document["stateUniqueIds"] = {str(to[int(operator)]): of for operator, of in ids.items() if int(operator) in to}
