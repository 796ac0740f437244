"""Values of a script's classes: the class is pickled and read once, not once for each of them."""

import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest
from support.elsewhere import Elsewhere

from scaler.serialize import class_pickles, class_states, payload
from scaler.serialize.outofband import pack_large

SCRIPT = """
import collections, dataclasses, enum

class Base:
    factor = 2

class Point(Base):
    def __init__(self, x):
        self.x = x

    def scaled(self):
        return self.x * self.factor

@dataclasses.dataclass
class Record:
    a: int
    b: object = dataclasses.field(default_factory=list)

Pair = collections.namedtuple("Pair", "a b")

class Colour(enum.Enum):
    RED = 1
    BLUE = 2

class Mode(enum.Flag):
    READ = 1
    WRITE = 2

class Slotted:
    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x
"""

#: what tells values of these classes apart, in either process
LOOK = {
    "Point(3)": lambda v: v.scaled(),
    "Record(1, [2])": lambda v: (v.a, v.b),
    "Pair(1, 2)": lambda v: (v.a, v[1]),
    "Colour.BLUE": lambda v: (v.name, v.value, v is type(v).BLUE),
    "Mode.READ | Mode.WRITE": lambda v: (v.value, type(v).READ in v),
    "Slotted(5)": lambda v: v.x,
    "[Point(1), {'k': Point(2)}, Pair]": lambda v: (type(v[0]) is type(v[1]["k"]), v[2](7, 8).b),
}


@pytest.fixture
def script() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(SCRIPT, names)
    return names


@pytest.fixture
def dumped(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the classes that are pickled by themselves."""
    names: list[str] = []
    dump = payload._pickled_by_value

    def note(kind: type, *options: Any) -> Any:
        names.append(kind.__name__)
        return dump(kind, *options)

    monkeypatch.setattr(payload, "_pickled_by_value", note)
    return names


class Reading:
    """Another process, which counts the pickles of classes that it reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read = 0
        self._elsewhere = Elsewhere()
        loads = pickle.loads

        def count(*args: Any, **options: Any) -> Any:
            self.read += 1
            return loads(*args, **options)

        monkeypatch.setattr(class_states.pickle, "loads", count)
        self._loads = loads

    def __call__(self, data: bytes) -> Any:
        with self._elsewhere.inside():
            return self._loads(data)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Reading:
    return Reading(monkeypatch)


@pytest.mark.parametrize("expression", LOOK)
def test_values_arrive_and_come_back(script: dict[str, Any], elsewhere: Reading, expression: str) -> None:
    value = eval(expression, script)
    sent = payload.dumps(value)
    there = elsewhere(sent)
    assert LOOK[expression](there) == LOOK[expression](value)
    kind = type(value)
    if kind is not list:
        assert type(there) is not kind
        assert type(there).__qualname__ == kind.__qualname__
    with elsewhere._elsewhere.inside():
        back = payload.dumps(there)
    assert type(payload.loads(back)) is kind  # the script's own, for which nothing was read
    assert pack_large(value, 1 << 20) == sent


def test_a_class_is_pickled_once_and_read_once(script: dict[str, Any], dumped: list[str], elsewhere: Reading) -> None:
    values = [elsewhere(payload.dumps(script["Point"](i))) for i in range(20)]
    assert [value.scaled() for value in values] == [2 * i for i in range(20)]
    assert dumped == ["Point"]
    assert elsewhere.read == 1
    with elsewhere._elsewhere.inside():
        back = [payload.dumps(value) for value in values]
    assert dumped == ["Point", "Point"]
    assert [type(payload.loads(data)) for data in back] == [script["Point"]] * 20
    assert elsewhere.read == 1  # here it is the script's own


@pytest.mark.parametrize(
    "change", ["Point.scaled = lambda self: -1", "Base.factor = 7", "Point.more = 1; Base.factor = 7"]
)
def test_a_class_that_has_changed_is_pickled_again(script: dict[str, Any], elsewhere: Reading, change: str) -> None:
    assert elsewhere(payload.dumps(script["Point"](3))).scaled() == 6
    exec(change, script)
    assert elsewhere(payload.dumps(script["Point"](3))).scaled() == script["Point"](3).scaled() != 6


def test_of_two_forms_that_come_in_turns_each_value_sets_its_own(script: dict[str, Any], elsewhere: Reading) -> None:
    first = payload.dumps(script["Point"](3))
    script["Base"].factor = 5
    second = payload.dumps(script["Point"](3))
    assert [elsewhere(data).scaled() for data in (first, second, first, second)] == [6, 15, 6, 15]
    assert elsewhere.read == 2


def test_what_a_task_has_set_on_a_class_outlasts_another_value(script: dict[str, Any], elsewhere: Reading) -> None:
    data = payload.dumps(script["Point"](1))
    type(elsewhere(data)).model = "loaded"
    assert elsewhere(data).model == "loaded"


def test_a_class_that_may_change_unseen_is_part_of_each_pickle(script: dict[str, Any], elsewhere: Reading) -> None:
    script["np"] = np
    exec("class Tabled:\n    table = np.zeros(3)", script)
    value = script["Tabled"]()
    assert elsewhere(payload.dumps(value)).table[0] == 0
    script["Tabled"].table[0] = 4
    assert elsewhere(payload.dumps(value)).table[0] == 4


def test_a_class_with_objects_that_have_slots_is_pickled_once(script: dict[str, Any], elsewhere: Reading) -> None:
    """As those of attrs and pydantic are."""
    exec(
        "@dataclasses.dataclass(slots=True)\nclass Field:\n    name: str\n    options: dict\n"
        "class Model:\n    fields = {'x': Field('x', {'least': 0})}",
        script,
    )
    model = script["Model"]()
    for least in (0, 0, 1, 1):
        script["Model"].fields["x"].options["least"] = least
        assert elsewhere(payload.dumps(model)).fields["x"].options == {"least": least}
    assert elsewhere.read == 2


def test_a_large_class_is_part_of_each_pickle(script: dict[str, Any], elsewhere: Reading) -> None:
    exec(f"class Large:\n    text = 'x' * {class_pickles.MOST_BYTES}", script)
    assert elsewhere(payload.dumps(script["Large"]())).text == script["Large"].text
    assert elsewhere.read == 0


def test_functions_in_a_value_share_globals_with_its_class(script: dict[str, Any], elsewhere: Reading) -> None:
    exec(
        "count = 0\n"
        "class Counter:\n    def add(self):\n        global count\n        count += 1\n"
        "def read():\n    return count",
        script,
    )
    counter, read = elsewhere(payload.dumps((script["Counter"](), script["read"])))
    counter.add()
    assert read() == 1


def test_a_sentinel_stays_itself_beside_an_instance(script: dict[str, Any], elsewhere: Reading) -> None:
    value = script["Record"](1, dataclasses.MISSING)
    assert elsewhere(payload.dumps(value)).b is dataclasses.MISSING
    assert elsewhere(payload.dumps([dataclasses.MISSING]))[0] is dataclasses.MISSING


def test_a_state_is_asked_for_once(script: dict[str, Any]) -> None:
    exec(
        "asked = []\nclass Asked:\n    def __getstate__(self):\n        asked.append(1)\n        return {'x': 1}",
        script,
    )
    payload.dumps([script["Asked"]()])
    assert script["asked"] == [1]
