"""Many objects of one folder are looked for in few requests, and each of them is told as it is."""

from __future__ import annotations

from spark_ckpt.model import Handle, HandleKind
from spark_ckpt.paths import segment_key
from spark_ckpt.storage import open_storage
from spark_ckpt.storage.base import PAGE
from spark_ckpt.storage.memory import MemoryStorage
from spark_ckpt.stored.presence import absent, sizes


def filled(tmp: str, count: int, others: int = 0) -> tuple[MemoryStorage, list[str]]:
    storage = open_storage(f"memory://{tmp}/presence")
    assert isinstance(storage, MemoryStorage)
    names = [segment_key(3, epoch, "5e") for epoch in range(count)]
    for name in names:
        storage.put(name, b"12345")
    for epoch in range(others):
        storage.put(segment_key(3, epoch, "00"), b"1")
    return storage, names


def test_many_of_a_folder_are_listed_and_what_is_not_there_is_looked_for(request: object) -> None:
    storage, names = filled(f"{id(request)}-many", 200)
    gone, short = names[17], names[18]
    storage.delete([gone])
    storage.put(short, b"1")
    before = storage.requests.copy()
    assert dict(sizes(storage, names)) == {**dict.fromkeys(names, 5), gone: None, short: 1}
    asked = {kind: storage.requests[kind] - before[kind] for kind in ("list", "head", "get")}
    assert asked == {"list": 1, "head": 1, "get": 0}
    wrong = list(absent(storage, [Handle(HandleKind.CHANGELOG, "1_a.changelog", name, 0, 5, 0) for name in names]))
    assert len(wrong) == 2
    assert gone in wrong[0]
    assert "1 bytes of 5" in wrong[1]


def test_few_of_a_folder_are_looked_for_one_by_one(request: object) -> None:
    storage, names = filled(f"{id(request)}-few", 7, others=100)
    before = storage.requests.copy()
    assert dict(sizes(storage, names)) == dict.fromkeys(names, 5)
    assert {kind: storage.requests[kind] - before[kind] for kind in ("list", "head")} == {"list": 0, "head": 7}


def test_a_folder_that_is_full_of_others_is_listed_no_further_than_it_pays(request: object) -> None:
    storage, names = filled(f"{id(request)}-full", 16, others=4 * PAGE)
    before = storage.requests.copy()
    assert dict(sizes(storage, names)) == dict.fromkeys(names, 5)
    asked = {kind: storage.requests[kind] - before[kind] for kind in ("list", "head")}
    assert asked["list"] <= 2
    assert asked["head"] <= 16
