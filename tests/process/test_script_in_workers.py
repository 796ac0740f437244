"""What tasks of a script find of it in their workers, as the page for users of ProcessPoolExecutor says."""

from support import Scripts

PROGRAM = """
    import decimal, logging, multiprocessing, os, pickle, signal, subprocess, sys, time, typing
    from concurrent.futures import ProcessPoolExecutor
    import psutil
    from scaler import Executor

    class Pair(typing.NamedTuple):
        other: "Pair"

    def double(n):
        return 2 * n

    def by_name(what):
        try:
            what()
        except Exception as error:
            return type(error).__name__
        return "found"

    def doubled_by_processes():
        with ProcessPoolExecutor(1) as inside:
            inside.submit(double, 1).result()

    def settle():
        decimal.getcontext().prec = 50
        sys.setrecursionlimit(20_000)
        logging.basicConfig(level=logging.INFO, force=True)

    def settings():
        return decimal.getcontext().prec, sys.getrecursionlimit(), logging.getLogger().level

    def leave_behind(apart):
        return subprocess.Popen(["sleep", "300"], start_new_session=apart).pid

    def lives(pid):
        return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE

    settle()
    {program}
"""


def test_nothing_finds_what_is_in_the_script_by_its_name(scripts: Scripts) -> None:
    program = """
    with Executor(1) as pool:
        whats = lambda: pickle.dumps(Pair), lambda: typing.get_type_hints(Pair), doubled_by_processes
        print(*pool.map(by_name, whats), pool.submit(multiprocessing.parent_process).result(20))
    """
    assert scripts.run(PROGRAM.format(program=program.strip())).split() == [
        "PicklingError", "NameError", "PicklingError", "None",
    ]  # fmt: skip


SLOTS_AND_DISPATCH = """
    import dataclasses, functools, weakref
    from scaler import Executor

    class Plain:
        __slots__ = ("n", "__secret")

        def __init__(self, n):
            self.n = self.__secret = n

        def __eq__(self, other):
            return type(self) is type(other) and self.n == other.n and self.__secret == other.__secret

    class More(Plain):
        __slots__ = ("m", "__weakref__")

        def __init__(self, n):
            super().__init__(n)
            self.m = weakref.proxy(self) and 1

    @dataclasses.dataclass(slots=True, weakref_slot=True)
    class Point:
        n: int

    @functools.singledispatch
    def made(kind):
        return [made(one) for one in kind]

    @made.register
    def _(kind: type):
        return kind(7)

    class Maker:
        @functools.singledispatchmethod
        def make(self, kind):
            return made(kind)

        @make.register(int)
        def _(self, n):
            return Plain(n)

    kinds = Plain, More, Point
    with Executor(2) as pool:
        assert pool.submit(made, kinds).result(30) == [kind(7) for kind in kinds]
        assert list(pool.map(made, kinds)) == [kind(7) for kind in kinds]
        assert list(pool.map(Maker().make, [7, Plain])) == [Plain(7)] * 2
        assert pool.submit(list, made(kinds)).result(30) == made(kinds)
        made.register(int, lambda n: -n)
        assert pool.submit(made, 1).result(30) == -1
"""


def test_instances_with_slots_come_back_and_what_dispatches_on_them_runs(scripts: Scripts) -> None:
    scripts.run(SLOTS_AND_DISPATCH)


BY_NAME = """
    import pickle
    import dask.bag, toolz
    from scaler import Client, Executor, FunctionNotFound, SchedulerClusterCombo
    from scaler_dask import scaler_get

    @toolz.curry
    def add(a, b):
        return a + b

    class Missing:
        def __reduce__(self):
            return "MISSING"

    MISSING = Missing()

    def is_missing(x=MISSING):
        return x is MISSING

    def made():
        return [MISSING]

    class Plain:
        serialize, deserialize = staticmethod(pickle.dumps), staticmethod(pickle.loads)

    print(dask.bag.range(4, npartitions=2).map(add(10)).compute(scheduler=scaler_get))
    with Executor(2) as pool:
        print(pool.submit(add, 1, 2).result(30), pool.submit(add(1), 2).result(30), pool.submit(add, 1).result(30)(2))
        print(list(pool.map(is_missing, [MISSING, 1])), pool.submit(is_missing).result(30))
        print(pool.submit(made).result(30)[0] is MISSING)
    with SchedulerClusterCombo(n_workers=1) as cluster:
        with Client(cluster.get_address(), serializer=Plain) as client:
            try:
                client.submit(is_missing).result(30)
            except FunctionNotFound as error:
                print(error)
"""


def test_objects_that_pickle_as_their_name_are_those_of_the_script(scripts: Scripts) -> None:
    *right, words = scripts.run(BY_NAME).splitlines()
    assert right == ["[10, 11, 12, 13]", "3 3 3", "[True, False] True", "True"]
    assert "'is_missing' is pickled by its name in the script, which workers don't have: put it in a module" in words


def test_what_it_sets_in_its_process_is_set_by_an_initializer(scripts: Scripts) -> None:
    program = """
    for initializer in (None, settle):
        with Executor(1, initializer=initializer) as pool:
            print(pool.submit(settings).result(20))
    """
    assert scripts.run(PROGRAM.format(program=program.strip())).splitlines() == ["(28, 1000, 30)", "(50, 20000, 20)"]


def test_what_a_task_leaves_in_the_background_ends_with_its_worker_unless_it_is_apart(scripts: Scripts) -> None:
    program = """
    with Executor(1) as pool:
        near, apart = pool.map(leave_behind, [False, True])
    try:
        deadline = time.monotonic() + 20
        while lives(near) and time.monotonic() < deadline:
            time.sleep(0.01)
        print(lives(near), lives(apart))
    finally:
        os.kill(apart, signal.SIGKILL)
    """
    assert scripts.run(PROGRAM.format(program=program.strip())).strip() == "False True"
