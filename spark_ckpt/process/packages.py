"""What coordinator and agent import late, looked for at their start: better one sentence then than a trace in the first epoch."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Mapping

from spark_ckpt.errors import ConfigError

_CLIENTS: Mapping[str, tuple[str, ...]] = {"s3": ("boto3",), "s3a": ("boto3",), "gs": ("obstore",), "az": ("obstore",)}
_EXTRAS = {"obstore": "'spark-ckpt[gcs]' or 'spark-ckpt[azure]'"}
"""What brings those that are no dependency of everybody's."""


def packages_for(storage: str | None) -> tuple[str, ...]:
    """The distributions that a storage's URL takes; None: it is decided by each checkpointLocation."""
    scheme = storage.partition(":")[0] if storage is not None else ""
    return ("pyarrow", *_CLIENTS.get(scheme, ()))


def check_jar(version: object) -> None:
    """Raises `ConfigError` unless the JAR that greets is of this very version; None: it does not say, so it is an older one's."""
    from spark_ckpt import __version__

    if version != __version__:
        raise ConfigError(
            f"the JAR is of {f'spark-ckpt {version}' if isinstance(version, str) else 'an older spark-ckpt'}, the package of the Python "
            f"{sys.executable} is {__version__}; take the JAR that its `spark-ckpt jar` prints, or install the JAR's version for it"
        )


def require(names: Iterable[str]) -> None:
    """Raises `ConfigError` if this interpreter lacks one of the packages. Imports nothing."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise lacking(missing)


def lacking(missing: Iterable[str]) -> ConfigError:
    names = tuple(missing)
    extra = next((_EXTRAS[name] for name in names if name in _EXTRAS), "spark-ckpt with its dependencies")
    return ConfigError(
        f"the Python {sys.executable} lacks {', '.join(names)}; install {extra} for it, or set "
        "spark.ckpt.python to an interpreter that has them"
    )
