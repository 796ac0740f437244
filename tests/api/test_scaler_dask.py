"""dask collections and graphs under `scaler_get`: on a fake client that encodes and decodes for real, and for real."""

import functools
import operator
import os
import threading
import warnings
from concurrent.futures import Future
from fractions import Fraction

import dask
import dask.array as da
import numpy
import pytest
from dask import _task_spec as spec
from dask.callbacks import Callback
from dask.delayed import delayed
from support.client_parts import remembered_entries
from support.serializers import Prefixed

import scaler.extension
from scaler.errors import CycleError
from scaler.extension import serializer_of
from scaler.graph import plan
from scaler.serialize.call import decode_function, encode_entries
from scaler_dask import Client, get_client, scaler_get
from scaler_dask.program_lock import ProgramLock
from scaler_dask.translate import translate


class InProcess:
    """A client that runs everything here and now, through the encodings of the wire."""

    address = "tcp://here:1"

    def __init__(self):
        self.plans = []
        self.cancelled = []

    def submit_nodes(self, nodes, keys, order=None, options=None):
        self.options = options
        made = plan(nodes, keys, order, options=options)
        self.plans.append(made)
        outcomes = []
        for run in made.runs:
            entries, _ = decode_function(encode_entries(run.entries))
            for entry, needed in zip(entries, run.dependencies, strict=True):
                future = scaler.extension.Future(None)
                try:
                    future.fulfil(entry.run([made.shared[-1 - n] if n < 0 else outcomes[n].result() for n in needed]))
                except Exception as error:
                    future.fail(error)
                outcomes.append(future)
        return [
            outcomes[made.rows_of_keys[key]] if key in made.rows_of_keys else self.done(made.constants[key])
            for key in keys
        ]

    def done(self, value):
        future = scaler.extension.Future(None)
        future.fulfil(value)
        return future

    def with_options(self, pass_warnings):
        return self

    def cancel(self, futures, force=False):
        self.cancelled.append(force)

    @property
    def rows(self):
        return sum(len(run.entries) for run in self.plans[-1].runs)


@pytest.fixture
def fake(monkeypatch):
    made = InProcess()
    issue = scaler.extension.issue_warnings
    # those of its tasks were issued here in the first place
    monkeypatch.setattr(
        "scaler_dask.graph_session.issue_warnings", lambda client: None if client is made else issue(client)
    )
    return made


@pytest.fixture(params=["in process", "embedded"])
def get(request, fake):
    if request.param == "in process":
        return functools.partial(scaler_get, client=fake)
    pytest.importorskip("scaler.cluster.embedded")
    return scaler_get


def inc(x):
    return x + 1


def add(x, y):
    return x + y


def fail(x):
    raise LookupError(f"no {x}")


@pytest.mark.parametrize("array", [False, True])
def test_a_serializer_of_the_users_writes_whole_collections(array):
    options = {"scheduler": scaler_get, "serializer": Prefixed}
    if array:
        x = da.arange(30_000, chunks=10_000)
        assert int(((x + 1).sum() * 2).compute(**options)) == 2 * sum(range(1, 30_001))
    else:
        total = dask.delayed(sum)([dask.delayed(add)(n, y=1) for n in range(20)])
        assert dask.compute(total, total, **options) == (210, 210)


def test_a_task_computes_a_collection_with_the_serializer_of_its_client(cluster):
    def inner():
        return dask.delayed(add)(1, 2).compute(scheduler=scaler_get), serializer_of(get_client().engine).__name__

    with scaler.Client(cluster.address, serializer=Prefixed) as client:
        assert client.submit(inner).result(20) == (3, "Prefixed")
        assert dask.delayed(inner)().compute(scheduler=scaler_get, client=client) == (3, "Prefixed")
        with pytest.raises(ValueError, match="`client` or `serializer`"):
            scaler_get(GRAPH, "x", client=client, serializer=scaler.Serializer)


GRAPH = {
    "x": 1,
    "y": (inc, "x"),
    "z": (add, "x", "y"),
    "l": (sum, ["x", "y", (inc, "z")]),
    "again": "z",
    "list": ["x", "z"],
}


@pytest.mark.parametrize(
    ("keys", "values"),
    [
        ("z", 3),
        (["z"], (3,)),
        (["x", "y", "x"], (1, 2, 1)),
        ([["x"], [["z", "l"], []]], ((1,), ((3, 7), ()))),
        ("again", 3),
        (["again", "z", "list"], (3, 3, [1, 3])),
        ([], ()),
    ],
)
def test_values_have_the_shape_of_the_keys(get, keys, values):
    assert get(GRAPH, keys) == values


