"""list, show, verify on a stored stream: what they print and the exit status."""

from __future__ import annotations

import io
import json
import re
import resource
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from spark_ckpt.cli.main import run
from spark_ckpt.errors import StorageSetupError
from spark_ckpt.model import Checkpoint, CheckpointId, HandleKind
from spark_ckpt.paths import log_key, metadata_key
from spark_ckpt.protocol.entries import SAVEPOINT, Adopted, Claim, Damage, End, Plan, Request, decode, encode
from spark_ckpt.storage import Storage, open_storage
from spark_ckpt.storage.base import LARGEST_READ
from spark_ckpt.storage.file import FileStorage
from spark_ckpt.stored import opening
from spark_ckpt.stored.metadata.codec import encode_metadata
from tests.drivers.command_line import call
from tests.drivers.stored_stream import StreamWriter, flip, make_store


@pytest.fixture
def writer(storage: Storage, tmp_path: Path) -> StreamWriter:
    """Run 1 with epochs 0 and 1, the second with a store of changelogs only besides."""
    writer = StreamWriter(storage)
    writer.begin(1)
    writer.complete(1, 0, [make_store(tmp_path, 30, "a")])
    writer.complete(1, 1, [make_store(tmp_path, 40, "b"), make_store(tmp_path, 50, "c")], changelogs_only=1)
    return writer


def handle_object(checkpoint: Checkpoint, kind: HandleKind) -> str:
    return next(h.object for s in checkpoint.snapshots for h in s.handles if h.kind is kind)


