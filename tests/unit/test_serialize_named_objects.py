import pickle
import subprocess
import sys

import pytest

from scaler.serialize import payload

SCRIPT = """
import array, copyreg, enum, gc, pickle, sys, weakref
sys.path[:], expressions = pickle.loads(sys.stdin.buffer.read())
import toolz
from scaler.serialize import outofband, payload

class Named:
    def __init__(self, name): self.name = name
    def __reduce__(self): return self.name
class Slots(Named):
    __slots__ = ("more",)
class NoWeakReference:
    __slots__ = "value",
    __hash__ = None
    def __eq__(self, other): return isinstance(other, NoWeakReference)
    def __reduce__(self): return "no_weak_reference"
class Single:
    one = None
    def __new__(cls):
        if cls.one is None: cls.one = super().__new__(cls)
        return cls.one
    def __init__(self): self.n = 1
    def __reduce_ex__(self, protocol): return "single"
class Refusing(Named):
    def __new__(cls, *args):
        if args: return super().__new__(cls)
        raise TypeError("there is one of these")
class Number(int):
    def __reduce__(self): return "number"
class Letters(list):
    def __reduce__(self): return "letters"
class OwnState(Named):
    def __getstate__(self): return [self.name, 5]
    def __setstate__(self, state): self.name, self.five = state
class Colour(enum.Enum):
    RED = [1]
    __reduce_ex__ = lambda self, _: self.name
RED = Colour.RED
class Later:
    class Inner: pass
    Inner.__reduce__ = lambda self: "Later.inner"
    inner = Inner()
class Tuple(Named):
    def __reduce__(self): return Tuple, ("made",)

missing, refusing, own_state, slots = Named("missing"), Refusing("refusing"), OwnState("own_state"), Slots("slots")
slots.more, absent = 3, Named("elsewhere")
single, number, letters = Single(), Number(7), Letters("ab")
letters.more = 1
no_weak_reference = NoWeakReference()
no_weak_reference.value = [4]
def is_missing(x=missing): return x is missing

@toolz.curry
def add(a, b, c=0): return a + b + c
add.note = "noted"
@toolz.curry
def down(to, n): return n if n == to else down(to)(n - 1)
class Curry(toolz.curry): pass
@Curry
def own_curry(a, b): return a - b
class Holder:
    @toolz.curry
    def method(self, a, b): return a * b
"""
DUMP = "sys.stdout.buffer.write(pickle.dumps([payload.dumps(eval(each)) for each in expressions]))"