def together(*args):
    return args


@pytest.mark.parametrize("odd", [None, frozenset({1}), 1j, b"k", complex(1)])
def test_what_dask_takes_for_no_reference_is_none(get, odd):
    graph = {odd: 5, 1: 6, "x": (together, odd, 1, [odd, True], {"a": odd}), "y": (together, odd)}
    for keys in ("x", ["y", odd]):
        assert get(graph, keys) == dask.get(graph, keys)


@pytest.mark.parametrize("others", [{}, {None: 8, frozenset({1}): 9}])
@pytest.mark.parametrize("key", [numpy.int64(5), complex(5), Fraction(5)])
def test_an_argument_refers_to_a_key_that_equals_it_whatever_that_is(get, key, others):
    graph = {key: 7, **others, "x": (together, 5, [5.0, None], {1}), "y": (together, key, None)}
    assert get(graph, ["x", "y"]) == dask.get(graph, ["x", "y"])


def test_keys_may_be_tuples_and_numbers(get):
    assert get({("x", 0): 1, 5: (inc, ("x", 0)), "k": (add, 5, ("x", 0))}, [("x", 0), 5, "k"]) == (1, 2, 3)


@pytest.mark.parametrize(
    "task",
    [
        (dict, [["a", "x"], ["b", "y"]]),
        (sorted, ["z", "y", "x"]),
        (add, (inc, (inc, "x")), 10),
        (functools.partial(add, 1), "z"),
        (functools.partial(int, base=2), "101"),
        (len, {"k": 1}),
        (operator.getitem, ["x", "y", "z"], 1),
        (lambda *a: a, "x", None, True, 2.5, "text", ("x", "y")),
    ],
)
def test_tuples_mean_what_they_mean_to_dask(get, task):
    graph = {**GRAPH, "task": task}
    assert get(graph, "task") == dask.get(graph, "task")


def test_a_missing_key_is_a_key_error(get):
    with pytest.raises(KeyError, match="nowhere"):
        get(GRAPH, ["x", "nowhere"])


def test_a_cycle_is_named(get):
    with pytest.raises(CycleError, match=r"a -> b -> a|b -> a -> b"):
        get({"a": (inc, "b"), "b": (inc, "a")}, "a")


def test_a_tasks_exception_comes_back_as_itself(get):
    with pytest.raises(LookupError, match="no 3") as caught:
        get({**GRAPH, "bad": (fail, "z"), "after": (inc, "bad")}, ["x", "after"])
    assert any("'bad'" in note for note in caught.value.__notes__)


def test_what_is_left_is_cancelled_after_a_failure(fake):
    with pytest.raises(LookupError):
        scaler_get({"bad": (fail, 1), "x": (inc, 1)}, ["bad", "x"], client=fake)
    assert fake.cancelled == [False]


def test_a_failure_is_noticed_while_another_key_is_awaited(fake, monkeypatch):
    monkeypatch.setattr("scaler_dask.get._PATIENCE", 0.01)
    never, failed = Future(), Future()
    failed.set_exception(LookupError("early"))
    monkeypatch.setattr(fake, "submit_nodes", lambda *_: [never, failed])
    with pytest.raises(LookupError, match="early"):
        scaler_get(GRAPH, ["x", "y"], client=fake)


def test_a_task_that_raises_timeout_error_is_not_waited_for_again(fake):
    def late():
        raise TimeoutError("by the task")

    with pytest.raises(TimeoutError, match="by the task"):
        scaler_get({"x": (late,)}, "x", client=fake)


def test_delayed(get):
    @delayed
    def double(x, *, plus=0):
        return 2 * x + plus

    numbers = [double(i, plus=double(1)) for i in range(10)]
    assert delayed(sum)(numbers).compute(scheduler=get) == sum(2 * i + 2 for i in range(10))
    assert dask.compute(numbers, {"k": (numbers[3],)}, scheduler=get) == ([2 * i + 2 for i in range(10)], {"k": (8,)})


def test_delayed_with_all_kinds_of_containers(get):
    one = delayed(1)
    total = delayed(lambda *args, **kwargs: (args, kwargs))([one, {"k": one}], (one,), {one}, slice(one), key=one)
    assert total.compute(scheduler=get) == total.compute(scheduler="sync")


