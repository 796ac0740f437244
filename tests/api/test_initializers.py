"""Tasks of an executor find the globals of a script as its initializer and earlier tasks have left them."""

import gc
import operator
import weakref

import cloudpickle
import pytest

from scaler import Executor, Serializer

TIMING = """
import functools
VALUE = "timing's own"
def logged(function):
    @functools.wraps(function)
    def call(*args):
        return function(*args), VALUE
    return call
class Step:
    def run(self):
        return self.hook()
def retry(function, *args):
    return function(*args)
"""

NAMES = """
value, limit = None, 1
def init(v):
    global value
    value = v
def f(_=0): return value
def both(): return limit, value
def call(c): return c.m()
class C:
    def m(self): return value
def outer(address, v):
    from scaler import Executor
    with Executor(address=address, initializer=init, initargs=(v,)) as pool:
        return pool.submit(f).result(20), pool.submit(f).result(20), value
"""


@pytest.fixture
def names():
    """Those of a script."""
    made = {"__name__": "__main__"}
    exec(NAMES, made)
    return made


def test_tasks_see_what_an_initializer_has_set_whatever_is_called(scripts, tmp_path):
    (tmp_path / "timing.py").write_text(TIMING)
    told = scripts.run(
        """
        import dataclasses, functools, operator, timing
        from scaler import Executor

        VALUE = None

        def init(value):
            global VALUE
            VALUE = value

        def plain(_=0): return VALUE
        decorated, decorated_init = timing.logged(plain), timing.logged(init)
        @functools.lru_cache
        def cached(_): return VALUE
        @functools.singledispatch
        def dispatched(_): return VALUE
        class Job:
            def __init__(self): self.seen = VALUE
        @dataclasses.dataclass
        class Data:
            seen: object = dataclasses.field(default_factory=lambda: VALUE)
        class Shape:
            def m(self): return VALUE
            def __len__(self): return 1 if VALUE else 0
        class Mine(timing.Step):
            def hook(self): return VALUE

        calls = [
            (plain,), (cached, 1), (dispatched, 1), (Job,), (Data,), (Mine().run,),
            (operator.methodcaller("m"), Shape()), (timing.retry, plain), (functools.partial(timing.retry, plain),),
        ]
        if __name__ == "__main__":
            for initializer in (init, decorated_init):
                with Executor(1, initializer=initializer, initargs=("set",)) as pool:
                    results = [pool.submit(*call).result() for call in calls]
                    print(*(getattr(result, "seen", result) for result in results))
                    print(pool.submit(len, Shape()).result(), *pool.map(decorated, range(2), chunksize=2))
        """
    )
    decorated = ("set", "timing's own")
    assert told.splitlines() == [" ".join(["set"] * 9), f"1 {decorated} {decorated}"] * 2


def test_tasks_see_functions_classes_and_modules_that_an_initializer_has_bound(scripts):
    told = scripts.run(
        """
        from scaler import Executor

        def compute(): return "default"
        Backend = module = None
        class Config: rate = None

        def init(value):
            global compute, Backend, module
            def compute(): return value
            class Backend: name = value
            import json as module
            Config.rate = value

        def f(_=0): return compute()
        def g(_=0): return Backend.name
        def h(_=0): return module.__name__
        def k(_=0): return Config.rate
        def m(config): return config.rate

        if __name__ == "__main__":
            with Executor(1, initializer=init, initargs=("set",)) as pool:
                for each in (f, g, h, k):
                    print(pool.submit(each).result(), *pool.map(each, range(2)), pool.submit(each).result())
                print(pool.submit(m, Config()).result(), pool.submit(len, [Config()]).result(), pool.submit(k).result())
        """
    )
    assert told.splitlines() == [*(" ".join([word] * 4) for word in ("set", "set", "json", "set")), "set 1 set"]