def in_script(code, *expressions):
    """What a script prints whose end is `code`."""
    data = pickle.dumps((sys.path, expressions))
    done = subprocess.run([sys.executable, "-c", SCRIPT + code], input=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def dumped(*expressions):
    return pickle.loads(in_script(DUMP, *expressions))


OBJECTS = {
    "missing": lambda it: it.name == "missing",
    "refusing": lambda it: it.name == "refusing",
    "own_state": lambda it: (it.name, it.five) == ("own_state", 5),
    "slots": lambda it: (it.name, it.more) == ("slots", 3),
    "single": lambda it: it.n == 1 and type(it).one is it,
    "number": lambda it: it == 7 and type(it).__name__ == "Number",
    "letters": lambda it: (it, it.more) == (["a", "b"], 1),
    "no_weak_reference": lambda it: it.value == [4],
    "Later.inner": lambda it: type(it).__qualname__ == "Later.Inner",
    "Colour.RED": lambda it: it.value == [1],
    "Tuple('a')": lambda it: it.name == "made",
}


@pytest.fixture(scope="module")
def objects():
    names = {name: (f"[{name}]", f"lambda: {name}", f"[lambda: {name}, {name}]") for name in OBJECTS}
    pickles = iter(dumped(*[each for three in names.values() for each in three]))
    return {name: [next(pickles) for _ in three] for name, three in names.items()}


@pytest.mark.parametrize(("name", "is_right"), OBJECTS.items())
def test_an_object_of_a_script_that_pickles_as_its_name_travels_by_value(objects, name, is_right):
    given, used, both = map(payload.loads, objects[name])
    assert is_right(given[0])
    if name != "Tuple('a')":
        assert given[0] is used() is both[0]() is both[1]


@pytest.mark.parametrize("dumps", ["payload.dumps", "payload.dumps_by_value", "lambda it: outofband.pack(it).inband"])
def test_such_an_object_comes_back_as_itself_and_as_it_is(dumps):
    code = f"""
for name in {[name for name in OBJECTS if name != "Tuple('a')"]}:
    own = eval(name)
    pickled = ({dumps})([own])
    if hasattr(own, "n"): own.n = 2
    assert payload.loads(pickled)[0] is own, name
    assert getattr(own, "n", 2) == 2
"""
    in_script(code)


def test_defaults_arguments_and_globals_have_the_same_object():
    is_missing, missing = map(payload.loads, dumped("is_missing", "missing"))
    assert is_missing() is is_missing(missing) is True
    assert payload.loads(payload.dumps(missing)) is missing  # and sent on
    assert payload.loads(payload.dumps(is_missing))(missing)


def test_such_objects_of_two_scripts_are_two_and_one_that_was_changed_is_changed_where_it_went():
    (one,), (other,) = dumped("missing"), dumped("missing")
    assert payload.loads(one) is not payload.loads(other)
    code = "first = payload.dumps(single)\nsingle.n = 2\n"
    code += "sys.stdout.buffer.write(pickle.dumps([first, payload.dumps(single)]))"
    first, second = pickle.loads(in_script(code))
    single = payload.loads(first)
    assert single.n == 1
    assert payload.loads(second) is single
    assert single.n == 2


def test_such_an_object_goes_with_what_uses_it():
    code = """
here = payload.loads(pickle.loads(expressions[0]))
gone = weakref.ref(here)
del here
gc.collect()
assert gone() is None
here = Named("here")
payload.dumps(here)
gone = weakref.ref(here)
del here
gc.collect()
assert gone() is None
"""
    in_script(code, pickle.dumps(dumped("Slots('slots') and slots")[0]))


def test_a_name_that_leads_to_another_object_is_refused():
    code = """
for each in ("absent", "Named('missing')"):
    try:
        print(payload.dumps(eval(each)))
    except payload.SerializationError as error:
        assert "PicklingError" in str(error), error
"""
    assert in_script(code) == b""


CURRIED = {
    "add": lambda add: add(1)(2) == 3 and add.note == "noted" and add.__name__ == "add",
    "add(10)": lambda add: add(1) == 11,
    "[add(c=5)]": lambda it: it[0](1)(2) == 8,
    "lambda: add(1, 2)": lambda use: use() == 3,
    "down(0)": lambda down: down(3) == 0,
    "own_curry(5)": lambda own: own(3) == 2 and type(own).__name__ == "Curry",
    "Holder().method(3)": lambda method: method(4) == 12,
    "toolz.compose(add(1), add(2))": lambda both: both(3) == 6,
    "toolz.curry(lambda x, y: x / y)(6)": lambda divide: divide(2) == 3,
    "[toolz.curried.map(add(1))]": lambda it: list(it[0]([1])) == [2],
}


@pytest.fixture(scope="module")
def curried():
    return dict(zip(CURRIED, dumped(*CURRIED), strict=True))


@pytest.mark.parametrize(("expression", "is_right"), CURRIED.items())
def test_a_curried_function_of_a_script_travels_with_the_function(curried, expression, is_right):
    pickled = curried[expression]
    assert is_right(payload.loads(pickled))
    assert is_right(payload.loads(payload.dumps(payload.loads(pickled))))  # sent on


def test_a_curried_function_that_calls_itself_is_one_object():
    (pickled,) = dumped("down")
    down = payload.loads(pickled)
    assert down.func.__globals__["down"] is down


def test_curried_functions_of_cython_travel_alike():
    pytest.importorskip("cytoolz")
    (pickled,) = pickle.loads(in_script("import cytoolz\nadd = cytoolz.curry(add.func)\n" + DUMP, "add(10)"))
    assert payload.loads(pickled)(1) == 11


def test_what_can_be_imported_pickles_as_its_name():
    import toolz.curried

    assert payload.dumps(toolz.curried.map) == pickle.dumps(toolz.curried.map, payload.PROTOCOL)
