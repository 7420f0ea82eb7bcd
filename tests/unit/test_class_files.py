"""jvm_shim/class_files.py, on classes written by hand: what compiled classes ask of those of others."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

from jvm_shim.class_files import Jars, links, listing, read


class Pool:
    """A constant pool that is filled while a class is written."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []

    def _add(self, entry: bytes) -> int:
        if entry not in self.entries:
            self.entries.append(entry)
        return self.entries.index(entry) + 1

    def text(self, value: str) -> int:
        return self._add(b"\x01" + struct.pack(">H", len(value.encode())) + value.encode())

    def name(self, value: str) -> int:
        return self._add(b"\x07" + struct.pack(">H", self.text(value)))

    def member(self, owner: str, name: str, descriptor: str, tag: int = 10) -> None:
        what = self._add(b"\x0c" + struct.pack(">HH", self.text(name), self.text(descriptor)))
        self._add(bytes([tag]) + struct.pack(">HH", self.name(owner), what))


def a_class(
    name: str,
    above: tuple[str, ...] = ("java/lang/Object",),
    methods: tuple[tuple[str, str, int], ...] = (),
    calls: tuple[tuple[str, str, str], ...] = (),
) -> bytes:
    pool = Pool()
    this, (parent, *implemented) = pool.name(name), [pool.name(n) for n in above]
    for call in calls:
        pool.member(*call)
    written = [struct.pack(">HHHH", access, pool.text(called), pool.text(described), 0) for called, described, access in methods]
    body = struct.pack(">HHHH", 1, this, parent, len(implemented)) + struct.pack(f">{len(implemented)}H", *implemented)
    body += struct.pack(">HH", 0, len(written)) + b"".join(written) + struct.pack(">H", 0)
    return struct.pack(">IHHH", 0xCAFEBABE, 0, 61, len(pool.entries) + 1) + b"".join(pool.entries) + body


def jars_with(folder: Path, **classes: bytes) -> Jars:
    with zipfile.ZipFile(folder / "others.jar", "w") as jar:
        for content in classes.values():
            jar.writestr(f"{read(content).name}.class", content)
    return Jars(folder)


def test_a_class_as_it_was_written() -> None:
    found = read(a_class("a/B", ("a/C", "a/D"), (("x", "()V", 1), ("y", "()I", 2), ("<init>", "()V", 1)), (("o/Other", "call", "(J)V"),)))
    assert (found.name, found.supers) == ("a/B", ("a/C", "a/D"))
    assert found.declared == {("x", "()V"), ("y", "()I"), ("<init>", "()V")}
    assert found.virtual == {("x", "()V")}
    assert found.members == {("o/Other", "call", "(J)V")}
    assert found.classes == {"a/B", "a/C", "a/D", "o/Other"}


def test_calls_of_others_and_no_calls_of_java_scala_or_its_own(tmp_path: Path) -> None:
    calls = (("o/Other", "call", "()V"), ("java/lang/String", "length", "()I"), ("scala/Option", "get", "()V"), ("a/Own", "x", "()V"))
    own = [a_class("a/B", calls=calls), a_class("a/Own", methods=(("x", "()V", 1),))]
    with jars_with(tmp_path) as jars:
        assert links(own, jars) == {"o/Other": {("call", "()V")}}


def test_what_is_overridden_counts_and_what_is_inherited_is_looked_for_where_it_is(tmp_path: Path) -> None:
    base = a_class("o/Base", methods=(("commit", "(Z)V", 1), ("kept", "()V", 1), ("hidden", "()V", 2)))
    above = a_class("o/Above", ("o/Base",))
    methods = (("commit", "(Z)V", 1), ("commit", "()V", 1), ("hidden", "()V", 1), ("new", "()V", 1))
    own = [a_class("a/Engine", ("o/Above",), methods), a_class("a/User", calls=(("a/Engine", "kept", "()V"), ("a/Engine", "new", "()V")))]
    with jars_with(tmp_path, base=base, above=above) as jars:
        found = links(own, jars)
    assert found == {"o/Above": set(), "o/Base": {("commit", "(Z)V"), ("kept", "()V")}}
    assert listing(found) == "o/Above\no/Base\n commit (Z)V\n kept ()V\n"
