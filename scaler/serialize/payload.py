"""Python values to bytes and back: the C pickler where references are safe, cloudpickle where they are not.

`pickle` writes a class or function as "module, name", which is small and fast, and wrong when the other process has no
such module: `__main__`, a module made by hand. `cloudpickle` writes those by value, at 10 to 50 times the cost. So
the fast pickler goes first. It is C throughout for builtin values; for anything else it asks `reducer_override`, which
looks at the module of every class, function and otherwise named object, and gives up as soon as one is out of reach.
Then, or on any other failure, cloudpickle has the last word. It is told about modules made by hand, and about the few
named things of `__main__` that it would send by reference.
"""

from __future__ import annotations

import functools
import io
import pickle
import sys
from collections.abc import Callable, Sequence
from enum import EnumType
from struct import Struct
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import cloudpickle

from scaler.errors import SerializationError
from scaler.serialize import (
    array_files,
    by_value,
    c_types,
    class_pickles,
    class_states,
    class_versions,
    dispatchers,
    enums,
    familiar,
    flyweights,
    mapped_files,
    named_objects,
    skeletons,
    tensors,
    typing_names,
)
from scaler.serialize.importable import can_be_imported, is_importable, registered
from scaler.serialize.plain import SCALARS as SCALARS
from scaler.serialize.plain import LruCache as LruCache
from scaler.serialize.script_names import ScriptNames, tried
from scaler.serialize.subclasses import add_subclasses
from scaler.serialize.watch import names_of_globals

PROTOCOL = 5

loads = pickle.loads


#: an object of this module would arrive as the number of a descriptor here, and close whatever has that there
_CONNECTIONS = "multiprocessing.connection"


class _OutOfReach(Exception):
    """Something inside has to travel by value."""


class ReferencePickler(pickle.Pickler):
    """The C pickler, as long as all that it would write by reference can be imported elsewhere, but for classes."""

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        module = getattr(obj, "__module__", None)
        if familiar.modules.get(id(kind), kind) is module and not registered:
            return NotImplemented
        is_attributed = familiar.modules_of_attributed.get(id(kind), kind) is module and not registered
        if is_attributed and by_value.has_attributes(obj):
            return NotImplemented
        if kind is FunctionType:
            if not is_importable(module):
                raise _OutOfReach
        elif isinstance(obj, type):
            if not is_importable(module):
                return self.reduced_class(obj)
        elif kind is MethodType:
            return by_value.reduced_method(obj)
        elif (module or kind.__module__) == "numpy":  # built-in classes have none that their objects show
            return mapped_files.reduced(obj)
        elif module == tensors.MODULE == kind.__module__:
            return tensors.reduced(obj)
        elif module == _CONNECTIONS == kind.__module__:
            _refuse_connection(obj)
        # Decorated functions, type variables, sentinels and the like are written as names, too.
        elif (
            module is not None
            and (module != kind.__module__ or named_objects.may_be_a_name(kind))
            and not is_importable(module)
        ):
            return self._reduced_member(obj)
        elif by_value.may_be_sentinel(obj):
            return by_value.reduced_sentinel(obj)
        elif id(kind) not in familiar.others:
            familiar.note(kind, module)
        return NotImplemented

    def reduced_class(self, kind: type) -> Any:
        """A class that travels by value."""
        reduced = class_pickles.reduced(kind, _pickled_by_value)
        if reduced is None:
            raise _OutOfReach
        return reduced

    def _reduced_member(self, obj: Any) -> Any:
        """What may be a name that others don't have; members of enumerations are none, but may say so."""
        if isinstance(type(obj), EnumType):
            how = obj.__reduce_ex__(PROTOCOL)
            if not isinstance(how, str):
                return how
        raise _OutOfReach


