"""What compiled classes ask of others, read from their constant pools (Java Virtual Machine Specification, chapter 4)."""

from __future__ import annotations

import struct
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_UTF8, _CLASS, _NAME_AND_TYPE = 1, 7, 12
_MEMBERS = (9, 10, 11)
_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
_WIDE = (5, 6)
_PRIVATE_OR_STATIC = 0x0002 | 0x0008
_OTHERS = ("java/", "javax/crypto/", "javax/management/", "javax/net/", "jdk/", "scala/")
"""Packages of Java and of Scala, which promise to keep what they have."""


@dataclass
class ClassFile:
    name: str
    supers: tuple[str, ...]
    """Superclass and interfaces."""
    declared: set[tuple[str, str]]
    """Name and descriptor of its fields and methods."""
    virtual: set[tuple[str, str]]
    """Of those methods that can override, or be overridden."""
    classes: set[str]
    """Those that it names."""
    members: set[tuple[str, str, str]]
    """Owner, name and descriptor of each field and method that it refers to."""


def read(data: bytes) -> ClassFile:
    """A class file's content."""
    entries: dict[int, tuple[int, bytes]] = {}
    at, number = 10, 1
    (count,) = struct.unpack_from(">H", data, 8)
    while number < count:
        tag = data[at]
        if tag == _UTF8:
            (size,) = struct.unpack_from(">H", data, at + 1)
            entries[number] = (tag, data[at + 3 : at + 3 + size])
            at += 3 + size
        else:
            entries[number] = (tag, data[at + 1 : at + 1 + _SIZES[tag]])
            at += 1 + _SIZES[tag]
        number += 2 if tag in _WIDE else 1

    def text(index: int) -> str:
        return entries[index][1].decode("utf-8", "surrogatepass")

    def name(index: int) -> str:
        return text(*struct.unpack(">H", entries[index][1]))

    def member(content: bytes) -> tuple[str, str, str]:
        owner, what = struct.unpack(">HH", content)
        called, described = struct.unpack(">HH", entries[what][1])
        return name(owner), text(called), text(described)

    _, this, parent, implemented = struct.unpack_from(">HHHH", data, at)
    supers = [parent, *struct.unpack_from(f">{implemented}H", data, at + 8)]
    at += 8 + 2 * implemented
    declared, virtual = set(), set()
    for kind in ("fields", "methods"):
        (count,) = struct.unpack_from(">H", data, at)
        at += 2
        for _ in range(count):
            access, called, described, attributes = struct.unpack_from(">HHHH", data, at)
            at += 8
            for _ in range(attributes):
                at += 6 + struct.unpack_from(">I", data, at + 2)[0]
            declared.add((text(called), text(described)))
            if kind == "methods" and not access & _PRIVATE_OR_STATIC and not text(called).startswith("<"):
                virtual.add((text(called), text(described)))
    return ClassFile(
        name(this),
        tuple(name(index) for index in supers if index),
        declared,
        virtual,
        {name(index) for index, (tag, _) in entries.items() if tag == _CLASS},
        {member(content) for tag, content in entries.values() if tag in _MEMBERS},
    )


class Jars:
    """Classes of other people's JARs, by name."""

    def __init__(self, folder: Path) -> None:
        self._archives = [zipfile.ZipFile(path) for path in sorted(folder.glob("*.jar"))]
        self._at = {entry: archive for archive in self._archives for entry in archive.namelist() if entry.endswith(".class")}
        self._read: dict[str, ClassFile | None] = {}

    def __enter__(self) -> Jars:
        return self

    def __exit__(self, *_: object) -> None:
        for archive in self._archives:
            archive.close()

    def get(self, name: str) -> ClassFile | None:
        if name not in self._read:
            archive = self._at.get(f"{name}.class")
            self._read[name] = read(archive.read(f"{name}.class")) if archive is not None else None
        return self._read[name]


def links(compiled: list[bytes], jars: Jars) -> Mapping[str, set[tuple[str, str]]]:
    """By class: the members that the compiled classes call, read or override there. Classes of Java and Scala are left out.

    An override counts, since one that overrides nothing any more is never called, and nobody would hear of it.
    """
    own = {found.name: found for found in map(read, compiled)}
    wanted: dict[str, set[tuple[str, str]]] = defaultdict(set)

    def is_others(name: str) -> bool:
        return name not in own and not name.startswith(("[", *_OTHERS))

    for found in own.values():
        for name in filter(is_others, found.classes):
            wanted[name] |= set()
        for owner, called, described in found.members:
            if is_others(owner):
                wanted[owner].add((called, described))
            elif owner in own and (inherited := _inherited(own[owner], (called, described), own, jars)):
                wanted[inherited].add((called, described))
        for above in _above(found, own, jars):
            if above.name not in own and (overridden := found.virtual & above.virtual):
                wanted[above.name] |= overridden
    return wanted


def _inherited(found: ClassFile, member: tuple[str, str], own: Mapping[str, ClassFile], jars: Jars) -> str | None:
    """The class of others that has it, if the compiled class has it from there."""
    if member in found.declared:
        return None
    holder = next((above for above in _above(found, own, jars) if member in above.declared), None)
    return holder.name if holder is not None and holder.name not in own else None


def _above(found: ClassFile, own: Mapping[str, ClassFile], jars: Jars) -> Iterator[ClassFile]:
    """Every class and interface above a compiled one but those of Java and Scala, the nearer first."""
    waiting, seen = list(found.supers), set[str]()
    while waiting:
        name = waiting.pop(0)
        above = None if name in seen or name.startswith(_OTHERS) else own.get(name) or jars.get(name)
        seen.add(name)
        if above is not None:
            waiting += above.supers
            yield above


def listing(wanted: Mapping[str, set[tuple[str, str]]]) -> str:
    """As the JAR has it: a line for a class, then one that begins with a blank for each member."""
    lines = []
    for name in sorted(wanted):
        lines += [name, *(f" {called} {described}" for called, described in sorted(wanted[name]))]
    return "\n".join(lines) + "\n"
