"""`conf/spark-defaults.conf.template`, from the table of options."""

from __future__ import annotations

import textwrap

from spark_ckpt.conf.spark_settings import PLUGIN_CLASS
from spark_ckpt.conf.table import OPTIONS


def template() -> str:
    """The whole file: every option, commented out, with its default."""
    lines = [
        "# spark-ckpt: Flink's checkpoint mechanism for Spark Structured Streaming.",
        "# Copy what you need into spark-defaults.conf. Printed by `spark-ckpt conf`, from the same table that parses the options.",
        "",
        "# These lines enable it; the path of the JAR is what `spark-ckpt jar` prints.",
        "# spark.jars                        /path/to/spark-ckpt.jar",
        f"# spark.plugins                     {PLUGIN_CLASS}",
        "",
    ]
    for option in OPTIONS:
        text = option.help + (f" (Flink: {option.flink_name})" if option.flink_name else "")
        lines += [f"# {line}" for line in _wrapped(text)]
        lines += [f"# {option.key:<33} {option.default if option.default is not None else '(unset)'}", ""]
    lines += [
        "# Durations are written as Spark writes them: 500ms, 10s, 10min, 1h; a plain number is milliseconds.",
        "# Credentials come from boto3's own chain (environment, profile, role), never from here.",
    ]
    return "\n".join(lines) + "\n"


def _wrapped(text: str, width: int = 110) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
