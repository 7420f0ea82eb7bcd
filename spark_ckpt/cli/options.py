"""Options that several verbs take."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from spark_ckpt.cli.output import JsonOutput, Output, TextOutput, tell
from spark_ckpt.cli.progress_bars import progress_bars
from spark_ckpt.conf.forms import parse_stream
from spark_ckpt.conf.passwords import shown
from spark_ckpt.errors import ConfigError
from spark_ckpt.paths import parse_checkpoint_name
from spark_ckpt.progress import Tell
from spark_ckpt.storage import S3Options, Storage
from spark_ckpt.storage.base import OPTION
from spark_ckpt.stored import opening
from spark_ckpt.stored.log import StreamLog
from spark_ckpt.stored.reading import CheckpointReader, StreamReader
from spark_ckpt.units import age_text, parse_duration, parse_size

F = TypeVar("F", bound=Callable[..., Any])
Progress = Callable[[], AbstractContextManager[Tell]]

RECENT_MS = 600_000
"""A query that has appended nothing to its log for so long is idle, or gone."""

_S3 = (
    click.option("--endpoint", envvar="SPARK_CKPT_S3_ENDPOINT", show_envvar=True, help="URL of an S3 server other than AWS."),
    click.option("--region", envvar="SPARK_CKPT_S3_REGION", show_envvar=True, help="Region of the bucket."),
    click.option(
        "--path-style",
        is_flag=True,
        envvar="SPARK_CKPT_S3_PATH_STYLE",
        show_envvar=True,
        help="Write http://server/bucket/key instead of http://bucket.server/key.",
    ),
    click.option("--sse", type=click.Choice(["AES256", "aws:kms"]), envvar="SPARK_CKPT_S3_SSE", help="Encryption of what is stored."),
    click.option("--kms-key-id", envvar="SPARK_CKPT_S3_KMS_KEY_ID", help="Key for --sse aws:kms."),
)


def s3_options(command: F) -> F:
    """Adds the S3 options and passes them as one `s3: S3Options`. Credentials come from boto3's own chain."""

    @functools.wraps(command)
    def with_s3(
        *args: Any, endpoint: str | None, region: str | None, path_style: bool, sse: str | None, kms_key_id: str | None, **kwargs: Any
    ) -> Any:
        return command(*args, s3=S3Options(endpoint, region, path_style, sse, kms_key_id), **kwargs)

    wrapped: Any = with_s3
    for option in reversed(_S3):
        wrapped = option(wrapped)
    decorated: F = wrapped
    return decorated


def json_option(command: F) -> F:
    """Adds `--json` and passes an `output: Output`."""

    @functools.wraps(command)
    def with_output(*args: Any, as_json: bool, **kwargs: Any) -> Any:
        output: Output = JsonOutput() if as_json else TextOutput()
        click.get_current_context().find_root().obj = output
        return command(*args, output=output, **kwargs)

    decorated: F = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(with_output)  # type: ignore[assignment]
    return decorated


def progress_option(command: F) -> F:
    """Adds `--quiet`, and passes a `progress: Progress`, to be open while there is work, and closed before anything is printed."""

    @functools.wraps(command)
    def with_progress(*args: Any, quiet: bool, **kwargs: Any) -> Any:
        return command(*args, progress=functools.partial(progress_bars, quiet), **kwargs)

    decorated: F = click.option("--quiet", "-q", is_flag=True, help="Show no progress on a terminal.")(with_progress)  # type: ignore[assignment]
    return decorated


class Parsed(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of click only
    """A value that a function parses; its ValueError says what it expects."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as e:
            self.fail(f"{value!r} is not {e}", param, ctx)


DURATION, SIZE = Parsed("duration", parse_duration), Parsed("size", parse_size)


def checkpoint_option(default: str) -> Callable[[F], F]:
    """Adds `--checkpoint run-3/chk-42` and passes a `checkpoint: CheckpointId | None`; `default` says what None means."""
    return click.option(
        "--checkpoint", type=parse_checkpoint_name, metavar="run-N/chk-M", help=f"Which one, as `list` prints it. Default: {default}."
    )


def storage_url(text: str) -> str:
    """A URL, or a path, which may be relative here: one machine, one working directory.

    A path keeps its symbolic links: the driver, which is given the same path, compares it letter by letter.
    """
    if not text.strip():
        raise ConfigError("the URL is empty; write a URL or a path")
    first = text.split("/", 1)[0]
    path = os.path.expanduser(text)
    if first.startswith("~") and ":" not in first and path == text:
        raise ConfigError(f"the home folder {first} is not known; write the path itself, or ./{first} for a folder of that name")
    try:
        return parse_stream(text if ":" in first else _absolute(path))
    except ValueError as e:
        raise ConfigError(f"the URL {shown(text)!r} cannot be used; write {e}") from None


def _absolute(path: str) -> str:
    """What stands before a `..` is resolved: only the file system knows what is above a link."""
    parts = Path(path).parts if os.path.isabs(path) else (_working_folder(), *Path(path).parts)
    up = max((n for n, part in enumerate(parts, 1) if part == ".."), default=0)
    return str(Path(*parts[:up]).resolve().joinpath(*parts[up:])) if up else str(Path(*parts))


def _working_folder() -> str:
    """As the shell calls it, which is how a person has come there (POSIX: `pwd -L`)."""
    named, here = os.environ.get("PWD", ""), os.getcwd()
    try:
        return named if os.path.isabs(named) and ".." not in Path(named).parts and os.path.samefile(named, here) else here
    except OSError:
        return here


@contextmanager
def opened(url: str, s3: S3Options, called: str = OPTION) -> Iterator[Storage]:
    """`called`: the argument that names it, for messages."""
    with opening.opened(storage_url(url), s3, called) as storage:
        yield storage


@contextmanager
def new_folder(url: str, s3: S3Options, called: str = OPTION) -> Iterator[Storage]:
    """As `opening.new_folder`, by a URL or a path as people write it."""
    with opening.new_folder(storage_url(url), s3, called) as storage:
        yield storage


@contextmanager
def opened_stream(url: str, s3: S3Options) -> Iterator[tuple[Storage, StreamReader]]:
    """As `opening.opened_stream`, by a URL or a path as people write it."""
    with opening.opened_stream(storage_url(url), s3) as found:
        yield found


def tell_of_a_run(storage: Storage, clock: Callable[[], float] = time.time) -> None:
    """What was made of a stream that runs goes on beside it: two would write to one sink. A savepoint has no log of its own."""
    standing = StreamReader(storage).standing()
    if standing is None or standing.ended:
        return
    at = StreamLog(storage).stored_ms(standing.newest)
    if at is not None and clock() * 1000 - at < RECENT_MS:
        whose = f"run-{standing.claim.run} appended to the log of {storage.url.rstrip('/')} {age_text(clock() - at / 1000)} ago"
        tell(f"{whose}: if its query still runs, end it before another one goes on from here")


def refuse_checkpoint(stream: str, reader: StreamReader) -> None:
    """Where a running query is to be asked. Raises `ConfigError`."""
    if isinstance(reader, CheckpointReader):
        raise ConfigError(
            f"{stream} is the folder of a checkpoint or savepoint, and nobody runs there; give the URL of the stream, "
            "<spark.ckpt.storage>/<path of the query's checkpointLocation>"
        )
