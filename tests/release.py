"""Looks at a wheel as those will get it who install it, and runs the demo from it.

    python tests/release.py WHEEL [LINE ...]

In an empty environment for each line of Spark pip gets the wheel and that line's PySpark, and nothing of this repository but examples/ is
there. It ends with a table, and with exit status 1 where something is not as it should be. Beside the wheel it leaves a list of what a
user's environment has (CycloneDX).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from jvm_shim.sparks import PINNED  # noqa: E402
from testbed.servers import ending_with_starter  # noqa: E402

_TOOLS = ("twine>=6", "cyclonedx-bom>=7")
_DEMO_S = 900


class ReleaseError(Exception):
    """What is not as it should be, in a sentence."""


def check_content(wheel: Path) -> None:
    """The JAR of every line, the licence, and no part of what only developers need."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode()
    wanted = {"spark_ckpt/py.typed", *(f"spark_ckpt/jars/spark-ckpt-{line}.jar" for line in PINNED)}
    if missing := wanted - set(names):
        raise ReleaseError(f"{wheel.name} lacks {', '.join(sorted(missing))}")
    if not any(name.endswith("/LICENSE") for name in names) or "License-Expression: Apache-2.0" not in metadata:
        raise ReleaseError(f"{wheel.name} does not tell its licence")
    if others := {name.split("/")[0] for name in names if not name.startswith("spark_ckpt")}:
        raise ReleaseError(f"{wheel.name} has {', '.join(sorted(others))} beside the package")
    if any(line.startswith("Requires-Dist: pyspark") and "extra ==" not in line for line in metadata.splitlines()):
        raise ReleaseError(f"{wheel.name} requires a PySpark, so that pip could change a user's")


def environment(folder: Path, *packages: str) -> Path:
    """Its interpreter."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    return python


def run(*command: str | Path, cwd: Path | None = None, timeout: float | None = None, env: dict[str, str] | None = None) -> str:
    """What it prints. It ends with this program, also when that is killed, and all that it has started ends with it."""
    words = [str(word) for word in command]
    with subprocess.Popen(
        ending_with_starter(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd, env=env, start_new_session=True
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise ReleaseError(f"{' '.join(words)} did not end within {timeout} s") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode != 0:
        raise ReleaseError(f"{' '.join(words)} ended with {process.returncode}: {(out + err)[-2000:]}")
    return out


def look(wheel: Path, line: str, folder: Path, inventory: Path) -> str:
    """What pip installs beside a line's PySpark is what a job needs: the command line works, and the demo ends equal."""
    pinned = PINNED[line][0]
    python = environment(folder / "env", f"pyspark=={pinned}", "pip")
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[demo]")
    asked = "import importlib.metadata as m, spark_ckpt; print(m.version('pyspark'), spark_ckpt.__file__)"
    # In a folder of its own: the repository must not stand in for what the wheel lacks.
    version, file = run(python, "-c", asked, cwd=folder).split()
    if version != pinned or not file.startswith(str(folder)):
        raise ReleaseError(f"with PySpark {pinned} pip has installed PySpark {version} and {file}")
    program = folder / "env" / "bin" / "spark-ckpt"
    jar = run(program, "jar", cwd=folder).strip()
    if Path(jar).name != f"spark-ckpt-{line}.jar":
        raise ReleaseError(f"with PySpark {pinned} spark-ckpt jar prints {jar}")
    doctor = json.loads(run(program, "doctor", "--json", "--python", str(python), cwd=folder))
    shutil.copytree(ROOT / "examples", folder / "job" / "examples")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "PYTHON", "SPARK_"))}
    began = time.monotonic()
    run(python, "examples/demo.py", cwd=folder / "job", timeout=_DEMO_S, env={**plain, "PATH": f"{folder / 'env' / 'bin'}:{plain['PATH']}"})
    inventory.write_text(inventory_of(python, folder))
    checks = len(doctor["checks"])
    return f"PySpark {version} unchanged; doctor: {checks} checks passed; the demo ended equal in {time.monotonic() - began:.0f} s"


def inventory_of(python: Path, folder: Path) -> str:
    return run(folder.parent / "tools" / "bin" / "cyclonedx-py", "environment", "--output-reproducible", str(python))


def main(wheel: Path, lines: Sequence[str]) -> int:
    rows: list[tuple[str, str]] = []
    bad = False
    with tempfile.TemporaryDirectory(prefix="spark-ckpt-release-") as name:
        folder = Path(name)
        tools = environment(folder / "tools", *_TOOLS)
        try:
            run(tools, "-m", "twine", "check", "--strict", str(wheel))
            check_content(wheel)
            rows.append(("wheel", f"{wheel.name}, {wheel.stat().st_size / 2**20:.1f} MiB: twine check passed, {len(PINNED)} JARs"))
        except ReleaseError as e:
            bad = True
            rows.append(("wheel", str(e)))
        for line in lines or PINNED:
            (folder / line).mkdir()
            try:
                rows.append((line, look(wheel, line, folder / line, wheel.with_name(f"sbom-spark-{line}.json"))))
            except ReleaseError as e:
                bad = True
                rows.append((line, f"FAILED: {e}"))
            print(f"{rows[-1][0]:6} {rows[-1][1]}", flush=True)
            shutil.rmtree(folder / line)
    print("\n".join(["", *(f"{what:6} {found}" for what, found in rows)]))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
