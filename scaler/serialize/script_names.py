"""What functions and classes of a script find by name there, globals and attributes of classes, and no pickle can hold.

A child that was forked has a copy of all of them, used or not. What functions take along arrives so:

* what each process has for itself, locks and the values of each thread, as new ones: locks that nobody holds, and no
  values. In each process one stands for one, whichever functions use it;
* mappings with weak references, with what arrives by other ways as well;
* what else can't be pickled, a file or a connection, as an `Absent`: who uses it is told why it is not there. Most that
  reach it by the functions they name do not, and others bind the name anew.

Elsewhere both are an error: a lock that is given as an argument is meant to be shared.

A pickler comes to an object without a word about what it is part of. So each value that has a name in the script is put
between two edges, and these are counted: the items of a tuple are pickled in their order.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextvars import Context, ContextVar
from types import BuiltinFunctionType, CellType, FunctionType, ModuleType
from typing import Any, NoReturn, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from cloudpickle import cloudpickle

from scaler.errors import SerializationError

_T = TypeVar("_T")

#: classes of values that can be pickled, or see to what they use
_SIMPLE = frozenset({int, float, str, bytes, bool, type(None), complex, type, BuiltinFunctionType, ModuleType})

#: the variables that were pickled or unpickled here
_variables: dict[ContextVar[Any], _Variable] = {}


def tried(dump: Callable[[ScriptNames | None], _T]) -> _T:
    """What `dump` returns, which is called again with what is known of the names of a script if it fails.

    Raises what it raises at last.
    """
    names = None
    while True:
        try:
            return dump(names)
        except MemoryError:
            raise
        except Exception as error:
            if names is None:
                names = ScriptNames()  # most pickles need none of this
            elif not names.blame(error):
                raise


class ScriptNames:
    """What a pickler needs to know of the values that have names."""

    def __init__(self) -> None:
        #: of those that are being pickled, the outermost first
        self._begun: list[_Edge] = []
        #: those that can't be pickled
        self.absent: list[Any] = []
        #: why, by id
        self._reasons: dict[int, str] = {}

    def blame(self, error: Exception) -> bool:
        """Have the innermost value that has a name and was being pickled be absent; False if there is none."""
        while self._begun:
            edge = self._begun.pop()
            if edge.name is not None and not edge.name.startswith("__"):
                self._begun.clear()
                self.absent.append(edge.value)
                self._reasons[id(edge.value)] = _words_of(edge.value, error)
                return True
        return False

    def marked(self, scope: dict[str, Any]) -> dict[str, Any]:
        """These globals of a function, or attributes of a class, as they are to be pickled."""
        return {name: value if _is_simple(value) else self._between_edges(name, value) for name, value in scope.items()}

    def state_of(self, function: FunctionType, state: tuple[Any, dict[str, Any]]) -> Any:
        """A function's state, which is as `cloudpickle` has it, as it is to be pickled.

        Of a function that its module has by its name all is part of that, also what a decorator keeps in a closure. Of
        others that has no more than variables of contexts.
        """
        slots = state[1]
        slots["__globals__"] = self.marked(slots["__globals__"])
        if _is_in_module(function):
            return _Marked(None, state)
        if slots["__closure__"]:
            slots["__closure__"] = tuple(map(_with_variable_marked, slots["__closure__"]))
        return state

    def wrapped_by(self, function: Any) -> Any:
        """What a function wraps, as it is to be pickled."""
        return _Marked(None, function.__wrapped__) if _is_in_module(function) else function.__wrapped__

    def reduced(self, obj: Any) -> Any:
        """How an object is pickled of which each process has its own, and what marks names; else NotImplemented."""
        if type(obj) is _Edge:
            if obj.is_begin:
                self._begun.append(obj)
            else:
                self._begun.pop()
            return int, ()
        return _reduced(obj) if self._begun else NotImplemented

    def _between_edges(self, name: str, value: Any) -> Any:
        reason = self._reasons.get(id(value))
        return _Marked(name, value) if reason is None else Absent(name, reason)


class Absent:
    """Stands for a value of the script that could not come along."""

    def __init__(self, name: str, reason: str) -> None:
        vars(self).update(_name=name, _reason=reason)

    def __repr__(self) -> str:
        return f"<{self._name} of the script, which is not here: {self._reason}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # whoever looks whether there is such a method
        self._refuse()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        how = "Make it in the task that uses it, or in an initializer"
        raise SerializationError(f"{self._name!r} of the script is not in this process: {self._reason}. {how}")


for _method in (
    "add", "aenter", "aexit", "aiter", "await", "bool", "call", "contains", "delattr", "delitem", "enter", "eq", "exit",
    "float", "format", "ge", "getitem", "gt", "iadd", "index", "int", "iter", "le", "len", "lt", "mul", "ne", "next",
    "radd", "setattr", "setitem", "str", "sub", "truediv",
):  # fmt: skip
    setattr(Absent, f"__{_method}__", Absent._refuse)


class _Variable:
    """A variable, to which itself there can be no weak reference."""

    def __init__(self, variable: ContextVar[Any]) -> None:
        self.variable = variable


class _Edge:
    """Where a value that has a name, or belongs to one, begins or ends."""

    def __init__(self, is_begin: bool, name: str | None, value: Any) -> None:
        self.is_begin = is_begin
        self.name = name
        self.value = value


class _Marked:
    def __init__(self, name: str | None, value: Any) -> None:
        self._name = name
        self._value = value

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        begin, end = (_Edge(is_begin, self._name, self._value) for is_begin in (True, False))
        return _second, (begin, self._value, end)


def _reduced(obj: Any) -> Any:
    kind = type(obj)
    if kind is ContextVar:
        known = _variables.setdefault(obj, _Variable(obj))
        return _variable, (cloudpickle._get_or_create_tracker_id(known), obj.name, *_default_of(obj))
    if kind in (WeakValueDictionary, WeakKeyDictionary):
        return kind, (dict(obj),)
    threads = sys.modules["_thread"]
    if kind.__module__ == "_thread" and kind.__name__ == "lock":
        make: Any = threads.allocate_lock
    elif (
        (kind.__module__, kind.__name__) == ("_thread", "RLock")
        or (isinstance(obj, threads._local) and _needs_no_arguments(kind))
        or ((kind.__module__, kind.__name__) == ("_queue", "SimpleQueue") and obj.empty())
    ):
        make = kind
    elif (kind.__module__, kind.__name__) == ("random", "SystemRandom"):
        return kind, ()
    else:
        return NotImplemented
    return _own, (cloudpickle._get_or_create_tracker_id(obj), make)


def _words_of(value: Any, error: Exception) -> str:
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"an object of type {name} cannot be pickled ({type(error).__name__}: {error})"


def _is_simple(value: Any) -> bool:
    kind = type(value)
    return kind in _SIMPLE or kind.__module__ == "_ctypes" or (kind is FunctionType and value.__closure__ is None)


def _with_variable_marked(cell: CellType) -> CellType:
    try:
        value = cell.cell_contents
    except ValueError:  # it is empty
        return cell
    return CellType(_Marked(None, value)) if type(value) is ContextVar else cell


def _is_in_module(function: Any) -> bool:
    found: Any = sys.modules.get(function.__module__)
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is function


def _needs_no_arguments(kind: Any) -> bool:
    try:
        inspect.signature(kind.__init__).bind(None)
    except (TypeError, ValueError):
        return False
    return True


def _default_of(variable: ContextVar[Any]) -> tuple[Any, ...]:
    try:
        return (Context().run(variable.get),)
    except LookupError:
        return ()


def _second(_: Any, value: Any, __: Any) -> Any:
    return value


def _own(tracker: str, make: Callable[[], Any]) -> Any:
    return cloudpickle._lookup_class_or_track(tracker, make())


def _variable(tracker: str, name: str, *default: Any) -> ContextVar[Any]:
    made = ContextVar(name, default=default[0]) if default else ContextVar(name)
    known: _Variable = cloudpickle._lookup_class_or_track(tracker, _Variable(made))
    return _variables.setdefault(known.variable, known).variable
