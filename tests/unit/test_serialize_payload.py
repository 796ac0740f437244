import collections
import dataclasses
import datetime
import decimal
import enum
import functools
import importlib.util
import multiprocessing
import pathlib
import pickle
import subprocess
import sys
import threading
import types
import typing

import cloudpickle
import pytest

import scaler
from scaler.errors import SerializationError
from scaler.serialize import Serializer, by_value, familiar, importable, named_objects, outofband, payload
from scaler.serialize.importable import is_importable

ROOT = str(pathlib.Path(scaler.__file__).parents[1])


def python(code, data=b""):
    """Run a script as another process's `__main__`; it reads `data` and gives back what it prints."""
    prologue = f"import sys; sys.path.insert(0, {ROOT!r}); data = sys.stdin.buffer.read()\n"
    done = subprocess.run([sys.executable, "-I", "-c", prologue + code], input=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def elsewhere(pickled, expression):
    """Unpickle `value` in another process and return what it makes of it."""
    return python(f"import pickle; value = pickle.loads(data); print(({expression}))", pickled).decode().strip()


def from_main(code):
    """Return what `dumps` makes of `value`, in a process where `code` is `__main__`."""
    end = "\nfrom scaler.serialize import payload; sys.stdout.buffer.write(payload.dumps(value))"
    return python("import collections, dataclasses, enum, functools, typing\n" + code + end)


class Colour(enum.Enum):
    RED = 1


def is_by_reference(pickled):
    return b"cloudpickle" not in pickled


@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        "text",
        b"bytes",
        [1, (2.5, {"k": {1, 2}})],
        datetime.datetime(2024, 2, 29, 12),
        decimal.Decimal("1.5"),
        collections.OrderedDict(a=1),
        collections.Counter("aab"),
        pathlib.PurePosixPath("/x"),
        inspect_parameter := __import__("inspect").Parameter.POSITIONAL_ONLY,
        len,
        datetime.date,
        functools.partial(int, base=2).func,
        typing.List[int],  # noqa: UP006
        list[int],
    ],
    ids=repr,
)
def test_what_others_can_import_travels_by_reference_and_comes_back_equal(value):
    pickled = payload.dumps(value)
    assert payload.loads(pickled) == value
    assert is_by_reference(pickled)


def test_a_prefix_stands_before_the_pickle():
    assert payload.dumps([1], b"P")[:1] == b"P"
    assert payload.loads(memoryview(payload.dumps([1], b"P"))[1:]) == [1]
    assert payload.dumps(lambda: 1, b"P")[:1] == b"P"


