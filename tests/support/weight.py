"""What hangs on an object: for tests that something which runs on does not grow."""

import gc
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

#: whatever these lead to is the program's and not the object's
_PROGRAM = (type, ModuleType, FunctionType, BuiltinFunctionType)


def objects_below(root: Any) -> int:
    """Return how many objects can be reached from this one, code apart."""
    seen = {id(root): root}
    todo = [root]
    while todo:
        for found in gc.get_referents(todo.pop()):
            if id(found) not in seen and not isinstance(found, _PROGRAM):
                seen[id(found)] = found
                todo.append(found)
    return len(seen)
