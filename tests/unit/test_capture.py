import collections
import colorsys
import enum
import functools
import gc
import importlib
import json
import math
import re
import sys
import threading
import types
import warnings
import weakref

import cloudpickle
import pytest

from scaler.errors import SerializationError
from scaler.serialize import Serializer
from scaler.serialize.call import decode_function
from scaler.serialize.contents import Contents
from scaler.serialize.function import FunctionCache, name_of
from scaler.serialize.watch import bindings, is_current


class Program:
    """Source text run as a module of its own, whose functions travel by value."""

    def __init__(self, source):
        self.names = {"__name__": "__main__"}
        self.run(source)

    def run(self, source):
        exec(source, self.names)

    def __getitem__(self, name):
        return self.names[name]


@pytest.fixture
def cache():
    return FunctionCache()


def call(captured, *args):
    return decode_function(captured.payload)[0](*args)


@pytest.mark.parametrize("function", [json.dumps, len, math.sqrt, json.JSONDecoder, functools.lru_cache])
def test_what_can_be_imported_travels_by_reference_under_one_token(cache, function):
    captured = cache.capture(function)
    assert captured.by_reference
    assert len(captured.payload) < 100
    assert cache.capture(function) is captured


@pytest.mark.parametrize(
    "source",
    [
        "def f(x): return x + 1",
        "f = lambda x: x + 1",
        "ONE = 1\ndef f(x): return x + ONE",
        "def g(x): return x + 1\ndef f(x): return g(x)",
        "def make():\n  one = 1\n  def f(x): return x + one\n  return f\nf = make()",
        "import functools\ndef add(x, y): return x + y\nf = functools.partial(add, y=1)",
        "import functools\n@functools.cache\ndef f(x): return x + 1",
        "class f:\n  def __new__(cls, x): return x + 1",
        "def f(x): return x + 1 if x < 5 else f(x - 1)",
        "P = {'one': 1, 'more': [{2}, (3, [4])]}\ndef f(x): return x + P['one']",
        "class C: pass\nc = C()\nc.one, c.itself = 1, c\ndef f(x): return x + c.one",
        "import numpy as np\nN, M, D, A = np.float64(1), np.int32(2), np.dtype('f8'), np.add\n"
        "def f(x):\n  N, M, D, A\n  return x + 1",
        "from collections import namedtuple, defaultdict, deque\nfrom operator import itemgetter\n"
        "P, Q, R, S = namedtuple('P', 'x')(1), defaultdict(list, a=[1]), deque([1]), itemgetter(1)\n"
        "def f(x):\n  Q, R, S\n  return x + P.x",
        "from dataclasses import dataclass\n@dataclass\nclass P:\n  x: float = 1\ndef f(x): return x + P().x",
        "import types, argparse\nN, A = types.SimpleNamespace(x=1), argparse.Namespace(x=1)\n"
        "def f(x):\n  A\n  return x + N.x",
        "import functools\n@functools.singledispatch\ndef g(x): return x\n"
        "@g.register\ndef _(x: int): return x + 1\ng(1.5)\ndef f(x): return g(x)",
        "import logging, re, datetime\nL, R, D = logging.getLogger('a'), re.compile('a'), datetime.date(2000, 1, 1)\n"
        "def f(x):\n  L, R, D\n  return x + 1",
    ],
)
def test_an_unchanged_function_is_recognised_without_pickling_it_again(cache, source, monkeypatch):
    f = Program(source)["f"]
    captured = cache.capture(f)
    assert call(captured, 1) == 2
    assert not captured.by_reference
    monkeypatch.setattr(cache, "_capture_anew", None)
    assert cache.capture(f) is captured


