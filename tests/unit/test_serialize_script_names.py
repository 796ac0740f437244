import pickle
import subprocess
import sys

import pytest

from scaler.errors import SerializationError
from scaler.serialize import payload

SCRIPT = """
import contextvars, functools, logging, pickle, queue, random, sys, threading, weakref
sys.path[:], expressions = pickle.loads(sys.stdin.buffer.read())
from scaler.errors import SerializationError
from scaler.serialize import outofband, payload

lock, again, own, items = threading.Lock(), threading.RLock(), threading.local(), queue.SimpleQueue()
variable = contextvars.ContextVar("variable", default=1)
happened, changed, waiting = threading.Event(), threading.Condition(), queue.Queue()
waiting.put(4)
handler = logging.StreamHandler(sys.stderr)

class Cached(threading.local):
    def __init__(self): self.n = 1
cached = Cached()
cached.n = 2

class Counter:
    guard = threading.Lock()
    def __init__(self): self.lock, self.n = threading.Lock(), 3
    def count(self):
        with self.lock, Counter.guard: return self.n
counter = Counter()

class Node:
    by_name = weakref.WeakValueDictionary()
    def __init__(self, name):
        self.name = name
        Node.by_name[name] = self
root, leaf = Node("root"), Node("leaf")
weights = weakref.WeakKeyDictionary({root: 5})
draw = random.SystemRandom()

def synchronized(function):
    guard = threading.RLock()
    @functools.wraps(function)
    def guarded(*args):
        with guard: return function(*args)
    return guarded

@synchronized
def double(x): return 2 * x
@functools.cache
@synchronized
def thrice(x): return 3 * x
def four(x): return 4 * x
four_times = synchronized(four)

def take():
    with lock, again: return lock.locked()
def keep(): return lock.acquire(blocking=False)
def put(x=1):
    items.put(x)
    return items.get()
"""
DUMP = """
lock.acquire(), variable.set(2)
own.a = 1
sys.stdout.buffer.write(pickle.dumps([payload.dumps(eval(each)) for each in expressions]))
"""


