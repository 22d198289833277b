"""Modules of Kafka's messages as Python's source: classes, what reads them and what writes them.

Every structure has a function that reads all of an array at once: a call for each element would take time. Neighbours
of fixed size are one call of :mod:`struct`, another for each set of versions in which they differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafka_schemas import FIXED, LONG, Field, Structure, Versions

#: Whose schemas these are.
KAFKA = "4.3.1"
#: The version from which an API is flexible that is so in none: above all.
NEVER = 1 << 15

PREFACE = '''"""Kafka's messages: {about}.

Written by tools/kafka_codec.py after the message schemas of Apache Kafka {kafka} (Apache-2.0, see NOTICE): change that.
"""

from __future__ import annotations
'''


class Source:
    """A module as it is written: lines, and what must be above them.

    Arguments:
        about: for its docstring.
    """

    def __init__(self, about: str) -> None:
        self._about = about
        self._lines: list[str] = []
        self._indent = 0
        self._forms: dict[str, str] = {}
        self._primitives: set[str] = set()
        self._library: set[str] = {"from dataclasses import dataclass", "from typing import ClassVar"}

    def line(self, text: str = "") -> None:
        """One line, as far in as it has to be."""
        self._lines.append("    " * self._indent + text if text else "")

    @contextmanager
    def block(self, text: str) -> Iterator[None]:
        """A line that ends with a colon, and what belongs to it. Without text, what belongs to the line before."""
        if text:
            self.line(text)
            self._indent += 1
        yield
        if text:
            self._indent -= 1

    def primitive(self, name: str) -> str:
        """A name of ``primitives``, which is imported then."""
        self._primitives.add(name)
        return name

    def typed(self, python: str) -> str:
        """A type, for which all is imported that it needs."""
        if "Sequence" in python:
            self._library.add("from collections.abc import Sequence")
        if "Buffer" in python:
            self.primitive("Buffer")
        return python

    def form(self, fields: list[Field]) -> str:
        """The constant for a run of fields of fixed size."""
        kinds = [FIXED[each.kind] for each in fields]
        name = "_" + "".join(each.letter for each in kinds)
        self._forms[name] = ">" + "".join(each.form for each in kinds)
        self._library.add("from struct import Struct")
        return name

    def text(self) -> str:
        """The whole module."""
        primitives = sorted(self._primitives, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
        return "\n".join(
            [
                PREFACE.format(about=self._about, kafka=KAFKA),
                *sorted(self._library),
                "",
                f"from quorumlog.server.kafka.codec.primitives import {', '.join(primitives)}",
                "",
                *(f'{name} = Struct("{form}")' for name, form in sorted(self._forms.items())),
                *self._lines,
                "",
            ]
        )


def condition(of: Versions, within: Versions) -> str:
    """Returns the condition on ``version`` for a subset of the possible versions; empty if all of them qualify."""
    inner = of & within
    if not inner:
        return "False"
    if inner == within:
        return ""
    if inner.lowest == inner.highest:
        return f"version == {inner.lowest}"
    if inner.lowest == within.lowest:
        return f"version <= {inner.highest}"
    if inner.highest == within.highest:
        return f"version >= {inner.lowest}"
    return f"{inner.lowest} <= version <= {inner.highest}"


def python_type(of: Field) -> str:
    """A field's type here."""
    if of.structure is not None:
        inner = of.structure.name
    else:
        inner = FIXED[of.kind].python if of.kind in FIXED else LONG[of.kind][0]
    inner = f"Sequence[{inner}]" if of.is_array else inner
    return f"{inner} | None" if of.is_nullable else inner


def default_of(of: Field) -> str:
    """A field's default, as Python."""
    if of.default == "null" or of.is_lone_structure or of.kind == "records":
        return "None"
    if of.is_array:
        return "()"
    if of.kind == "uuid":
        return "NO_UUID"
    if of.kind == "bool":
        return str(of.default == "true")
    if of.kind == "float64":
        return str(float(of.default or "0"))
    if of.kind in FIXED:
        return str(int(of.default or "0", 0))
    return f'b"{of.default}"' if of.kind == "bytes" else f'"{of.default}"'


