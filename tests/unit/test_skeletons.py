"""Classes that travel by value arrive without what the program had Python call when it made them."""

import pickle
import textwrap
from typing import Any

import pytest
from support.elsewhere import Elsewhere

from scaler.serialize import class_states, payload

SCRIPT = """
import abc, enum, typing

MADE = {}
T = typing.TypeVar("T")

class Plugin:
    made = {}
    def __init_subclass__(cls, *, kind, **options):
        super().__init_subclass__(**options)
        MADE[kind] = Plugin.made[cls.code] = cls

class Alpha(Plugin, kind="a"):
    code = 1
    def name(self): return "alpha"

class Beta(Alpha, typing.Generic[T], kind="b"):
    code = 2
    def name(self): return "beta" + super().name()

class Meta(abc.ABCMeta):
    made = {}
    def __new__(meta, name, bases, namespace, *, tag):
        made = super().__new__(meta, name, bases, namespace)
        meta.made[tag] = made
        return made
    def __init__(cls, name, bases, namespace, *, tag):
        super().__init__(name, bases, namespace)
        cls.tag = tag

class Shape(metaclass=Meta, tag="shape"):
    @abc.abstractmethod
    def name(self): ...

class Square(Shape, tag="square"):
    __slots__ = ("size",)
    def name(self): return "square"

class Member(enum.Enum):
    def __init_subclass__(cls):
        MADE[cls.__name__] = cls
    def name_of(self): return "member"

class Colour(Member):
    RED = 1

class Constants(type):
    def __setattr__(cls, name, value): raise AttributeError(f"{name} is a constant")
    def __delattr__(cls, name): raise AttributeError(f"{name} is a constant")

class Limits(metaclass=Constants):
    most = 3
    def name(self): return self.most

class EnumConstants(enum.EnumMeta):
    def __setattr__(cls, name, value):
        if name == "name_of": raise AttributeError(name)
        super().__setattr__(name, value)

class Few(enum.Enum, metaclass=EnumConstants):
    ONE = 1
    def name_of(self): return "few"

def limits(): return Limits.most, Limits().name()
def by_kind(kind): return MADE[kind]().name(), sorted(map(str, MADE))
def by_code(code): return Plugin.made[code]().name(), sorted(Plugin.made)
def by_tag(tag): return Meta.made[tag]().name(), sorted(Meta.made), Meta.made[tag].tag
def is_noted(): return MADE["a"] is Alpha and Plugin.made[2] is Beta and Meta.made["square"] is Square
def colour(): return MADE["Colour"].RED is Colour.RED
def take(value): return value.name() if callable(value.name) else value.name
def parts(): return Beta.__mro__[1:3] == (Alpha, Plugin), Beta[int] == Beta[int], Beta.__parameters__ == (T,)
"""

CALLS = [
    "by_kind('a')", "by_code(2)", "by_tag('square')", "is_noted()", "colour()", "take(Alpha())", "take(Beta())",
    "take(Square())", "take(Colour.RED)", "parts()", "limits()", "take(Limits())", "take(Few.ONE)",
]  # fmt: skip


@pytest.fixture
def script() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(SCRIPT, names)
    return names


@pytest.mark.parametrize("first", range(len(CALLS)))
def test_what_a_program_notes_of_its_classes_is_there_as_it_was(script: dict[str, Any], first: int) -> None:
    worker = Elsewhere()
    for call in [*CALLS[first:], *CALLS]:
        function, _, argument = call[:-1].partition("(")
        arguments = (eval(argument, script),) if argument else ()
        task = payload.dumps((script[function], arguments))
        sent = payload.dumps(script[function]), payload.dumps(arguments)
        with worker.inside():
            called, given = pickle.loads(task)
            assert called(*given) == eval(call, script), call
            called, given = map(pickle.loads, sent)
            assert called(*given) == eval(call, script), call


def test_a_class_whose_metaclass_lets_nothing_be_set_is_what_it_was_for_each_function(script: dict[str, Any]) -> None:
    worker = Elsewhere()
    sent = []
    for most in (1, 2):
        type.__setattr__(script["Limits"], "most", most)
        type.__setattr__(script["Limits"], f"only_{most}", most)
        exec(f"def used(): return Limits.most, hasattr(Limits, 'only_1'), {most}", script)
        sent.append(payload.dumps(script["used"]))
        type.__delattr__(script["Limits"], f"only_{most}")
    with worker.inside():
        functions = []
        for data in sent:
            with class_states.decoding(is_function=True) as brought:
                functions.append((pickle.loads(data), brought))
        for number in (0, 1, 0):
            function, brought = functions[number]
            worker.states.enter(brought)
            assert function() == (number + 1, number == 0, number + 1)


def test_a_class_that_comes_back_is_not_noted_again(script: dict[str, Any]) -> None:
    worker = Elsewhere()
    noted = {**script["MADE"]}, {**script["Plugin"].made}, {**script["Meta"].made}
    for name in ("Beta", "Square", "Colour"):
        sent = payload.dumps_by_value(script[name])
        with worker.inside():
            back = payload.dumps_by_value(pickle.loads(sent))
        assert pickle.loads(back) is script[name]
    assert (script["MADE"], script["Plugin"].made, script["Meta"].made) == noted


def test_a_class_of_a_worker_comes_without_the_hook_of_its_base_which_is_as_it_was(script: dict[str, Any]) -> None:
    worker = Elsewhere()
    hook = vars(script["Plugin"])["__init_subclass__"]
    sent = payload.dumps(script["Alpha"])
    with worker.inside():
        names: dict[str, Any] = {"__name__": "__main__", "Alpha": pickle.loads(sent)}
        exec("class Gamma(Alpha, kind='c'):\n    code = 3\n    def name(self): return 'gamma'", names)
        back = payload.dumps_by_value(names["Gamma"])
    gamma: Any = pickle.loads(back)
    assert gamma.__bases__ == (script["Alpha"],)
    assert gamma().name() == "gamma"
    assert sorted(script["MADE"], key=str) == ["Colour", "a", "b"]
    assert vars(script["Plugin"])["__init_subclass__"] is hook
    exec("class Delta(Plugin, kind='d'): code = 4", script)
    assert script["MADE"]["d"] is script["Delta"]


def test_hooks_of_imported_bases_are_called(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
        class Noting:
            noted = []
            def __init_subclass__(cls, **options):
                Noting.noted.append((cls.__name__, options))
        class NotingMeta(type):
            noted = []
            def __init__(cls, name, bases, namespace, **options):
                NotingMeta.noted.append((name, options))
    """
    (tmp_path / "noting_of_a_library.py").write_text(textwrap.dedent(source))
    monkeypatch.syspath_prepend(tmp_path)
    import noting_of_a_library as library

    script: dict[str, Any] = {"__name__": "__main__", "library": library}
    exec(
        "class Mine(library.Noting):\n"
        "    def __init_subclass__(cls, *, kind): super().__init_subclass__(kind=kind)\n"
        "class Sub(Mine, kind=1): pass\n"
        "class Meta(library.NotingMeta): pass\n"
        "class Of(metaclass=Meta): pass\n",
        script,
    )
    library.Noting.noted.clear()
    library.NotingMeta.noted.clear()
    data = payload.dumps_by_value([script["Sub"], script["Of"]])
    with Elsewhere().inside():
        pickle.loads(data)
    assert library.Noting.noted == [("Mine", {}), ("Sub", {})]
    assert library.NotingMeta.noted == [("Of", {})]