def test_arrays(get):
    array = pytest.importorskip("dask.array")
    x = array.arange(10_000, chunks=1000).reshape(100, 100)
    y = (x + x.T).sum(axis=0)[::2].mean()
    assert y.compute(scheduler=get) == y.compute(scheduler="sync")
    assert (x.compute(scheduler=get) == numpy.arange(10_000).reshape(100, 100)).all()


def test_dataframes(get):
    pandas = pytest.importorskip("pandas")
    dataframe = pytest.importorskip("dask.dataframe")
    frame = pandas.DataFrame({"k": [i % 3 for i in range(100)], "v": range(100)})
    made = dataframe.from_pandas(frame, npartitions=5)
    pandas.testing.assert_series_equal(
        made.groupby("k").v.sum().compute(scheduler=get).sort_index(), frame.groupby("k").v.sum()
    )
    pandas.testing.assert_frame_equal(made[made.v > 50].compute(scheduler=get), frame[frame.v > 50])


def test_bags(get):
    bag = pytest.importorskip("dask.bag").from_sequence(range(100), npartitions=7)
    assert bag.map(inc).filter(lambda x: x % 2).sum().compute(scheduler=get) == sum(range(1, 101, 2))
    assert dict(bag.groupby(lambda x: x % 3).map(lambda kv: (kv[0], len(kv[1]))).compute(scheduler=get)) == {
        0: 34,
        1: 33,
        2: 33,
    }


def test_it_is_a_setting_of_dask_too(get):
    with dask.config.set(scheduler=get):
        assert delayed(inc)(1).compute() == 2


def test_callbacks_see_every_key_and_its_value(get):
    seen = []

    class Watch(Callback):
        def _start(self, dsk):
            seen.append(("start", len(dsk)))

        def _start_state(self, dsk, state):
            seen.append(("state", len(state["ready"]), len(state["waiting"])))

        def _pretask(self, key, dsk, state):
            seen.append(("before", key))

        def _posttask(self, key, value, dsk, state, worker):
            seen.append(("after", key, value, len(state["finished"])))

        def _finish(self, dsk, state, failed):
            seen.append(("finish", failed))

    with Watch():
        get({"x": 1, "y": (inc, "x"), "z": (inc, "y"), "unneeded": (fail, 1)}, ["z"])
        assert seen == [
            ("start", 3), ("state", 1, 1), ("before", "y"), ("after", "y", 2, 1), ("before", "z"), ("after", "z", 3, 2),
            ("finish", False),
        ]  # fmt: skip
        seen.clear()
        with pytest.raises(LookupError):
            get({"y": (fail, 1)}, ["y"])
    assert seen[-1] == ("finish", True)


def test_a_callback_may_change_the_graph_before_it_is_computed(get):
    class Replace(Callback):
        def _start(self, dsk):
            dsk["y"] = spec.DataNode("y", 40)

    with Replace():
        assert get({"x": 1, "y": (fail, "x"), "z": (inc, "y")}, "z") == 41


def first(x):
    return second(x)


def second(x):
    raise LookupError(f"no {x}")


def test_exceptions_end_with_the_frames_of_the_task():
    with pytest.raises(LookupError, match="no 3") as caught:
        dask.compute(delayed(first)(3), scheduler=scaler_get)
    frames = [(frame.name, frame.path.name, frame.lineno) for frame in caught.traceback]
    here = first.__code__
    assert frames[-2:] == [
        ("first", "test_scaler_dask.py", here.co_firstlineno),
        ("second", "test_scaler_dask.py", second.__code__.co_firstlineno),
    ]
    assert "raise LookupError" in str(caught.traceback[-1].statement)
    assert not [name for name, path, _ in frames if path in ("get.py", "future.py")], "as under dask's threads"
    assert caught.value.__cause__ is None


def test_annotations_are_options_of_the_tasks_they_are_made_for(fake):
    with dask.annotate(priority=3, retries=1, resources={"GPU": 1}, threads=4):
        one = delayed(inc)(1)
    with dask.annotate(priority=lambda key: 6.5, retries=0, resources={"disk": 2}, workers=["somewhere"]):
        other = delayed(inc)(2)
    both = delayed(add)(one, other)
    assert both.compute(scheduler=functools.partial(scaler_get, client=fake)) == 5
    assert fake.options == {
        one.key: {"priority": 3, "retries": 1, "capabilities": ["GPU"], "threads": 4},
        other.key: {"priority": 7, "capabilities": ["disk"]},
    }
    assert len(fake.plans[-1].runs) == 3
    delayed(inc)(1).compute(scheduler=functools.partial(scaler_get, client=fake))
    assert fake.options == {}


