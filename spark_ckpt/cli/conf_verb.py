"""`spark-ckpt conf`"""

from __future__ import annotations

import click

from spark_ckpt.cli.options import json_option
from spark_ckpt.cli.output import Line, Output, Report
from spark_ckpt.conf.table import OPTIONS
from spark_ckpt.conf.template import template


@click.command("conf")
@json_option
def command(output: Output) -> None:
    """Print every option, with its default, as a template for spark-defaults.conf."""
    options = [{"option": o.key, "default": o.default, "flink_name": o.flink_name, "help": o.help} for o in OPTIONS]
    output.show(Report({"options": options}, [Line(line) for line in template().splitlines()]))
