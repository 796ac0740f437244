"""Classes of a script that keep objects of themselves, which need the class to be made."""

from typing import Any

import pytest
from support.elsewhere import Elsewhere

from scaler.serialize import payload

SOURCES = {
    "a flyweight": """
class C:
    known = TABLE()
    def __new__(cls, name):
        if name not in cls.known:
            self = super().__new__(cls)
            self.name = name
            cls.known[name] = self
        return cls.known[name]
    def __getnewargs__(self): return (self.name,)
""",
    "one that a class method finds": """
class C:
    known = TABLE()
    def __init__(self, name):
        self.name = name
        C.known[name] = self
    def __reduce__(self): return C.get, (self.name,)
    @classmethod
    def get(cls, name): return cls.known.get(name) or cls(name)
""",
    "of a subclass": """
class Base:
    known = TABLE()
    def __new__(cls, name):
        made = cls.known.get(name)
        if made is None:
            made = cls.known[name] = super().__new__(cls)
            made.name = name
        return made
    def __getnewargs__(self): return (self.name,)
class C(Base): pass
""",
}
TABLES = {"dict": "dict", "weak": "__import__('weakref').WeakValueDictionary"}


def script(source: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(
        source + "\ndef f(x): return x.name, getattr(C, 'get', C)(x.name) is x, len(C.known)\nx, y = C('a'), C('b')",
        names,
    )
    return names


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("name", SOURCES)
def test_its_objects_travel_and_are_those_that_it_knows(name: str, table: str) -> None:
    names, elsewhere = script(SOURCES[name].replace("TABLE", TABLES[table])), Elsewhere()
    pickled = payload.dumps(names["x"]), payload.dumps(names["f"]), payload.dumps((names["f"], names["y"]))
    with elsewhere.inside():
        x, f = map(payload.loads, pickled[:2])
        assert f(x)[:2] == ("a", True)
        assert type(x) is not names["C"]
        g, y = payload.loads(pickled[2])
        assert g(y)[:2] == ("b", True)
        back = payload.dumps(x), payload.dumps(y)
    assert [payload.loads(each) for each in back] == [names["x"], names["y"]]
    assert names["f"](names["x"]) == ("a", True, 2)


def test_an_object_that_is_an_attribute_of_its_class_is_made_by_its_own_method() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(
        "class C:\n  def __new__(cls, unit):\n    self = super().__new__(cls)\n    self.unit = unit\n    return self\n"
        "  def __getnewargs__(self): return (self.unit,)\nC.metre = C('m')",
        names,
    )
    data = payload.dumps(names["C"]("s"))
    with Elsewhere().inside():
        found = payload.loads(data)
        assert (found.unit, type(found).metre.unit) == ("s", "m")
