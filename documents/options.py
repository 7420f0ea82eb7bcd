"""docs/options.md: written from the table that parses the options."""

from __future__ import annotations

from collections.abc import Iterable

from spark_ckpt.conf.spark_settings import ADDED_SETTINGS, NEEDED_SETTINGS, SUGGESTED_SETTINGS
from spark_ckpt.conf.table import OPTIONS, Option

_HEAD = """# Options

Written by `python -m documents` from `spark_ckpt/conf/table.py`; do not edit.

- Options are Spark settings. They belong in `spark-defaults.conf`, behind `--conf`, or in `spark_ckpt.configure`; there they are written in
  snake case: `spark.ckpt.minPause` is `min_pause`, `spark.ckpt.s3.pathStyle` is `s3_path_style`.
- They hold for the whole application, and are read when it starts. `spark.conf.set("spark.ckpt.interval", "5s")` on a running session
  has no effect.
- A wrong value, or a name that does not exist, ends the start with an error. For a wrong name the error suggests the nearest one.
- Durations are written as Spark writes them: `500ms`, `10s`, `10min`, `1h`. A plain number is milliseconds. At most `100000d`.
- Sizes are written as `512m` or `10g`. A plain number is bytes.
- Credentials are not options. They come from the client's own chain: for S3 boto3's (environment, profile, role), for the others
  [their variables](getting-started.md#google-cloud-storage-and-azure).
- `spark-ckpt conf` prints all options as a template for `spark-defaults.conf`.

## All options
"""

_SETTINGS = """
## Spark's own settings

The plugin sets these itself. It cannot work without them. If you have set one of them to another value, the start ends with an
error that names it.

{needed}

It adds itself to these two lists, and leaves what you have there:

{added}

These two it sets only where you have set nothing. They are there to save time, and nothing else depends on them. `python -m benchmarks
run --full --again settings` measures an epoch with and without each of them:

{suggested}

Without the first, each task would ask the driver twice after every commit of a store. Without the second, each task before a shuffle would
write a file for each of up to 200 partitions. The second one holds for all shuffles of the application.
"""


def render() -> str:
    """The whole page."""
    table = _table("option | default | in Flink", ((f"[`{o.key}`](#{_anchor(o)})", _code(o.default), o.flink_name or "") for o in OPTIONS))
    settings = _SETTINGS.format(
        needed=_table("setting | value | why", ((f"`{key}`", f"`{value}`", why) for key, (value, why) in NEEDED_SETTINGS.items())),
        added=_table("setting | what is added", ((f"`{key}`", f"`{value}`") for key, value in ADDED_SETTINGS.items())),
        suggested=_table("setting | value", ((f"`{key}`", f"`{value}`") for key, value in SUGGESTED_SETTINGS.items())),
    )
    return "\n".join([_HEAD, table, "", "## One by one", "", *(_section(option) for option in OPTIONS)]) + settings


def _section(option: Option) -> str:
    facts = [f"Default: `{option.default}`." if option.default is not None else "Not set by default."]
    if option.flink_name:
        facts.append(f"In Flink: {option.flink_name}.")
    told = option.help.replace("<", "&lt;")
    return f"### {option.key}\n\n{told}\n\n{' '.join(facts)}\n"


def _anchor(option: Option) -> str:
    """As GitHub and the site make it of the heading."""
    return option.key.lower().replace(".", "")


def _code(text: str | None) -> str:
    return f"`{text}`" if text is not None else ""


def _table(head: str, rows: Iterable[Iterable[str]]) -> str:
    columns = head.count("|") + 1
    return "\n".join([f"| {head} |", "|---" * columns + "|", *(f"| {' | '.join(row)} |" for row in rows)])
