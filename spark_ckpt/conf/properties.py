"""Files of properties, as spark-submit reads them (Spark: `Utils.getPropertiesFromFile`, `SparkSubmitArguments`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from spark_ckpt.conf.passwords import shown
from spark_ckpt.errors import ConfigError
from spark_ckpt.process.packages import require

_TRIMMED = "".join(chr(code) for code in range(0x21) if chr(code) not in "\r\n")
"""Spark: `Utils.trimExceptCRLF`."""


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values (Java: `Properties.load`), values without white space around them. Raises `ValueError` for a malformed escape,
    `ConfigError` where the package is missing that reads them."""
    require(("javaproperties",))
    import javaproperties

    return {key: value.strip(_TRIMMED) for key, value in javaproperties.loads(text).items()}


def read_properties(path: Path) -> dict[str, str]:
    """Bytes that are no UTF-8 are replaced, as Spark does. Raises `ConfigError`."""
    try:
        return parse_properties(path.read_text(encoding="utf-8", errors="replace"))
    except FileNotFoundError:
        raise ConfigError(f"the properties file {shown(str(path))} does not exist") from None
    except (OSError, ValueError) as e:
        raise ConfigError(f"the properties file {shown(str(path))} cannot be read: {getattr(e, 'strerror', None) or e}") from e


def conf_folder(environment: Mapping[str, str], home: Path) -> Path:
    """Where `spark-defaults.conf` lies. `home`: of the Spark that runs. A SPARK_HOME that holds no Spark may still have a `conf/`."""
    return Path(environment.get("SPARK_CONF_DIR") or Path(environment.get("SPARK_HOME") or home) / "conf")


def spark_defaults(folder: Path) -> dict[str, str]:
    """Of `spark-defaults.conf` there, nothing where that is no file, or this user may not know (Java: `File.isFile`). Raises
    `ConfigError`."""
    path = folder / "spark-defaults.conf"
    return read_properties(path) if os.path.isfile(path) else {}
