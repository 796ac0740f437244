"""Classes that came by value: one of each here, which is for each task what it was in the program when that was made.

Whatever has such a class in its pickle, a function or an argument, brings all its attributes along (its *state*) and
its version (`class_versions`), and there is one class for all of them, so that what one task made is an instance for
others. But a program may change its classes while tasks are queued, so states differ. The rules:

* a function that is decoded sets the classes that it brings, as when it runs, and what it brought is kept with it
  (`Brought`);
* when a function is to run, its classes are made what it brought, if others have set them since: of the same version
  only what has code in it, since each function has globals of its own, which methods are to share; what tasks have made
  of other attributes stays. Of another version all is set, and what only that one had is removed;
* what a row has run once in its worker, an initializer say, sets classes while it runs (`aside`), and so does a
  row that a waiting task runs itself (`inside`);
* arguments and other values set classes as they come, in the same way, but for those that the function which runs has
  brought in another version: of what was scattered before a change the instances are used, not the class as it was.

What has no version, since to find that out takes too long, counts as one that nothing else is.

A worker runs one function at a time, so nothing else is using the classes when they are set.
"""

import contextlib
import functools
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from operator import itemgetter
from types import FunctionType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

from scaler.serialize import module_globals
from scaler.serialize.plain import LruCache
from scaler.serialize.recent import Recent
from scaler.serialize.skeletons import delete_attribute, known, set_attribute

#: pickles of classes that are known again, at most, and bytes of these, in each of two generations
_LIMIT, _KNOWN_BYTES = 256, 4 << 20
#: what methods and the like are kept as in a class
CODE = (
    FunctionType, classmethod, staticmethod, property, LruCache, functools.cached_property, functools.partialmethod,
    functools.singledispatchmethod,
)  # fmt: skip


class State(NamedTuple):
    """What a class was in one pickle."""

    #: unique; the state itself may go while the class stays
    mark: object
    version: str | None
    #: set_up(class, given) sets all
    set_up: Callable[[Any, Any], object]
    given: Any
    attributes: Mapping[str, Any]


class _Present(NamedTuple):
    """Which state a class has: keeps nothing of it alive, since that keeps the class alive."""

    mark: object
    version: str | None
    names: frozenset[str]
    #: of those with code in them, as they were set
    code: dict[str, int]


#: the classes that came with something, and as what
Brought = dict[type, State]

_NOTHING: Brought = {}


class _Decoding(NamedTuple):
    """What a thread is decoding, and the classes that have come with it so far."""

    brought: Brought
    is_function: bool


_decoding: ContextVar[_Decoding | None] = ContextVar("_decoding", default=None)


class _Was(NamedTuple):
    """A class before it was another for a while."""

    present: _Present
    attributes: Mapping[str, Any]
    #: of attributes that came or went
    names: set[str]


class _Aside(NamedTuple):
    """Classes that are others for a while."""

    were: dict[type, _Was]
    #: those of the same version, too, which the program that runs has changed perhaps
    is_all: bool

    def note(self, kind: type, present: _Present, state: State) -> None:
        """A class is about to be set."""
        was = self.were.get(kind)
        if was is None:
            if not self.is_all and state.version is not None and present.version == state.version:
                return
            was = self.were[kind] = _Was(present, dict(vars(kind)), set(present.names))
        was.names.update(state.attributes)


