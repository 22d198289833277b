"""The schemas of Kafka's messages in ``proto/kafka``: JSON with comments, one file per message.

What the keys mean is described in Kafka's ``clients/src/main/resources/common/message/README.md``.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

#: The digests of all schemas, as sha256sum writes them.
SUMS = "SHA256SUMS"
_NO_END = 1 << 15


class SchemaError(Exception):
    """A schema has something that is not understood here."""


class Versions(NamedTuple):
    """Versions of a message, both ends included; none where the lowest is above the highest."""

    lowest: int
    highest: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """``4-11``, ``4+``, ``4`` or ``none``, as schemas say it."""
        if text == "none":
            return cls(_NO_END, -1)
        match = re.fullmatch(r"(\d+)(?:(\+)|-(\d+))?", text)
        if match is None:
            raise SchemaError(f"versions {text!r}")
        lowest = int(match[1])
        return cls(lowest, _NO_END if match[2] else int(match[3] or lowest))

    def __and__(self, other: Versions) -> Versions:
        return Versions(max(self.lowest, other.lowest), min(self.highest, other.highest))

    def __bool__(self) -> bool:
        return self.lowest <= self.highest

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.lowest, self.highest + 1))

    def has(self, version: int) -> bool:
        """True if a version is in the range."""
        return self.lowest <= version <= self.highest


class Fixed(NamedTuple):
    """A type of always the same size.

    Arguments:
        form: in the language of :mod:`struct`.
        letter: of it in the names of constants.
        python: its type here.
    """

    form: str
    size: int
    letter: str
    python: str


FIXED = {
    "bool": Fixed("?", 1, "T", "bool"),
    "int8": Fixed("b", 1, "B", "int"),
    "int16": Fixed("h", 2, "H", "int"),
    "uint16": Fixed("H", 2, "W", "int"),
    "int32": Fixed("i", 4, "I", "int"),
    "int64": Fixed("q", 8, "Q", "int"),
    "float64": Fixed("d", 8, "D", "float"),
    "uuid": Fixed("16s", 16, "U", "bytes"),
}
#: Types with a length before them -> their type here, and the bytes of that length where it is not a varint.
LONG = {"string": ("str", 2), "bytes": ("bytes", 4), "records": ("Buffer", 4)}
#: Arrays of elements that are not structures.
ARRAYS = {"string": "str", "int8": "int", "int32": "int", "int64": "int"}


@dataclass(slots=True)
class Field:
    """A field of a structure.

    Arguments:
        kind: its type as the schema has it, without the brackets of an array.
        versions, nullable, tagged: in which versions it exists, may be null, and is a tagged field.
        default: as the schema has it, in small letters.
        structure: where ``kind`` is the name of one.
    """

    name: str
    kind: str
    is_array: bool
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    default: str
    structure: Structure | None = None

    @property
    def is_fixed(self) -> bool:
        return self.kind in FIXED and not self.is_array

    @property
    def is_nullable(self) -> bool:
        """True if it is None in some version, or where it is omitted."""
        return bool(self.nullable & self.versions) or self.kind == "records" or self.is_lone_structure

    @property
    def is_lone_structure(self) -> bool:
        return self.structure is not None and not self.is_array

    @property
    def is_null_by_byte(self) -> bool:
        """True if it is a structure that may be null: a byte before it says so."""
        return self.is_lone_structure and bool(self.nullable & self.versions)

    def in_body(self, version: int) -> bool:
        """True if it is one of the fields that are always sent."""
        return self.versions.has(version) and not self.tagged.has(version)

    def smallest_bytes(self, compact: bool) -> int:
        """Fewest bytes that it takes."""
        if self.is_fixed:
            return FIXED[self.kind].size
        if self.structure is not None and not self.is_array:
            return 1 if self.is_null_by_byte else self.structure.smallest_bytes()
        if compact:
            return 1
        return 4 if self.is_array else LONG[self.kind][1]


@dataclass(slots=True)
class Structure:
    """A structure, or a whole message.

    Arguments:
        versions: of the message, those in which the structure occurs.
        flexible: versions of the message with compact lengths and tagged fields.
        holder: the field that it is the type of, the first where there are several; None for a message.
    """

    name: str
    versions: Versions
    flexible: Versions
    fields: list[Field]
    holder: Field | None = None
    api_key: int = -1
    tagged: list[Field] = field(init=False)

    def __post_init__(self) -> None:
        self.fields = [each for each in self.fields if each.versions & self.versions]
        self.tagged = sorted((each for each in self.fields if each.tagged & self.versions), key=lambda each: each.tag)

    def inner(self) -> list[Structure]:
        """The structures in it, outer ones first, each once."""
        found: dict[int, Structure] = {}
        for each in self.fields:
            if each.structure is not None:
                found |= {id(one): one for one in (each.structure, *each.structure.inner())}
        return [*found.values()]

    def smallest_bytes(self) -> int:
        """Fewest bytes that it takes in any version."""
        return min(
            sum(each.smallest_bytes(self.flexible.has(version)) for each in self.fields if each.in_body(version))
            + self.flexible.has(version)
            for version in self.versions
        )

    def steps(self) -> Iterator[list[Field]]:
        """Fields of the body in their order: one of variable size alone, neighbours of fixed size together."""
        run: list[Field] = []
        for each in self.fields:
            if not any(each.in_body(version) for version in self.versions):
                continue
            if each.is_fixed:
                run.append(each)
                continue
            if run:
                yield run
            run = []
            yield [each]
        if run:
            yield run

    def layouts(self, run: list[Field]) -> list[tuple[int, list[Field]]]:
        """Returns the fields of a run by the version that introduced them, newest first."""
        found: list[tuple[int, list[Field]]] = []
        for version in self.versions:
            present = [each for each in run if each.in_body(version)]
            if not found or found[-1][1] != present:
                found.append((version, present))
        return found[::-1]


def snake(name: str) -> str:
    """``LastFetchedEpoch`` as Python has it: ``last_fetched_epoch``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[0].upper() + name[1:]).lower()