def test_list(writer: StreamWriter, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, doc = call(capsys, "list", url)
    assert (status, doc["stream"], doc["runs"], doc["latest"]) == (0, url, [1], "run-1/chk-1")
    assert [(c["checkpoint"], c["latest"], c["stores"]) for c in doc["checkpoints"]] == [
        ("run-1/chk-0", False, 1),
        ("run-1/chk-1", True, 3),
    ]
    assert doc["checkpoints"][0]["size"] == writer.checkpoints[0].size
    assert doc["checkpoints"][0]["path"] == f"{url}/run-00000001/chk-0"


def test_list_as_text_is_one_line_a_checkpoint(writer: StreamWriter, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["CHECKPOINT", "EPOCH", "TRIGGERED", "STORES", "SIZE", "NEW", "DURATION", "STATUS"]
    assert [line.split()[0] for line in lines[1:-1]] == ["run-1/chk-0", "run-1/chk-1"]
    assert lines[2].endswith("COMPLETED, latest")
    assert lines[3] == "run-1 was begun by an application on host host at 1970-01-01 00:00:00Z"


def test_a_path_instead_of_a_url(
    writer: StreamWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(capsys, "list", "ckpt/orders")[1]["latest"] == "run-1/chk-1"


def test_a_checkpoint_location_with_its_stream_beside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = StreamWriter(open_storage(f"file://{tmp_path}/loc/_ckpt"))
    writer.begin(1)
    writer.complete(1, 0, [make_store(tmp_path, 3)])
    status, doc = call(capsys, "list", f"{tmp_path}/loc")
    assert (status, doc["stream"]) == (0, f"file://{tmp_path}/loc/_ckpt")


def test_a_new_run_without_checkpoints_goes_on_from_its_origin(writer: StreamWriter, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    writer.begin(2, origin=CheckpointId(1, 0))
    assert call(capsys, "list", url)[1]["latest"] == "run-1/chk-0"


def test_what_a_superseded_run_completed_later_is_not_the_latest(
    writer: StreamWriter, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = make_store(tmp_path, 3, "z")
    writer.begin(2, origin=CheckpointId(1, 1))
    writer.complete(2, 2, [store])
    writer.complete(1, 9, [store])
    writer.log -= 1
    writer.begin(2, origin=CheckpointId(1, 1))
    assert call(capsys, "list", url)[1]["latest"] == "run-2/chk-2"


def test_a_late_checkpoint_of_a_fenced_run_is_superseded_and_no_damage(
    writer: StreamWriter, storage: Storage, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer.begin(2, origin=CheckpointId(1, 1), inherits=(CheckpointId(1, 1),))
    late = writer.complete(1, 2, [make_store(tmp_path, 3, "late")])
    storage.delete(late.objects)
    status, doc = call(capsys, "list", url)
    assert (status, [c["status"] for c in doc["checkpoints"]]) == (0, ["SUPERSEDED", "COMPLETED", "SUPERSEDED"])
    status, doc = call(capsys, "verify", url)
    assert (status, [c["checkpoint"] for c in doc["checkpoints"]]) == (0, ["run-1/chk-1"])
    assert doc["left_out"] == [{"checkpoint": name, "status": "SUPERSEDED"} for name in ("run-1/chk-0", "run-1/chk-2")]
    assert call(capsys, "verify", url, "--checkpoint", "run-1/chk-2")[0] == 1
    storage.put(metadata_key(late.id), b"and not even readable")
    assert call(capsys, "list", url)[0] == 0
    assert run(["verify", url]) == 0
    assert "left out, because no restart would use them: 2" in capsys.readouterr().out


def ask(writer: StreamWriter, times: int) -> None:
    """People ask a stream that nobody runs."""
    for n in range(times):
        writer.append(Request(writer.claim, SAVEPOINT, "", "me", nonce=str(n)))


@pytest.mark.parametrize("asked", [0, 1, 20])
def test_a_checkpoint_that_was_found_bad_is_left_out(
    asked: int, writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    storage.put(metadata_key(CheckpointId(1, 1)), b"PAR1 is not all")
    writer.append(Damage(writer.claim, 1, (CheckpointId(1, 1),), "a test"))
    ask(writer, asked)
    status, doc = call(capsys, "list", url)
    assert (status, [c["status"] for c in doc["checkpoints"]]) == (0, ["COMPLETED", "BAD"])
    status, doc = call(capsys, "verify", url)
    assert (status, doc["left_out"]) == (0, [{"checkpoint": "run-1/chk-1", "status": "BAD"}])


@pytest.mark.parametrize("asked", [0, 2])
def test_nothing_that_a_restart_would_use_is_nothing_to_verify(
    asked: int, writer: StreamWriter, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    writer.append(End(writer.claim, 1))
    ask(writer, asked)
    assert call(capsys, "verify", url)[0] == 1


def test_a_checkpoint_that_was_named_bad_is_not_the_latest(writer: StreamWriter, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    writer.append(Damage(writer.claim, 1, (CheckpointId(1, 1),), "a test"))
    assert call(capsys, "list", url)[1]["latest"] == "run-1/chk-0"
    writer.begin(2, origin=CheckpointId(1, 0), bad=(CheckpointId(1, 1),), inherits=(CheckpointId(1, 1),))
    assert call(capsys, "list", url)[1]["latest"] == "run-1/chk-0"


def test_a_stream_that_was_deleted_on_purpose_has_no_latest(writer: StreamWriter, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    writer.append(End(writer.claim, 1))
    status, doc = call(capsys, "list", url)
    assert (status, doc["latest"], doc["ended"], len(doc["checkpoints"])) == (0, None, True, 2)
    assert run(["list", url]) == 0
    assert "was deleted (onStop=DELETE)" in capsys.readouterr().out


def test_a_stream_without_checkpoints(storage: Storage, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    StreamWriter(storage).begin(1)
    assert run(["list", url]) == 0
    assert "no completed checkpoint yet" in capsys.readouterr().out
    assert run(["show", url]) == 1
    assert run(["verify", url]) == 1


def test_a_damaged_metadata_is_listed_and_passed_over(
    writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    storage.put(metadata_key(CheckpointId(1, 1)), b"PAR1 is not all")
    status, doc = call(capsys, "list", url)
    assert (status, doc["latest"]) == (1, "run-1/chk-0")
    assert "run-00000001/chk-1/_metadata" in doc["checkpoints"][1]["error"]
    status, doc = call(capsys, "verify", url)
    assert (status, doc["intact"]) == (1, False)
    assert [c["intact"] for c in doc["checkpoints"]] == [False, True]


def test_a_damaged_log_does_not_hide_the_checkpoints(
    writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    storage.put(f"log/{writer.log:020d}", b"{")
    status, doc = call(capsys, "list", url)
    assert (status, doc["latest"], len(doc["checkpoints"])) == (1, None, 2)
    assert "not JSON" in doc["problem"]
    status, doc = call(capsys, "verify", url)
    assert (status, doc["intact"], [c["intact"] for c in doc["checkpoints"]]) == (1, False, [True, True])
    assert "not JSON" in doc["problem"]


def test_a_log_that_is_gone_is_told(writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    storage.delete([s.key for s in storage.list("log/")])
    status, doc = call(capsys, "list", url)
    assert (status, len(doc["checkpoints"])) == (1, 2)
    assert "has checkpoints, but its log is gone" in doc["problem"]
    status, doc = call(capsys, "verify", url)
    assert (status, doc["intact"], [c["intact"] for c in doc["checkpoints"]]) == (1, False, [True, True])
    assert "its log is gone" in doc["problem"]
    status, doc = call(capsys, "show", url)
    assert (status, doc["error"]["kind"]) == (1, "DAMAGED")
    assert "has checkpoints, but its log is gone" in doc["error"]["message"]
    assert call(capsys, "show", url, "--checkpoint", "run-1/chk-1")[0] == 0
    assert run(["show", url, "--checkpoint", "run-1/chk-1"]) == 0
    assert re.search(r"log entry +\d+, claimed in log entry 1\n", capsys.readouterr().out)


def test_show_tells_of_the_states_of_hooks(
    writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    newest = writer.checkpoints[-1]
    storage.put(metadata_key(newest.id), encode_metadata(replace(newest, hooks={"publish": b"41", "raw": b"\xff"})))
    status, doc = call(capsys, "show", url)
    assert (status, doc["hooks"]) == (0, {"publish": {"bytes": 2, "text": "41"}, "raw": {"bytes": 1}})
    assert run(["show", url]) == 0
    assert "hook publish" in capsys.readouterr().out



def going_on(writer: StreamWriter, plans: int) -> int:
    """Run 1 has planned so many epochs past its newest checkpoint; run 2 adopts their plans. Returns the first one's entry."""
    first = writer.log + 1
    for epoch in range(2, 2 + plans):
        writer.append(Plan(writer.claim, 1, epoch, b"v1\n{}"))
    claim = decode(1, writer.storage.get(log_key(1)))
    assert isinstance(claim, Claim)
    writer.claim = writer.log + 1
    origin = CheckpointId(1, 1)
    adopts = (Adopted(first, plans, 2),)
    writer.append(replace(claim, claim=writer.claim, run=2, origin=origin, inherits=(origin,), adopts=adopts))
    return first


@pytest.mark.parametrize("claimed", [False, True])
@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (None, "is missing, although there are later ones"),
        (b"{", "is not JSON"),
        (encode(Plan(1, 1, 9, b"v1\n{}")), "is not in the log, although epoch"),
    ],
)
def test_verify_looks_at_what_a_start_reads_of_the_log(
    damage: bytes | None, says: str, claimed: bool, writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Past the newest checkpoint, or adopted by the newest claim from before it."""
    if claimed:
        first = going_on(writer, 3)
    else:
        first = writer.log + 1
        for epoch in range(2, 5):
            writer.append(Plan(writer.claim, 1, epoch, b"v1\n{}"))
    assert call(capsys, "verify", url)[0] == 0
    key = log_key(first + 1)
    if damage is None:
        storage.delete([key])
    else:
        storage.put(key, damage)
    status, doc = call(capsys, "verify", url)
    assert (status, doc["intact"], [c["intact"] for c in doc["checkpoints"]]) == (1, False, [True] if claimed else [True, True])
    assert "a start would be refused: " in doc["problem"]
    assert says in doc["problem"]


def test_verify_asks_for_nothing_of_the_log_where_no_checkpoint_can_be_gone_on_from(
    writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first entry went long ago, and nobody can put it back."""
    going_on(writer, 3)
    storage.delete([log_key(1)])
    for checkpoint in writer.checkpoints:
        storage.put(metadata_key(checkpoint.id), b"nothing of the kind")
    status, doc = call(capsys, "verify", url)
    assert (status, doc.get("problem")) == (1, None)


def test_verify_says_that_the_logs_end_is_missing(
    writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    storage.delete([log_key(writer.log)])
    status, doc = call(capsys, "verify", url)
    assert (status, doc["problem"]) == (
        1,
        f"the log of {url} ends with entry 2, before the plan of run-1/chk-1; put the later ones back",
    )


def test_what_may_not_be_read_does_not_hide_the_others(
    writer: StreamWriter, url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root, no file is out of reach: the storage refuses two objects as it refuses a file of mode 000."""
    refused = {metadata_key(CheckpointId(1, 0)), handle_object(writer.checkpoints[1], HandleKind.CHANGELOG)}

    class Locked(FileStorage):
        def get(self, key: str, offset: int = 0, length: int | None = None, limit: int = LARGEST_READ) -> bytes:
            if key in refused:
                raise StorageSetupError(f"cannot read {self.url}/{key}: Permission denied; give this user access to it")
            return super().get(key, offset, length, limit)

    monkeypatch.setattr(opening, "open_storage", lambda url, *_: Locked(url))
    status, doc = call(capsys, "list", url)
    assert (status, [c["status"] for c in doc["checkpoints"]]) == (1, ["UNREADABLE", "COMPLETED"])
    assert "Permission denied" in doc["checkpoints"][0]["error"]
    status, doc = call(capsys, "verify", url)
    assert (status, [c["intact"] for c in doc["checkpoints"]]) == (1, [False, False])
    assert run(["verify", url]) == 1
    out = capsys.readouterr().out
    assert "UNREADABLE" in out
    assert out.count("Permission denied") == 2


def test_verify_has_one_line_for_each_object(writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    key = handle_object(writer.checkpoints[1], HandleKind.CHANGELOG)
    storage.delete([key])
    assert len(call(capsys, "verify", url)[1]["checkpoints"][1]["problems"]) > 1
    assert run(["verify", url]) == 1
    told = [line for line in capsys.readouterr().out.splitlines() if key in line]
    assert told == [f"the object {key} is missing: run-1/chk-1 names 5 of its files"]


@pytest.mark.parametrize(("text", "says"), [("s4://x/y", "the URL 's4://x/y' cannot be used"), ("", "the URL is empty"), (" ", "is empty")])
def test_a_url_that_cannot_be_used_is_named(text: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", text]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    "given",
    [
        *("s3://KEY:SEC:RET@bucket", "s3://KEY:SEC RET@bucket/x", "az://c/p?sig=SECRET", "az://c/p?x@sig=SECRET", "s3://KEY:SECRET"),
        *("s3:/KEY:SECRET@b/p", "S3A:KEY:SECRET@b", "KEY:SECRET@b s3://bucket/p", "KEY:SEC/RET@b"),
        *("az:/c/p?sig=SECRET", "s3:/KEY:SECRET", "s3:KEY:SECRET", "s3:/KEY:SEC RET@bucket", ":SECRET@b"),
    ],
)
def test_what_stands_where_nothing_is_expected_is_shown_without_its_password(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The name of an option was forgotten."""
    for arguments in (["savepoint", "/nowhere", given], ["list", given, "more"], ["list", f"--{given}"]):
        assert run(arguments) == 2
        said = capsys.readouterr().err
        assert "Error: " in said
        assert not {"SECRET", "SEC", "RET"} & set(re.findall("[A-Z]+", said)), said


@pytest.mark.parametrize("given", ["/data/a:b@c/x", "me@example.com", "s3://bucket/x", "10:00"])
def test_what_is_no_secret_is_shown(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["savepoint", "/nowhere", given]) == 2
    assert given in capsys.readouterr().err


def test_a_password_in_a_url_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "s3://me:secret@bucket/x"]) == 2
    assert "secret" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["savepoint", "/nowhere", "--name", "s3://KEY:SECRET@bucket"],
        ["submit", "--properties-file", "s3://KEY:SECRET@bucket/p", "job.py"],
        ["submit", "--properties-file", "s3://KEY:SECRET@bucket/" + "p" * 300, "job.py"],
        ["show", "/nowhere", "--checkpoint", "s3://KEY:SECRET@bucket/p"],
    ],
)
def test_a_password_where_none_is_expected_is_not_printed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) != 0
    said = capsys.readouterr().err
    assert said
    assert "SECRET" not in said


def test_a_moved_metadata_is_refused(writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    storage.put(metadata_key(CheckpointId(1, 5)), storage.get(metadata_key(CheckpointId(1, 1))))
    assert run(["show", url, "--checkpoint", "run-1/chk-5"]) == 1
    assert "holds run-1/chk-1 instead" in capsys.readouterr().err


def test_show_is_the_latest_or_the_one_asked_for(writer: StreamWriter, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, doc = call(capsys, "show", url)
    assert (status, doc["checkpoint"], doc["query_id"], doc["log_entry"]) == (0, "run-1/chk-1", "query", 3)
    assert doc["files"]["offsets/1"] == {"bytes": 5, "text": "v1\n{}"}
    assert doc["stores"][0]["handles"][0]["kind"] == "SST"
    assert doc["objects"] == sorted(writer.checkpoints[1].objects)
    assert call(capsys, "show", url, "--checkpoint", "run-00000001/chk-0")[1]["epoch"] == 0
    assert run(["show", url]) == 0
    out = capsys.readouterr().out
    assert "ForeachBatchSink" in out
    assert "offsets/1" in out


def test_what_show_prints_is_json_whatever_somebody_has_counted(
    writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python writes and reads NaN and Infinity; no other reader of JSON does."""
    newest = writer.checkpoints[-1]
    counters = {"sync_ms": float("nan"), "bytes": [float("inf"), 7]}
    storage.put(metadata_key(newest.id), encode_metadata(replace(newest, counters=counters)))
    status = run(["show", url, "--json"])
    text = capsys.readouterr().out
    document = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert (status, document["counters"]) == (0, {"sync_ms": None, "bytes": [None, 7]})


def test_show_of_what_is_not_there(writer: StreamWriter, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, doc = call(capsys, "show", url, "--checkpoint", "run-1/chk-77")
    assert status == 1
    assert doc["error"]["kind"] == "MISSING"
    assert "run-1/chk-77" in doc["error"]["message"]


def test_no_stream_there_says_what_is(writer: StreamWriter, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", f"{tmp_path}/ckpt"]) == 1
    err = capsys.readouterr().err
    assert "it holds orders/" in err
    assert "checkpointLocation" in err


def test_verify_an_intact_stream(writer: StreamWriter, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, doc = call(capsys, "verify", url)
    assert (status, doc["intact"], [c["problems"] for c in doc["checkpoints"]]) == (0, True, [[], []])
    assert doc["checkpoints"][0]["bytes"] == writer.checkpoints[0].size


def test_verify_deep_opens_every_full_snapshot(writer: StreamWriter, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, doc = call(capsys, "verify", url, "--deep")
    second = doc["checkpoints"][1]
    assert (status, second["stores_opened"], second["entries_counted"], second["stores_without_full_snapshot"]) == (0, 2, 90, 1)
    assert run(["verify", url, "--deep"]) == 0
    said = capsys.readouterr().out
    assert "changelogs only" in said
    assert "full ones are taken once a minute" in said


@pytest.mark.parametrize("kind", [kind for kind in HandleKind if kind.is_state])
def test_verify_finds_a_missing_object(
    kind: HandleKind, writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    key = handle_object(writer.checkpoints[1], kind)
    storage.delete([key])
    status, doc = call(capsys, "verify", url)
    assert (status, [c["intact"] for c in doc["checkpoints"]]) == (1, [True, False])
    assert {p["what"] for p in doc["checkpoints"][1]["problems"]} == {key}
    assert "missing" in doc["checkpoints"][1]["problems"][0]["message"]


@pytest.mark.parametrize("kind", [kind for kind in HandleKind if kind.is_state])
def test_verify_finds_a_flipped_byte(
    kind: HandleKind, writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    handle = next(h for s in writer.checkpoints[1].snapshots for h in s.handles if h.kind is kind)
    flip(storage, handle.object, handle.offset + handle.length - 1)
    status, doc = call(capsys, "verify", url, "--checkpoint", "run-1/chk-1")
    assert (status, len(doc["checkpoints"][0]["problems"])) == (1, 1)
    assert "CRC-32" in doc["checkpoints"][0]["problems"][0]["message"]


def test_verify_finds_a_truncated_object(writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    key = handle_object(writer.checkpoints[0], HandleKind.CHANGELOG)
    storage.put(key, storage.get(key)[:-1])
    status, doc = call(capsys, "verify", url)
    assert status == 1
    assert "has only" in doc["checkpoints"][0]["problems"][0]["message"]
    assert run(["verify", url]) == 1
    assert "run-1/chk-0" in capsys.readouterr().out


def test_verify_deep_without_a_folder_for_temporary_files(
    writer: StreamWriter, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    assert run(["verify", url, "--deep"]) == 2
    assert "no folder for temporary files can be made (No such file or directory); set TMPDIR" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_an_answer_that_cannot_be_written_is_told_in_a_sentence(writer: StreamWriter, url: str, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "spark_ckpt.cli.main", "list", url, *arguments]
    with open("/dev/full", "wb") as full:
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1), ran.stderr
    assert ran.stderr.startswith("spark-ckpt: No space left on device; look at")


def test_verify_deep_on_a_full_disk_says_so(storage: Storage, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A limit on the size of files stands for the full disk; a member that is all zeros is none in the zip, and one when unpacked."""
    store, limit = make_store(tmp_path, 30), 100_000
    archive = io.BytesIO(store.zip_bytes)
    with zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("000099.log", bytes(2 * limit))
    writer = StreamWriter(storage)
    writer.begin(1)
    writer.complete(1, 0, [replace(store, zip_bytes=archive.getvalue())])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        assert run(["verify", url, "--deep"]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert re.search(r"snapshots cannot be unpacked in .*: File too large; free space there or set TMPDIR", capsys.readouterr().err)


def test_verify_deep_finds_a_wrong_number_of_keys(storage: Storage, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = StreamWriter(storage)
    writer.begin(1)
    writer.complete(1, 0, [make_store(tmp_path, 30, recorded=31)])
    assert call(capsys, "verify", url)[0] == 0
    status, doc = call(capsys, "verify", url, "--deep")
    assert status == 1
    assert "30 entries, 31 were recorded" in doc["checkpoints"][0]["problems"][0]["message"]


def test_names_from_the_storage_cannot_steer_the_terminal(storage: Storage, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    writer = StreamWriter(storage)
    writer.begin(1)
    checkpoint = writer.complete(1, 0, [], changelogs_only=1)
    storage.put(metadata_key(checkpoint.id), encode_metadata(replace(checkpoint, query_id="\x1b[2Jgone")))
    assert run(["show", url]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_a_duration_that_cannot_be_is_shown_as_none(storage: Storage, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    writer = StreamWriter(storage)
    writer.begin(1)
    checkpoint = writer.complete(1, 0, [], changelogs_only=1)
    storage.put(metadata_key(checkpoint.id), encode_metadata(replace(checkpoint, counters={"duration_ms": 10**400})))
    assert run(["list", url]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[-3:] == ["?", "COMPLETED,", "latest"]


def renumbered(writer: StreamWriter, noted: bool = True) -> None:
    """Run 2 goes on from epoch 1 under new numbers, and has noted that it is damaged."""
    claim = decode(1, writer.storage.get(log_key(1)))
    assert isinstance(claim, Claim)
    origin, older = CheckpointId(1, 1), CheckpointId(1, 0)
    writer.claim = writer.log + 1
    writer.append(replace(claim, claim=writer.claim, run=2, origin=origin, inherits=(older, origin), adopts=(), first=7, used=6))
    writer.append(Plan(writer.claim, 2, 7, b"v1\n{}"))
    if noted:
        writer.append(Damage(writer.claim, 2, (origin,), "a test"))


def test_verify_looks_again_at_what_was_noted_where_a_start_does(
    writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """From epoch 0 nobody can go on: what followed it has other numbers. Epoch 1 was put back."""
    renumbered(writer)
    status, doc = call(capsys, "verify", url)
    assert (status, doc["problem"], doc["left_out"]) == (0, None, [{"checkpoint": "run-1/chk-1", "status": "BAD"}])
    lost = handle_object(writer.checkpoints[1], HandleKind.CHANGELOG)
    storage.delete([lost])
    status, doc = call(capsys, "verify", url)
    assert status == 1
    assert doc["problem"].startswith("a start would be refused: epochs past checkpoint run 1 epoch 0 went on under new numbers")
    assert f"found damaged before, and not whole yet: run-1/chk-1 (the object {lost} is missing)" in doc["problem"]
    storage.delete([metadata_key(CheckpointId(1, 1))])
    assert "not whole yet" not in call(capsys, "verify", url)[1]["problem"]


@pytest.mark.parametrize("whole", [False, True])
def test_verify_looks_at_what_was_noted_where_nothing_else_is_left(
    whole: bool, writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    writer.append(Damage(writer.claim, 1, (CheckpointId(1, 0), CheckpointId(1, 1)), "a test"))
    if not whole:
        for checkpoint in writer.checkpoints:
            flip(storage, handle_object(checkpoint, HandleKind.CHANGELOG))
    status, doc = call(capsys, "verify", url)
    assert (status, [c["intact"] for c in doc["checkpoints"]], doc["left_out"]) == (int(not whole), [whole] * 2, [])


def test_verify_sees_that_the_claim_is_gone_under_which_the_newest_was_made(
    writer: StreamWriter, storage: Storage, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The newest claim begins from epoch 1, which is damaged; of epoch 0 it is not known what its own claim adopted."""
    renumbered(writer, noted=False)
    storage.put(metadata_key(CheckpointId(1, 1)), b"nothing of the kind")
    storage.delete([log_key(1)])
    assert "log entry 1 of" in call(capsys, "verify", url)[1]["problem"]