class MessageWriter:
    """Writes one message into a module: its classes, what reads them and what writes them."""

    def __init__(self, source: Source, message: Structure) -> None:
        self._source = source
        self._in_tags = False
        self._write_class(message)
        for each in message.inner():
            self._write_class(each)
        for each in message.inner():
            self._write_reader(each)
            self._write_writer(each)

    def _write_class(self, of: Structure) -> None:
        source, versions = self._source, of.versions
        source.line("@dataclass(slots=True)")
        with source.block(f"class {of.name}:"):
            kind = f"API {of.api_key}" if of.holder is None else f"``{of.holder.name}``"
            span = f"versions {versions.lowest} to {versions.highest}"
            if versions.lowest == versions.highest:
                span = f"version {versions.lowest}"
            source.line(f'"""{kind}, {span}."""')
            source.line()
            if of.holder is None:
                source.line(f"API_KEY: ClassVar[int] = {of.api_key}")
                source.line(f"LOWEST: ClassVar[int] = {versions.lowest}")
                source.line(f"HIGHEST: ClassVar[int] = {versions.highest}")
                source.line(f"FLEXIBLE_FROM: ClassVar[int] = {of.flexible.lowest if of.flexible else NEVER}")
                source.line()
            for each in of.fields:
                source.line(f"{each.name}: {source.typed(python_type(each))} = {self._default(each)}{note(each, of)}")
            if of.holder is None:
                self._write_methods(of)

    def _default(self, of: Field) -> str:
        found = default_of(of)
        return self._source.primitive(found) if found == "NO_UUID" else found

    def _write_methods(self, of: Structure) -> None:
        source = self._source
        source.line()
        source.line("@classmethod")
        result = f"tuple[{of.name}, int, int]"
        with source.block(f"def read(cls, data: bytes, at: int, version: int, left: int) -> {result}:"):
            source.line('"""See ``primitives.KafkaMessage``."""')
            self._set_compact(of)
            source.line(f"each = {source.primitive('new')}(cls)")
            self._read_fields(of)
            source.line("return each, at, left")
        source.line()
        with source.block(f"def write(self, parts: list[{source.primitive('Buffer')}], version: int) -> None:"):
            source.line('"""See ``primitives.KafkaMessage``."""')
            self._set_compact(of)
            self._write_fields(of, "self")

    def _set_compact(self, of: Structure) -> None:
        if of.flexible & of.versions and condition(of.flexible, of.versions):
            self._source.line(f"compact = {condition(of.flexible, of.versions)}")

    def _either(self, of: Structure, verb: str, kind: str, arguments: str) -> str:
        """A call of one of two primitives: that of flexible versions, or that of those before."""
        plain, compact = f"{verb}_{kind}", f"{verb}_compact_{kind}"
        if not of.flexible & of.versions:
            return f"{self._source.primitive(plain)}({arguments})"
        newer = f"{self._source.primitive(compact)}({arguments})"
        if self._in_tags or not condition(of.flexible, of.versions):
            return newer
        return f"{newer} if compact else {self._source.primitive(plain)}({arguments})"

    # What reads.

    def _write_reader(self, of: Structure) -> None:
        source, holder = self._source, of.holder
        assert holder is not None
        nullable = condition(holder.nullable, of.versions)
        result = f"list[{of.name}]" if holder.is_array else of.name
        result += "" if nullable == "False" else " | None"
        with source.block(
            f"def {reader_name(of)}(data: bytes, at: int, version: int, left: int) -> tuple[{result}, int, int]:"
        ):
            self._set_compact(of)
            if not holder.is_array:
                self._read_null_by_byte(of, nullable)
                source.line(f"each = {source.primitive('new')}({of.name})")
                self._read_fields(of)
                source.line("return each, at, left")
                return
            arguments = f"data, at, {of.smallest_bytes()}, left"
            self._by_nullability(of, holder, "elements, at, left", "array", arguments)
            if nullable != "False":
                with source.block("if elements < 0:"):
                    source.line("return None, at, left")
            source.line("found = []")
            with source.block("for _ in range(elements):"):
                source.line(f"each = {source.primitive('new')}({of.name})")
                self._read_fields(of)
                source.line("found.append(each)")
            source.line("return found, at, left")

    def _read_null_by_byte(self, of: Structure, nullable: str) -> None:
        """The byte before a structure that may be null: below 0 where it is."""
        source = self._source
        if nullable == "False":
            return
        with source.block(f"if {nullable}:" if nullable else ""):
            source.line(f"is_there, at = {source.primitive('unpack_presence')}(data, at)")
            with source.block("if not is_there:"):
                source.line("return None, at, left")

    def _read_fields(self, of: Structure) -> None:
        for step in of.steps():
            if step[0].is_fixed:
                self._read_run(of, step)
            else:
                self._read_long(of, step[0])
        self._read_tags(of)

    def _read_run(self, of: Structure, run: list[Field]) -> None:
        """Fields of fixed size."""
        source, layouts = self._source, of.layouts(run)
        for number, (version, present) in enumerate(layouts):
            word = "if" if number == 0 else "elif"
            if len(layouts) == 1:
                head = ""
            elif number == len(layouts) - 1:
                head = "else:"
            else:
                head = f"{word} version >= {version}:"
            with source.block(head):
                if present:
                    names = ", ".join(f"each.{each.name}" for each in present)
                    names = f"({names},)" if len(present) == 1 else names
                    source.line(f"{names} = {source.form(present)}.unpack_from(data, at)")
                    source.line(f"at += {sum(FIXED[each.kind].size for each in present)}")
                for each in run:
                    if each not in present:
                        source.line(f"each.{each.name} = {self._default(each)}")

    def _read_long(self, of: Structure, each: Field) -> None:
        """A field of changing size."""
        source = self._source
        here = [version for version in of.versions if each.in_body(version)]
        exists = condition(Versions(here[0], here[-1]), of.versions)
        with source.block(f"if {exists}:" if exists else ""):
            self._read_one(of, each)
        if exists:
            with source.block("else:"):
                source.line(f"each.{each.name} = {self._default(each)}")

    def _read_one(self, of: Structure, each: Field, at: str = "at") -> None:
        source = self._source
        if each.structure is not None:
            source.line(f"each.{each.name}, {at}, left = {reader_name(each.structure)}(data, {at}, version, left)")
        elif each.is_array:
            self._by_nullability(of, each, f"each.{each.name}, {at}, left", f"{each.kind}_array", f"data, {at}, left")
        elif each.is_fixed:
            source.line(f"(each.{each.name},) = {source.form([each])}.unpack_from(data, {at})")
            source.line(f"{at} += {FIXED[each.kind].size}")
        else:
            self._by_nullability(of, each, f"each.{each.name}, {at}", each.kind, f"data, {at}")

    def _by_nullability(self, of: Structure, each: Field, names: str, kind: str, arguments: str) -> None:
        """A call of a primitive, of that for what may be null in versions where it may."""
        source = self._source
        nullable = condition(each.nullable, each.versions & of.versions)
        if nullable == "False":
            source.line(f"{names} = {self._either(of, 'unpack', kind, arguments)}")
            return
        with source.block(f"if {nullable}:" if nullable else ""):
            source.line(f"{names} = {self._either(of, 'unpack', f'nullable_{kind}', arguments)}")
        if nullable:
            with source.block("else:"):
                source.line(f"{names} = {self._either(of, 'unpack', kind, arguments)}")

    def _read_tags(self, of: Structure) -> None:
        """The tagged fields at the end. Usually none exist, which takes one byte."""
        source = self._source
        if not of.flexible & of.versions:
            return
        for each in of.tagged:
            source.line(f"each.{each.name} = {self._default(each)}")
        with source.block("if compact:" if condition(of.flexible, of.versions) else ""):
            with source.block("if data[at]:"):
                if of.tagged:
                    self._read_known_tags(of)
                else:
                    source.line(f"at, left = {source.primitive('skip_tags')}(data, at, left)")
            with source.block("else:"):
                source.line("at += 1")

    def _read_known_tags(self, of: Structure) -> None:
        source = self._source
        source.line(f"tagged, at, left = {source.primitive('unpack_tags')}(data, at, left)")
        for each in of.tagged:
            exists = condition(each.tagged, of.flexible & of.versions)
            with source.block(f"if {each.tag} in tagged{f' and {exists}' if exists else ''}:"):
                source.line(f"begin, end = tagged[{each.tag}]")
                self._in_tags = True
                self._read_one(of, each, "begin")
                self._in_tags = False
                source.line(f"{source.primitive('check_end')}(begin, end)")

    # What writes.

    def _write_writer(self, of: Structure) -> None:
        source, holder = self._source, of.holder
        assert holder is not None
        parts = f"parts: list[{source.primitive('Buffer')}]"
        if not holder.is_array:
            self._write_lone_writer(of, holder, parts)
            return
        with source.block(
            f"def {writer_name(of)}({parts}, values: {source.typed(python_type(holder))}, version: int) -> None:"
        ):
            self._set_compact(of)
            if holder.is_nullable:
                nullable = condition(holder.nullable, of.versions)
                with source.block(f"if values is None{f' and {nullable}' if nullable else ''}:"):
                    source.line(f"parts.append({self._either(of, 'pack', 'count', '-1')})")
                    source.line("return")
                if nullable:
                    source.line(f"values = {source.primitive('not_null')}(values)")
            source.line(f"parts.append({self._either(of, 'pack', 'count', 'len(values)')})")
            steps = [*of.steps()]
            if len(steps) == 1 and len(of.layouts(steps[0])) == 1 and steps[0][0].is_fixed and not of.flexible:
                source.line(f"parts.extend({self._packed(steps[0], 'each')} for each in values)")
                return
            with source.block("for each in values:"):
                self._write_fields(of, "each")

    def _write_lone_writer(self, of: Structure, holder: Field, parts: str) -> None:
        source = self._source
        nullable = condition(holder.nullable, of.versions)
        null = "" if nullable == "False" else " | None"
        with source.block(f"def {writer_name(of)}({parts}, each: {of.name}{null}, version: int) -> None:"):
            self._set_compact(of)
            if null:
                with source.block(f"if {nullable}:" if nullable else ""):
                    source.line(f"parts.append({source.primitive('pack_presence')}(each is not None))")
                    with source.block("if each is None:"):
                        source.line("return")
                if nullable:
                    source.line(f"each = {source.primitive('not_null')}(each)")
            self._write_fields(of, "each")

    def _write_fields(self, of: Structure, name: str) -> None:
        for step in of.steps():
            if step[0].is_fixed:
                self._write_run(of, step, name)
            else:
                self._write_long(of, step[0], name)
        self._write_tags(of, name)

    def _write_run(self, of: Structure, run: list[Field], name: str) -> None:
        source, layouts = self._source, of.layouts(run)
        if len(layouts) == 2 and not all(present for _, present in layouts):
            (version, newer), (_, older) = layouts
            with source.block(f"if version >= {version}:" if newer else f"if version < {version}:"):
                source.line(f"parts.append({self._packed(newer or older, name)})")
            return
        for number, (version, present) in enumerate(layouts):
            if len(layouts) == 1:
                head = ""
            elif number == len(layouts) - 1:
                if not present:
                    continue
                head = "else:"
            else:
                head = f"{'if' if number == 0 else 'elif'} version >= {version}:"
            with source.block(head):
                source.line(f"parts.append({self._packed(present, name)})" if present else "pass")

    def _packed(self, run: list[Field], name: str) -> str:
        return f"{self._source.form(run)}.pack({', '.join(f'{name}.{each.name}' for each in run)})"

    def _write_long(self, of: Structure, each: Field, name: str) -> None:
        here = [version for version in of.versions if each.in_body(version)]
        exists = condition(Versions(here[0], here[-1]), of.versions)
        with self._source.block(f"if {exists}:" if exists else ""):
            self._write_one(of, each, f"{name}.{each.name}", "parts")

    def _write_one(self, of: Structure, each: Field, value: str, parts: str) -> None:
        source = self._source
        if each.structure is not None:
            if each.is_lone_structure and not each.is_null_by_byte and not self._in_tags:
                value = f"{source.primitive('not_null')}({value})"
            source.line(f"{writer_name(each.structure)}({parts}, {value}, version)")
            return
        if each.is_fixed:
            source.line(f"{parts}.append({source.form([each])}.pack({value}))")
            return
        kind = f"{each.kind}_array" if each.is_array else each.kind
        if not each.is_nullable:
            self._append(of, kind, value, parts)
            return
        nullable = condition(each.nullable, each.versions & of.versions)
        if nullable == "False":
            self._append(of, kind, f"{source.primitive('not_null')}({value})", parts)
            return
        with source.block(f"if {nullable}:" if nullable else ""):
            self._append(of, f"nullable_{kind}", value, parts)
        if nullable:
            with source.block("else:"):
                self._append(of, kind, f"{source.primitive('not_null')}({value})", parts)

    def _append(self, of: Structure, kind: str, value: str, parts: str) -> None:
        verb = "extend" if kind.endswith("records") else "append"
        self._source.line(f"{parts}.{verb}({self._either(of, 'pack', kind, value)})")

    def _write_tags(self, of: Structure, name: str) -> None:
        source = self._source
        if not of.flexible & of.versions:
            return
        with source.block("if compact:" if condition(of.flexible, of.versions) else ""):
            if not of.tagged:
                source.line('parts.append(b"\\0")')
                return
            source.line(f"tagged: list[tuple[int, list[{source.primitive('Buffer')}]]] = []")
            for each in of.tagged:
                exists = condition(each.tagged, of.flexible & of.versions)
                value = f"{name}.{each.name}"
                with source.block(f"if {exists + ' and ' if exists else ''}{self._is_said(each, value)}:"):
                    source.line("inner: list[Buffer] = []" if each is of.tagged[0] else "inner = []")
                    self._in_tags = True
                    self._write_one(of, each, value, "inner")
                    self._in_tags = False
                    source.line(f"tagged.append(({each.tag}, inner))")
            source.line(f"parts.append({source.primitive('pack_tags')}(tagged))")

    def _is_said(self, of: Field, value: str) -> str:
        """True if a tagged field differs from its default: only then it is sent."""
        default = self._default(of)
        if default == "None":
            return f"{value} is not None"
        if default in ("()", "False"):
            return value
        return f"{value} != {default}"


def note(of: Field, holder: Structure) -> str:
    """A comment with the versions that have a field, where not all of its holder's do."""
    here = of.versions & holder.versions
    if here == holder.versions:
        return ""
    if here.highest == holder.versions.highest:
        return f"  # from version {here.lowest}"
    if here.lowest == holder.versions.lowest:
        return f"  # to version {here.highest}"
    return f"  # versions {here.lowest} to {here.highest}"


def reader_name(of: Structure) -> str:
    """The function that reads a structure, or an array of it."""
    return f"_read_{function_name(of)}"


def writer_name(of: Structure) -> str:
    """The function that writes a structure, or an array of it."""
    return f"_write_{function_name(of)}"


def function_name(of: Structure) -> str:
    """A structure's name as part of a function's."""
    plural = "s" if of.holder is not None and of.holder.is_array else ""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in of.name)[1:] + plural