class ClassStates:
    """Those of one process. Any thread may call it, but for `enter`."""

    def __init__(self) -> None:
        #: classes that went by value from here to others, and those that came by value from others
        self._own: WeakSet[type] = WeakSet()
        self._foreign: WeakSet[type] = WeakSet()
        self._present: WeakKeyDictionary[type, _Present] = WeakKeyDictionary()
        #: classes that came as pickles of their own, what came with them, and the size of these, by digest and space
        self._inner: Recent[tuple[str, object], tuple[type, Brought, int]] = Recent(_LIMIT, _KNOWN_BYTES, itemgetter(2))
        #: what the function that runs has brought
        self._held = _NOTHING
        #: classes that are others for a while
        self._aside: _Aside | None = None

    def went(self, kind: type) -> None:
        """A class is pickled by value."""
        if kind not in self._foreign:
            self._own.add(kind)

    def begin(self, kind: type, attributes: Mapping[str, Any]) -> None:
        """Give a class some attributes if it has just been made here and has none of its own yet."""
        if kind not in self._own and kind not in self._present:
            for name, value in attributes.items():
                set_attribute(kind, name, value)

    def arrived(self, kind: type, state: State) -> None:
        """Give a class that came by value its attributes, unless it was ours all along and only comes back.

        cloudpickle would set them again, so that methods of the user's class would be copies that see other globals.
        """
        if kind in self._own:
            return
        self._foreign.add(kind)
        decoding = _decoding.get()
        if decoding is not None:
            decoding.brought[kind] = state
        held = None if decoding is not None and decoding.is_function else self._held.get(kind)
        if held is not None and (held.version is None or held.version != state.version):
            return
        if self._aside is not None and self._aside.is_all:
            self._set(kind, state)
        else:
            self._renew(kind, state, held is None)

    def enter(self, brought: Brought | None) -> None:
        """A function that came with this is to run, and no other one any more."""
        self._held = _NOTHING
        if brought:
            for kind, state in brought.items():
                self._renew(kind, state, True)
            self._held = brought

    def beside(self, brought: Brought) -> None:
        """A value that came with this is to be used by the function that runs."""
        for kind, state in brought.items():
            if kind not in self._held:
                self._renew(kind, state, False)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """A row makes something that comes from elsewhere: classes of other versions are put back in the end."""
        before, self._aside = self._aside, _Aside({}, False)
        try:
            yield
        finally:
            self._put_back(before)

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """A row runs inside another one: what it is given sets all classes, and these are put back in the end."""
        before, self._aside = self._aside, _Aside({}, True)
        held, self._held = self._held, _NOTHING
        try:
            yield
        finally:
            self._held = held
            self._put_back(before)

    def _put_back(self, before: _Aside | None) -> None:
        aside, self._aside = self._aside, before
        assert aside is not None
        for kind, was in aside.were.items():
            self._remove(kind, was.names - was.attributes.keys())
            for name in was.names & was.attributes.keys():
                if vars(kind).get(name) is not was.attributes[name]:
                    set_attribute(kind, name, was.attributes[name])
            self._present[kind] = was.present

    def _renew(self, kind: type, state: State, has_globals: bool) -> None:
        present = self._present.get(kind)
        if present is None:
            self._set(kind, state)
        elif present.mark is not state.mark:
            if state.version is None or present.version != state.version:
                self._set(kind, state)
            elif has_globals:
                self._set_code(kind, state, present)

    def inner(self, kind: type | None, digest: str, data: bytes) -> type:
        """The class that comes as a pickle of its own, with what is there of its number, and the digest of the pickle.

        It is read if the class is not ours, and these very bytes were not read before.
        """
        if kind is not None and kind in self._own:
            return kind
        outer = _decoding.get()
        key = digest, module_globals.space_here()  # whose globals its methods see
        found = self._inner.get(key)
        if found is None:
            with decoding(outer is not None and outer.is_function) as brought:
                made: type = pickle.loads(data)
            self._inner.put(key, (made, brought, len(data)))
        else:
            made, brought, _ = found
            for each, state in brought.items():
                present = self._present.get(each)
                if present is None or present.mark is not state.mark:  # it has become another one since
                    self.arrived(each, state)
        if outer is not None:
            outer.brought.update(brought)
        return made

    def _set(self, kind: type, state: State) -> None:
        before = self._present.get(kind)
        if before is not None and self._aside is not None:
            self._aside.note(kind, before, state)
        state.set_up(kind, state.given)
        if before is not None:
            self._remove(kind, before.names - state.attributes.keys())
        self._note(kind, state)

    def _remove(self, kind: type, names: Iterable[str]) -> None:
        for name in names:
            if name in vars(kind):
                with contextlib.suppress(AttributeError, TypeError):
                    delete_attribute(kind, name)

    def _set_code(self, kind: type, state: State, present: _Present) -> None:
        """Set what has code in it, unless a task has put something else there."""
        attributes = vars(kind)
        for name, value in state.attributes.items():
            if isinstance(value, CODE) and id(attributes.get(name)) == present.code.get(name):
                set_attribute(kind, name, value)
        self._note(kind, state)

    def _note(self, kind: type, state: State) -> None:
        code = {name: id(value) for name, value in state.attributes.items() if isinstance(value, CODE)}
        self._present[kind] = _Present(state.mark, state.version, frozenset(state.attributes), code)


class decoding:  # in lower case, as what is called; a generator would take longer
    """Gives the classes that come with what this thread decodes until the end of the block."""

    __slots__ = ("_is_function", "_token")

    def __init__(self, is_function: bool) -> None:
        self._is_function = is_function

    def __enter__(self) -> Brought:
        brought: Brought = {}
        self._token = _decoding.set(_Decoding(brought, self._is_function))
        return brought

    def __exit__(self, *_: object) -> None:
        _decoding.reset(self._token)


#: those of this process
here = ClassStates()


def inner(tracker: str, digest: str, data: bytes) -> type:
    """The class that a value's pickle has in it as a pickle of its own; part of pickles."""
    return here.inner(known(tracker), digest, data)


def arrived(kind: type, state: tuple[Callable[[Any, Any], object], Any, Mapping[str, Any], str | None]) -> None:
    """Set up a class on arrival; part of pickles."""
    set_up, given, attributes, version = state
    here.arrived(kind, State(object(), version, set_up, given, attributes))
