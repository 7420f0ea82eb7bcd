"""Every option `spark.ckpt.*`, once: name, default, form, Flink's name for it and what it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spark_ckpt.conf.forms import (
    one_of,
    parse_absolute_path,
    parse_boolean,
    parse_folders,
    parse_interval,
    parse_operators,
    parse_positive_duration,
    parse_positive_size,
    parse_storage,
    parse_stream,
    parse_text,
    whole_number,
)
from spark_ckpt.conf.words import AT_LEAST_ONCE, CLAIM, DECLINE, DELETE, DISCARD, EXACTLY_ONCE, FAIL, NO_CLAIM, RERUN, RETAIN, WAIT
from spark_ckpt.units import parse_duration

PREFIX = "spark.ckpt."


@dataclass(frozen=True)
class Option:
    """`name` without the prefix. `default` as a user would write it; None: unset. `parse` raises ValueError with the form it expects."""

    name: str
    default: str | None
    parse: Callable[[str], Any]
    flink_name: str | None
    help: str

    @property
    def key(self) -> str:
        return PREFIX + self.name


OPTIONS: tuple[Option, ...] = (
    Option(
        "storage",
        None,
        parse_storage,
        "checkpoint dir",
        "Where checkpoints live: s3://bucket/prefix, gs://bucket/prefix (Google Cloud Storage), az://container/prefix (Azure Blob "
        "Storage), file:///path or an absolute path. Every stream has its own folder below it, named after its checkpointLocation, which "
        "may then be a local path that vanishes. Default: <checkpointLocation>/_ckpt.",
    ),
    Option(
        "mode",
        EXACTLY_ONCE,
        one_of(EXACTLY_ONCE, AT_LEAST_ONCE),
        "checkpointing mode",
        "What a sink that is idempotent by batch id sees. EXACTLY_ONCE: an epoch's plan is stored before the epoch runs, so after a crash "
        "it runs again with the same data. AT_LEAST_ONCE (with an interval only): epochs do not wait for their plans. The next start goes "
        "on under new batch ids: rows since the last checkpoint may come twice, and none is lost.",
    ),
    Option(
        "interval",
        "0",
        parse_interval,
        "checkpoint interval",
        "0: every epoch is a checkpoint, and an epoch is committed only when its checkpoint is complete. A duration such as 10s: "
        "checkpoints complete in the background, and the query does not wait for them. After a crash the epochs since the last checkpoint "
        "run again. While an epoch runs longer than the interval, the epoch before it becomes the checkpoint. never: checkpoints are "
        "completed in the background when somebody asks (`spark-ckpt checkpoint`, spark_ckpt.checkpoint, savepoints), when the query "
        "comes to its own end (AvailableNow), when a spool is half full, and after 10,000 epochs without one. With sources that cannot "
        "give the same data twice every epoch is a checkpoint, whatever is set here.",
    ),
    Option(
        "timeout",
        "10min",
        parse_positive_duration,
        "checkpoint timeout",
        "How long the storage may take, retries included, for each of two things. The plan of an epoch, counted from the epoch's trigger: "
        "when the time is over the query fails, in every mode. The uploads and the final put of a checkpoint, counted from the end of its "
        "epoch, so a long epoch fails no checkpoint: when the time is over the query fails; with an interval, the checkpoint fails, and "
        "tolerableFailures says when the query does. A plain number is milliseconds.",
    ),
    Option(
        "minPause",
        "0",
        parse_duration,
        "min pause between checkpoints",
        "At least this long between the end of one checkpoint and the beginning of the next. Needs an interval.",
    ),
    Option(
        "maxConcurrent",
        "1",
        whole_number(1),
        "max concurrent checkpoints",
        "How many checkpoints may be under way at a time. More than 1 needs an interval. While an epoch runs longer than the interval, "
        "the checkpoint of the epoch before it comes on top.",
    ),
    Option(
        "tolerableFailures",
        "0",
        whole_number(0),
        "tolerable checkpoint failures",
        "How many checkpoints may fail in a row before the query fails; a success starts the count again. More than 0 needs an interval.",
    ),
    Option("retained", "3", whole_number(1), "retained checkpoints", "How many completed checkpoints are kept; older ones are deleted."),
    Option(
        "onStop",
        RETAIN,
        one_of(RETAIN, DELETE),
        "externalized checkpoint cleanup",
        "DELETE: checkpoints are deleted when a person stops the query, never after a crash or a failure, and never where a client of "
        "Spark Connect has started it. Savepoints stay, except one that is the stream's own by restore.mode=CLAIM.",
    ),
    Option(
        "restore.path",
        None,
        parse_folders,
        "restore path",
        "Begin from this checkpoint or savepoint: the URL of its folder, as `spark-ckpt savepoint` and `spark-ckpt list --json` print it. "
        "A checkpointLocation of stock Spark is imported at the start. It is applied once: later starts with the same value go on from the "
        "newest checkpoint. Several, with commas between, for several queries in one application: each counts for the query in whose "
        "stream's folder it lies. Default: the stream's newest checkpoint.",
    ),
    Option(
        "restore.mode",
        NO_CLAIM,
        one_of(NO_CLAIM, CLAIM),
        "restore mode",
        "Who owns the savepoint in restore.path. Both modes copy its objects: once the query runs, it does not need it. NO_CLAIM: you do; "
        "it is left as it is. CLAIM: the stream does; it deletes the folder together with the copy, when `retained` newer checkpoints are "
        "complete, or with onStop=DELETE when a person stops the query; leave both options as they are until then. A checkpoint in "
        "restore.path stays with the stream that made it, and a checkpointLocation of stock Spark as it is, in both modes.",
    ),
    Option(
        "restore.plans",
        RERUN,
        one_of(RERUN, DISCARD),
        None,
        "What happens to epochs that this stream has planned after the checkpoint in restore.path. RERUN: they run again with the same "
        "data, under the same batch ids. DISCARD: they are planned anew, under new batch ids; sinks may get their rows twice.",
    ),
    Option(
        "restore.operators",
        None,
        parse_operators,
        "uid (of an operator)",
        "For a query whose stateful operators have changed: which of them goes on from the state of which operator of the checkpoint, as "
        "numbers <new>:<old>, several with commas between. All others are matched by kind and keys. `spark-ckpt restore` prints those of a "
        "checkpoint's operators, a refused start those of the query's. Remove it when the query runs. Default: all are matched.",
    ),
    Option(
        "restore.allowNonRestoredState",
        "false",
        parse_boolean,
        "allow non restored state",
        "true: state that no operator of a changed query takes is dropped. false: the start is refused, and names the operator.",
    ),
    Option(
        "savepointDir",
        None,
        parse_stream,
        "savepoint dir",
        "Folder in which savepoints are made when none is given with the request. Default: savepoints/ in the stream's own folder.",
    ),
    Option(
        "localRecovery",
        "true",
        parse_boolean,
        "local recovery",
        "true: state that an earlier run has left in the spool of the same machine is used if its checksums match. Only the rest is "
        "downloaded.",
    ),
    Option(
        "kafka.group",
        None,
        parse_text,
        "group.id, commit.offsets.on.checkpoint",
        "Consumer group to which the end offsets of each completed checkpoint are committed, for tools that show a group's lag. Nothing is "
        "read from it: the checkpoint decides. With several queries write {query} into it, which stands for the query's name. No consumer "
        "may be a member of that group. Default: no offsets are committed.",
    ),
    Option(
        "python",
        None,
        parse_text,
        None,
        "The Python that runs the coordinator on the driver and an agent on every executor. It needs this package and what the package "
        "depends on. Default: the driver's Python for the coordinator, the Python of PySpark's workers for agents, as Spark finds them.",
    ),
    Option(
        "spool.dir",
        None,
        parse_absolute_path,
        None,
        "Local folder for what the state stores have written and the agent has not uploaded yet. Default: Spark's local dir.",
    ),
    Option(
        "spool.maxSize",
        "10g",
        parse_positive_size,
        None,
        "How much state that is not stored yet an executor may hold in its spool. A plain number is bytes.",
    ),
    Option(
        "spool.whenFull",
        WAIT,
        one_of(WAIT, FAIL),
        None,
        "What a task does when the spool is full: WAIT until uploads have made room, or FAIL.",
    ),
    Option("hooks.timeout", "1min", parse_positive_duration, None, "How long each call of a hook (`spark_ckpt.register_hook`) may take."),
    Option(
        "hooks.onFailure",
        FAIL,
        one_of(FAIL, DECLINE),
        None,
        "When a hook raises, or exceeds hooks.timeout. FAIL: the query fails. DECLINE: the epoch becomes no checkpoint; needs an interval.",
    ),
    Option("s3.endpoint", None, parse_text, "s3.endpoint", "URL of an S3 server other than AWS, such as http://minio:9000."),
    Option("s3.region", None, parse_text, "s3.region", "Region. Default: what boto3's chain says."),
    Option(
        "s3.pathStyle", "false", parse_boolean, "s3.path.style.access", "true: http://server/bucket/key instead of http://bucket.server/key."
    ),
    Option("s3.sse", None, one_of("AES256", "aws:kms"), None, "Server-side encryption: AES256 or aws:kms. Default: the bucket's own."),
    Option("s3.kmsKeyId", None, parse_text, None, "Key for s3.sse=aws:kms. Default: the account's key for S3."),
    Option("s3.maxConnections", "32", whole_number(1), None, "Connections to the server that each process keeps for each stream."),
)