@pytest.mark.parametrize(
    ("source", "change", "result"),
    [
        ("def f(): return 1", "f.__code__ = (lambda: 2).__code__", 2),
        ("def f(x=1): return x", "f.__defaults__ = (2,)", 2),
        ("def f(*, x=1): return x", "f.__kwdefaults__ = {'x': 2}", 2),
        ("def f(*, x=1): return x", "f.__kwdefaults__['x'] = 2", 2),
        ("X = 1\ndef f(): return X", "X = 2", 2),
        ("def f(): return len([])", "len = lambda _: 2", 2),
        ("def f(): return X", "X = 2", 2),
        ("def g(): return 1\ndef f(): return g()", "def g(): return 2", 2),
        ("X = 1\ndef g(): return X\ndef f(): return g()", "X = 2", 2),
        ("X = 1\ndef f(): return [X for _ in 'a'][0]", "X = 2", 2),
        ("X = 1\ndef f(): return (lambda: X)()", "X = 2", 2),
        ("class C:\n  def m(self): return 1\ndef f(): return C().m()", "C.m = lambda self: 2", 2),
        ("class C:\n  x = 1\nc = C()\ndef f(): return c.x", "C.x = 2", 2),
        ("class B:\n  x = 1\nclass C(B): pass\ndef f(): return C.x", "B.x = 2", 2),
        (
            "def make():\n  x = 1\n  def f(): return x\n  def set(y):\n    nonlocal x\n    x = y\n"
            "  return f, set\nf, set = make()",
            "set(2)",
            2,
        ),
        ("X = 1\ndef deco(g):\n  def f(): return g()\n  return f\n@deco\ndef f(): return X", "X = 2", 2),
        ("import functools\nX = 1\ndef g(): return X\nf = functools.partial(g)", "X = 2", 2),
        ("import functools\ndef g(x): return x\nf = functools.partial(g, x=1)", "f.keywords['x'] = 2", 2),
        ("import functools\nX = 1\n@functools.cache\ndef f(): return X", "X = 2; f.cache_clear()", 2),
        ("P = {'x': 1}\ndef f(): return P['x']", "P['x'] = 2", 2),
        ("P = {'a': 1}\ndef f(): return len(P)", "P['b'] = 2", 2),
        ("P = [1]\ndef f(): return P[0]", "P[0] = 2", 2),
        ("P = {1}\ndef f(): return sum(P)", "P.add(1.0); P.discard(1); P.add(2)", 2),
        ("P = {'x': [{'y': 1}]}\ndef f(): return P['x'][0]['y']", "P['x'][0]['y'] = 2", 2),
        ("P = ([1],)\ndef f(): return P[0][0]", "P[0][0] = 2", 2),
        ("class C: pass\nc = C()\nc.x = 1\ndef f(): return c.x", "c.x = 2", 2),
        ("class C:\n  __slots__ = ('x',)\nc = C()\nc.x = 1\ndef f(): return c.x", "c.x = 2", 2),
        ("class C:\n  xs = [1]\ndef f(): return C.xs[0]", "C.xs[0] = 2", 2),
        ("class D(dict): pass\nd = D(x=1)\ndef f(): return d['x']", "d['x'] = 2", 2),
        ("from collections import deque\nd = deque([1])\ndef f(): return d[0]", "d[0] = 2", 2),
        ("from collections import defaultdict\nd = defaultdict(int, a=1)\ndef f(): return d['a']", "d['a'] = 2", 2),
        ("import types\nn = types.SimpleNamespace(x=1)\ndef f(): return n.x", "n.x = 2", 2),
        ("from collections import namedtuple\np = namedtuple('P', 'x')([1])\ndef f(): return p.x[0]", "p.x[0] = 2", 2),
        ("from array import array\na = array('i', [1])\ndef f(): return a[0]", "a[0] = 2", 2),
        ("P = [1] * 1000\ndef f(): return P[999]", "P[999] = 2", 2),
        ("def f(x=[1]): return x[0]", "f.__defaults__[0][0] = 2", 2),
        ("def make():\n  p = [1]\n  def f(): return p[0]\n  return f, p\nf, p = make()", "p[0] = 2", 2),
        (
            "import functools\n@functools.singledispatch\ndef g(x): return 1\ndef f(): return g(0)",
            "g.register(int, lambda x: 2)", 2,
        ),
        ("class F:\n  x = 1\n  def __call__(self): return self.x\nf = F()", "f.x = 2", 2),
        ("import random\nr = random.Random(3)\ndef f(): return r.getstate()[1][-1]", "r.random()", 2),
        ("import array\nclass A(array.array): pass\na = A('i', [1])\ndef f(): return a[0]", "a[0] = 2", 2),
        ("import types\nm = types.ModuleType('m')\nm.v = 1\ndef f(): return m.v", "m.v = 2", 2),
        ("import types\nm = types.ModuleType('m')\nm.v = [1]\ndef f(): return m.v[0]", "m.v[0] = 2", 2),
        ("class C: pass\nc = C()\nc.x = 1\ndef f(): return c.x", "c.__dict__ = {'x': 2}", 2),
        ("P = {1: 1}\nget = P.get\ndef f(): return get(1)", "P[1] = 2", 2),
        ("import functools\nP = [1]\ng = functools.partial(max, P)\ndef f(): return g()", "P[0] = 2", 2),
        ("class C: pass\nc = C()\nc.x = 1\nP = {c}\ndef f(): return list(P)[0].x", "c.x = 2", 2),
        ("class C: pass\nc = C()\nc.x = 1\nP = {c: 0}\ndef f(): return list(P)[0].x", "c.x = 2", 2),
        ("def f(): return len(f.__dict__)", "f.k = 2", 1),
        ("class C: pass\ndef f(): return getattr(C, 'k', 1)", "C.k = 2", 2),
        ("class B: pass\nclass C(B): pass\nc = C()\ndef f(): return getattr(c, 'k', 1)", "B.k = 2", 2),
        ("class C:\n  k = 2\nclass D(C):\n  k = 1\ndef f(): return D.k", "del D.k", 2),
        ("class F:\n  x = 1\n  def m(self): return self.x\na = F()\nf = a.m", "a.x = 2", 2),
    ],
)  # fmt: skip
def test_a_function_is_captured_anew_once_anything_that_it_names_has_changed(cache, source, change, result):
    program = Program(source)
    before = cache.capture(program["f"])
    program.run(change)
    after = cache.capture(program["f"])
    assert after.token != before.token
    assert call(after) == result == program["f"]()
    assert cache.capture(program["f"]) is after