class StatelessPickler(ReferencePickler):
    """Gives up at objects of other than builtin types: who is given several copies of one could tell them apart."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, BuiltinFunctionType):
            is_stateless = isinstance(obj.__self__, (ModuleType, type))  # the `append` of a list has that list
        else:
            is_stateless = isinstance(obj, (type, FunctionType))
        if not is_stateless:
            raise _OutOfReach
        return super().reducer_override(obj)

    def reduced_class(self, kind: type) -> Any:
        """Not here."""
        raise _OutOfReach


class ValuePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle, also for modules that were put into `sys.modules` by hand and for named objects of `__main__`."""

    #: of a further try
    names: ScriptNames | None = None

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, (FunctionType, type)):
            _travel_by_value_if_made_by_hand(obj.__module__)
            if "_ctypes" in (obj.__module__, type(obj).__module__):
                made = c_types.reduced(obj)
                if made is not NotImplemented:
                    return made
        elif isinstance(obj, ModuleType):
            _travel_by_value_if_made_by_hand(obj.__name__)
        elif isinstance(obj, CodeType):
            return by_value.reduced_code(obj)
        elif isinstance(obj, LruCache) and not is_importable(obj.__module__):
            wrapped = obj.__wrapped__ if self.names is None else self.names.wrapped_by(obj)
            return _cached, (wrapped, obj.cache_parameters())
        elif isinstance(obj, typing_names.KINDS):
            return typing_names.reduced(obj)
        elif type(obj) is functools.singledispatchmethod:
            return dispatchers.reduced_method(obj)
        elif type(obj) is functools.cached_property:  # before Python 3.12 it has a lock
            return functools.cached_property, (obj.func,), {"attrname": obj.attrname, "__doc__": obj.__doc__}
        elif type(obj).__module__ == "numpy":
            return by_value.reduced_ufunc(obj) if type(obj).__name__ == "ufunc" else mapped_files.reduced(obj)
        elif type(obj).__module__ == tensors.MODULE:
            return tensors.reduced(obj)
        elif isinstance(obj, Struct):
            return Struct, (obj.format,)
        elif (made := c_types.reduced(obj)) is not NotImplemented:
            return made
        elif type(obj).__module__ == _CONNECTIONS:
            _refuse_connection(obj)
        elif (opened := array_files.reduced(obj)) is not NotImplemented:
            return opened
        elif self.names is not None and (own := self.names.reduced(obj)) is not NotImplemented:
            return own
        elif (named := named_objects.reduced(obj, PROTOCOL)) is not NotImplemented:
            return named
        elif (sentinel := by_value.reduced_sentinel(obj)) is not NotImplemented:
            return sentinel
        reduced = super().reducer_override(obj)
        if isinstance(obj, FunctionType) and reduced is not NotImplemented:
            by_value.add_globals_of_class_bodies(obj, reduced)
            add_subclasses(obj, names_of_globals, reduced)
            if self.names is not None:
                reduced = *reduced[:2], self.names.state_of(obj, reduced[2]), *reduced[3:]
        if reduced is not NotImplemented and dispatchers.is_dispatcher(obj):
            return dispatchers.reduced(obj)
        if isinstance(obj, type) and isinstance(reduced, tuple) and len(reduced) == 6:
            class_states.here.went(obj)
            if self.names is not None:
                attributes, slots = reduced[2]
                reduced = *reduced[:2], (self.names.marked(attributes), slots), *reduced[3:]
            _, arguments, state, _, _, _ = reduced
            make, attributes = skeletons.made, state[0]
            set_up: Callable[[Any, Any], object] = skeletons.set_up
            if isinstance(obj, EnumType):
                make, arguments, state = enums.reduced(obj, (*reduced[:5], set_up))
                set_up, attributes = enums.set_up, state[1][0]
            elif c_types.is_c_type(obj):
                arguments, state = c_types.with_fields(arguments, (set_up, state))
                set_up, attributes = c_types.set_up, state[1][0]
            else:
                arguments = skeletons.with_slots(obj, arguments)
                if flyweights.has_own_objects(obj):
                    set_up = flyweights.BegunBefore(obj, set_up, attributes)  # type: ignore[assignment]
            given = set_up, state, attributes, self._version_of(obj)
            return make, arguments, given, None, None, class_states.arrived
        return reduced

    def _version_of(self, kind: type) -> str | None:
        return class_versions.version_of(kind, _contents_of)


class _OneClassPickler(ValuePickler):
    """Pickles one class; others that travel by value have versions of their own, and only their names are here."""

    def __init__(self, file: io.BytesIO, kind: type, buffer_callback: Any) -> None:
        super().__init__(file, PROTOCOL, buffer_callback=buffer_callback)
        self._kind = kind

    def reducer_override(self, obj: Any) -> Any:
        reduced = super().reducer_override(obj)
        if isinstance(obj, type) and obj is not self._kind and isinstance(reduced, tuple) and len(reduced) == 6:
            return str, (cloudpickle.cloudpickle._get_or_create_tracker_id(obj),)
        return reduced

    def _version_of(self, kind: type) -> None:
        return None


def _contents_of(kind: type) -> tuple[list[Any], Sequence[Any]]:
    """The parts of a pickle of a class by itself, and the values that could not be part of it. Raises anything."""
    parts: list[Any] = []

    def make(stream: io.BytesIO) -> ValuePickler:
        parts.clear()  # of a try before
        return _OneClassPickler(stream, kind, lambda part: _is_kept_in(parts, part))

    pickled, absent = _pickled_by_value(kind, make=make)
    return [pickled, *parts], absent