def test_what_tasks_keep_stays_from_call_to_call_after_an_initializer(scripts):
    told = scripts.run(
        """
        import functools
        from scaler import Executor

        count, connection, cache = 0, None, {}

        def init():
            global count
            count = 10

        def bump(_=0):
            global count
            count += 1
            return count

        def seen(_=0): return count

        def connect(_=0):
            global connection
            is_new, connection = connection is None, connection or object()
            return is_new

        def remember(_=0):
            cache[len(cache)] = None
            return len(cache)

        @functools.lru_cache
        def looked_up(_): return object()

        def hits(_=0):
            looked_up(1)
            return looked_up.cache_info().hits

        class Model:
            loaded = 0
            @classmethod
            def load(cls, _=0):
                cls.loaded += 1
                return cls.loaded

        if __name__ == "__main__":
            with Executor(1, initializer=init) as pool:
                for each in (bump, connect, remember, hits, Model.load):
                    print(pool.submit(each).result(), pool.submit(each).result(), *pool.map(each, range(2)))
                print(*pool.map(bump, range(2), chunksize=2), pool.submit(seen).result())
        """
    )
    assert told.splitlines() == [
        "11 12 13 14", "True False False False", "1 2 3 4", "0 1 2 3", "1 2 3 4", "15 16 16",
    ]  # fmt: skip


def test_what_the_program_binds_anew_is_seen_by_calls_from_then_on(start_cluster, names):
    with Executor(address=start_cluster(1).address, initializer=names["init"], initargs=("set",)) as pool:
        calls = []
        for limit in (1, 2, 1):
            names["limit"] = limit
            calls += [pool.submit(names["both"]) for _ in range(3)]
        assert [call.result(20) for call in calls] == [(limit, "set") for limit in (1, 2, 1) for _ in range(3)]


def test_executors_on_one_worker_have_globals_of_their_own(start_cluster, names):
    address, method = start_cluster(1).address, operator.methodcaller("m")
    pools = [Executor(address=address, initializer=names["init"], initargs=(n,)) for n in (1, 2)]
    pools.insert(1, Executor(address=address))
    calls = [(names["f"],), (names["call"], names["C"]()), (method, names["C"]())]
    seen = [[pool.submit(*call).result(20) for call in calls] for pool in pools * 2]
    for pool in pools:
        pool.shutdown()
    assert seen == [[value] * 3 for value in (1, None, 2)] * 2


class ByCloudpickle(Serializer):
    @staticmethod
    def serialize(obj):
        return cloudpickle.dumps(obj)

    @staticmethod
    def deserialize(data):
        return cloudpickle.loads(data)


def test_tasks_that_the_users_serializer_writes_see_what_an_initializer_has_set(start_cluster, names):
    address = start_cluster(1).address
    with Executor(address=address, initializer=names["init"], initargs=(1,), serializer=ByCloudpickle) as pool:
        assert pool.submit(names["f"]).result(20) == 1
        assert pool.submit(operator.methodcaller("__call__"), names["f"]).result(20) == 1
        assert list(pool.map(names["f"], range(3), chunksize=2)) == [1, 1, 1]


def test_large_functions_and_initializers_share_their_globals(start_cluster, names):
    names["table"] = bytes(1 << 20)
    exec("def large(): return len(table), value\ndef large_init(v):\n  global value\n  value = len(table), v", names)
    with Executor(address=start_cluster(1).address, initializer=names["large_init"], initargs=("set",)) as pool:
        for _ in range(2):
            assert pool.submit(names["large"]).result(20) == (1 << 20, (1 << 20, "set"))
        assert pool.submit(names["f"]).result(20) == (1 << 20, "set")


def test_an_executor_in_a_task_has_globals_of_its_own_on_one_worker(start_cluster, names):
    address = start_cluster(1).address
    with Executor(address=address, initializer=names["init"], initargs=("outer",)) as pool:
        assert pool.submit(names["outer"], address, "inner").result(40) == ("inner", "inner", "outer")
        assert pool.submit(names["f"]).result(20) == "outer"


def test_a_function_is_not_kept_by_an_executor_with_an_initializer(cluster):
    def made(value):
        return lambda: value

    with Executor(address=cluster.address, initializer=made, initargs=(1,)) as pool:
        function = made(2)
        known = weakref.ref(function)
        assert pool.submit(function).result(20) == 2
        del function
        gc.collect()
        assert known() is None