@pytest.mark.parametrize(
    ("code", "expression", "result"),
    [
        ("def value(x): return x + 1", "value(1)", "2"),
        ("value = lambda x: x + 1", "value(1)", "2"),
        ("class C:\n  def m(self): return 7\nvalue = [C()]", "value[0].m()", "7"),
        ("class C:\n  def m(self): return 7\nvalue = {'f': C().m}", "value['f']()", "7"),
        ("class C(enum.Enum):\n  A = 5\nvalue = (C.A,)", "value[0].value", "5"),
        ("C = collections.namedtuple('C', 'a')\nvalue = C(4)", "value.a", "4"),
        ("class C(typing.NamedTuple):\n  a: int\nvalue = C(4)", "value.a", "4"),
        ("@dataclasses.dataclass\nclass C:\n  a: int\nvalue = C(3)", "value.a", "3"),
        ("@functools.cache\ndef value(x): return x + 1", "value(1), value.cache_info().misses", "(2, 1)"),
        ("@functools.cache\ndef value(x): return x < 2 or value(x - 1) + value(x - 2)", "value(60) > 1", "True"),
        ("Id = typing.NewType('Id', int)\ndef value(x: Id): return x", "value(Id := 1)", "1"),
        ("Id = typing.NewType('Id', int)\nvalue = [Id]", "value[0].__module__, value[0](3)", "('__main__', 3)"),
        ("T = typing.TypeVar('T')\nvalue = [T]", "value[0].__name__", "T"),
        ("P = typing.ParamSpec('P')\ndef value(f, *a: P.args): return f(*a)", "value(len, 'ab')", "2"),
        (
            "P = typing.ParamSpec('P')\nclass C(typing.Generic[P]): pass\nvalue = C()",
            "type(value).__parameters__",
            "(~P,)",
        ),
        ("Ts = typing.TypeVarTuple('Ts')\nvalue = typing.Tuple[typing.Unpack[Ts]]", "value.__parameters__", "(Ts,)"),
        ("T = typing.TypeVar('T')\nclass C(typing.Generic[T]): pass\nvalue = C[int]", "value.__args__[0]()", "0"),
        ("def f(): pass\nvalue = functools.partial(f)", "value()", "None"),
        ("class C:\n  class D: pass\nvalue = C.D", "value.__qualname__", "C.D"),
        ("import threading\nown = threading.local()\nown.a = 1\ndef value(): return vars(own)", "value()", "{}"),
        ("import threading\nclass value: own = threading.local()", "value.own.__dict__", "{}"),
        (
            "import contextvars\nown = contextvars.ContextVar('own', default=5)\ndef value(): return own.get()",
            "value()",
            "5",
        ),
        (
            "import contextvars\nown = contextvars.ContextVar('own')\nown.set(3)\ndef value(): return own.get(4)",
            "value()",
            "4",
        ),
        ("n = 3\ndef value():\n  class C: m = n\n  return C.m", "value()", "3"),
        (
            "n = 3\nclass C:\n  def m(self):\n    class D:\n      class E: o = [n] * 2\n    return D.E.o\nvalue = C()",
            "value.m()",
            "[3, 3]",
        ),
        ("m = open(0)\ndef value():\n  class C:\n    m = 4\n    n = m\n  return C.n", "value()", "4"),
        ("def value():\n  return g()\ndef g(): return 2", "value()", "2"),
    ],
)
def test_what_main_defines_travels_by_value(code, expression, result):
    assert elsewhere(from_main(code), expression) == result


DATACLASS = """
@dataclasses.dataclass
class C:
    a: int
    b: list = dataclasses.field(default_factory=list)
    c: dataclasses.InitVar[int] = 3
value = C, dataclasses
"""


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("[each.default is value[1].MISSING for each in value[1].fields(value[0])]", "[True, True]"),
        ("value[1].make_dataclass('D', [('d', int, 4)], bases=value[:1])(1)", "D(a=1, b=[], d=4)"),
        ("value[1].replace(value[0](1), a=2, c=5)", "C(a=2, b=[])"),
    ],
)
def test_a_dataclass_that_travels_by_value_is_one_to_its_module(expression, result):
    assert elsewhere(from_main(DATACLASS), expression) == result


def test_an_object_without_state_is_the_one_of_its_module(monkeypatch):
    class Unset:
        """Of a module that can be imported, as far as pickling can tell."""

    Unset.__module__, Unset.__qualname__ = pathlib.__name__, "Unset"
    unset = Unset()
    monkeypatch.setattr(pathlib, "Unset", Unset, raising=False)
    other = payload.loads(payload.dumps(lambda: unset))
    assert other() is not unset
    monkeypatch.setattr(pathlib, "unset", unset, raising=False)
    assert payload.loads(payload.dumps(lambda: unset))() is unset
    pickled = payload.dumps(lambda: unset)
    monkeypatch.setattr(pathlib, "unset", None)  # it has another value where it is unpickled
    assert type(payload.loads(pickled)()) is Unset
    monkeypatch.setattr(pathlib, "unset", unset)
    unset.state = 1
    assert payload.loads(payload.dumps(lambda: unset))() is not unset


@pytest.mark.parametrize("made", ["NewType('made', int)", "ParamSpec('made', bound=int)", "TypeVarTuple('made')"])
def test_a_named_type_of_main_comes_back_as_itself(made):
    value = from_main(f"value = typing.{made}")
    assert payload.loads(value) is payload.loads(value)
    assert payload.loads(payload.dumps(payload.loads(value))) is payload.loads(value)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python has no such syntax yet")
@pytest.mark.parametrize(
    ("code", "expression", "result"),
    [
        ("type Alias[T] = list[T]\ndef value(x: Alias[int]): return x", "value(1)", "1"),
        ("def value[**P, *Ts](f: typing.Callable[P, int], *a: P.args): return f(*a)", "value(len, 'ab')", "2"),
    ],
)
def test_types_in_brackets_travel_by_value(code, expression, result):
    assert elsewhere(from_main(code), expression) == result


