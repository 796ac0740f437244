"""Classes whose objects Python pickles right by itself, whatever they have: found once for each of them.

A part of a data frame is thirty objects of a dozen classes. To look at each of them, whether it is written as a name
that others don't have, takes half as long as their pickle does.
"""

from __future__ import annotations

from scaler.serialize.by_value import has_sentinels
from scaler.serialize.importable import is_importable
from scaler.serialize.named_objects import found

#: classes that are remembered, at most, of either kind: a program may make any number
LIMIT = 1_000

#: by id of the class: the module that its objects show (None: none); of others that they have another one
modules: dict[int, str | None] = {}
#: the same of classes of which an object is to be looked at if it has no attributes
modules_of_attributed: dict[int, str | None] = {}
#: kept alive so that their ids stay their own
_kept: list[type] = []
#: ids of those that are not among them; that of one which is gone costs another one its place, no more
others: set[int] = set()


def note(kind: type, module: object) -> None:
    """An object of a class that shows this module has to be pickled by Python itself: so have all others, if it can be.

    True of all as long as nobody asks `cloudpickle` to have modules travel by value. Not of a class that is made anew
    again and again, which has no name in its module: it would be kept.
    """
    key = id(kind)
    if key in modules or key in modules_of_attributed or max(len(_kept), len(others)) >= LIMIT:
        return
    own = kind.__module__
    lasts = is_importable(own) and found(own, kind.__qualname__) is kind
    if not lasts or (module is not None and module is not own):
        others.add(key)
        return
    _kept.append(kind)
    known = modules_of_attributed if has_sentinels(kind) else modules
    known[key] = own if module is own else None
