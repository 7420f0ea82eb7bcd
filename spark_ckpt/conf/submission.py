"""The arguments of spark-submit, taken apart: those of `spark-ckpt submit`, and PySpark's own (`PYSPARK_SUBMIT_ARGS`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from spark_ckpt.conf.passwords import shown_key
from spark_ckpt.conf.properties import read_properties, spark_defaults
from spark_ckpt.errors import ConfigError

_FLAGS = frozenset({"--verbose", "-v", "--help", "-h", "--version", "--usage-error", "--supervise", "--load-spark-defaults"})
"""Options of spark-submit that take no value (Spark: `SparkSubmitOptionParser.switches`)."""
_STORAGE = "--storage"
REMOTE = "--remote"
_NO_MORE = "--"
"""Sets this program's own options apart from spark-submit's, where somebody is used to that; spark-submit does not know it."""


@dataclass
class Given:
    """The command line, taken apart: `passed` are spark-submit's own options but `--conf` and `--jars`, `job` the job and its arguments."""

    storage: str | None = None
    conf: dict[str, str] = field(default_factory=dict)
    jars: str | None = None
    passed: list[str] = field(default_factory=list)
    job: list[str] = field(default_factory=list)
    master: str | None = None
    properties_file: str | None = None
    more_properties: list[str] = field(default_factory=list)
    load_defaults: bool = False

    def value_of(self, option: str) -> str | None:
        """What an option of `passed` was given, which takes a value; None without it."""
        return dict(pairwise(self.passed)).get(option)


def parse(arguments: Sequence[str]) -> Given:
    """Take the command line apart. The first argument that is neither an option nor an option's value is the job. Raises ConfigError."""
    given = Given()
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            given.job = [word, *rest]
            return given
        if word == _NO_MORE:
            continue
        name, equals, value = word.partition("=")
        if name in _FLAGS:
            given.load_defaults |= name == "--load-spark-defaults"
            given.passed.append(word)
            continue
        if not equals:
            if not rest:
                raise ConfigError(f"the option {shown_key(name)} needs a value")
            value = rest.pop(0)
        _take(given, name, value)
    return given


def _take(given: Given, name: str, value: str) -> None:
    if name == _STORAGE:
        given.storage = value
    elif name in ("--conf", "-c"):
        key, equals, setting = value.partition("=")
        if not equals:
            # `-` lies beside `=` on keyboards
            raise ConfigError(f"{name} {shown_key(value, others='')} is not of the form key=value")
        given.conf[key.strip()] = setting.strip()
    elif name == "--jars":
        given.jars = value
    else:
        if name == "--master":
            given.master = value
        elif name == "--properties-file":
            given.properties_file = value
        elif name == "--extra-properties-file":
            given.more_properties.append(value)
        given.passed += [name, value]


def properties(given: Given, folder: Path) -> dict[str, str]:
    """What properties files say, the later over the earlier (Spark: `SparkSubmitArguments.mergeDefaultSparkProperties`). `folder`: of
    `spark-defaults.conf`. Raises ConfigError."""
    found: dict[str, str] = {}
    if given.properties_file is None or given.load_defaults:
        found |= spark_defaults(folder)
    for path in [*([given.properties_file] if given.properties_file is not None else []), *given.more_properties]:
        found |= read_properties(Path(path))
    return found
