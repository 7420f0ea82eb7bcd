"""In and out again: what stock Spark had is what it gets."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

import pytest

from spark_ckpt.cli.main import run
from spark_ckpt.state.changelogs import unpacked
from spark_ckpt.stock.changelog_forms import read_lineage
from spark_ckpt.stock.importing import import_checkpoint
from spark_ckpt.storage import open_storage
from tests.drivers.stock_location import StockLocation


def read(folder: Path, codec: str) -> dict[str, object]:
    """Every file below it: of documents what they say, of changelogs what is packed in them."""
    found: dict[str, object] = {}
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        name, content = str(path.relative_to(folder)), path.read_bytes()
        if path.suffix == ".changelog":
            found[name] = b"".join(unpacked(BytesIO(content), name, codec))
        elif name == "metadata" or name.startswith(("commits/", "offsets/")):
            found[name] = [json.loads(line) if line.startswith(b"{") else line for line in content.splitlines()]
        else:
            found[name] = content
    return found


@pytest.mark.parametrize("codec", ["lz4", "zstd", "snappy"])
@pytest.mark.parametrize("form", [1, 2])
@pytest.mark.parametrize("begun", [False, True], ids=["", "begun"])
def test_what_was_imported_is_exported_as_it_was(form: int, codec: str, begun: bool, tmp_path: Path) -> None:
    """Less what the newest batch does not need: older batches, and changelogs below the newest full snapshot."""
    at = StockLocation(tmp_path / "stock", form=form, codec=codec, stores=("default", "other")).begin()
    for batch in range(4):
        at.batch(batch, full=batch == 2)
    if begun:
        at.plan(4)
    import_checkpoint(open_storage(f"file://{at.folder}"), open_storage(f"file://{tmp_path}/saved"))
    assert run(["export", str(tmp_path / "saved"), str(tmp_path / "out")]) == 0
    before, after = read(at.folder, codec), read(tmp_path / "out", codec)
    assert {name: content for name, content in before.items() if name in after} == after
    left = {name for name in before if name not in after}
    assert left == {
        *(f"{folder}/{batch}" for folder in ("offsets", "commits") for batch in (0, 1)),
        *(f"state/0/{p}/{store}{version}.changelog" for p in (0, 1) for store in ("", "other/") for version in (1, 2, 3)),
    }


@pytest.mark.parametrize("form", [1, 2])
def test_ids_that_an_import_has_made_up_name_what_an_export_writes(form: int, tmp_path: Path) -> None:
    """In format 2: each file's version and id, the ids that the commit names, and what a changelog builds on."""
    at = StockLocation(tmp_path / "stock", form=form, stores=("default", "other")).begin()
    for batch in range(4):
        at.batch(batch, full=batch == 2)
    import_checkpoint(open_storage(f"file://{at.folder}"), open_storage(f"file://{tmp_path}/saved"))
    out = tmp_path / "out"
    assert run(["export", str(tmp_path / "saved"), str(out), "--checkpoint-format", "2"]) == 0
    ids = json.loads((out / "commits" / "3").read_bytes().split(b"\n")[1])["stateUniqueIds"]["0"]
    for partition, of_stores in enumerate(ids):
        for store, uid in zip(("", "other"), of_stores, strict=True):
            folder = out / "state" / "0" / str(partition) / store
            newest = folder / f"4_{uid}.changelog"
            ((version, built_on),) = read_lineage(newest, newest.name, "lz4")
            assert (version, (folder / f"{version}_{built_on}.zip").exists()) == (3, True)


@pytest.mark.parametrize("codec", ["lz4", "zstd", "snappy"])
def test_what_was_imported_is_exported_in_its_own_format(codec: str, tmp_path: Path) -> None:
    at = StockLocation(tmp_path / "stock", form=2, format=2, codec=codec, stores=("default", "other")).begin()
    for batch in range(4):
        at.batch(batch, full=batch == 2)
    import_checkpoint(open_storage(f"file://{at.folder}"), open_storage(f"file://{tmp_path}/saved"))
    assert run(["export", str(tmp_path / "saved"), str(tmp_path / "out"), "--checkpoint-format", "2"]) == 0
    before, after = read(at.folder, codec), read(tmp_path / "out", codec)
    assert {name: content for name, content in before.items() if name in after} == after
    newest = {name.rsplit("/", 1)[1] for name in after if name.endswith((".zip", ".changelog"))}
    assert {name.split("_")[0] for name in newest} == {"3", "4"}
    assert all("_" in name for name in newest)


@pytest.mark.parametrize("number", [1, 2])
def test_what_a_commit_says_of_sinks_goes_in_and_out(number: int, tmp_path: Path) -> None:
    """The form v3, of a query with `queryEvolution.enableSinkEvolution`; in format 1 it has no unique ids."""
    at = StockLocation(tmp_path / "stock", format=number).begin()
    sinks = {"sinkMetadataMap": {"out": {"active": True}}}
    for batch in range(3):
        at.batch(batch)
        said = json.loads((at.folder / f"commits/{batch}").read_bytes().split(b"\n")[1])
        at.write(f"commits/{batch}", b"v3\n" + json.dumps({**said, **sinks}).encode())
    made = import_checkpoint(open_storage(f"file://{at.folder}"), open_storage(f"file://{tmp_path}/saved"))
    version, _, body = (made.file("commits/2") or b"").partition(b"\n")
    commit = json.loads(body)
    assert (version, commit["sinkMetadataMap"]) == (b"v3", sinks["sinkMetadataMap"])
    assert commit["stateUniqueIds"] == {"0": [[s.uid] for s in made.snapshots]}
    assert run(["export", str(tmp_path / "saved"), str(tmp_path / "out")]) == 0
    assert read(tmp_path / "out", "lz4")["commits/2"] == [b"v3", {"nextBatchWatermarkMs": 3000, **sinks}]
