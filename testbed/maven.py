"""Jars from Maven Central, in exactly the versions that are asked for, fetched into the virtual environment once."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.servers import UnavailableError

FETCH_S = 1200
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


@dataclass(frozen=True)
class Artifact:
    """`name` is `group:artifact:version`; `without` are `group:artifact` that are not to come with it, `*` for any."""

    name: str
    without: Sequence[str] = ()


def fetched(kept: Path, artifacts: Sequence[Artifact]) -> Path:
    """The folder `kept` with these jars and what they need; it is there whole, or not at all. Raises UnavailableError."""
    if kept.is_dir():
        return kept
    maven = shutil.which("mvn")
    if maven is None:
        raise UnavailableError(f"{artifacts[0].name} comes from Maven Central, and there is no Maven (mvn) on the PATH: install it")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as work:
        folder = Path(work)
        (folder / "pom.xml").write_text(pom(artifacts))
        command = [maven, "-q", "-B", COPY, "-DincludeScope=runtime", "-DoutputDirectory=jars"]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=FETCH_S, check=False)
        except subprocess.TimeoutExpired as e:
            raise UnavailableError(f"Maven did not fetch {artifacts[0].name} within {FETCH_S} s; is Maven Central within reach?") from e
        if done.returncode != 0:
            raise UnavailableError(f"Maven could not fetch {artifacts[0].name}: {(done.stdout + done.stderr).strip()[-500:]}")
        try:
            (folder / "jars").rename(kept)
        except OSError:
            if not kept.is_dir():  # another process was faster
                raise
    return kept


def pom(artifacts: Sequence[Artifact]) -> str:
    """A project that needs nothing else."""
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>spark-ckpt</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{''.join(map(_dependency, artifacts))}</dependencies></project>\n"
    )


def _dependency(artifact: Artifact) -> str:
    group, name, version = artifact.name.split(":")
    pairs = [tuple(left_out.split(":")) for left_out in artifact.without]
    exclusions = "".join(f"<exclusion><groupId>{g}</groupId><artifactId>{a}</artifactId></exclusion>" for g, a in pairs)
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        f"<exclusions>{exclusions}</exclusions></dependency>"
    )
