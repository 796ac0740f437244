"""The objects this worker was given, and what they were decoded to."""

from __future__ import annotations

import socket
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

from scaler.protocol import failures
from scaler.protocol.codes import Frame
from scaler.serialize import class_states, module_globals
from scaler.serialize.call import AnySerializer, decode_function
from scaler.serialize.class_states import Brought
from scaler.serialize.fresh_functions import NotMade, reopened
from scaler.serialize.outofband import unpack
from scaler.store import ObjectMissing
from scaler.store.layout import Key
from scaler.store.segments import open_object
from scaler.worker import context, fitness
from scaler.worker.live_values import LiveValues
from scaler.worker_protocol.messages import Need, Run

Value = TypeVar("Value")

#: bytes, as pickled, of values that rows of graphs share, at most; of each at least some, for the objects it is made of
RECENT_BYTES, RECENT_LEAST = 64 << 20, 4096


class Failed(Exception):
    """A row has failed, and its error record is made already."""

    def __init__(self, record: bytes, lacking: int | None = None, is_doubtful: bool = False) -> None:
        super().__init__()
        self.record = record
        #: the object that was to be a file in the store and is none: its agent may know of another copy
        self.lacking = lacking
        #: its function has not begun, or its result found no place, for what earlier rows may have done to this process
        self.is_doubtful = is_doubtful


def undecodable(what: str, name: str, error: BaseException) -> Failed:
    """Return the failure of rows whose function or arguments raised `error` while they were unpickled."""
    missing = isinstance(error, (ImportError, AttributeError))
    install = error.name.partition(".")[0] if isinstance(error, ModuleNotFoundError) and error.name else ""
    lines = "".join(traceback.format_exception(error)) if not missing else ""
    words = f"{type(error).__qualname__}: {error}"
    record = failures.undecodable(what, name, socket.gethostname(), words, missing, install, lines).encode()
    return Failed(record, is_doubtful=fitness.is_doubtful(error))


def failure_of(error: BaseException, name: str) -> Failed | None:
    """The failure of a row of which `error` came up, if its record is made or its function's state can't be read."""
    if type(error) is NotMade:  # `isinstance` would ask the user's exception for its class
        error = error.error
        return error if type(error) is Failed else undecodable("the function", name, error)
    return error if type(error) is Failed else None


