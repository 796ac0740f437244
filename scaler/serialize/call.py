"""What a task calls, and with which arguments, as payloads: the first byte says how the rest is written.

    P   pickle of (args, kwargs), or of a function
    S   marshal of parts that a user's Serializer made one by one; of a function also the Serializer itself
    G   pickle of a list of graph entries, in the place of a function
    L   marshal of how many such entries make a portion, and of the pickles of all portions: each is decoded when needed
    H   marshal of such a list in which numbers stand for functions and arguments: pickles of the Serializer and of the
        list, and the parts that the Serializer made of them one by one

An argument that is a reference to an object or to another task's result is a `Slot`: its place in the row's list of
dependencies. Only whole arguments are; nothing looks for them inside other values.
"""

from __future__ import annotations

import marshal
import pickle
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import FunctionType
from typing import Any

from scaler.errors import SerializationError
from scaler.serialize import payload as pickling
from scaler.serialize.entry import Entry, PortionedEntries, functions_of, is_own, with_parts_replaced
from scaler.serialize.fresh_functions import fresh, has_state
from scaler.serialize.outofband import Packed, pack, pickled_plainly, pickles_of
from scaler.serialize.payload import PROTOCOL, SCALARS
from scaler.serialize.serializer import Serializer

AnySerializer = Serializer | type[Serializer]


def check_serializer(serializer: object) -> None:
    """Raise TypeError for what is neither None nor a serializer."""
    missing = [name for name in ("serialize", "deserialize") if not callable(getattr(serializer, name, None))]
    if serializer is not None and missing:
        wanted = "serializer must have the methods serialize and deserialize"
        raise TypeError(f"{wanted}; {serializer!r} has no {missing[0]}")


def serialized(serializer: AnySerializer, value: Any) -> bytes:
    """What it makes of a value. Raises whatever it raises, and TypeError for what are no bytes."""
    made: Any = serializer.serialize(value)
    if isinstance(made, bytes | bytearray | memoryview):
        return bytes(made)
    raise TypeError(f"serialize must return bytes, not {type(made).__name__}")


def key_of(serializer: AnySerializer | None) -> Any:
    """What stands for a serializer in a dict: of an instance there is another one for each time that it was pickled.

    Raises SerializationError for an instance that can't be pickled.
    """
    if serializer is None or isinstance(serializer, type):
        return serializer
    return type(serializer), pickling.dumps(serializer)


#: Steps of graph entries in a portion, about; as many as are decoded in 0.1 ms.
PORTION_STEPS = 128

#: Classes of functions of which none has a state.
_WITHOUT_STATE = frozenset({FunctionType, type})

#: Strings and bytes longer than this are pickled into place, not joined to the first byte afterwards.
_LONG = 16384


class Slot:
    """Stands for an argument that is the value of a dependency."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        #: place in the row's list of dependencies, from 0
        self.index = index

    def __reduce__(self) -> tuple[type[Slot], tuple[int]]:
        return Slot, (self.index,)

    def __repr__(self) -> str:
        return f"Slot({self.index})"


def encode_call(
    args: tuple[Any, ...], kwargs: dict[str, Any], serializer: AnySerializer | None = None, function: str = ""
) -> bytes:
    """Return one row's arguments as bytes; raise SerializationError naming the argument that cannot be written."""
    if serializer is not None:
        return _encode_parts(args, kwargs, serializer, function)
    if not kwargs:
        for value in args:
            kind = type(value)
            if kind not in SCALARS or ((kind is str or kind is bytes) and len(value) > _LONG):
                break
        else:
            return b"P" + pickle.dumps((args, kwargs), PROTOCOL)
    try:
        return pickling.dumps((args, kwargs), b"P")
    except SerializationError as error:
        raise _name_the_argument(args, kwargs, function, error) from error.__cause__