DISPATCHER = """
class C: pass
@functools.singledispatch
def f(x):
    "Says what it is."
    return f"other {f(list(x))}" if x else "nothing"
@f.register
def _(x: list): return [f(y) for y in x]
@f.register(C)
def of_c(x): return "C"
class M:
    @functools.singledispatchmethod
    @classmethod
    def m(cls, x): return cls.__name__
    @m.register
    @classmethod
    def _(cls, x: int | str): return x * 2
"""


@pytest.mark.parametrize(
    ("code", "expression", "result"),
    [
        ("value = f, C", "value[0]([(), value[1]()])", "['nothing', 'C']"),
        ("f(1.5 > 2); f.register(float, lambda x: -x)\nvalue = f", "value(1.5)", "-1.5"),
        ("f.register(object, lambda x: 1)\nvalue = f", "value(()), value.__wrapped__(())", "(1, 'nothing')"),
        ("f.note = f.__name__ = 'g'\nvalue = f", "value.note, value.__name__, value.__qualname__", "('g', 'g', 'f')"),
        (
            "value = f",
            "value.__doc__, value.__module__, list(value.registry)[0]",
            "('Says what it is.', '__main__', <class 'object'>)",
        ),
        ("value = of_c", "value(1), value.__globals__.get('f')", "('C', None)"),
        ("def value(): return f([])", "value()", "[]"),
        ("value = functools.partial(f, [()])", "value()", "['nothing']"),
        ("value = f.__wrapped__", "value(()), value.__globals__['f'].__doc__", "('nothing', 'Says what it is.')"),
        ("value = M", "value.m(1), value().m('a'), value.m(1.5)", "(2, 'aa', 'M')"),
    ],
)
def test_a_function_of_main_that_dispatches_travels_with_what_is_registered(code, expression, result):
    assert elsewhere(from_main(DISPATCHER + code), expression) == result


def test_code_of_main_has_the_name_of_its_file_where_it_goes(monkeypatch):
    """`cloudpickle` leaves it out from 3.1.3 on."""
    whole = cloudpickle.Pickler.dispatch_table[types.CodeType]

    def reduced(code):
        make, arguments = whole(code)
        return make, tuple("<dynamic-code>" if part == code.co_filename else part for part in arguments)

    monkeypatch.setitem(cloudpickle.Pickler.dispatch_table.maps[0], types.CodeType, reduced)
    space = {"__name__": "__main__"}
    exec(compile("def function():\n    return lambda: 1", "script.py", "exec"), space)
    files = "value.__code__.co_filename, value().__code__.co_filename"
    assert elsewhere(payload.dumps(space["function"]), files) == "('script.py', 'script.py')"


def test_a_class_of_main_comes_back_as_the_very_class():
    code = """
from scaler.serialize import payload
class C(Exception): pass
there = payload.loads(payload.dumps(C))
print(there is C)
"""
    assert python(code).split() == [b"True"]


def test_a_class_that_comes_back_keeps_its_own_methods():
    code = """
from scaler.serialize import payload
count = 0
class C:
    def m(self):
        global count
        count += 1
method = C.m
payload.loads(payload.dumps(C())).m()
print(C.m is method, count)
"""
    assert python(code).split() == [b"True", b"1"]


def test_a_class_that_was_changed_is_changed_where_it_went():
    code = """
from scaler.serialize import payload
class C:
    x = 1
first = payload.dumps(C)
C.x = 2
sys.stdout.buffer.write(payload.dumps([first, payload.dumps(C)]))
"""
    assert elsewhere(python(code), "[pickle.loads(part).x for part in value]") == "[1, 2]"