CHANGES = [
    ("random.Random(0)", "it.random()"),
    ("type('Own', (random.Random,), {})(0)", "it.seed(1)"),
    ("array.array('i', [1])", "it[0] = 2"),
    ("type('Own', (array.array,), {})('i', [1])", "it[0] = 2"),
    ("type('Own', (array.array,), {})('i', [1])", "it.more = 2"),
    ("collections.deque([1])", "it.rotate() or it.append(2)"),
    ("type('Own', (collections.deque,), {})([1])", "it.append(2)"),
    ("type('Own', (list,), {})([1])", "it.append(2)"),
    ("type('Own', (dict,), {})(a=1)", "it['b'] = 1"),
    ("type('Own', (set,), {})([1])", "it.add(2)"),
    ("type('Own', (Exception,), {})(1)", "it.args = 2,"),
    ("made_point(more=1)", "it.more = 2"),
    ("collections.OrderedDict(a=1, b=2)", "it.move_to_end('a')"),
    ("collections.Counter('ab')", "it.update('a')"),
    ("collections.ChainMap({}, {1: 2})", "it[1] = 3"),
    ("collections.UserList([1])", "it.append(2)"),
    ("collections.defaultdict(int)", "it.default_factory = list"),
    ("collections.defaultdict(lambda: table)", "it.default_factory.__defaults__ = 2,"),
    ("functools.partial(max, table)", "table.append(7)"),
    ("functools.partial(max, key=table)", "table.append(7)"),
    ("functools.partial(functools.partial(max, table), 1)", "table.append(7)"),
    ("table.index", "table.append(7)"),
    ("{'a': table}.get", "it.__self__['b'] = 1"),
    ("operator.methodcaller('count', table)", "table.append(7)"),
    ("{collections.UserString('a'): 1}", "next(iter(it)).data = 'b'"),
    ("iter(table)", "next(it)"),
    ("iter(collections.deque(table))", "next(it)"),
    ("itertools.count(1)", "next(it)"),
    ("itertools.cycle(table)", "next(it)"),
    ("io.BytesIO(b'ab')", "it.read(1)"),
    ("io.StringIO('ab')", "it.read(1)"),
    ("bytearray(b'a')", "it.append(0)"),
    ("decimal.Context(prec=5)", "it.prec = 6"),
    ("logging.Formatter('%(message)s')", "it.datefmt = 'b'"),
    ("logging.LoggerAdapter(logging.getLogger('a'), {})", "it.extra['b'] = 1"),
    ("string.Template('a')", "it.template = 'b'"),
    ("types.SimpleNamespace(x=1)", "it.__init__(x=2)"),
    ("types.SimpleNamespace(x=1)", "it.__dict__.clear()"),
    ("collections.UserDict(a=1)", "it.__dict__ = {'data': {'b': 1}}"),
    ("made_member(more=1)", "it.more = 2"),
    ("made_member(more=table)", "table.append(2)"),
    ("made_module(v=1)", "it.v = 2"),
    ("made_module(v=1)", "it.w = 2"),
    ("made_module(v=table)", "table.append(2)"),
    ("made_slotted(x=1)", "it.x = 2"),
    ("made_slotted(x=1)", "it.y = 2"),
    ("made_slotted(x=1)", "del it.x"),
    ("made_slotted(x=table)", "table.append(2)"),
    ("made_slotted(z=1)", "it.z = 2"),
    ("made_slotted(x=1)", None),
    ("type('Own', (tuple,), {})([table])", "table.append(2)"),
    ("type('Own', (tuple,), {})([1])", "it.x = 2"),
    ("type('Own', (tuple,), {})([1])", None),
    ("itertools.repeat(table)", "table.append(2)"),
    ("itertools.repeat(table)", None),
    ("itertools.repeat(1, 1000)", "next(it)"),
    ("itertools.count(1000)", "next(it)"),
    ("list[int]", None),
    ("datetime.timezone(datetime.timedelta(hours=1))", None),
    ("re.compile('a')", None),
    ("decimal.Decimal(1)", None),
    ("fractions.Fraction(1, 2)", None),
    ("pathlib.Path('a')", None),
    ("json", None),
    ("made_module(v=1).__name__", None),
    ("math.sqrt", None),
    ("logging.getLogger('a')", None),
    ("enum.Enum('Own', 'A B', module='nowhere')", None),
    ("enum.IntEnum('Own', 'A B', module='nowhere').A", None),
    ("uuid.UUID(int=1)", None),
    ("type('Own', (), {'__slots__': ()})", None),
    ("type('Own', (threading.local,), {})()", None),
    ("numpy.arange(2)", "it[0] = 7"),
    ("numpy.ma.array([1, 2])", "it[0] = 7"),
    ("numpy.random.default_rng(0)", "it.random()"),
    ("numpy.random.RandomState(0)", "it.random()"),
    ("numpy.dtype([('a', int)])", "it.names = 'b',"),
    ("numpy.poly1d([1, 2])", "it[0] = 7"),
    ("numpy.float64(1)", None),
    ("numpy.dtype('f8')", None),
    ("pandas.Series([1, 2])", "it[0] = 7"),
    ("pandas.DataFrame({'a': [1]})", "it['b'] = 2"),
    ("pandas.Index([1])", "it.name = 'b'"),
    ("pandas.Categorical(['a', 'b'])", "it[0] = 'b'"),
]  # fmt: skip
MODULES = (
    "array", "collections", "datetime", "decimal", "enum", "fractions", "functools", "io", "itertools", "json",
    "logging", "math", "numpy", "operator", "pandas", "pathlib", "random", "re", "string", "threading", "types", "uuid",
)  # fmt: skip


