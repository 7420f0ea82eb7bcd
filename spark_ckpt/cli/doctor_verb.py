"""`spark-ckpt doctor`"""

from __future__ import annotations

import os
import shutil

import click

from spark_ckpt.cli import surroundings
from spark_ckpt.cli.options import SIZE, json_option, opened, s3_options
from spark_ckpt.cli.output import Line, Output, Report, Table
from spark_ckpt.cli.surroundings import Finding, Status
from spark_ckpt.conf.forms import parse_storage
from spark_ckpt.errors import CheckpointError
from spark_ckpt.process.packages import packages_for
from spark_ckpt.storage import S3Options


@click.command("doctor")
@click.option("--storage", help="The spark.ckpt.storage to look at. Without it only this machine is looked at.")
@click.option("--python", envvar="PYSPARK_PYTHON", default="python3", show_default=True, show_envvar=True, help="The workers' Python.")
@click.option("--spool-dir", help="spark.ckpt.spool.dir. Default: Spark's local dir.")
@click.option("--min-free", default="1g", show_default=True, type=SIZE, metavar="SIZE", help="Room the spool must have.")
@s3_options
@json_option
def command(storage: str | None, python: str, spool_dir: str | None, min_free: int, s3: S3Options, output: Output) -> int:
    """Look at what a job will need: Java, Spark and JAR, the workers' Python, the storage, the clock and the disk.

    Where spark-defaults.conf has spark.ckpt options, it says whether jobs would have checkpoints with them. It also
    names what dead executors have left in the spool's folder (not in Spark's own folders, spark-*, below it).

    In the storage it puts three small objects below probe/ and deletes them. A folder that it had to make stays. Exit status 1 if
    something would keep a job from running.
    """
    try:
        url, refused = parse_storage(storage) if storage else None, []
    except ValueError as e:
        url, refused = None, [Finding("storage", Status.FAIL, f"a job refuses this spark.ckpt.storage; write {e}")]
    spool = surroundings.spool_folder(spool_dir, os.environ)
    findings = [
        surroundings.check_java(os.environ),
        surroundings.check_spark(),
        *surroundings.check_defaults(os.environ),
        surroundings.check_worker_python(os.path.abspath(found) if (found := shutil.which(python)) else python, packages_for(url)),
        *refused,
        *_storage_findings(url, s3),
        surroundings.check_disk(spool, min_free),
        *surroundings.check_left_spools(spool),
    ]
    healthy = all(f.status is not Status.FAIL for f in findings)
    rows = [(f.status.value, f.check, f.message) for f in findings]
    document = {"healthy": healthy, "checks": [{"check": f.check, "status": f.status.value, "message": f.message} for f in findings]}
    verdict = "a job can run" if healthy else "a job would fail; see FAIL above"
    output.show(Report(document, [Table(("STATUS", "CHECK", "FOUND"), rows), Line(verdict)]))
    return 0 if healthy else 1


def _storage_findings(url: str | None, s3: S3Options) -> list[Finding]:
    if url is None:
        return []
    try:
        with opened(url, s3) as storage:
            reachable = surroundings.check_storage(storage)
            if reachable.status is Status.FAIL:
                return [reachable]
            return [reachable, surroundings.check_clock(storage)]
    except CheckpointError as e:
        return [Finding("storage", Status.FAIL, str(e))]
