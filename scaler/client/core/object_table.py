"""The objects that a client has told the scheduler of, and the values that the scheduler asks it for.

Of a stored object only the place is known here. After a scheduler that forgot everything its stores are new, too: the
shell has to write the objects again, and until it has, nothing may be said that could need them.
"""

from collections import OrderedDict
from collections.abc import Container, Iterable, Sequence
from typing import Any

from scaler.client.core.events import Announce, Event, Release, Restored
from scaler.protocol.messages import Frame, ObjectAnnounce, ObjectRelease, u8, u32, u64

#: questions remembered before the answered ones are left out
_MOST_REQUESTED = 10_000
#: objects released among which it is looked for those that are needed: so many more, and one for each so many batches
_FEW, _BATCHES = 16, 8


class ObjectTable:
    """What is announced, released, stored anew and asked for."""

    def __init__(self) -> None:
        #: objects that the scheduler was asked to keep, by id
        self.announced: dict[int, Announce] = {}
        #: objects released since that pending batches may need, and how many batches were submitted before; ascending
        self.released: OrderedDict[int, tuple[int, Announce]] = OrderedDict()
        #: those that are not stored and that only batches may need that have ended and are kept; ascending
        self.kept: OrderedDict[int, tuple[int, Announce]] = OrderedDict()
        #: how many of these two there were when it was last looked which are needed
        self._left = 0
        #: ids of rows whose values are in stores and have a reference here
        self.referenced: set[int] = set()
        #: stored objects that are being written again: until they are, nothing that may need them is said
        self.restoring: set[int] = set()
        #: those that could not be: nothing is said of them until they are asked for
        self._lost: set[int] = set()
        #: values and objects that the scheduler has asked for: whether it still waits
        self._requested: dict[int, bool] = {}
        #: when there are so many, those that it was told of are left out: never for each question anew
        self._many_requested = _MOST_REQUESTED

    # ---- the client's own ------------------------------------------------------------------------------------------
    def release(self, ids: Sequence[int], submitted: int, is_anything_pending: bool, is_anything_kept: bool) -> None:
        """Nothing here refers to these any more; so many batches were `submitted` before."""
        for object_id in ids:
            self.referenced.discard(object_id)
            announce = self.announced.pop(object_id, None)
            if announce is not None and is_anything_pending:
                self.released[object_id] = submitted, announce
            elif announce is not None and is_anything_kept and not announce.stored:
                self.kept[object_id] = submitted, announce

    def forget_released(self, oldest: int, oldest_kept: int) -> None:
        """The oldest batches that are pending and that are kept have these numbers: what was released before goes."""
        while self.released:
            object_id, (number, announce) = next(iter(self.released.items()))
            if number > oldest:
                break
            del self.released[object_id]
            if number > oldest_kept and not announce.stored:
                self.kept[object_id] = number, announce
        while self.kept:
            object_id, (number, _) = next(iter(self.kept.items()))
            if number > oldest_kept:
                break
            del self.kept[object_id]

    def are_many(self, batches: int) -> bool:
        """It is time to look which of those that are released are needed: none of so many batches may need them."""
        return len(self.released) + len(self.kept) > 2 * self._left + _FEW + batches // _BATCHES

    def keep_needed(self, pending: Container[int], ended: Container[int]) -> None:
        """Of those that are released only these are needed: by batches that are pending, by others that have ended."""
        self.released = OrderedDict(
            (object_id, entry)
            for object_id, entry in self.released.items()
            if object_id in pending or (object_id in ended and not entry[1].stored)
        )
        self.kept = OrderedDict((object_id, entry) for object_id, entry in self.kept.items() if object_id in ended)
        self._left = len(self.released) + len(self.kept)

    def clear(self) -> None:
        """The scheduler was told to forget all."""
        for table in (self.announced, self.released, self.kept, self.restoring, self.referenced):
            table.clear()

    def _get(self, object_id: int) -> Announce | None:
        announce = self.announced.get(object_id)
        for table in (self.released, self.kept):
            if announce is None and object_id in table:
                _, announce = table[object_id]
        return announce

    def source_of(self, object_id: int) -> Any:
        """What a stored object can be written from again; None if it is not known any more."""
        announce = self._get(object_id)
        return announce.source if announce is not None else None

    def payload_of(self, object_id: int) -> Frame | None:
        """The payload of an object that is not stored; None if it is, or is not known any more."""
        announce = self._get(object_id)
        return announce.payload if announce is not None and not announce.stored else None

    # ---- a scheduler that knows nothing ----------------------------------------------------------------------------
    def begin_anew(self) -> list[Announce]:
        """Scheduler and stores are new; the objects that have to be written again."""
        self.forget_requests()
        stored = [announce for announce in self._all() if announce.stored]
        self.restoring = {announce.id for announce in stored}
        self._lost.clear()
        self.kept.clear()
        return stored

    def forget_requests(self) -> None:
        """Who asked for values is gone."""
        self._requested = dict.fromkeys(self._requested, False)

    def restored(self, event: Restored) -> None:
        """An object was written again, or can't be. One that was let go meanwhile stays so."""
        object_id, made = event.id, event.announce
        self.restoring.discard(object_id)
        if made is None:
            self._lost.add(object_id)
        elif object_id in self.released:
            self.released[object_id] = self.released[object_id][0], made
        elif object_id in self.announced:
            self.announced[object_id] = made

    def known(self) -> list[Announce]:
        """All that a scheduler that forgot this client has to be told."""
        return [announce for announce in self._all() if announce.id not in self._lost]

    def _all(self) -> Iterable[Announce]:
        gone = (announce for table in (self.released, self.kept) for _, announce in table.values())
        return [*self.announced.values(), *gone]

    def gone(self) -> list[int]:
        """Those of all that is known that nothing here refers to any more."""
        return [*self.released, *self.kept]

    # ---- asked for by the scheduler --------------------------------------------------------------------------------
    def request(self, object_id: int) -> None:
        """The scheduler needs this value."""
        if len(self._requested) > self._many_requested:
            self._requested = {known: True for known, is_open in self._requested.items() if is_open}
            self._many_requested = max(_MOST_REQUESTED, 2 * len(self._requested))
        self._requested[object_id] = True

    def is_requested(self, object_id: int) -> bool | None:
        """Whether the scheduler still waits for this; None if it never asked."""
        return self._requested.get(object_id)

    def answer(self, object_id: int) -> None:
        """The scheduler has been told."""
        self._requested[object_id] = False


def announce_message(objects: Sequence[Announce]) -> ObjectAnnounce:
    """The message that tells of these objects."""
    return ObjectAnnounce(
        u64([announce.id for announce in objects]),
        u8([announce.kind for announce in objects]),
        [announce.payload for announce in objects],
    )


def release_message(ids: Sequence[int]) -> ObjectRelease:
    """The message that lets go of these objects of the client's own."""
    return ObjectRelease(u32([0]) * len(ids), u64(ids))


def merged_releases(events: Iterable[Event]) -> list[Event]:
    """The same with one event for releases that follow each other: the collector lets go of many at a time."""
    merged: list[Event] = []
    ids: list[int] = []
    for event in events:
        if type(event) is not Release:
            ids = []
        elif ids:
            ids.extend(event.ids)
            continue
        else:
            ids = list(event.ids)
            event = Release(ids)
        merged.append(event)
    return merged