class Inputs:
    """What rows need: bytes by key until they are dropped, values that stayed here, and files in the store.

    Functions, argument lists and lists of results are decoded once. The main thread uses objects; any may drop them.
    """

    def __init__(self, live: LiveValues) -> None:
        self._live = live
        self._bytes: dict[Key, Frame] = {}
        self._functions: dict[Key, tuple[Any, AnySerializer | None]] = {}
        #: lists of arguments, and of results of which rows need elements (builtin scalars, so that sharing is safe)
        self._lists: dict[Key, list[Any]] = {}
        #: the classes that came with functions and lists
        self._brought: dict[Key, Brought] = {}
        #: the function that runs, or ran last, came with some
        self._is_held = False
        #: values that rows of graphs were given, their bytes, and the classes that came with them; oldest first
        self._recent: OrderedDict[Key, tuple[Any, int, Brought]] = OrderedDict()
        self._recent_bytes = 0
        #: held for moments, to change these
        self._lock = threading.Lock()
        #: those being decoded, without those that were dropped meanwhile
        self._decoding: set[Key] = set()

    def add(self, objects: list[tuple[Key, Frame]]) -> None:
        """Keep objects until they are dropped."""
        self._bytes.update(objects)

    def drop(self, keys: list[Key]) -> None:
        """Forget objects; keys that are not here do not matter. Files stay."""
        self.drop_values(keys)  # first, for what is being decoded: else it would come into a cache after this
        for key in keys:
            self._bytes.pop(key, None)
            self._functions.pop(key, None)
            self._lists.pop(key, None)
            self._brought.pop(key, None)

    def drop_values(self, keys: list[Key], last: int | None = None) -> None:
        """Forget values that rows have made, but for those of dispatches after `last`, and what files were decoded to.

        What was sent stays.
        """
        self._decoding.difference_update(keys)
        self._live.drop(keys, last)
        for key in keys:
            if key not in self._bytes:
                self._lists.pop(key, None)
        if self._recent:
            with self._lock:
                gone = [self._recent.pop(key, None) for key in keys]
                self._recent_bytes -= sum(found[1] for found in gone if found is not None)

    @property
    def shares(self) -> bool:
        """Values are kept that rows of graphs were given."""
        return bool(self._recent)

    def settle(self) -> None:
        """Let go of what rows of graphs were given, and of the last function with the classes that it came with."""
        module_globals.enter(None)
        if self._is_held:
            class_states.here.enter(None)
            self._is_held = False
        if self._recent:
            self._forget_recent()

    def give_room(self) -> None:
        """Let go of all that files were decoded to, which keeps their memory; what a row uses stays with that row."""
        for key in [key for key in list(self._lists) if key not in self._bytes]:
            self._lists.pop(key, None)
        self._forget_recent()

    def _forget_recent(self) -> None:
        with self._lock:
            gone = list(self._recent.values())
            self._recent.clear()
            self._recent_bytes = 0
        del gone  # what the values' destructors do happens outside of the lock

    def knows(self, run: Run) -> bool:
        """Say whether the function has been decoded."""
        return run.function in self._functions

    def function(self, run: Run) -> tuple[Any, AnySerializer | None]:
        """Return (function or list of graph entries, serializer), which runs from now on. Raises Failed."""
        if run.function not in self._functions:
            module_globals.enter(None)  # what it brings is not for the one before
        found = self._decoded(self._functions, run.function, decode_function, "the function", run.name)
        module_globals.enter(found[0])
        if self._brought or self._is_held:
            brought = self._brought.get(run.function)
            class_states.here.enter(brought)
            self._is_held = brought is not None
        return found

    def arguments(self, run: Run) -> list[Any]:
        """Return the list of argument tuples of a TOGETHER batch. Raises Failed."""
        assert run.arguments is not None
        return self._decoded(self._lists, run.arguments, unpack, "the arguments of", run.name)

    def decode_anew(self, run: Run) -> None:
        """Decode the arguments anew when they are needed again: a row that failed may have changed its own."""
        if run.arguments is not None:
            self._lists.pop(run.arguments, None)
            self._brought.pop(run.arguments, None)

    def values(self, needed: list[Need], serializer: AnySerializer | None, name: str) -> list[Any]:
        """Return the values of dependencies. Raises Failed.

        Values that stayed here, and elements of result lists, are shared with other rows. The others are fresh: those
        of files use private memory that is not copied unless it is written to. What is needed twice is one value.
        """
        if len(needed) == 1:
            return [self._value(*needed[0], serializer, name)]
        seen: dict[tuple[Key, int], Any] = {}
        for need in needed:
            if need not in seen:
                seen[need] = self._value(*need, serializer, name)
        return [seen[need] for need in needed]

    def shared_values(self, needed: list[Need], serializer: AnySerializer | None, name: str) -> list[Any]:
        """Return the values of dependencies of a graph's row. Raises Failed.

        Other rows of graphs that run here soon are given the same objects, so that what an object finds out about
        itself when it is first used, as pandas' indexes do, is not found out again by every row.
        """
        return [
            self._shared(key, serializer, name) if index < 0 else self._value(key, index, serializer, name)
            for key, index in needed
        ]

    def _shared(self, key: Key, serializer: AnySerializer | None, name: str) -> Any:
        found = self._recent.get(key)
        if found is not None:
            if found[2]:
                class_states.here.beside(found[2])
            return found[0]
        live = self._live.get(key)
        if live is not None:
            return live.value
        self._decoding.add(key)
        try:
            with class_states.decoding(False) as brought:
                value, size = self._load(key, serializer, name)
        finally:
            is_known = key in self._decoding
            self._decoding.discard(key)
        size = max(size, RECENT_LEAST)
        gone = []  # what the values' destructors do happens outside of the lock
        with self._lock:
            if size <= RECENT_BYTES and is_known:  # else it was dropped meanwhile
                self._recent[key] = value, size, brought
                self._recent_bytes += size
            while self._recent_bytes > RECENT_BYTES:
                gone.append(self._recent.popitem(last=False))
                self._recent_bytes -= gone[-1][1][1]
        return value

    def _value(self, key: Key, index: int, serializer: AnySerializer | None, name: str) -> Any:
        if index >= 0:
            return self._decoded(self._lists, key, unpack, "an argument of", name)[index]
        live = self._live.get(key)
        return live.value if live is not None else self._load(key, serializer, name)[0]

    def _load(self, key: Key, serializer: AnySerializer | None, name: str) -> tuple[Any, int]:
        """Return a value and the size of its pickle. Raises Failed."""
        try:
            inband, buffers = self._parts(key, name)
            size = len(inband) + sum(buffer.nbytes for buffer in buffers)
            return unpack(inband, buffers) if serializer is None else serializer.deserialize(bytes(inband)), size
        except Failed:
            raise
        except Exception as error:
            raise undecodable("an argument of", name, error) from None

    def _decoded(
        self,
        cache: dict[Key, Value],
        key: Key,
        decode: Callable[[bytes | memoryview, Sequence[memoryview]], Value],
        what: str,
        name: str,
    ) -> Value:
        value = cache.get(key)
        if value is None:
            self._decoding.add(key)
            try:
                data, buffers = self._parts(key, name)
                again = reopened(buffers, lambda: self._parts(key, name)[1]) if buffers else nullcontext()
                with again, class_states.decoding(decode is decode_function) as brought:
                    value = cache[key] = decode(data, buffers)
                if brought:
                    self._brought[key] = brought
                if key not in self._decoding:  # it was dropped meanwhile
                    cache.pop(key, None)
                    self._brought.pop(key, None)
            except Failed:
                raise
            except Exception as error:
                raise undecodable(what, name, error) from None
            finally:
                self._decoding.discard(key)
        elif self._brought and key in self._brought and decode is not decode_function:
            class_states.here.beside(self._brought[key])
        return value

    def _parts(self, key: Key, name: str) -> tuple[bytes | memoryview, Sequence[memoryview]]:
        """Return an object's pickle and the buffers beside it, in the memory of its file.

        Raises Failed, and OSError or ObjectMissing if it is this process that can't read the file.
        """
        data = self._bytes.get(key)
        if data is not None:
            return data, ()
        store = context.store()
        if store is not None:
            try:
                stored = open_object(store, key)
                return stored.inband, stored.buffers
            except (ObjectMissing, OSError) as error:
                if fitness.is_doubtful(error):
                    raise
        raise Failed(failures.not_there(name, key[1], socket.gethostname()).encode(), key[1])
