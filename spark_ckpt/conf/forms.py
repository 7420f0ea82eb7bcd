"""What a value of an option may look like: a parser for each form, which raises ValueError with the form it expects."""

from __future__ import annotations

import re
from collections.abc import Callable

from spark_ckpt.conf.words import NEVER
from spark_ckpt.paths import split
from spark_ckpt.storage.options import bucket_problem, cloud_bucket_problem
from spark_ckpt.units import parse_duration, parse_size

_STORAGE_EXPECTED = "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, file:///path or an absolute path"


def parse_storage(text: str) -> str:
    """A storage's URL in its one form: `s3://bucket/prefix`, `gs://…`, `az://…` or `file:///path`; no `/` at the end. Raises ValueError."""
    url = parse_stream(text)
    if "?" in url or "#" in url:
        raise ValueError(f"{_STORAGE_EXPECTED}, without ? and #")
    return url


def parse_stream(text: str) -> str:
    """The same for a stream's URL, which ends in a checkpointLocation: that may have `?` and `#` in it. Raises ValueError."""
    value = text.strip()
    scheme, authority, path = split("file://" + value if value.startswith("/") else value)
    scheme = {"s3a": "s3", "s3n": "s3"}.get(scheme, scheme)
    if scheme in ("abfs", "abfss") and authority.endswith(".dfs.core.windows.net"):
        raise ValueError(f"{_STORAGE_EXPECTED}; for Azure's {scheme}:// az://, and the account in AZURE_STORAGE_ACCOUNT_NAME")
    if "@" in authority:
        raise ValueError(f"{_STORAGE_EXPECTED}, without credentials in it; give those to the client's own chain")
    if any(part in (".", "..") for part in path.split("/")):
        raise ValueError(f"{_STORAGE_EXPECTED}, without . and .. in it")
    if scheme == "file":
        if authority not in ("", "localhost") or not path.startswith("/"):
            raise ValueError(_STORAGE_EXPECTED)
        return f"file://{path}"
    if scheme == "memory":
        raise ValueError(f"{_STORAGE_EXPECTED}: memory:// is each process's own, so that nothing would be stored")
    if scheme == "s3":
        problem = bucket_problem(authority)
        if problem is not None:
            raise ValueError(f"{_STORAGE_EXPECTED}; {problem}")
        return f"s3://{authority}{path}"
    if scheme in ("gs", "az"):
        problem = cloud_bucket_problem(scheme, authority)
        if problem is not None:
            raise ValueError(f"{_STORAGE_EXPECTED}; {problem}")
        return f"{scheme}://{authority}{path}"
    raise ValueError(_STORAGE_EXPECTED)


def parse_interval(text: str) -> int | None:
    """Milliseconds, or None for `never`. Raises ValueError, as all here."""
    return None if text.strip() == NEVER else parse_duration(text, f", or {NEVER}")


def parse_positive_duration(text: str) -> int:
    """Milliseconds, more than 0."""
    millis = parse_duration(text)
    if millis == 0:
        raise ValueError("a duration above 0 such as 10min")
    return millis


def whole_number(least: int) -> Callable[[str], int]:
    """A parser of decimal numbers of at most nine digits, `least` or more."""
    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text.strip()) or int(text) < least:
            raise ValueError(f"a whole number, {least} or more")
        return int(text)

    return parse


def parse_positive_size(text: str) -> int:
    """Bytes, more than 0."""
    size = parse_size(text)
    if size == 0:
        raise ValueError("a size above 0 such as 10g")
    return size


def parse_boolean(text: str) -> bool:
    """`true` or `false`, in whatever case, as Spark takes them."""
    value = text.strip().lower()
    if value not in ("true", "false"):
        raise ValueError("true or false")
    return value == "true"


def parse_folder(text: str) -> str:
    """A checkpoint's or savepoint's folder; its `_metadata` in it means the same."""
    return parse_stream(text).removesuffix("/_metadata")


def parse_folders(text: str) -> tuple[str, ...]:
    """Several, with commas between. A comma in a name is no such one: behind those a path or URL begins."""
    return tuple(parse_folder(part) for part in re.split(r",(?=\s*(?:/|[A-Za-z][A-Za-z0-9+.-]*:/))", text))


def parse_operators(text: str) -> dict[int, int]:
    """Operator of the query -> operator of the checkpoint."""
    pairs = [re.fullmatch(r"\s*([0-9]{1,9})\s*:\s*([0-9]{1,9})\s*", part) for part in text.split(",")]
    found = {int(m[1]): int(m[2]) for m in pairs if m is not None}
    if len(found) < len(pairs) or len(set(found.values())) < len(pairs):
        raise ValueError("<new>:<old> with the numbers of operators, several with commas between, and no number twice: 1:0,2:1")
    return found


def parse_text(text: str) -> str:
    """Whatever is not blank."""
    if not text.strip():
        raise ValueError("a value; leave the option out for its default")
    return text.strip()


def parse_absolute_path(text: str) -> str:
    """A path of the local disk, not looked at."""
    value = text.strip()
    if not value.startswith("/"):
        raise ValueError("an absolute path, which means the same on driver and executors")
    return value


def one_of(*values: str) -> Callable[[str], str]:
    """A parser that takes one of these words, written exactly so."""
    def parse(text: str) -> str:
        if text.strip() not in values:
            raise ValueError(" or ".join(values))
        return text.strip()

    return parse