def made_module(**attributes):
    made = types.ModuleType("made_by_hand")
    vars(made).update(attributes)
    return made


def made_member(**attributes):
    made = enum.Enum("Own", "A", module="nowhere").A
    vars(made).update(attributes)
    return made


def made_point(**attributes):
    made = type("Own", (collections.namedtuple("Own", "x"),), {})(1)
    vars(made).update(attributes)
    return made


def made_slotted(**attributes):
    """Has two slots of different classes, and a `__dict__`."""
    base = type("Base", (), {"__slots__": ("x",)})
    made = type("Own", (type("Middle", (base,), {"__slots__": ("y",)}),), {})()
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(("made", "change"), CHANGES)
def test_a_change_within_what_a_function_uses_is_noticed(made, change):
    makers = {made.__name__: made for made in (made_module, made_member, made_point, made_slotted)}
    names = {"__name__": "__main__", "table": [1, 2], **makers}
    for name in MODULES:
        if name in made:
            names[name] = pytest.importorskip(name)
    it = names["it"] = eval(made, names)
    watched, is_all = bindings(lambda: it)
    assert is_current(watched)
    if change is None:
        assert is_all
        return
    exec(change, names)
    assert not is_all or not is_current(watched)


@pytest.mark.parametrize("items", [50, 500, 2_000, 10_000, 40_000, 100_000])
def test_a_change_in_place_is_noticed_however_much_there_is(items):
    cache = FunctionCache(large=1 << 17)
    program = Program(f"P = [0] * {items}\ndef f(): return sum(P)")
    for value in range(3):
        captured = cache.capture(program["f"])
        assert call(captured if captured.packed is None else cache.in_message(captured, program["f"])) == value
        program["P"][items // 2] += 1


def test_a_function_whose_class_changes_back_has_its_old_token_again():
    """Its worker has the class as it was between, and sets it again."""
    cache = FunctionCache()
    program = Program("class C: rate = 1\ndef f(): return C.rate")
    tokens = []
    for rate in (1, 2, 1, 1):
        program["C"].rate = rate
        tokens.append(cache.capture(program["f"]).token)
    assert tokens == [1, 2, 1, 1]


def test_who_has_much_pickled_again_and_again_is_told_once(monkeypatch):
    monkeypatch.setattr("scaler.serialize.function.WARN_BYTES", 100_000)
    cache = FunctionCache(large=20_000)
    program = Program("P = list(range(10_000))\ndef f(): return len(P)")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(10):
            cache.capture(program["f"])
    (warning,) = told
    assert re.search(r"function __main__.f takes 30,\d+ bytes .* use map", str(warning.message))
    assert warning.filename == __file__, "it names the line of the program, not one of ours"


@pytest.mark.parametrize("made", ["tuple(range(10**6))", "frozenset(range(10**6))", "[(n,) for n in range(10**5)]"])
def test_many_items_are_not_looked_into(made):
    program = Program(f"P = {made}\ndef f(): return len(P)")
    watched, is_all = bindings(program["f"])
    assert not is_all
    assert len(watched) < 20


def test_a_function_whose_list_grows_large_is_not_kept(strict):
    program = Program("P = list(range(200))\ndef f(): return len(P)")
    captured = [strict.capture(program["f"])]
    for _ in range(2):
        program["P"].extend(range(10_000))
        captured.append(strict.capture(program["f"]))
    assert [bool(one.packed) for one in captured] == [False, True, True]
    gone = weakref.ref(program["f"])
    del program
    gc.collect()
    assert gone() is None


ODD = """
class Lie:
  @property
  def __class__(self): raise RuntimeError("working outside of context")
class Holder:
  def __init__(self): self.odd, self.x = Lie(), 1
  def __getstate__(self): return {"x": self.x}
class NoDict:
  __slots__ = ("a",)
  @property
  def __dict__(self): return None
  def __reduce__(self): return (NoDict, ())
class Raising:
  @property
  def __dict__(self): raise ValueError("no")
  def __reduce__(self): return (Raising, ())
class Looped(tuple):
  _fields = ("a",)
  def __iter__(self): raise RuntimeError("not so")
  def __reduce__(self): return (Looped, ())
"""


@pytest.mark.parametrize("made", ["Holder()", "NoDict()", "Raising()", "Looped((1,))", "[Holder()]"])
def test_objects_with_a_mind_of_their_own_are_captured(cache, made):
    program = Program(f"{ODD}\nodd = {made}\ndef f(): return type(odd).__name__")
    assert call(cache.capture(program["f"])) == type(program["odd"]).__name__


def test_what_is_watched_may_be_changed_by_another_thread_at_that_moment():
    watched = dict.fromkeys(range(3))
    contents = Contents(watched)

    class Changing(dict):
        def __iter__(self):
            raise RuntimeError("dictionary changed size during iteration")

    assert contents("", None) is contents
    contents._container = Changing(watched)
    assert contents("", None) is None


def test_a_function_defined_again_is_another_one(cache):
    program = Program("def f(): return 1")
    before = cache.capture(program["f"])
    program.run("def f(): return 2")
    assert call(cache.capture(program["f"])) == 2
    assert cache.capture(program["f"]).token != before.token


def test_what_a_function_does_not_name_may_change_freely(cache):
    program = Program("X = 1\ndef f(): return 1")
    before = cache.capture(program["f"])
    program.run("X = 2; Y = 3")
    assert cache.capture(program["f"]) is before


def test_a_function_that_changes_back_has_its_old_token_again(cache):
    program = Program("X = 1\ndef f(): return X")
    tokens = []
    for source in ("X = 1", "X = 2", "X = 1"):
        program.run(source)
        tokens.append(cache.capture(program["f"]).token)
    assert tokens[0] == tokens[2] != tokens[1]


def test_a_lambda_made_anew_in_a_loop_keeps_its_token(cache):
    assert len({cache.capture(lambda: 1).token for _ in range(5)}) == 1


def test_bound_methods_and_instances_in_the_same_state_keep_their_token(cache):
    program = Program("class C:\n  def m(self): return 1\nc = C()")
    assert cache.capture(program["c"].m).token == cache.capture(program["c"].m).token


def test_an_emptied_closure_cell_is_noticed(cache):
    program = Program("def make():\n  x = 1\n  def f(): return x\n  return f\nf = make()")
    before = cache.capture(program["f"])
    del program["f"].__closure__[0].cell_contents
    assert cache.capture(program["f"]).token != before.token


def test_forgotten_functions_are_captured_again(cache):
    cache = FunctionCache(limit=2)
    first = Program("def f(): return 0")["f"]
    token = cache.capture(first).token
    for number in range(1, 6):
        cache.capture(Program(f"def f(): return {number}")["f"])
    assert call(cache.capture(first)) == 0
    assert cache.capture(first).token != token


def test_functions_in_use_are_not_forgotten():
    cache = FunctionCache(limit=2)
    first = Program("def f(): return 0")["f"]
    token = cache.capture(first).token
    for number in range(1, 20):
        cache.capture(Program(f"def f(): return {number}")["f"])
        assert cache.capture(first).token == token


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def f(x, rows=[(n for n in ())]): return x\nf.rows = f.__defaults__", r"function __main__\.f: its 'rows': "),
        ("import threading\ndef make(x):\n  return lambda: x\nf = make(threading.Lock())", "a value in its closure"),
    ],
)  # fmt: skip
def test_the_value_that_keeps_a_function_from_travelling_is_named(cache, source, words):
    with pytest.raises(SerializationError, match=words):
        cache.capture(Program(source)["f"])


