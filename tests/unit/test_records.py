"""Records are what dataclasses with slots are, but for how they are made."""

import copy
import inspect
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import KW_ONLY, FrozenInstanceError, dataclass, field, fields, replace
from typing import Any, ClassVar

import pytest

from scaler.common.records import FEW, entity, frozen, record


@record
class Point:
    """A record with a default that is made anew each time."""

    x: int
    tags: list[str] = field(default_factory=list)


@record
class Named(Point):
    """A record that has one more field than another, and something that is no field."""

    name: str = ""
    kind: ClassVar[str] = "named"


def test_a_record_is_compared_by_its_fields_and_its_type() -> None:
    assert Point(1, ["a"]) == Point(1, ["a"])
    assert Point(1) != Point(2)
    assert Point(1) != Named(1)
    assert Named(1, name="a") != Named(1, name="b")


def test_a_record_shows_its_fields() -> None:
    assert repr(Named(1, ["t"], "n")) == "Named(x=1, tags=['t'], name='n')"


def test_a_record_has_slots_and_no_hash() -> None:
    point = Point(1)
    with pytest.raises(AttributeError):
        point.y = 2  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        hash(point)


def test_the_tools_for_dataclasses_know_records() -> None:
    assert [f.name for f in fields(Named)] == ["x", "tags", "name"]
    assert replace(Point(1), x=3) == Point(3)
    assert Point(1).tags is not Point(1).tags


@entity
class Counter:
    """What is there once, with a field that is computed."""

    start: int
    step: int = 1
    end: int = field(init=False)

    def __post_init__(self) -> None:
        self.end = self.start + 10 * self.step


def test_an_entity_is_equal_to_nothing_else_and_can_be_a_key() -> None:
    one, other = Counter(1), Counter(1)
    assert one != other
    assert len({one, other, one}) == 2


def test_what_is_computed_is_there_and_is_no_parameter() -> None:
    assert [(each.start, each.step, each.end) for each in (Counter(1), Counter(2, step=3))] == [(1, 1, 11), (2, 3, 32)]
    with pytest.raises(TypeError, match="unexpected keyword argument 'end'"):
        Counter(1, end=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("which", ["the first one", "any other one"])
def test_a_wrong_construction_says_so_as_that_of_a_dataclass_does(which: str) -> None:
    @record
    class Pair:
        left: int
        right: int

    if which == "any other one":
        Pair(1, 2)
    with pytest.raises(TypeError, match=r"Pair.__init__\(\) missing 1 required positional argument: 'right'"):
        Pair(1)  # type: ignore[call-arg]
    assert Pair(right=1, left=2) == Pair(2, 1)


CALLS: list[tuple[tuple[object, ...], dict[str, object]]] = [
    ((1,), {}), ((1, 2), {}), ((1, 2, [3]), {}), ((1,), {"items": [4]}), ((), {"second": 5, "first": 6}),
    ((1,), {"key": 7}), ((), {}), ((), {"second": 1}),
    ((1, 2, [3], 4), {}), ((1,), {"first": 1}), ((1,), {"nowhere": 1}),
    ((1, 2, [3], 4, 5), {"end": 3}), ((0,), {}),
]  # fmt: skip


@pytest.mark.parametrize("kind", [record, entity, frozen])
def test_those_made_without_a_constructor_are_as_all_others(kind: Callable[[type], Callable[..., Any]]) -> None:
    def new() -> Any:
        class Kind:
            first: int
            second: int = 2
            items: list[int] = field(default_factory=list)
            _: KW_ONLY
            key: int = 3

            def __post_init__(self) -> None:
                if not self.first:
                    raise ValueError("first")

        return kind(Kind)

    def outcome(made: Any, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        try:
            one = made(*args, **kwargs)
        except (TypeError, ValueError) as error:
            return type(error), str(error)
        return [getattr(one, each.name) for each in fields(one)]

    many = new()
    for _ in range(FEW + 1):
        many(1)
    assert many.__init__.__code__.co_varnames[:3] == ("self", "first", "second")
    assert [outcome(new(), *call) for call in CALLS] == [outcome(many, *call) for call in CALLS]


def test_each_class_has_a_constructor_of_its_own_whichever_is_made_first() -> None:
    @record
    class Base:
        x: int

    @record
    class Derived(Base):
        y: int = 0

    class Plain(Derived):
        """One that is no record itself."""

    assert [Plain(1, 2).y, Derived(1, 3).y, Base(4).x] == [2, 3, 4]


def test_a_constructor_that_is_written_stays() -> None:
    @record
    class Doubled:
        x: int

        def __init__(self, x: int) -> None:
            self.x = 2 * x

    assert Doubled(2).x == 4


def test_a_record_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Named(1, ["t"], "n"))) == Named(1, ["t"], "n")


@frozen
class Option:
    """What does not change, with something that is not for everybody's eyes."""

    name: str
    secret: str = field(default="s", repr=False)
    origin: str = field(default="here", compare=False)
    _: KW_ONLY
    size: int = 3


def test_what_is_frozen_can_not_be_changed_and_says_what_to_do() -> None:
    option = Option("a")
    with pytest.raises(FrozenInstanceError, match=r"Option\.size can't be changed: dataclasses\.replace"):
        option.size = 4  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del option.size
    assert replace(option, size=4) == Option("a", size=4) != option


def test_what_is_frozen_is_compared_hashed_and_shown_as_its_fields_say() -> None:
    assert Option("a", origin="there") == Option("a")
    assert hash(Option("a", origin="there")) == hash(Option("a"))
    assert Option("a") != Option("a", "t")
    assert repr(Option("a", "very secret")) == "Option(name='a', origin='here', size=3)"
    for made in (copy.copy(Option("a")), copy.deepcopy(Option("a")), pickle.loads(pickle.dumps(Option("a")))):
        assert made == Option("a")


def test_what_is_frozen_takes_keywords_where_a_dataclass_does() -> None:
    with pytest.raises(TypeError, match=r"Option.__init__\(\) takes from 2 to 4 positional arguments but 5 were given"):
        Option("a", "b", "c", 4)  # type: ignore[misc]
    stated = [(each.name, each.kind, each.default) for each in inspect.signature(Option).parameters.values()]

    @dataclass(frozen=True)
    class Same:
        name: str
        secret: str = "s"
        origin: str = "here"
        _: KW_ONLY
        size: int = 3

    assert stated == [(each.name, each.kind, each.default) for each in inspect.signature(Same).parameters.values()]


def test_the_first_one_can_be_made_while_ctrl_c_ends_a_program() -> None:
    """Python forgets why it ends when it runs code that is given as text: it would exit with 1."""
    program = """
import atexit
from scaler.common.records import record
@record
class Farewell:
    number: int
atexit.register(Farewell, 1)
raise KeyboardInterrupt
"""
    ended = subprocess.run([sys.executable, "-c", program], stderr=subprocess.DEVNULL, check=False)
    assert ended.returncode == -signal.SIGINT