class _Within(NamedTuple):
    """The message that is read.

    Arguments:
        common: fields, as the schema has them, of structures that may occur in several places, by name.
        made: those of them that have been met.
    """

    message: str
    flexible: Versions
    common: dict[str, Any]
    made: dict[str, Structure]


class Schemas:
    """The schemas in a folder.

    Arguments:
        messages: the names of those that are wanted. Structures of one name in two of them get the message's name
            before theirs.
        renamed: names of Kafka -> names here.
    """

    def __init__(self, folder: Path, messages: Iterable[str], renamed: dict[str, str]) -> None:
        self._schemas = {name: _load(folder, name) for name in messages}
        self._renamed = renamed
        names = [name for schema in self._schemas.values() for name in {*_structure_names(schema)}]
        self._shared = {name for name in names if names.count(name) > 1}

    def message(self, name: str, written: tuple[int, int]) -> Structure:
        """A message.

        Arguments:
            written: its lowest and highest version that are wanted.

        Raises:
            SchemaError: it has something that is not understood, or not all of the versions.
        """
        schema = self._schemas[name]
        versions = Versions(*written)
        if versions & Versions.parse(schema["validVersions"]) != versions:
            raise SchemaError(f"{name} has versions {schema['validVersions']}, not {written}")
        flexible = Versions.parse(schema["flexibleVersions"])
        common = {each["name"]: each["fields"] for each in schema.get("commonStructs", ())}
        within = _Within(name, flexible, common, {})
        fields = [self._field(within, each, versions) for each in schema["fields"]]
        made = Structure(self._renamed.get(name, name), versions, flexible, fields, api_key=schema["apiKey"])
        inner = [each.name for each in made.inner()]
        if len({*inner}) != len(inner):
            raise SchemaError(f"{name} has two structures of one name")
        return made

    def _field(self, of: _Within, schema: Any, versions: Versions) -> Field:
        kind = schema["type"].removeprefix("[]")
        place = f"{of.message}.{schema['name']}"
        made = Field(
            name=snake(schema["name"]),
            kind=kind,
            is_array=schema["type"].startswith("[]"),
            versions=Versions.parse(schema["versions"]),
            nullable=Versions.parse(schema.get("nullableVersions", "none")),
            tagged=Versions.parse(schema.get("taggedVersions", "none")),
            tag=schema.get("tag", -1),
            default=str(schema.get("default", "")).lower(),
        )
        within = made.versions & versions
        if "flexibleVersions" in schema:
            raise SchemaError(f"{place} is flexible in versions of its own")
        if made.tagged & within and made.tagged & within != within:
            raise SchemaError(f"{place} is a tagged field in some of its versions only")
        inner = schema.get("fields", of.common.get(kind))
        if inner is not None:
            if not made.is_array and made.nullable & made.tagged & within:
                raise SchemaError(f"{place} is a structure in a tagged field that may be null")
            made.structure = self._structure(of, made, inner, within, place)
        elif kind not in (ARRAYS if made.is_array else FIXED | LONG):
            raise SchemaError(f"{place} has the type {schema['type']}")
        return made

    def _structure(self, of: _Within, holder: Field, fields: Any, versions: Versions, place: str) -> Structure:
        """The structure that is a field's type. A common one is made once, so its places have to be alike."""
        known = of.made.get(holder.kind) if holder.kind in of.common else None
        if known is not None and versions:
            assert known.holder is not None
            if (known.versions, known.holder.is_array) != (versions, holder.is_array):
                raise SchemaError(f"{place} has another place for {holder.kind} than {known.holder.name}")
            if holder.nullable != known.holder.nullable:
                raise SchemaError(f"{place} may be null in other versions than {known.holder.name}")
            return known
        name = of.message + holder.kind if holder.kind in self._shared else holder.kind
        inner = [self._field(of, each, versions) for each in fields]
        made = Structure(self._renamed.get(name, name), versions, of.flexible, inner, holder=holder)
        if holder.kind in of.common and versions:
            of.made[holder.kind] = made
        return made


def extract(jar: Path, folder: Path) -> None:
    """Replaces all schemas in a folder with those in the jar of Kafka's clients, and writes their digests."""
    with zipfile.ZipFile(jar) as archive:
        schemas = [name for name in archive.namelist() if PurePosixPath(name).match("common/message/*.json")]
        found = {PurePosixPath(name).name: archive.read(name) for name in schemas}
    for schema in folder.glob("*.json"):
        schema.unlink()
    for name, content in found.items():
        (folder / name).write_bytes(content)
    sums = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(found.items())]
    (folder / SUMS).write_text("".join(sums))


def _load(folder: Path, name: str) -> Any:
    path = folder / f"{name}.json"
    if not path.exists():
        raise SchemaError(f"{path} does not exist: use the name of an API that has a schema there")
    return json.loads(re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.M))


def _structure_names(schema: Any) -> Iterator[str]:
    for each in schema.get("commonStructs", ()):
        yield each["name"]
        yield from _structure_names(each)
    for each in schema["fields"]:
        if "fields" in each:
            yield each["type"].removeprefix("[]")
            yield from _structure_names(each)