def test_the_progress_bar_works(get, capsys):
    from dask.diagnostics import ProgressBar

    with ProgressBar(dt=0.01):
        get({("x", i): (inc, i) for i in range(10)}, [("x", i) for i in range(10)])
    assert "100% Completed" in capsys.readouterr().out


def test_threads_may_compute_at_once(get):
    results = []
    threads = [threading.Thread(target=lambda i=i: results.append(get({"x": (inc, i)}, "x"))) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [1, 2, 3, 4]


def test_a_chain_is_one_row_and_a_large_array_is_sent_once(fake):
    graph = {"big": numpy.ones(100_000), "x0": (numpy.sum, "big")} | {f"x{i}": (inc, f"x{i - 1}") for i in range(1, 50)}
    assert scaler_get(graph, "x49", client=fake) == 100_049
    assert fake.rows == 1
    assert len(fake.plans[-1].shared) == 1


def fused(*tasks):
    return spec.Task.fuse(*tasks)


def test_a_fused_chain_is_unfolded(fake):
    tasks = [
        spec.Task("a", inc, spec.TaskRef("x")),
        spec.Task("b", add, spec.TaskRef("a"), spec.TaskRef("x")),
        spec.Task("c", add, spec.TaskRef("b"), 10),
    ]
    graph = {"x": spec.Task("x", inc, 1), "c": fused(*tasks)}
    assert scaler_get(graph, "c", client=fake) == 15
    functions = [
        step[1].__name__
        for entry in fake.plans[-1].runs[0].entries
        for step in (entry[2] if entry[1] is None else [entry])
    ]
    assert functions == ["inc", "add"]


def test_a_fused_graph_in_which_a_value_is_used_twice_is_left_to_dask(fake):
    tasks = [spec.Task("a", inc, spec.TaskRef("x")), spec.Task("b", add, spec.TaskRef("a"), spec.TaskRef("a"))]
    graph = {"x": spec.Task("x", inc, 1), "b": fused(*tasks)}
    assert scaler_get(graph, "b", client=fake) == 6


class Odd(spec.Task):
    """A class of node we know nothing of."""

    __slots__ = ()

    def __call__(self, values=()):
        return super().__call__(values) + 100


def test_a_node_of_an_unknown_class_runs_as_it_is(fake):
    graph = {
        "x": spec.Task("x", inc, 1),
        "y": Odd("y", inc, spec.TaskRef("x")),
        "z": spec.Task("z", inc, Odd(None, inc, spec.TaskRef("x"))),
    }
    assert scaler_get(graph, ["y", "z"], client=fake) == (103, 104)


@pytest.mark.parametrize("container", [spec.List, spec.Tuple, spec.Set])
def test_containers_of_dask(fake, container):
    graph = {"x": spec.DataNode("x", 5), "c": spec.Task("c", sorted, container(spec.TaskRef("x"), 7))}
    assert scaler_get(graph, "c", client=fake) == [5, 7]


def test_dicts_of_dask(fake):
    graph = {"x": spec.DataNode("x", 5), "c": spec.Task("c", dict.items, spec.Dict({"a": spec.TaskRef("x"), "b": [1]}))}
    assert list(scaler_get(graph, "c", client=fake)) == [("a", 5), ("b", [1])]


def test_translated_nodes_do_what_dasks_do():
    graph = spec.convert_legacy_graph(GRAPH)
    values = {key: dask.get(GRAPH, key) for key in GRAPH}
    for key, node in translate(graph).items():
        assert node({name: values[name] for name in node.dependencies}) == values[key]


def warns(number):
    warnings.warn(f"so {number}", UserWarning, stacklevel=1)
    warnings.warn("older", DeprecationWarning, stacklevel=1)
    return number


def test_warnings_of_tasks_reach_the_caller_each_time():
    for _ in range(2):
        with pytest.warns(UserWarning, match="so") as caught:
            assert scaler_get({f"a{n}": (warns, n) for n in range(3)}, ["a0", "a1", "a2"]) == (0, 1, 2)
        texts = sorted(str(warning.message) for warning in caught)
        assert texts == ["older"] * 3 + ["so 0", "so 1", "so 2"]
        assert {warning.filename for warning in caught} == {__file__}


def test_warnings_can_be_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        with pytest.raises(UserWarning, match="so 1"):
            scaler_get({"a": (warns, 1)}, "a")


def test_the_same_warning_shows_once_by_default():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            scaler_get({"a": (warns, 7)}, "a")
    assert len(caught) == 2


def test_the_initializer_of_dasks_pool_is_called_once_in_each_worker(get, tmp_path):
    def note():
        path = tmp_path / f"{os.getpid()}"
        path.write_text(path.read_text() + "x" if path.exists() else "x")

    def noted(_):
        return (tmp_path / f"{os.getpid()}").read_text()

    graph = {("x", i): (noted, i) for i in range(20)}
    assert set(get(graph, list(graph), initializer=note)) == {"x"}
    with dask.config.set({"multiprocessing.initializer": note}):
        assert set(get(graph, list(graph))) == {"x"}


def add_one(array, where):
    array[where] += 1
    return float(array[where])


def test_files_that_are_mapped_are_written_where_they_are(cluster, client, tmp_path):
    target = numpy.memmap(tmp_path / "target", "f8", "w+", shape=100_000)
    get, before = functools.partial(scaler_get, client=client), set(remembered_entries(client))
    da.arange(100_000, chunks=30_000).store(target, scheduler=get, lock=False)
    assert (target == numpy.arange(100_000)).all()
    assert delayed(add_one)(target, 7).compute(scheduler=get) == 8
    assert target[7] == 8
    assert set(remembered_entries(client)) <= before


def test_a_file_of_h5py_is_read_where_its_blocks_are(client, tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "file", "w") as file:
        file["x"] = numpy.arange(1_000.0)
    with h5py.File(tmp_path / "file", "r") as file:
        total = da.from_array(file["x"], chunks=300).sum()
        assert total.compute(scheduler=functools.partial(scaler_get, client=client)) == 499_500


class Counter:
    """A target that counts what is written in a file, which only one can do at a time."""

    def __init__(self, path):
        self.path = path

    def __setitem__(self, where, block):
        found = int(self.path.read_text())
        threading.Event().wait(0.02)
        self.path.write_text(str(found + 1))


@pytest.mark.skipif(
    not hasattr(da.core, "get_scheduler_lock"), reason="this dask locks with one of threads, whatever the scheduler"
)
@pytest.mark.parametrize("kind", ["scaler_get", "client", "partial", "task"])
def test_the_lock_of_a_store_is_that_of_all_workers(cluster, client, tmp_path, kind):
    counter = Counter(tmp_path / "count")
    counter.path.write_text("0")
    numbers = da.ones(120, chunks=10)
    if kind == "client":
        with Client(cluster.address):
            numbers.store(counter)
    elif kind == "task":
        client.submit(store_in_a_task, counter).result()
    elif kind == "partial":
        numbers.store(counter, scheduler=functools.partial(scaler_get, client=client))
    else:
        with dask.config.set({"scheduler": scaler_get, "scaler.address": cluster.address}):
            numbers.store(counter)
    assert counter.path.read_text() == "12"


def store_in_a_task(counter):
    da.ones(120, chunks=10).store(counter, scheduler=scaler_get)


def test_dataframes_that_are_written_into_one_file_have_the_lock_of_all_workers(client):
    hdf = pytest.importorskip("dask.dataframe.io.hdf")
    assert type(hdf.get_scheduler_lock(scheduler=functools.partial(scaler_get, client=client))) is ProgramLock


def test_the_lock_of_other_schedulers_is_dasks_own():
    assert type(dask.utils.get_scheduler_lock(scheduler="threads")) is dask.utils.SerializableLock
    assert type(dask.utils.get_scheduler_lock(da.ones(1), scheduler="sync")) is dask.utils.SerializableLock


def test_what_is_no_file_is_not_written_and_neither_are_files_by_a_client(cluster, client, tmp_path):
    """As under dask's processes, and with distributed: the documentation says so."""
    numbers, array = da.ones(20_000, chunks=5_000), numpy.zeros(20_000)
    numbers.store(array, lock=False, scheduler=functools.partial(scaler_get, client=client))
    mapped = numpy.memmap(tmp_path / "file", "f8", "w+", shape=20_000)
    with Client(cluster.address):
        numbers.store(mapped, lock=False)
    assert not array.any()
    assert not mapped.any()
