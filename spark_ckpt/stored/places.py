"""Where a stream's driver makes savepoints, and what it deletes, on somebody's word.

That word comes out of the stream's log, which whoever may write the bucket may have written. So the driver goes where its own
configuration says, and nowhere else; who asks it for a savepoint keeps to the same rule, with what the driver's claim says of its
configuration.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from spark_ckpt.errors import ConfigError, printable, without_password
from spark_ckpt.paths import SAVEPOINTS_FOLDER, parse_checkpoint_url, parse_run_prefix, savepoint_url, split

_OPTION = "spark.ckpt.savepointDir"
_NO_NAME = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
"""What no storage takes in a name: control characters, and what is not UTF-8."""


@dataclass(frozen=True)
class Places:
    """`stream` is its URL, `savepoint_dir` that of `spark.ckpt.savepointDir`, empty for none. `owned`: `spark.ckpt.restore.path`, where
    `restore.mode` is CLAIM."""

    stream: str
    savepoint_dir: str = ""
    owned: str = ""

    def savepoint(self, target: str, name: str) -> str:
        """URL of the folder for a savepoint; `target` is empty for the driver's own choice. Raises `ConfigError` where none may be made."""
        return self.told_apart(savepoint_url(self.stream, self._folder(target), name))

    def _folder(self, target: str) -> str:
        if not target:
            return self.savepoint_dir
        asked, allowed = _canonical(target), [f"{self.stream}/{SAVEPOINTS_FOLDER}", *([self.savepoint_dir] if self.savepoint_dir else [])]
        if asked is None or not any(asked == place or asked.startswith(f"{place}/") for place in map(_canonical, allowed)):
            raise ConfigError(
                f"a savepoint of {self.stream} is not made in {printable(without_password(target))}: its driver writes to "
                f"{' and '.join(allowed)} and what lies below, and nowhere else; leave the target out and copy the savepoint from there, "
                f"or start the query with {_OPTION}"
            )
        return asked

    def told_apart(self, url: str) -> str:
        """The URL of a savepoint's folder. Raises `ConfigError` for one that would be taken for a checkpoint, or for what a run has left:
        `gc` would delete it."""
        own, folder = f"{_canonical(self.stream)}/", _canonical(url) or url
        in_run = folder.startswith(own) and parse_run_prefix(folder.removeprefix(own).split("/", 1)[0]) is not None
        if in_run or parse_checkpoint_url(folder) is not None:
            raise ConfigError(
                f"a savepoint is not made in {url}, which is the name of a run's folder or of a checkpoint's; choose another name or target"
            )
        return url

    def may_delete(self, folder: str) -> bool:
        """Whether the savepoint in this folder is the stream's to delete."""
        return bool(self.owned) and folder == self.owned


def savepoint_lies_at(url: str) -> str:
    """Why no stream begins there."""
    return f"there is a savepoint at {url}, and no stream begins in its folder; take another checkpointLocation, or move the savepoint"


def streams_above(url: str) -> list[str]:
    """URLs of the folders that would be streams if this place were in a run of theirs. By its name alone it is not: `run-20261127` may be
    anybody's folder."""
    scheme, authority, path = split(url)
    parts = path.split("/")
    return [
        f"{scheme}://{authority}{'/'.join(parts[:number])}"
        for number, part in enumerate(parts)
        if parse_run_prefix(part) is not None and (authority or number > 1)
    ]


def _canonical(url: str) -> str | None:
    """In the one form in which two can be compared; None for what is no plain URL."""
    scheme, authority, path = split("file://" + url if url.startswith("/") else url)
    if not scheme or "@" in authority or _NO_NAME.search(url) or any(part in (".", "..") for part in path.split("/")):
        return None
    return f"{({'s3a': 's3', 's3n': 's3'}).get(scheme, scheme)}://{authority}{path}"