def _is_kept_in(parts: list[Any], buffer: pickle.PickleBuffer) -> bool:
    """Say whether a buffer is to be part of the pickle; if not, it is added to `parts`."""
    try:
        parts.append(buffer.raw())
    except BufferError:  # not contiguous
        return True
    return False


def _refuse_connection(obj: Any) -> None:
    """Do as `multiprocessing` does of its locks and queues when one of its connections is pickled as any object."""
    if isinstance(obj, sys.modules[_CONNECTIONS]._ConnectionBase):
        raise RuntimeError(
            f"{type(obj).__name__} objects should only be shared between processes through inheritance; "
            "a queue of a multiprocessing.Manager can be an argument"
        )


def _travel_by_value_if_made_by_hand(module: object) -> None:
    if isinstance(module, str) and module != "__main__" and not can_be_imported(module):
        loaded = sys.modules.get(module)
        if isinstance(loaded, ModuleType) and loaded.__name__ == module:
            cloudpickle.register_pickle_by_value(loaded)


def _cached(function: Any, parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def dumps(obj: Any, prefix: bytes = b"") -> bytes:
    """Return `prefix` and the pickle of `obj` as one bytes object; raise SerializationError where that cannot be.

    >>> loads(dumps([1, "two"]))
    [1, 'two']
    """
    if not prefix and type(obj) in SCALARS:
        return pickle.dumps(obj, PROTOCOL)
    buffer = io.BytesIO()
    if prefix:
        buffer.write(prefix)
    try:
        ReferencePickler(buffer, PROTOCOL).dump(obj)
    except Exception:
        return dumps_by_value(obj, prefix)
    return buffer.getvalue()


def loads_list(data: bytes | memoryview, rows: int) -> list[Any]:
    """Return the values of a span of results that came as one list; SerializationError unless these are `rows` values.

    >>> loads_list(pickle.dumps([1, "two"], PROTOCOL), 2)
    [1, 'two']
    """
    values = pickle.loads(data)
    if type(values) is not list or len(values) != rows:
        raise SerializationError(f"a worker sent {describe(values)} as the list of the results of {rows} rows")
    return values


def dumps_by_value(obj: Any, prefix: bytes = b"") -> bytes:
    """Do as `dumps`, by cloudpickle at once: for what is known to need it."""

    try:
        return _pickled_by_value(obj, prefix)[0]
    except Exception as error:
        raise refusal(obj, error) from error


def _value_pickler(stream: io.BytesIO) -> ValuePickler:
    return ValuePickler(stream, PROTOCOL)


def _pickled_by_value(
    obj: Any, prefix: bytes = b"", make: Callable[[io.BytesIO], ValuePickler] = _value_pickler
) -> tuple[bytes, Sequence[Any]]:
    """Return `prefix` and the pickle of `obj`, and the values that could not be part of it. Raises anything."""

    def dump(names: ScriptNames | None) -> tuple[bytes, Sequence[Any]]:
        stream = io.BytesIO()
        stream.write(prefix)
        pickler = make(stream)
        pickler.names = names
        pickler.dump(obj)
        return stream.getvalue(), () if names is None else names.absent

    return tried(dump)


#: words of an error -> what can be pickled in the place of what caused it
_ADVICE = {
    "'generator' object": " (a list of what it yields can be)",
    "Connection objects": " (a queue of a multiprocessing.Manager() can be)",
    "through inheritance": " (one of a multiprocessing.Manager() can be)",
}


def refusal(obj: Any, error: Exception) -> SerializationError:
    """What is said of an object that cannot be pickled."""
    advice = next((advice for words, advice in _ADVICE.items() if words in str(error)), "")
    return SerializationError(f"{describe(obj)} cannot be pickled: {type(error).__name__}: {error}{advice}")


def describe(obj: Any) -> str:
    """Return the type of `obj`, or the name of a function or class, for a message.

    >>> describe(len), describe([].append), describe(n for n in ())
    ('builtins.len', 'list.append', 'an object of type generator')
    """
    name = getattr(obj, "__qualname__", None)
    if isinstance(name, str) and callable(obj):
        module = getattr(obj, "__module__", None)
        return f"{module}.{name}" if isinstance(module, str) else name
    return f"an object of type {name_of_type(type(obj))}"


def name_of_type(kind: type) -> str:
    """Return the name of a class for a message, with its module unless that is builtins. Asks no metaclass."""
    module, name = _module_of(kind), _qualname_of(kind)
    return str(name) if module == "builtins" else f"{module}.{name}"


_module_of, _qualname_of = (type.__dict__[name].__get__ for name in ("__module__", "__qualname__"))