@pytest.mark.parametrize(
    ("code", "expression", "result"),
    [
        ("class C:\n  __slots__ = ('a',)\nvalue = C()\nvalue.a = 1", "value.a", "1"),
        ("class C:\n  __slots__ = 'a'\nvalue = C()\nvalue.a = 1", "value.a", "1"),
        ("class C:\n  __slots__ = {'a': 'said'}\nvalue = C()\nvalue.a = 1", "value.a", "1"),
        (
            "class C:\n  __slots__ = ['__a', '__weakref__']\n  def __init__(self): self.__a = 1\nvalue = C()",
            "value._C__a",
            "1",
        ),
        ("class B:\n  __slots__ = ('a',)\nclass C(B):\n  __slots__ = ('b',)\nvalue = C()\nvalue.a = 1", "value.a", "1"),
        (
            "class C(typing.Generic[typing.TypeVar('T')]):\n  __slots__ = ('a',)\nvalue = C()\nvalue.a = 1",
            "value.a",
            "1",
        ),
        ("@dataclasses.dataclass(slots=True)\nclass C:\n  a: int = 1\nvalue = C()", "value.a", "1"),
        ("@dataclasses.dataclass(slots=True, frozen=True)\nclass C:\n  a: int = 1\nvalue = C()", "value.a", "1"),
        ("@dataclasses.dataclass(slots=True, weakref_slot=True)\nclass C:\n  a: int = 1\nvalue = C()", "value.a", "1"),
        (
            "class P(typing.Protocol):\n  __slots__ = 'a'\nclass C(P):\n  __slots__ = 'b'\nvalue = C()\nvalue.a = 1",
            "value.a",
            "1",
        ),
        ("class M(type): pass\nclass C(metaclass=M):\n  __slots__ = ('a',)\nvalue = C()\nvalue.a = 1", "value.a", "1"),
        (
            "class B:\n  __slots__ = ()\nclass C(B):\n  __slots__ = ('a', '__weakref__')\nvalue = C()\nvalue.a = 1",
            "value.a",
            "1",
        ),
        ("class B(typing.NamedTuple): a: int\nclass C(B):\n  __slots__ = ()\nvalue = C(1)", "value.a", "1"),
        ("import abc\nclass C(abc.ABC):\n  __slots__ = ('a',)\nvalue = C()\nvalue.a = 1", "value.a", "1"),
    ],
)
def test_a_class_of_main_has_its_slots_where_it_goes(code, expression, result):
    assert elsewhere(from_main(code), f"hasattr(value, '__dict__'), {expression}") == f"(False, {result})"


C_TYPES = """
import ctypes, struct
class P(ctypes.Structure):
    _fields_ = [("x", ctypes.c_int), ("y", ctypes.c_double)]
    def sum(self): return self.x + self.y
class Packed(ctypes.Structure):
    _pack_, _anonymous_ = 1, ("p",)
    _fields_ = [("c", ctypes.c_char), ("p", P), ("a", ctypes.c_int * 3)]
class Derived(P): _fields_ = [("z", ctypes.c_uint, 3)]
class Either(ctypes.Union): _fields_ = [("i", ctypes.c_int32), ("p", P)]
class Swapped(ctypes.BigEndianStructure): _fields_ = [("x", ctypes.c_int32), ("c", ctypes.c_char)]
class Node(ctypes.Structure): pass
Node._fields_ = [("x", ctypes.c_int), ("next", ctypes.POINTER(Node))]
class Int(ctypes.c_int): pass
class Two(ctypes.Array): _type_, _length_ = P, 2
@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
def double(x): return 2 * x
@ctypes.PYFUNCTYPE(ctypes.c_long, ctypes.py_object)
def length(x): return len(x)
library = ctypes.CDLL(None, use_errno=True)
library.atof.restype = ctypes.c_double
labs, library.labs.argtypes, library.labs.errcheck = library.labs, [ctypes.c_long], lambda value, *_: value + 1
def linked():
    last = Node(2)
    return Node(1, ctypes.pointer(last)).next.contents.x
"""


