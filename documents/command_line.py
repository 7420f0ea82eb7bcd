"""docs/command-line.md: written from what `--help` says."""

from __future__ import annotations

import re

import click

from spark_ckpt.cli.main import VERBS, cli

_HEAD = """# Command line

Written by `python -m documents` from what `spark-ckpt VERB --help` says; do not edit.

| exit status | |
|---:|---|
| 0 | done |
| 1 | what you asked about is broken or missing |
| 2 | the command was not understood, or an option is wrong |
| 129, 130, 143 | it was interrupted: the terminal is gone (SIGHUP), Ctrl-C, SIGTERM. What it had unpacked is removed |
| 141 | nobody reads what it prints (`\\| head`), and it had found out nothing yet |

STREAM is the folder of a stream in the storage: `<storage>/<path of the checkpointLocation>`. For the storage `s3://bucket/ckpt` and the
`checkpointLocation` `/data/orders` it is `s3://bucket/ckpt/data/orders`.
"""


def render() -> str:
    """The whole page."""
    with click.Context(cli, info_name="spark-ckpt") as top:
        return "\n".join([_HEAD, *(_verb(verb, top) for verb in VERBS)])


def _verb(name: str, top: click.Context) -> str:
    command = cli.get_command(top, name)
    assert command is not None
    with click.Context(command, parent=top, info_name=name) as context:
        usage = " ".join(["spark-ckpt", name, *command.collect_usage_pieces(context)])
        options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
        records = [record for option in options if (record := option.get_help_record(context))]
    paragraphs = [_one_line(paragraph) for paragraph in (command.help or "").split("\n\n")]
    rows = [f"| `{_cell(written)}` | {_cell(told)} |" for written, told in records]
    table = ["| option | |", "|---|---|", *rows, ""] if rows else []
    return "\n".join([f"## {name}", "", "```", usage, "```", "", *(f"{p}\n" for p in paragraphs), *table])


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().replace("<", "&lt;")


def _cell(text: str) -> str:
    return _one_line(text).replace("|", "\\|")
