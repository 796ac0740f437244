"""Objects that clients put into a store, a piece at a time.

A peer puts one object at a time: what it had begun before is given up. Half of an object outlives the connection that
brought it for some time: who begins again is told how much is here. There are few of those, since each has a file open,
and its memory set aside; who comes back to one that had to go begins at its beginning.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from scaler.errors import ProtocolError
from scaler.store import ObjectMissing, StoreFull
from scaler.store.layout import HEADER_BYTES, Key, check_header, file_name, tag_of
from scaler.store.room import RoomRequest
from scaler.store.segments import Draft, write_all
from scaler.store.wire import LIMITED, Kind, Note

#: seconds for which half of an object is kept: longer than a piece takes on the narrowest way (`UNDER_WAY`)
_KEEP = 300.0
#: the same once its peer is gone: longer than a client tries to connect again, see `remote`
_KEEP_LEFT = 30.0
#: of those whose peers are gone, at most
_MOST_LEFT = 32
#: seconds without a piece of it after which it is looked whether its file is still there
_LOOK = 1.0


class _Put:
    __slots__ = ("draft", "peer", "received", "tag", "used")

    def __init__(self, draft: Draft, tag: int, peer: int, now: float) -> None:
        self.draft = draft
        self.tag = tag
        #: whose it is; 0: that one is gone
        self.peer = peer
        #: bytes from the beginning that are here
        self.received = 0
        #: when something came last
        self.used = now


class Puts:
    """See the module's text. One thread."""

    def __init__(
        self,
        directory: str,
        find: Callable[[Key], tuple[int, int] | None],
        say: Callable[[int, Note], None],
        done: Callable[[Key, int], None],
    ) -> None:
        self._directory = directory
        self._request = RoomRequest(directory)
        #: descriptor and size of the file of an object that is here
        self._find = find
        #: answers a peer
        self._say = say
        #: told of objects that are complete, with their bytes
        self._done = done
        self._puts: dict[Key, _Put] = {}
        #: what each peer puts
        self._of: dict[int, Key] = {}

    def __len__(self) -> int:
        return len(self._puts)

    def is_of(self, number: int) -> bool:
        """A peer puts something."""
        return number in self._of

    def begin(self, number: int, note: Note, now: float) -> None:
        """A peer wants to put an object. Raises `ProtocolError`."""
        key = note.key
        before = self._of.get(number, key)
        if before != key:
            self._give_up(before)
        try:
            taken = self._taken(note)
            if taken is None:
                put = self._puts.get(key)
                if put is None or (put.draft.size, put.tag) != (note.size, note.number):
                    put = self._start(number, note, now)
                self._of.pop(put.peer, None)
                self._of[number] = key
                put.peer, put.used = number, now
                taken = put.received
            answer = Note(Kind.TAKEN, key, taken, note.size)
        except FileExistsError:
            answer = Note(Kind.REFUSED, key, text=f"there is another object {file_name(key)}")
        except StoreFull as full:
            self._request.ask(full)
            most, flags = (full.total or 0, 0) if full.largest is None else (full.largest, LIMITED)
            answer = Note(Kind.FULL, key, full.wanted, full.free, most, flags, full.path)
        except OSError as error:
            answer = Note(Kind.REFUSED, key, text=str(error))
        self._say(number, answer)

    def _taken(self, note: Note) -> int | None:
        """All bytes of the object if it is here already, None if it isn't. Raises FileExistsError, OSError."""
        here = self._find(note.key)
        if here is None:
            return None
        fd, size = here
        tag = tag_of(os.pread(fd, HEADER_BYTES, 0))
        os.close(fd)
        if (size, tag) != (note.size, note.number):
            raise FileExistsError
        return size

    def _start(self, number: int, note: Note, now: float) -> _Put:
        if note.size < HEADER_BYTES:
            raise ProtocolError(f"an object of {note.size} bytes")
        self._give_up(note.key)
        put = self._puts[note.key] = _Put(Draft(self._directory, note.key, note.size), note.number, number, now)
        self._request.met()
        return put

    def piece(self, number: int, note: Note, now: float) -> None:
        """The next piece of an object. Raises `ProtocolError`."""
        key = note.key
        put = self._puts.get(key)
        if put is None or put.peer != number:
            self._say(number, Note(Kind.REFUSED, key, text="it was not begun here"))
            return
        if note.offset != put.received or note.size != put.draft.size:
            raise ProtocolError(f"a piece at {note.offset} instead of {put.received}")
        try:
            write_all(put.draft.fd, note.data, note.offset)
            put.received += sum(map(len, note.data))
            put.used = now
            if put.received == note.size:
                check_header(os.pread(put.draft.fd, HEADER_BYTES, 0), key, note.size)
                put.draft.commit(with_magic=False)
                self._forget(key)
                self._done(key, note.size)
            self._say(number, Note(Kind.TAKEN, key, put.received, note.size))
        except (OSError, ObjectMissing) as error:
            put.draft.discard()
            self._forget(key)
            self._say(number, Note(Kind.REFUSED, key, text=str(error)))

    def gone(self, number: int, now: float) -> None:
        """A peer is gone, and may come back with another number for what it had begun."""
        key = self._of.pop(number, None)
        if key is None:
            return
        put = self._puts.pop(key)
        self._puts[key] = put  # last: in the order in which they were left
        put.peer, put.used = 0, now
        left = [key for key, put in self._puts.items() if not put.peer]
        if len(left) > _MOST_LEFT:
            self._give_up(left[0])

    def _forget(self, key: Key) -> None:
        put = self._puts.pop(key, None)
        if put is not None:
            self._of.pop(put.peer, None)

    def _give_up(self, key: Key) -> None:
        put = self._puts.get(key)
        if put is not None:
            put.draft.discard()
            self._forget(key)

    def tick(self, now: float) -> None:
        """Look at the time. What others have removed, as its client is gone, keeps its memory while it is open here."""
        for key, put in list(self._puts.items()):
            unused = now - put.used
            if unused >= (_KEEP if put.peer else _KEEP_LEFT) or (unused >= _LOOK and put.draft.is_removed):
                self._give_up(key)

    def close(self) -> None:
        """Remove what is half there."""
        for put in self._puts.values():
            put.draft.discard()
        self._puts.clear()
        self._of.clear()
