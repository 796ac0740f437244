"""Where the fields of a message are in a struct of the schema, and how they get there and back.

One table, derived from the message classes' own annotations, drives both directions. A task that comes alone passes
four messages through eight of these, so for messages of which many come both directions are compiled: without loops
and tests of what a field is, writing takes half as long, and reading three quarters.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from scaler.common.compiled import compiled
from scaler.common.utf8 import written_out
from scaler.protocol import messages as m

#: messages of a class that are read, or written, before that is compiled, which takes as long as so many save
FEW = 200

#: what a message may have as a field
_PARTS: dict[str, type[m.Part]] = {each.__name__: each for each in (m.Spans, m.Objects)}


class Layout:
    """Of one class, or of some of its fields.

    Fields of the schema are kept as pycapnp's objects: it reads and writes by field four times as fast as by name.
    """

    __slots__ = ("_left_to_read", "_left_to_write", "cls", "columns", "groups", "lists", "parts", "plain", "read",
                 "write")  # fmt: skip

    def __init__(self, cls: type[m.Part]) -> None:
        self.cls = cls
        #: numbers and texts: (name in the class, field)
        self.plain: list[tuple[str, Any]] = []
        #: columns: (name, field, typecode)
        self.columns: list[tuple[str, Any, str]] = []
        #: lists of texts: (name, field)
        self.lists: list[tuple[str, Any]] = []
        #: structs inside a struct, always there: (name, field, its struct)
        self.parts: list[tuple[str, Any, Layout]] = []
        #: structs of fields that are rarely set, absent when none of them is: (field, their names, its struct)
        self.groups: list[tuple[Any, list[str], Layout]] = []
        self._left_to_read = self._left_to_write = FEW
        #: what a struct holds; raises whatever pycapnp and the class do for one that is none of it
        self.read: Callable[[Any], Any] = self._read_one_of_few
        #: sets the fields of a struct
        self.write: Callable[[Any, m.Part], None] = self._write_one_of_few

    def _read_one_of_few(self, struct: Any) -> m.Part:
        self._left_to_read -= 1
        if self._left_to_read <= 0:  # several threads may count
            self.read = _compiled_reader(self)
        return self.cls(**self.values(struct))

    def values(self, struct: Any) -> dict[str, Any]:
        """The fields that a struct holds, by name."""
        get = struct._get_by_field
        found = {name: get(wire) for name, wire in self.plain}
        for name, wire, code in self.columns:
            found[name] = array(code, get(wire))
        for name, wire in self.lists:
            found[name] = tuple(get(wire))
        for name, wire, part in self.parts:
            found[name] = part.read(get(wire))
        for wire, _, group in self.groups:
            if struct._has_by_field(wire):
                found.update(group.values(get(wire)))
        return found

    def _write_one_of_few(self, struct: Any, message: m.Part) -> None:
        self._left_to_write -= 1
        if self._left_to_write <= 0:
            self.write = _compiled_writer(self)
        self.set_values(struct, message)

    def set_values(self, struct: Any, message: m.Part) -> None:
        """Set the fields of a struct, also to texts that are no UTF-8."""
        put = struct._set_by_field
        for name, wire in self.plain:
            value = getattr(message, name)
            if value:
                try:
                    put(wire, value)
                except UnicodeEncodeError:
                    put(wire, written_out(value))
        for name, wire, _ in self.columns:
            value = getattr(message, name)
            if value:
                put(wire, value.tobytes())
        for name, wire in self.lists:
            value = getattr(message, name)
            if value:
                try:
                    put(wire, list(value) if type(value) is tuple else value)
                except UnicodeEncodeError:
                    put(wire, list(map(written_out, value)))
        for name, wire, part in self.parts:
            part.write(struct._init_by_field(wire), getattr(message, name))
        for wire, names, group in self.groups:
            if any(getattr(message, name) for name in names):
                group.set_values(struct._init_by_field(wire), message)


def layout_of(
    cls: type[m.Part], schema: Any, *, names: tuple[str, ...] | None = None, known: Mapping[str, type[m.Part]] = _PARTS
) -> Layout:
    """Where the fields of a class, or those of these names, are in a struct; `known`: what it may have as a field."""
    layout = Layout(cls)
    grouped = {name for group in cls.groups.values() for name in group}
    for item in fields(cls):
        if item.name == "bodies" or (item.name in grouped if names is None else item.name not in names):
            continue
        head, *tail = item.name.split("_")
        wire = schema.fields[head + "".join(part.capitalize() for part in tail)]
        kind = item.type if isinstance(item.type, str) else getattr(item.type, "__name__", str(item.type))
        if kind == "array[int]":
            empty: Any = item.default_factory() if callable(item.default_factory) else item.default
            layout.columns.append((item.name, wire, empty.typecode))
        elif kind.startswith("tuple"):
            layout.lists.append((item.name, wire))
        elif kind in known:
            layout.parts.append((item.name, wire, layout_of(known[kind], wire.schema, known=known)))
        else:
            layout.plain.append((item.name, wire))
    if names is None:
        for group, members in cls.groups.items():
            wire = schema.fields[group]
            layout.groups.append((wire, list(members), layout_of(cls, wire.schema, names=members)))
    return layout


class _Source:
    """Lines of a function, and what the names in them are."""

    def __init__(self, **known: Any) -> None:
        self._known: dict[str, Any] = known
        self.lines: list[str] = []

    def name(self, thing: Any) -> str:
        """A name for something."""
        self._known[name := f"_{len(self._known)}"] = thing
        return name

    def compiled(self, signature: str, of: type) -> Callable[..., Any]:
        """The function."""
        return compiled(signature, self.lines, self._known, f"<{signature} of {of.__qualname__}>")


def _compiled_reader(layout: Layout) -> Callable[[Any], m.Part]:
    """What `Layout.values` does, and the class with that."""
    source = _Source(cls=layout.cls, array=array)
    name, given = source.name, []
    for field, wire in layout.plain:
        given.append(f"{field}=get({name(wire)})")
    for field, wire, code in layout.columns:
        given.append(f"{field}=array({code!r}, get({name(wire)}))")
    for field, wire in layout.lists:
        given.append(f"{field}=tuple(get({name(wire)}))")
    for field, wire, part in layout.parts:
        given.append(f"{field}={name(part)}.read(get({name(wire)}))")
    made, source.lines = f"cls({', '.join(given)})", ["get = struct._get_by_field"]
    if layout.groups:
        source.lines += ["seldom = {}", "has = struct._has_by_field"]
        for wire, _, group in layout.groups:
            at = name(wire)
            source.lines.append(f"if has({at}): seldom.update({name(group)}.values(get({at})))")
        source.lines.append(f"if seldom: return {made[:-1]}, **seldom)")  # which takes longer
    source.lines.append(f"return {made}")
    return source.compiled("read(struct)", layout.cls)


def _compiled_writer(layout: Layout) -> Callable[[Any, m.Part], None]:
    """What `Layout.set_values` does."""
    source = _Source(set_values=layout.set_values)
    name, lines = source.name, ["put = struct._set_by_field"]
    for field, wire in layout.plain:
        lines.append(f"if value := message.{field}: put({name(wire)}, value)")
    for field, wire, _ in layout.columns:
        lines.append(f"if value := message.{field}: put({name(wire)}, value.tobytes())")
    for field, wire in layout.lists:
        lines.append(f"if value := message.{field}: put({name(wire)}, list(value) if type(value) is tuple else value)")
    for field, wire, part in layout.parts:
        lines.append(f"{name(part)}.write(struct._init_by_field({name(wire)}), message.{field})")
    for wire, fields_of, group in layout.groups:
        is_set = " or ".join(f"message.{field}" for field in fields_of)
        lines.append(f"if {is_set}: {name(group)}.set_values(struct._init_by_field({name(wire)}), message)")
    # texts that are no UTF-8 are rare: all is set again, and what was is left in the message
    source.lines = [
        "try:",
        *(f" {line}" for line in lines),
        "except UnicodeEncodeError:",
        " set_values(struct, message)",
    ]
    return source.compiled("write(struct, message)", layout.cls)