@pytest.mark.parametrize(
    ("code", "expression", "result"),
    [
        ("P(1, 2)", "value.sum()", "3.0"),
        ("Packed", "value(b'c', (1, 2)).y, value.a.offset", "(2.0, 17)"),
        ("Derived(1, 2, 3)", "value.sum() + value.z", "6.0"),
        ("Either(5)", "value.i", "5"),
        ("Swapped(1, b'c')", "bytes(value)[:5]", "b'\\x00\\x00\\x00\\x01c'"),
        ("linked", "value()", "2"),
        ("Int(3)", "value.value", "3"),
        ("Two((1, 2), (3, 4))", "value[1].sum()", "7.0"),
        ("(ctypes.c_int * 2)(1, 2)", "list(value)", "[1, 2]"),
        ("(P * 2)((1, 2), (3, 4))", "value[1].sum()", "7.0"),
        ("lambda: (double(2), length([1]))", "value()", "(4, 1)"),
        ("lambda: library.atof(b'1.5')", "value()", "1.5"),
        ("lambda: labs(-2)", "value()", "3"),
        ("lambda: (library.open(b'', 0), ctypes.get_errno())", "value()", "(-1, 2)"),
        ("[payload.dumps(each) for each in (P(1, 2), P(3, 4))]", "[pickle.loads(p).x for p in value]", "[1, 3]"),
        ("struct.Struct('<ic')", "value.pack(1, b'c')", "b'\\x01\\x00\\x00\\x00c'"),
    ],
)
def test_types_of_c_travel(code, expression, result):
    assert elsewhere(from_main(f"from scaler.serialize import payload\n{C_TYPES}value = {code}"), expression) == result


@pytest.mark.parametrize(
    "code", ["P", "P * 2", "ctypes.POINTER(P)", "type(double)", "Swapped", "ctypes.c_int.__ctype_be__"]
)
def test_types_of_c_come_back_as_themselves(code):
    end = "print(payload.loads(payload.dumps_by_value(value)) is value)"
    assert python(f"from scaler.serialize import payload\n{C_TYPES}value = {code}\n{end}").split() == [b"True"]


def test_functions_for_arrays_that_numpy_has_made_of_those_of_main_travel():
    pytest.importorskip("numpy")
    code = "import numpy\nvalue = numpy.frompyfunc(lambda x, y: x + y, 2, 1, identity=0)"
    assert elsewhere(from_main(code), "value([1, 2], 3).tolist(), value.reduce([])") == "([4, 5], 0)"


@pytest.mark.parametrize(
    ("code", "expression", "result"),
    [
        (
            "class C(enum.Enum):\n  A = (1, 2)\n  B = (3, 4)\n  def __init__(self, x, y): self.x = x\n"
            "  def __call__(self): return self.x + self.value[1]\nvalue = C.B",
            "value(), type(value)((1, 2)).x",
            "(7, 1)",
        ),
        (
            "class C(enum.Enum):\n  def __new__(cls, value, text):\n    made = object.__new__(cls)\n"
            "    made._value_, made.text = value, text\n    return made\n  A = 1, 'one'\nvalue = C.A",
            "type(value)(1).text, value.value",
            "('one', 1)",
        ),
        (
            "class C(str, enum.Enum):\n  def __new__(cls, number, text):\n    made = str.__new__(cls, text)\n"
            "    made._value_ = number\n    return made\n  A = 1, 'one'\nvalue = C.A",
            "value == 'one', type(value)(1) is value, list(type(value))[0].value",
            "(True, True, 1)",
        ),
        ("class C(tuple, enum.Enum):\n  A = (1, 2)\nvalue = C.A", "value[1], value.value", "(2, (1, 2))"),
        (
            "@dataclasses.dataclass\nclass D:\n  size: str\n  legs: int\n"
            "class C(D, enum.Enum):\n  DOG = 'medium', 4\nvalue = C.DOG",
            "value.legs, value.size, value.name",
            "(4, 'medium', 'DOG')",
        ),
        (
            "class C(enum.Enum):\n  A = 1\n  ALIAS = 1\nvalue = C",
            "value.ALIAS is value['ALIAS'] is value.A, list(value.__members__), len(value)",
            "(True, ['A', 'ALIAS'], 1)",
        ),
        (
            "class C(enum.Flag):\n  R = 1\n  W = 2\n  RW = 3\nvalue = C",
            "value.RW is value['RW'] is value(3) is value.R | value.W, value(3).name, ~value.R is value.W, len(value)",
            "(True, 'RW', True, 2)",
        ),
        (
            "class C(enum.IntFlag, boundary=enum.KEEP):\n  R = 1\nvalue = C",
            "int(value.R | 8), value(9).value, value.R + 1",
            "(9, 9, 2)",
        ),
        (
            "class B(enum.Enum):\n  def twice(self): return 2 * self.value\n"
            "class C(B):\n  A = 1\n  _B = enum.auto()\nvalue = C",
            "value.A.twice(), value.__base__('D', {'E': 5}).E.twice()",
            "(2, 10)",
        ),
    ],
)
def test_members_of_an_enumeration_of_main_are_what_they_were(code, expression, result):
    assert elsewhere(from_main(code), expression) == result


