"""The installed Spark, and which JAR belongs to it."""

from __future__ import annotations

from pathlib import Path

from spark_ckpt.errors import ConfigError

_JARS = Path(__file__).resolve().parents[1] / "jars"
_NO_PYSPARK = "PySpark is not installed for this Python; install it: pip install pyspark"


def spark_version() -> str:
    """Version of the installed PySpark. Raises ConfigError where there is none."""
    from importlib import metadata  # not for every agent: it takes as long to load as all of the package

    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        raise ConfigError(_NO_PYSPARK) from None


def pyspark_home() -> Path:
    """The installed PySpark's folder, which is a SPARK_HOME. Raises ConfigError where there is none."""
    from importlib.util import find_spec

    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError(_NO_PYSPARK)
    return Path(spec.origin).resolve().parent  # as spark-submit finds it


def jar_path(version: str | None = None, folder: Path = _JARS) -> Path:
    """The JAR built for this Spark version (default: the installed PySpark's). Raises ConfigError with the way out where there is none."""
    wanted = version or spark_version()
    path = folder / f"spark-ckpt-{wanted}.jar"
    if path.is_file():
        return path
    built = sorted(p.name[len("spark-ckpt-") : -len(".jar")] for p in folder.glob("spark-ckpt-*.jar"))
    if built:
        raise ConfigError(
            f"there is no JAR for Spark {wanted}, only for {', '.join(built)}; install that PySpark, or build spark-ckpt with yours"
        )
    raise ConfigError(f"the JAR for Spark {wanted} was not built; in a source tree build it with: python setup.py build_jar")