def in_script(code, *expressions):
    """What a script prints whose end is `code`."""
    data = pickle.dumps((sys.path, expressions))
    done = subprocess.run([sys.executable, "-c", SCRIPT + code], input=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


USES = {
    "take": True,
    "put": 1,
    "lambda: vars(own)": {},
    "lambda: variable.get()": 1,
    "lambda: cached.n": 1,
    "lambda: happened.is_set() or happened.set() or happened.wait()": True,
    "lambda: waiting.get()": 4,
    "lambda: changed.acquire() and changed.notify()": None,
    "lambda: handler.setLevel(7) or handler.level": 7,
    "lambda: counter.count()": 3,
    "lambda: (sorted(Node.by_name), [root.name])": (["root"], ["root"]),
    "lambda: weights[root]": 5,
    "lambda: draw.randint(3, 3)": 3,
    "lambda: Counter.guard.locked()": False,
    "functools.partial(double, 3)": 6,
    "functools.partial(thrice, 3)": 9,
    "lambda: four_times(3)": 12,
    "lambda: [counter.lock.locked(), {'a': lock}['a'].locked()]": [False, False],
}


@pytest.fixture(scope="module")
def used():
    return dict(zip(USES, pickle.loads(in_script(DUMP, *USES)), strict=True))


@pytest.mark.parametrize(("use", "result"), USES.items())
def test_what_functions_use_of_their_module_has_locks_of_its_own_where_they_go(used, use, result):
    assert payload.loads(used[use])() == result


def test_a_lock_is_the_same_one_for_all_functions_that_use_it():
    pickles = pickle.loads(in_script(DUMP, "keep", "take", "lambda: (lock, own, variable)"))
    keep, take, these = map(payload.loads, pickles)
    assert keep.__globals__["lock"] is take.__globals__["lock"] is these()[0]
    assert all(one is other for one, other in zip(these(), payload.loads(pickles[2])(), strict=True))
    assert [keep(), keep()] == [True, False]


def test_the_locks_of_two_scripts_are_two():
    one, other = (payload.loads(*pickle.loads(in_script(DUMP, "keep"))) for _ in range(2))
    assert [one(), other()] == [True, True]


def test_what_a_function_has_when_it_comes_back_is_what_it_had():
    code = """
there = payload.loads(payload.dumps(lambda: (lock, own, variable, items)))
print([one is other for one, other in zip(there(), (lock, own, variable, items))])
"""
    assert in_script(code).strip() == b"[True, True, True, True]"


def test_functions_are_sent_on_with_the_same_lock():
    keep = payload.loads(*pickle.loads(in_script(DUMP, "keep")))
    assert payload.loads(payload.dumps(keep)).__globals__["lock"] is keep.__globals__["lock"]


def test_a_lock_goes_with_the_functions_that_use_it():
    (pickled,) = pickle.loads(in_script(DUMP, "keep"))
    keep = payload.loads(pickled)
    assert [keep(), payload.loads(pickled)()] == [True, False]
    keep.__globals__.clear()  # they hold the function, too
    del keep
    assert payload.loads(pickled)()


GIVEN = ("lock", "own", "variable", "[again, take]", "counter", "waiting", "(lambda x: lambda: x)(again)", "cached")


def test_a_function_made_within_another_one_may_use_a_variable_of_that():
    code = """
def make(mine):
    def get(key=None): return (mine, variable) if key else mine.get()
    def get_first(): return get()
    return get, get_first, lambda: empty
    empty = 1
made = make(contextvars.ContextVar("mine", default=3))
there = payload.loads(payload.dumps(made[0]))
assert there(1)[0] is made[0](1)[0]
"""
    makers = *(f"made[{n}]" for n in range(3)), "make(contextvars.ContextVar('mine', default=4))[0]"
    get, get_first, _, other = map(payload.loads, pickle.loads(in_script(code + DUMP, *makers)))
    assert [get(), get_first(), other()] == [3, 3, 4]
    assert get(1)[0] is get_first.__closure__[0].cell_contents(1)[0] is not other(1)[0]
    assert payload.loads(payload.dumps(get))(1)[0] is get(1)[0]  # and sent on


def test_what_is_given_is_refused():
    code = """
for each in expressions:
    for dumps in (payload.dumps, outofband.pack, payload.dumps_by_value):
        try:
            print(each, dumps(eval(each)))
        except SerializationError as error:
            assert "cannot be pickled: TypeError: cannot pickle" in str(error), error
"""
    assert in_script(code, *GIVEN) == b""


UNPICKLABLE = """
class Named(threading.local):
    def __init__(self, name): self.name = name
named = Named("a")
items.put(1)
rows = iter_rows = (n for n in ())
class Service:
    connection = rows
    def __init__(self): self.connection = rows
    def start(self): return self.connection, named, kept
    @staticmethod
    def work(x): return x + 1
kept = {"service": Service()}
def bind():
    global rows
    rows = [1]
    return rows
"""


@pytest.mark.parametrize(
    ("use", "result"), [("Service.work", 2), ("lambda x: Service.work(x) if Service.start else named", 2)]
)
def test_what_can_t_be_pickled_is_no_matter_to_who_does_not_use_it(use, result):
    assert payload.loads(*pickle.loads(in_script(UNPICKLABLE + DUMP, use)))(1) == result


def test_what_can_t_be_pickled_may_be_bound_anew():
    assert payload.loads(*pickle.loads(in_script(UNPICKLABLE + DUMP, "bind")))() == [1]


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (
            "lambda: next(rows)",
            "'rows' of the script is not in this process: an object of type generator cannot be pickled",
        ),
        ("lambda: list(rows)", "'rows' of the script"),
        ("lambda: rows.send(1)", "'rows' of the script"),
        ("lambda: Service.connection.close()", "'connection' of the script"),
        ("lambda: f'{kept}' + str(kept)", "'kept' of the script"),
        ("lambda: kept['service']", "'kept' of the script"),
        ("lambda: named.name", "'named' of the script .* an object of type __main__.Named"),
        ("put", "'items' of the script .* _queue.SimpleQueue"),
        ("lambda: setattr(rows, 'x', 1)", "'rows' of the script"),
    ],
)
def test_who_uses_what_can_t_be_pickled_is_told(use, words):
    function = payload.loads(*pickle.loads(in_script(UNPICKLABLE + DUMP, use)))
    for there in (function, payload.loads(payload.dumps(function))):  # and sent on
        with pytest.raises(SerializationError, match=words):
            there()


def test_an_absent_value_can_be_shown():
    rows = payload.loads(*pickle.loads(in_script(UNPICKLABLE + DUMP, "lambda: rows")))()
    assert "rows of the script, which is not here: an object of type generator" in repr(rows)
    assert not hasattr(rows, "__dask_graph__")
