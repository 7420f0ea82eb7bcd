"""`spark-ckpt restore`"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import click

from spark_ckpt.cli.changed_operators import Operators
from spark_ckpt.cli.options import Parsed, Progress, json_option, opened, progress_option, s3_options, storage_url
from spark_ckpt.cli.output import Facts, Line, Output, Report, Section, origin_of
from spark_ckpt.conf.forms import parse_operators
from spark_ckpt.errors import ConfigError
from spark_ckpt.model import Checkpoint
from spark_ckpt.paths import checkpoint_name
from spark_ckpt.protocol.offsets_conf import drains_again, is_drained, partitions_of
from spark_ckpt.protocol.operators import OperatorChoice
from spark_ckpt.storage import S3Options
from spark_ckpt.stored.copies import RestorePath
from spark_ckpt.stored.preflight import Preflight, alone, into, without_objects
from spark_ckpt.units import size_text, time_text


@click.command("restore")
@click.argument("path")
@click.option("--check", metavar="STREAM", help="Say whether this stream can go on from it, and what would run again.")
@click.option("--operators", metavar="NEW:OLD,…", type=Parsed("pairs", parse_operators), help="With --check: spark.ckpt.restore.operators.")
@click.option("--allow-non-restored-state", is_flag=True, help="With --check: spark.ckpt.restore.allowNonRestoredState=true.")
@click.option("--as-new", is_flag=True, help="With --check: for a new checkpointLocation. STREAM only shows the query's operators.")
@s3_options
@progress_option
@json_option
def command(
    path: str,
    check: str | None,
    operators: Mapping[int, int] | None,
    allow_non_restored_state: bool,
    as_new: bool,
    s3: S3Options,
    output: Output,
    progress: Progress,
) -> int:
    """Look at a checkpoint or savepoint before it is restored, and print the option that restores it. Changes nothing.

    PATH is the URL of its folder, as `savepoint` and `list --json` print it. To restore it, start the query with that option. Spark
    compares the schemas of the state then, before anything is changed. This command looks whether all objects are there; `verify` also
    reads them. Exit status 1 if it cannot be restored, or if STREAM would not restore it because an earlier run has.

    With --check the table of operators says which of them goes on from which state, in the query that has completed STREAM's newest
    checkpoint. A changed query that was never started has told nobody what it is: its start says so itself, before anything is changed.
    """
    choice = OperatorChoice(operators or {}, allow_non_restored_state)
    if check is None and (as_new or choice != OperatorChoice()):
        raise ConfigError("--operators, --allow-non-restored-state and --as-new are about the query of a stream; name it with --check")
    chosen = RestorePath.at(storage_url(path))
    with opened(chosen.storage_url, s3, "PATH") as storage, progress() as tell:
        content = chosen.read(storage)
        missing = without_objects(content, storage, tell)
        told = Operators.of(content, storage)
    if check is None:
        found = alone(content)
    else:
        with opened(check, s3, "--check") as storage:
            told = told.in_stream(storage, choice)
            found = _as_new(content, check, told) if as_new else into(content, chosen, storage, told.matched)
    found = replace(found, problems=(*found.problems, *missing))
    output.show(_report(chosen, content, found, None if as_new else check, told))
    return 1 if found.problems else 0


def _as_new(content: Checkpoint, check: str, told: Operators) -> Preflight:
    """In a new location, of a query with the operators of the one that has run there."""
    found = alone(content)
    if told.matched is None:
        unknown = f"the operators of the query at {check} are not known: it has completed no checkpoint"
        return replace(found, problems=(*found.problems, unknown))
    return replace(found, problems=(*found.problems, *told.matched.problems))


def _report(chosen: RestorePath, c: Checkpoint, found: Preflight, check: str | None, operators: Operators) -> Report:
    kind = "savepoint" if chosen.is_savepoint else "checkpoint"
    partitions = partitions_of(c)
    option = f"spark.ckpt.restore.path={chosen.url}"
    document = {
        "path": chosen.url,
        "kind": kind,
        "checkpoint": checkpoint_name(c.id),
        "epoch": c.id.epoch,
        "query_id": c.query_id,
        "time_ms": c.time_ms,
        "job": c.job.to_json(),
        "imported_from": c.imported.location if c.imported is not None else None,
        "partitions": partitions,
        "drained": is_drained(c),
        "size": c.size,
        "stream": check,
        "fits": not found.problems,
        "problems": list(found.problems),
        "same_stream": found.same_stream if check is not None else None,
        "new_stream": found.new_stream,
        "copied": found.copied,
        "reruns": list(found.reruns),
        "drains": found.drain,
        "option": option,
        "operators": operators.rows(c),
    }
    facts = Facts(
        [
            (kind, chosen.url),
            ("epoch", f"{c.id.epoch} of query {c.query_id}"),
            ("triggered", time_text(c.time_ms)),
            ("operators", ", ".join(c.job.operators) or "none (offsets only)"),
            *origin_of(c),
            ("partitions", "not recorded" if partitions is None else str(partitions)),
            ("size", size_text(c.size)),
        ]
    )
    table = [operators.table(c)] if operators.theirs else []
    return Report(document, [facts, *table, *(Line(problem) for problem in found.problems), *_verdict(found, check, c, option)])


def _verdict(found: Preflight, check: str | None, c: Checkpoint, option: str) -> list[Section]:
    if found.problems:
        return [Line("it cannot be restored")]
    first, last = (found.reruns[0], found.reruns[-1]) if found.reruns else (0, -1)
    again = f"epochs {first} to {last} run again as they were planned" if first < last else f"epoch {last} runs again as it was planned"
    reruns = [Line(again)] if found.reruns else []
    if found.drain is not None:
        reruns.append(Line(f"{drains_again(found.drain)}, restore it with spark.ckpt.restore.plans=DISCARD too"))
    if check is None:
        return [Line(f"restore it with {option}"), *reruns]
    new = [f"there is no stream at {check} yet; one with that URL would begin with it"] if found.new_stream else []
    lines = [*new, f"{check} can go on from it, with {option}"]
    lines.append("its objects are copied into the stream first" if found.copied else "it is one of the stream's own")
    if not found.reruns and not found.same_stream:
        first_epoch = c.id.epoch + 1 if found.first is None else found.first
        lines.append(f"its epochs begin with {first_epoch}: a sink that has seen later batches must be a new one")
    return [*(Line(line) for line in lines), *reruns]