def decode_call(
    payload: bytes | memoryview, values: Sequence[Any] = (), serializer: AnySerializer | None = None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return (args, kwargs) with each slot filled from `values`; raises what the arguments raise while unpickled."""
    if payload[0] == 0x50:
        args, kwargs = pickle.loads(memoryview(payload)[1:])
        if values:
            args = tuple([values[arg.index] if type(arg) is Slot else arg for arg in args])
            if kwargs:
                kwargs = {name: values[arg.index] if type(arg) is Slot else arg for name, arg in kwargs.items()}
        return args, kwargs
    if payload[0] != 0x53 or serializer is None:
        raise SerializationError(f"arguments of an unknown form {bytes(payload[:1])!r}")
    arg_parts, kwarg_parts = marshal.loads(memoryview(payload)[1:])
    load = serializer.deserialize
    return (
        tuple([values[part] if type(part) is int else load(part) for part in arg_parts]),
        {name: values[part] if type(part) is int else load(part) for name, part in kwarg_parts.items()},
    )


def encode_function(function: Callable[..., Any], serializer: AnySerializer | None = None) -> bytes:
    """Return a function as bytes, with the serializer of its arguments and results where there is one."""
    if serializer is None:
        return pickling.dumps(fresh(function), b"P")
    return b"S" + marshal.dumps((pickling.dumps(serializer), _part(function, serializer, pickling.describe(function))))


def pack_function(function: Callable[..., Any], serializer: AnySerializer | None = None) -> Packed:
    """Do as `encode_function`, with the large buffers of a function that holds data apart."""
    return pack(fresh(function), b"P") if serializer is None else Packed(encode_function(function, serializer), [])


def encode_entries(entries: list[tuple[Any, ...]], serializer: AnySerializer | None = None) -> bytes:
    """Return the entries of a run of graph rows as bytes, in the place of a function; see `scaler.serialize.entry`."""
    if serializer is not None:
        return _encode_entries_in_parts(entries, serializer)
    entries = _with_fresh_functions(entries)
    try:
        return pickling.dumps(entries, b"G")
    except SerializationError as error:
        raise _name_the_part(entries, error) from error.__cause__


def pack_entries(entries: list[tuple[Any, ...]], serializer: AnySerializer | None = None) -> Packed:
    """Do as `encode_entries`, with the large buffers of constants apart, and in portions where there are many steps."""
    if serializer is not None:
        return Packed(encode_entries(entries, serializer), [])
    # Both ways give up at anything with a state: few entries have such, and only then their functions are looked at.
    steps = sum([1 if entry[1] is not None else len(entry[2]) for entry in entries])
    if steps >= 2 * PORTION_STEPS and len(entries) > 1:
        size = max(1, len(entries) * PORTION_STEPS // steps)
        portions = pickles_of([entries[start : start + size] for start in range(0, len(entries), size)])
        if portions is not None:
            return Packed(b"L" + marshal.dumps((size, portions)), [])
    elif (plain := pickled_plainly(entries, b"G")) is not None:
        return Packed(plain, [])
    entries = _with_fresh_functions(entries)
    try:
        return pack(entries, b"G")
    except SerializationError as error:
        raise _name_the_part(entries, error) from error.__cause__


def _with_fresh_functions(entries: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The entries, with functions that have a state as those that are made anew for each row."""
    #: what stands for those, by id: what several rows have travels once
    made: dict[int, Any] = {}
    for function in functions_of(entries):
        if type(function) not in _WITHOUT_STATE and (fresh_one := fresh(function)) is not function:
            made[id(function)] = fresh_one
    if not made:
        return entries
    return [
        with_parts_replaced(entry, lambda function: made.get(id(function), function), lambda value: value)
        for entry in entries
    ]


def decode_function(payload: bytes | memoryview, buffers: Iterable[Any] = ()) -> tuple[Any, AnySerializer | None]:
    """Return (function or sequence of `Entry`, serializer); raises whatever their modules raise while imported.

    `buffers` are those that were packed apart; the function uses their memory.
    """
    form, body = payload[0], memoryview(payload)[1:]
    if form == 0x50:
        return pickle.loads(body, buffers=buffers), None
    if form == 0x47:
        return [Entry(parts) for parts in pickle.loads(body, buffers=buffers)], None
    if form == 0x4C:
        return PortionedEntries(*marshal.loads(body)), None
    if form == 0x48:
        return _decode_entries_in_parts(body)
    if form != 0x53:
        raise SerializationError(f"a function of an unknown form {bytes(payload[:1])!r}")
    serializer_part, function_part = marshal.loads(body)
    serializer: AnySerializer = pickle.loads(serializer_part)
    return _function_of_part(serializer, serializer.deserialize(function_part), function_part), serializer


def _function_of_part(serializer: AnySerializer, function: Any, part: bytes) -> Any:
    return partial(_call_anew, serializer, part) if has_state(function) else function


def _call_anew(serializer: AnySerializer, function: bytes, /, *args: Any, **kwargs: Any) -> Any:
    """Call a function that has a state with the one that it was written with."""
    return serializer.deserialize(function)(*args, **kwargs)


def _encode_parts(args: tuple[Any, ...], kwargs: dict[str, Any], serializer: AnySerializer, function: str) -> bytes:
    where = f" of {function}" if function else ""
    arg_parts = [
        arg.index if type(arg) is Slot else _part(arg, serializer, f"argument {position}{where}")
        for position, arg in enumerate(args)
    ]
    kwarg_parts = {
        name: arg.index if type(arg) is Slot else _part(arg, serializer, f"argument {name!r}{where}")
        for name, arg in kwargs.items()
    }
    return b"S" + marshal.dumps((arg_parts, kwarg_parts))


def _encode_entries_in_parts(entries: list[tuple[Any, ...]], serializer: AnySerializer) -> bytes:
    parts: list[bytes] = []
    #: by id: what several rows have travels once
    numbers: dict[int, int] = {}

    def number_of(value: Any, what: str) -> int:
        number = numbers.get(id(value))
        if number is None:
            number = numbers[id(value)] = len(parts)
            parts.append(_part(value, serializer, what))
        return number

    numbered = []
    for entry in entries:
        where = f"of the graph's {entry[0]!r}"

        def function_for(function: Any, where: str = where) -> Any:
            return function if is_own(function) else number_of(function, f"a function {where}")

        def value_for(value: Any, where: str = where) -> Any:
            return number_of(value, f"an argument {where}")

        numbered.append(with_parts_replaced(entry, function_for, value_for))
    return b"H" + marshal.dumps((pickling.dumps(serializer), pickling.dumps(numbered), parts))


def _decode_entries_in_parts(body: memoryview) -> tuple[list[Entry], AnySerializer]:
    serializer_part, entries_part, parts = marshal.loads(body)
    serializer: AnySerializer = pickle.loads(serializer_part)
    values = [serializer.deserialize(part) for part in parts]

    def function_for(function: Any) -> Any:
        if type(function) is not int:
            return function
        return _function_of_part(serializer, values[function], parts[function])

    entries = pickle.loads(entries_part)
    return [Entry(with_parts_replaced(entry, function_for, values.__getitem__)) for entry in entries], serializer


def _part(value: Any, serializer: AnySerializer, what: str) -> bytes:
    try:
        return serialized(serializer, value)
    except Exception as error:
        kind = type(value).__qualname__
        text = f"{what}, a {kind}, cannot be serialised: {type(error).__name__}: {error}"
        raise SerializationError(text) from error


def _name_the_argument(
    args: tuple[Any, ...], kwargs: dict[str, Any], function: str, whole: SerializationError
) -> SerializationError:
    """Return the error of the first argument that cannot be pickled alone."""
    where = f" of {function}" if function else ""
    for name, value in [*enumerate(args), *kwargs.items()]:
        try:
            pickling.dumps(value)
        except SerializationError as error:
            return SerializationError(f"argument {name!r}{where}: {error}")
    return SerializationError(f"the arguments{where}: {whole}")


def _name_the_part(entries: list[tuple[Any, ...]], whole: SerializationError) -> SerializationError:
    """Return the error of the first function or argument of graph entries that cannot be pickled alone."""
    for entry in entries:
        where = f"of the graph's {entry[0]!r}"
        found: list[str] = []
        with_parts_replaced(
            entry, partial(_try, found, f"a function {where}"), partial(_try, found, f"an argument {where}")
        )
        if found:
            return SerializationError(found[0])
    return whole


def _try(failures: list[str], what: str, value: Any) -> None:
    """Add what is said of a value that cannot be pickled."""
    try:
        pickling.dumps(value)
    except SerializationError as error:
        failures.append(f"{what}: {error}")