def test_a_cached_property_of_a_class_of_main_computes_once_where_it_goes():
    code = """
class C:
    @functools.cached_property
    def items(self):
        "Some."
        return [C.items.attrname, C.items.__doc__]
value = C()
"""
    assert elsewhere(from_main(code), "value.items, value.items is value.items") == "(['items', 'Some.'], True)"


@pytest.fixture
def handmade():
    module = types.ModuleType("handmade_module")
    exec("class C:\n  a = 1\ndef f(x): return x * 2\ndef g(x): return f(x)", module.__dict__)
    sys.modules["handmade_module"] = module
    yield module
    del sys.modules["handmade_module"]


def test_a_module_made_by_hand_is_not_importable_and_what_it_defines_travels_by_value(handmade):
    assert not is_importable("handmade_module")
    assert elsewhere(payload.dumps([handmade.C(), handmade.g]), "value[0].a, value[1](2)") == "(1, 4)"


def test_a_module_loaded_from_a_file_that_is_on_no_path_travels_by_value(tmp_path, monkeypatch):
    (tmp_path / "loose_module.py").write_text("def f(x): return x + 10\n")
    spec = importlib.util.spec_from_file_location("loose_module", tmp_path / "loose_module.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "loose_module", module)
    spec.loader.exec_module(module)
    assert elsewhere(payload.dumps(module.f), "value(1)") == "11"


def test_a_module_travels_by_reference_as_soon_as_it_is_on_the_path(tmp_path, monkeypatch):
    (tmp_path / "found_module.py").write_text("def f(x): return x + 10\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import found_module

    monkeypatch.setitem(sys.modules, "found_module", found_module)
    assert is_importable("found_module")
    assert is_by_reference(payload.dumps(found_module.f))


def test_another_module_of_the_same_name_as_one_on_the_path_travels_by_value(tmp_path, monkeypatch):
    for place in ("on_path", "loaded"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "twin_module.py").write_text(f"def f(): return {place!r}\n")
    monkeypatch.syspath_prepend(str(tmp_path / "on_path"))
    spec = importlib.util.spec_from_file_location("twin_module", tmp_path / "loaded" / "twin_module.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "twin_module", module)
    spec.loader.exec_module(module)
    assert elsewhere(payload.dumps(module.f), "value()") == "loaded"


def test_a_data_frame_has_the_disk_asked_once_for_the_modules_that_it_needs(monkeypatch):
    pandas = pytest.importorskip("pandas")  # its functions are Cython's, of a type whose module nobody finds
    frame = pandas.DataFrame({"key": [1, 2], "value": [0.5, 1.5]})
    payload.dumps(frame)
    asked = []
    monkeypatch.setattr(importable, "_can_be_found", lambda name, module: asked.append(name))
    payload.dumps(frame)
    assert not asked


@pytest.fixture
def all_by_reference(monkeypatch):
    """No module travels by value since other tests had some that were made by hand."""
    before = importable.registered.copy()
    importable.registered.clear()
    monkeypatch.setattr(familiar, "others", set())  # ids of classes that are gone
    yield
    importable.registered.update(before)


def test_a_data_frame_pickled_again_has_most_of_its_parts_looked_at_no_more(monkeypatch, all_by_reference):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"key": [1, 2], "value": [0.5, 1.5]})
    assert elsewhere(payload.dumps(frame), "value.sum().sum()") == "5.0"
    asked = []
    monkeypatch.setattr(by_value, "may_be_sentinel", asked.append)
    monkeypatch.setattr(named_objects, "may_be_a_name", asked.append)
    payload.dumps(frame)
    others = [part.__name__ for part in asked if type(part).__name__ != "cython_function_or_method"]
    names_are_numpys = importlib.util.find_spec("pyarrow") is None  # those of the columns
    assert others == (["_reconstruct"] if names_are_numpys else [])


FAMILIAR = """
class Named:
    def __init__(self, name):
        self.name = name
    def __reduce__(self):
        return self.name

NAMED = Named("NAMED")

class Empty:
    pass

EMPTY = Empty()

class Unset:
    __slots__ = ("filled",)

UNSET = Unset()

def local():
    class Local:
        def __init__(self):
            self.x = 1
    return Local()
"""


@pytest.fixture
def familiar_module(tmp_path, monkeypatch, all_by_reference):
    (tmp_path / "familiar_module.py").write_text(FAMILIAR)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("familiar_module")
    yield module
    sys.modules.pop("familiar_module")


def test_an_object_of_a_familiar_class_travels_by_value_if_its_own_module_is_out_of_reach(familiar_module, monkeypatch):
    for _ in range(2):
        assert is_by_reference(payload.dumps(familiar_module.NAMED))
    assert id(familiar_module.Named) in familiar.modules
    other = familiar_module.Named("OTHER")
    other.__module__ = "__main__"
    monkeypatch.setattr(sys.modules["__main__"], "OTHER", other, raising=False)
    assert b"named_objects" in payload.dumps(other)
    cloudpickle.register_pickle_by_value(familiar_module)
    try:
        assert b"named_objects" in payload.dumps(familiar_module.NAMED)
    finally:
        cloudpickle.unregister_pickle_by_value(familiar_module)
    assert is_by_reference(payload.dumps(familiar_module.NAMED))


def test_a_sentinel_stays_itself_though_others_of_its_class_went_before(familiar_module):
    filled = familiar_module.Empty()
    filled.x = 1
    for _ in range(2):
        assert payload.loads(payload.dumps(filled)).x == 1
    assert id(familiar_module.Empty) in familiar.modules_of_attributed
    assert payload.loads(payload.dumps(familiar_module.EMPTY)) is familiar_module.EMPTY


def test_a_sentinel_with_a_slot_that_is_not_set_stays_itself(familiar_module):
    filled = familiar_module.Unset()
    filled.filled = 1
    for _ in range(2):
        assert payload.loads(payload.dumps(filled)).filled == 1
        assert payload.loads(payload.dumps(familiar_module.UNSET)) is familiar_module.UNSET
    assert id(familiar_module.Unset) in familiar.modules_of_attributed


def test_a_class_that_a_function_makes_anew_each_time_is_not_kept(familiar_module):
    made = familiar_module.local()
    assert payload.loads(payload.dumps(made)).x == 1
    assert type(made) not in familiar._kept


class Mine:
    def __getstate__(self):
        return {}


def test_no_more_than_so_many_classes_are_familiar(monkeypatch, all_by_reference):
    monkeypatch.setattr(familiar, "LIMIT", len(familiar._kept))
    payload.dumps(Mine())
    assert id(Mine) not in familiar.modules
    monkeypatch.setattr(familiar, "LIMIT", len(familiar._kept) + 1)
    for wish in ({"another"}, set()):  # a module that travels by value has all others looked at again
        importable.registered.update(wish)
        payload.dumps(Mine())
        importable.registered.difference_update(wish)
    assert familiar.modules.pop(id(Mine)) == __name__
    assert familiar._kept.count(Mine) == 1


def test_the_users_wish_that_a_package_travels_by_value_is_heard():
    import json.decoder

    assert is_by_reference(payload.dumps(json.decoder.JSONDecoder))
    cloudpickle.register_pickle_by_value(json)
    try:
        assert not is_importable("json.decoder")
        assert not is_by_reference(payload.dumps(json.decoder.JSONDecoder))
    finally:
        cloudpickle.unregister_pickle_by_value(json)
    assert is_by_reference(payload.dumps(json.decoder.JSONDecoder))


def test_a_function_whose_name_leads_to_another_one_travels_by_value(tmp_path, monkeypatch):
    (tmp_path / "shadowed_module.py").write_text("def f(): return 1\nfirst = f\ndef f(): return 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import shadowed_module

    assert elsewhere(payload.dumps(shadowed_module.first), "value()") == "1"


@dataclasses.dataclass
class Point:
    x: int


def test_local_and_test_classes_travel():
    class Local:
        def __init__(self):
            self.x = 4

    assert elsewhere(payload.dumps([Local(), Point(5)]), "value[0].x, value[1].x") == "(4, 5)"


class Refuses:
    def __reduce__(self):
        raise LookupError("not me")


def deep():
    value = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (threading.Lock(), "an object of type _thread.lock cannot be pickled: TypeError"),
        ([threading.Lock()], "an object of type list cannot be pickled"),
        (threading.local(), "an object of type _thread._local cannot be pickled"),
        (Refuses(), "LookupError: not me"),
        (deep(), "recursion"),
        ((n for n in ()), r"'generator' object \(a list of what it yields can be\)$"),
        ({"n": [(n for n in ())]}, r"\(a list of what it yields can be\)$"),
        ([multiprocessing.Lock()], r"through inheritance \(one of a multiprocessing.Manager\(\) can be\)$"),
        (multiprocessing.Queue(), r"through inheritance \(one of a multiprocessing.Manager\(\) can be\)$"),
    ],
)
def test_what_cannot_be_pickled_is_one_error_that_says_so(value, words):
    with pytest.raises(SerializationError, match=words) as caught:
        payload.dumps(value)
    assert isinstance(caught.value, pickle.PicklingError)
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("around", [lambda end: end, lambda end: [end], lambda end: lambda: end, lambda end: end.recv])
@pytest.mark.parametrize("dumps", [payload.dumps, payload.dumps_by_value, outofband.pack])
def test_an_end_of_a_pipe_is_refused_as_locks_of_multiprocessing_are(dumps, around):
    one, other = multiprocessing.Pipe()
    words = r"RuntimeError: Connection objects should only be .* \(a queue of a multiprocessing.Manager\(\) can be\)"
    with one, other, pytest.raises(SerializationError, match=words):
        dumps(around(one))
    assert payload.loads(payload.dumps(type(one))) is type(one)