@pytest.mark.parametrize(
    ("given", "words"), [(3, r"3 \(int\)"), ("abs", r"'abs' \(str\)"), (None, "None"), ((n for n in "a"), "generator")]
)
def test_what_cannot_be_called_is_refused_before_anybody_pickles_it(cache, given, words):
    with pytest.raises(TypeError, match=f"a function is wanted.*{words}"):
        cache.capture(given)


def test_a_serializer_of_the_users_writes_the_function():
    class Reversed(Serializer):
        @staticmethod
        def serialize(obj):
            return Serializer.serialize(obj)[::-1]

        @staticmethod
        def deserialize(payload):
            return Serializer.deserialize(payload[::-1])

    function, serializer = decode_function(FunctionCache(Reversed).capture(math.sqrt).payload)
    assert function(4) == 2
    assert serializer.deserialize(serializer.serialize("x")) == "x"


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (json.dumps, "json.dumps"),
        (functools.partial(json.dumps, indent=1), "json.dumps"),
        (json.JSONDecoder().decode, "json.decoder.JSONDecoder.decode"),
        (functools.partial(functools.partial(len)), "builtins.len"),
    ],
)
def test_names_are_for_people(function, name):
    assert name_of(function) == name


def test_threads_may_capture_at_once(cache):
    f = Program("def f(): return 1")["f"]
    tokens = set()
    threads = [threading.Thread(target=lambda: tokens.add(cache.capture(f).token)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.capture(f).token in tokens


# ---- large functions ---------------------------------------------------------------------------------------------
LARGE = 10_000


@pytest.fixture
def strict():
    return FunctionCache(large=LARGE)


def unpacked(captured, *args):
    return decode_function(*captured.packed)[0](*args)


def test_a_large_function_is_packed_with_its_buffers_apart(strict):
    data = bytearray(b"x" * 20_000)
    captured = strict.capture(functools.partial(len, data))
    assert captured.payload == b""
    assert captured.packed.size >= 20_000
    assert unpacked(captured) == 20_000
    assert captured.name == "builtins.len"


def test_a_large_closure_is_packed_as_it_is_each_time(strict):
    program = Program("data = ['x' * 20_000]\ndef f(): return len(data[0])")
    assert unpacked(strict.capture(program["f"])) == 20_000
    program["data"][0] += "y"
    assert unpacked(strict.capture(program["f"])) == 20_001


def test_a_small_function_of_a_cache_with_a_limit_is_recognised(strict):
    program = Program("def f(x): return x + 1")
    captured = strict.capture(program["f"])
    assert captured.packed is None
    assert call(captured, 1) == 2
    assert strict.capture(program["f"]) is captured
    assert strict.capture(functools.partial(pow, [1])).token == strict.capture(functools.partial(pow, [1])).token


def test_a_large_function_that_cannot_be_stored_has_a_payload_and_one_token(strict):
    text = "x" * 20_000
    tokens = set()
    for _ in range(3):
        function = functools.partial(str.count, text)
        captured = strict.in_message(strict.capture(function), function)
        assert call(captured, "x") == 20_000
        tokens.add(captured.token)
    assert len(tokens) == 1


def test_a_function_is_recognised_that_names_what_cannot_come_along(cache):
    source = "class C: pass\nheld = C()\nheld.rows, held.many = (n for n in ()), [0] * 1000\ndef f(): return held"
    program = Program(source)
    before = cache.capture(program["f"])
    program["held"].many.append(1)
    assert cache.capture(program["f"]) is before
    program["held"].rows = 5
    assert call(cache.capture(program["f"])).rows == 5


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """A module of the user's own, and what has it say something else and loads it again."""
    path = tmp_path / "own_module.py"

    def write(rate):
        path.write_text(f"RATE = {rate}\ndef f(x): return x * rate()\ndef rate(): return RATE\n")
        importlib.invalidate_caches()

    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # two versions may be of one second
    monkeypatch.syspath_prepend(str(tmp_path))
    write(2)
    module = importlib.import_module("own_module")

    def rewrite(rate):
        write(rate)
        importlib.reload(module)

    yield module, rewrite
    cloudpickle.cloudpickle._PICKLE_BY_VALUE_MODULES.discard("own_module")
    del sys.modules["own_module"]


def test_what_is_of_a_module_that_was_loaded_again_travels_by_value(cache, own_module):
    module, rewrite = own_module
    before = cache.capture(module.f)
    assert before.by_reference
    for rate in (3, 4):
        rewrite(rate)
        after = cache.capture(module.f)
        assert not after.by_reference
        decoded = decode_function(after.payload)[0]
        assert decoded(5) == 5 * rate
        assert decoded is not module.f


def test_a_module_that_is_installed_travels_by_reference_though_it_was_loaded_again(cache):
    before = cache.capture(colorsys.rgb_to_hls)
    importlib.reload(colorsys)
    assert cache.capture(colorsys.rgb_to_hls) is before


def test_a_function_into_which_autoreload_has_put_other_code_is_captured_anew(cache, own_module, monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    module, rewrite = own_module
    function = module.f
    assert cache.capture(function) is cache.capture(function)
    rewrite(3)
    function.__code__ = module.f.__code__  # as IPython does for names that a notebook has imported
    assert call(cache.capture(function), 5) == 15
