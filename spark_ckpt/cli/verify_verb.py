"""`spark-ckpt verify`"""

from __future__ import annotations

from typing import Any

import click

from spark_ckpt.cli.options import Progress, checkpoint_option, json_option, opened_stream, progress_option, s3_options
from spark_ckpt.cli.output import Line, Output, Report, Table
from spark_ckpt.errors import ObjectMissingError
from spark_ckpt.model import CheckpointId
from spark_ckpt.paths import checkpoint_name, metadata_key
from spark_ckpt.storage import S3Options, Storage
from spark_ckpt.stored.log_check import checkpoint_lost, log_problem
from spark_ckpt.stored.reading import StreamReader
from spark_ckpt.stored.standing import Found, Use
from spark_ckpt.stored.verify import Verified, Verifier, to_json
from spark_ckpt.units import size_text

_SHOWN = 20


@click.command("verify")
@click.argument("stream")
@checkpoint_option("all that a restart could use")
@click.option("--deep", is_flag=True, help="Also open every store's newest full snapshot and count its keys against the recorded number.")
@s3_options
@progress_option
@json_option
def command(stream: str, checkpoint: CheckpointId | None, deep: bool, s3: S3Options, output: Output, progress: Progress) -> int:
    """Verify the checkpoints of STREAM: everything they refer to must exist, with its length and checksum.

    The log must hold what a start from the newest one reads there, and no checkpoint may be gone that the newest run keeps. Checkpoints
    that are SUPERSEDED or BAD in `list` are left out unless you name them: what they refer to may be gone. If there are only BAD ones,
    they are verified: a start looks at them again too.

    STREAM may also be the folder of one checkpoint or savepoint. Exit status 1 if anything is damaged or missing, or if there is no
    checkpoint.
    """
    with opened_stream(stream, s3) as (storage, reader):
        found, left_out, problem = _found(storage, reader, checkpoint)
        verified: list[Verified] = []
        with progress() as tell:
            verifier = Verifier(storage, tell=tell)
            for item in found:
                if item.checkpoint is None:
                    continue
                result = verifier.verify(item.checkpoint)
                if deep:
                    verifier.open_stores(result)
                # A running stream drops old checkpoints; one that went while it was being read is not damaged.
                if not result.problems or reader.is_there(item.id):
                    verified.append(result)
        unreadable = [item for item in found if item.error is not None]
        intact = bool(verified) and not unreadable and problem is None and all(not v.problems for v in verified)
        damaged = [{"checkpoint": checkpoint_name(i.id), "intact": False, "problems": [_unreadable(i)]} for i in unreadable]
        document = {
            "stream": reader.url,
            "intact": intact,
            "problem": problem,
            "deep": deep,
            "checkpoints": [*damaged, *to_json(verified, deep)],
            "left_out": [{"checkpoint": checkpoint_name(c), "status": use.value} for c, use in left_out.items()],
        }
        sections = _sections(reader, verified, unreadable, deep)
        if problem is not None:
            sections.append(Line(problem))
        if left_out:
            sections.append(Line(f"left out, because no restart would use them: {len(left_out)} (SUPERSEDED or BAD in `list`)"))
        output.show(Report(document, sections))
    return 0 if intact else 1


def _found(
    storage: Storage, reader: StreamReader, checkpoint: CheckpointId | None
) -> tuple[list[Found], dict[CheckpointId, Use], str | None]:
    """What is to be looked at; what is left out, with the reason; what is wrong with the log."""
    if checkpoint is not None:
        return [Found(checkpoint, 0, reader.read(checkpoint), None)], {}, None
    overview = reader.overview()
    found = overview.found
    looked_at = list(overview.looked_at)
    chosen = {item.id for item in looked_at}
    left_out = {item.id: overview.use(item.id) for item in found if item.id not in chosen}
    if not looked_at:
        others = f"; of {len(found)} others no restart would use any" if found else ""
        raise ObjectMissingError(f"the stream at {reader.url} has no completed checkpoint to verify{others}")
    problem = overview.problem
    if problem is None and overview.standing is not None:
        problem = log_problem(storage, reader, overview.standing, overview.newest) or checkpoint_lost(reader, overview)
    return looked_at, left_out, problem


def _key(item: Found) -> str:
    return metadata_key(item.id)


def _unreadable(item: Found) -> dict[str, str]:
    return {"what": _key(item), "message": str(item.error)}


def _problem_lines(verified: list[Verified]) -> list[str]:
    """One line for each thing that is wrong, with the checkpoints that name it: an object holds many files of many of them."""
    messages: dict[str, list[str]] = {}
    named: dict[str, dict[str, int]] = {}
    for v in verified:
        for problem in v.problems:
            distinct = messages.setdefault(problem.what, [])
            if problem.message not in distinct:
                distinct.append(problem.message)
            counts = named.setdefault(problem.what, {})
            counts[checkpoint_name(v.checkpoint.id)] = counts.get(checkpoint_name(v.checkpoint.id), 0) + 1
    lines = []
    for what, (first, *others) in messages.items():
        whose = ", ".join(f"{name} names {count} of its files" if count > 1 else name for name, count in named[what].items())
        more = f" (and {len(others)} more in it)" if others else ""
        lines.append(f"{first if what in first else f'{what}: {first}'}{more}: {whose}")
    return lines


def _sections(reader: StreamReader, verified: list[Verified], unreadable: list[Found], deep: bool) -> list[Any]:
    columns = ["CHECKPOINT", "OBJECTS", "FILES", "BYTES", *(["STORES", "ENTRIES"] if deep else []), "RESULT"]
    rows = []
    for v in verified:
        opened = [f"{v.stores} of {len(v.checkpoint.snapshots)}", str(v.keys)] if deep else []
        result = f"{len(v.problems)} PROBLEMS" if v.problems else "INTACT"
        rows.append([checkpoint_name(v.checkpoint.id), str(v.objects), str(v.files), size_text(v.bytes), *opened, result])
    rows += [[checkpoint_name(item.id), *["-"] * (len(columns) - 2), item.condition.value] for item in unreadable]
    sections: list[Any] = [Table(columns, rows, right=columns[1:-1])]
    lines = [str(item.error) for item in unreadable]
    lines += _problem_lines(verified)
    sections += [Line(text) for text in lines[:_SHOWN]]
    if len(lines) > _SHOWN:
        sections.append(Line(f"… and {len(lines) - _SHOWN} more; --json shows all"))
    if deep and any(v.without_full for v in verified):
        sections.append(Line("stores without a full snapshot yet are changelogs only, which are verified by checksum"))
        often = "full ones are taken once a minute (spark.sql.streaming.stateStore.maintenanceInterval), and earlier where chains are long"
        sections.append(Line(often))
    if not verified and not unreadable:
        sections.append(Line(f"every checkpoint of {reader.url} was dropped by the running stream meanwhile; run it again"))
    return sections
