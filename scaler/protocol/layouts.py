"""Where the fields of a message are in a struct of the schema, and how they get there and back.

One table, derived from the message classes' own annotations, drives both directions. A task that comes alone passes
four messages through eight of these, so for messages of which many come both directions are compiled: without loops
and tests of what a field is, they take half as long.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from scaler.common.utf8 import written_out
from scaler.protocol import messages as m

#: messages of a class that are read, or written, before that is compiled: compiling takes as long as they save
FEW = 100

#: what a message may have as a field
_PARTS: dict[str, type[m.Part]] = {each.__name__: each for each in (m.Spans, m.Objects)}


class Layout:
    """Of one class, or of some of its fields.

    Fields of the schema are kept as pycapnp's objects: it reads and writes by field four times as fast as by name.
    """

    __slots__ = ("_cls", "_left_to_read", "_left_to_write", "columns", "groups", "lists", "parts", "plain", "read",
                 "write")  # fmt: skip

    def __init__(self, cls: type[m.Part]) -> None:
        self._cls = cls
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
        self.read: Callable[[Any], Any] = self._read_first
        #: sets the fields of a struct
        self.write: Callable[[Any, m.Part], None] = self._write_first

    def _read_first(self, struct: Any) -> m.Part:
        self._left_to_read -= 1
        if self._left_to_read <= 0:  # several threads may count
            self.read = _compiled_reader(self, self._cls)
        return self._cls(**self.values(struct))

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

    def _write_first(self, struct: Any, message: m.Part) -> None:
        self._left_to_write -= 1
        if self._left_to_write <= 0:
            self.write = _compiled_writer(self, self._cls)
        self.put(struct, message)

    def put(self, struct: Any, message: m.Part) -> None:
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
                    put(wire, list(value))
                except UnicodeEncodeError:
                    put(wire, list(map(written_out, value)))
        for name, wire, part in self.parts:
            part.write(struct._init_by_field(wire), getattr(message, name))
        for wire, names, group in self.groups:
            if any(getattr(message, name) for name in names):
                group.put(struct._init_by_field(wire), message)


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
            assert callable(item.default_factory)
            layout.columns.append((item.name, wire, item.default_factory().typecode))
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


def _compiled_reader(layout: Layout, cls: type[m.Part]) -> Callable[[Any], m.Part]:
    """What `Layout.values` does for one class, and the class with that."""
    known: dict[str, Any] = {"cls": cls, "array": array}
    given = []

    def name_of(thing: Any) -> str:
        known[name := f"_{len(known)}"] = thing
        return name

    for name, wire in layout.plain:
        given.append(f"{name}=get({name_of(wire)})")
    for name, wire, code in layout.columns:
        given.append(f"{name}=array({code!r}, get({name_of(wire)}))")
    for name, wire in layout.lists:
        given.append(f"{name}=tuple(get({name_of(wire)}))")
    for name, wire, part in layout.parts:
        given.append(f"{name}={name_of(part)}.read(get({name_of(wire)}))")
    made, lines = ", ".join(given), ["get = struct._get_by_field"]
    if layout.groups:
        lines += ["seldom = {}", "has = struct._has_by_field"]
        for wire, _, group in layout.groups:
            field = name_of(wire)
            lines.append(f"if has({field}): seldom.update({name_of(group)}.values(get({field})))")
        lines.append(f"if seldom: return cls({made}, **seldom)")  # which takes longer
    return _compiled("read(struct)", [*lines, f"return cls({made})"], known, cls)


def _compiled_writer(layout: Layout, cls: type[m.Part]) -> Callable[[Any, m.Part], None]:
    """What `Layout.put` does for one class."""
    known: dict[str, Any] = {"put_all": layout.put}
    lines = ["put = struct._set_by_field"]

    def name_of(thing: Any) -> str:
        known[name := f"_{len(known)}"] = thing
        return name

    def add(name: str, wire: Any, value: str) -> None:
        lines.append(f"if value := message.{name}: put({name_of(wire)}, {value})")

    for name, wire in layout.plain:
        add(name, wire, "value")
    for name, wire, _ in layout.columns:
        add(name, wire, "value.tobytes()")
    for name, wire in layout.lists:
        add(name, wire, "list(value)")
    for name, wire, part in layout.parts:
        lines.append(f"{name_of(part)}.write(struct._init_by_field({name_of(wire)}), message.{name})")
    for wire, names, group in layout.groups:
        is_set = " or ".join(f"message.{name}" for name in names)
        lines.append(f"if {is_set}: {name_of(group)}.put(struct._init_by_field({name_of(wire)}), message)")
    body = ["try:", *(f" {line}" for line in lines), "except UnicodeEncodeError:", " put_all(struct, message)"]
    return _compiled("write(struct, message)", body, known, cls)


def _compiled(signature: str, lines: list[str], known: dict[str, Any], cls: type[m.Part]) -> Callable[..., Any]:
    source = f"def {signature}:\n " + "\n ".join(lines)
    exec(compile(source, f"<layout of {cls.__qualname__}>", "exec"), known)
    made: Callable[..., Any] = known[signature.partition("(")[0]]
    return made