class _Base:
    def __who(self):
        return "base"

    @classmethod
    def __where(cls):
        return cls.__name__

    def methods(self):
        return [self.__who, self.__where]


class _Derived(_Base):
    def __who(self):
        return "derived"

    def methods(self):
        return [*super().methods(), self.__who]


def test_methods_with_private_names_are_found_by_what_they_are_called_outside_of_their_class():
    pickled = payload.dumps(_Derived().methods())
    assert is_by_reference(pickled)
    assert [method() for method in payload.loads(pickled)] == ["base", "_Derived", "derived"]


def _unnamed(function):
    def wrapper(self):
        return function(self), "wrapped"

    return wrapper


class _Named(_Derived):
    of_lambda = lambda self: "lambda"  # noqa: E731

    @_unnamed
    def decorated(self):
        return "decorated"

    @classmethod
    @_unnamed
    def of_class(cls):
        return cls.__name__

    def methods(self):
        return "not those of the base class"

    def inherited(self):
        return super().methods


def _bound_by_hand(instance):
    return type(instance).__name__


def test_methods_that_have_another_name_than_their_functions_are_the_same_ones():
    instance = _Named()
    methods = [instance.of_lambda, instance.decorated, _Named.of_class, types.MethodType(_bound_by_hand, instance)]
    back = payload.loads(payload.dumps(methods))
    assert [method() for method in back] == ["lambda", ("decorated", "wrapped"), ("_Named", "wrapped"), "_Named"]


def test_a_method_taken_by_super_is_not_the_one_that_overrides_it():
    method = payload.loads(payload.dumps(_Named().inherited()))
    assert [who() for who in method()] == ["base", "_Named", "derived"]


def test_a_large_array_is_not_blown_up():
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(100_000)
    pickled = payload.dumps({"a": array})
    assert len(pickled) < array.nbytes + 500
    assert (payload.loads(pickled)["a"] == array).all()


def test_the_default_serializer_is_this_one():
    assert Serializer.deserialize(Serializer.serialize(Point(3))).x == 3


@pytest.mark.parametrize("sent", [[1, 2], [1, 2, 3, 4], (1, 2, 3), "abc", None])
def test_a_list_of_results_that_is_not_of_its_rows_is_refused_by_name(sent):
    with pytest.raises(SerializationError, match="as the list of the results of 3 rows"):
        payload.loads_list(payload.dumps(sent), 3)
