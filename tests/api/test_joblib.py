"""joblib's `Parallel` on the backend "scaler": on two workers, a cluster of this process, or where it is told to."""

import asyncio
import multiprocessing
import os
import pickle
import re
import subprocess
import sys
import threading
import time
import types
import warnings

import numpy
import pytest
from support import ROOT, until
from support.client_parts import remembered_entries

joblib = pytest.importorskip("joblib", reason="joblib is not installed")
from joblib import Parallel, delayed  # noqa: E402

from scaler.errors import RemoteTraceback, SerializationError, WorkerLost  # noqa: E402
from scaler.joblib import ScalerBackend  # noqa: E402

#: seconds of a task that is to be ended while it runs
LONG = 300.0


def square(x):
    return x * x


def fail_at_seven(x):
    if x == 7:
        raise LookupError(f"no {x}")
    return x


def end_the_worker():
    os._exit(1)


def depth_of(level):
    """How deep the calls are, each of which has two of its own."""
    if level == 0:
        return 1
    return 1 + max(Parallel(n_jobs=2)(delayed(depth_of)(level - 1) for _ in range(4)))


@pytest.fixture
def backend(client):
    return ScalerBackend(client=client)


@pytest.fixture
def in_use(backend):
    """Inside, joblib uses the cluster of the module."""
    with joblib.parallel_config(backend):
        yield backend


def test_calls_run_in_workers_and_their_results_are_in_order(in_use):
    assert Parallel()(delayed(square)(n) for n in range(200)) == [n * n for n in range(200)]
    assert os.getpid() not in Parallel()(delayed(os.getpid)() for _ in range(8))


def test_keywords_lambdas_and_methods_are_calls_too(in_use):
    assert Parallel()(delayed(int)(text, base=16) for text in ("ff", "10")) == [255, 16]
    assert Parallel()(delayed(lambda n, by=2: n * by)(n) for n in range(5)) == [0, 2, 4, 6, 8]
    assert Parallel()(delayed("a,b".split)(",") for _ in range(3)) == [["a", "b"]] * 3


def test_an_error_has_its_type_and_the_traceback_of_the_worker(in_use):
    with pytest.raises(LookupError, match="no 7") as raised:
        Parallel()(delayed(fail_at_seven)(n) for n in range(20))
    assert isinstance(raised.value.__cause__, RemoteTraceback)
    assert "fail_at_seven" in str(raised.value.__cause__)
    assert Parallel()(delayed(square)(n) for n in range(3)) == [0, 1, 4]


def test_what_cannot_be_pickled_is_an_error_wherever_the_iterator_is(in_use):
    for place in (0, 90):
        with pytest.raises(SerializationError, match="lock"):
            Parallel(batch_size=1)(delayed(id)(threading.Lock() if n == place else n) for n in range(100))


def given(first, second=None):
    return first, second


def test_what_cannot_be_pickled_is_named_as_the_call_has_it(in_use):
    lock = threading.Lock()
    for call, words in [
        (delayed(given)(0, lock), r"argument 1 of \S*given: .*_thread\.lock"),
        (delayed(given)([0], second=lock), r"argument 'second' of \S*given: .*_thread\.lock"),
        (delayed(lock.acquire)(), r"function \S*acquire: "),
    ]:
        with pytest.raises(SerializationError, match=f"^{words}"):
            Parallel(batch_size=2)([delayed(given)([1], [2]), call])
    with pytest.raises(SerializationError, match=r"the result of .*: element \d of the list: .*_thread\.lock"):
        Parallel(batch_size=2)([delayed(given)([1], [2]), delayed(threading.Lock)()])


def test_messages_name_the_function(in_use):
    with pytest.raises(WorkerLost, match=r"task \S*end_the_worker "):
        Parallel()(delayed(end_the_worker)() for _ in range(2))


def test_an_error_of_the_iterator_is_raised(in_use):
    def numbers():
        yield from range(30)
        raise RuntimeError("no more numbers")

    with pytest.raises(RuntimeError, match="no more numbers"):
        Parallel(batch_size=1)(delayed(square)(n) for n in numbers())


def test_an_error_of_the_iterator_is_raised_while_calls_run(in_use):
    def seconds():
        yield from [LONG, 0.0]
        raise RuntimeError("no more numbers")

    with pytest.raises(RuntimeError, match="no more numbers"):
        Parallel(batch_size=1, pre_dispatch=2)(delayed(time.sleep)(n) for n in seconds())


def test_results_are_not_looked_for_while_there_are_none(in_use, monkeypatch):
    looks = []
    monkeypatch.setattr(joblib.parallel, "time", types.SimpleNamespace(time=time.time, sleep=looks.append))
    assert Parallel(batch_size=1)(delayed(time.sleep)(0.01) for _ in range(10)) == [None] * 10
    assert not looks


def test_generators_give_results_while_others_run(in_use, tmp_path):
    gate = tmp_path / "gate"

    def wait_if(n):
        deadline = time.monotonic() + LONG
        while n == 0 and not gate.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return n

    results = Parallel(return_as="generator_unordered", batch_size=1)(delayed(wait_if)(n) for n in range(10))
    assert {next(results) for _ in range(9)} == set(range(1, 10))
    gate.touch()
    assert list(results) == [0]
    assert list(Parallel(return_as="generator")(delayed(square)(n) for n in range(10))) == [n * n for n in range(10)]


def test_a_generator_that_is_thrown_away_takes_its_calls_back(in_use, client):
    results = Parallel(return_as="generator")(delayed(time.sleep)(0 if n == 0 else LONG) for n in range(10))
    next(results)
    with pytest.warns(UserWarning, match="cancelled"):
        del results
    assert client.submit(square, 3).result(timeout=20) == 9


def test_a_call_that_takes_too_long_is_ended(in_use, client):
    with pytest.raises(multiprocessing.TimeoutError):
        Parallel(timeout=0.2)(delayed(time.sleep)(LONG) for _ in range(4))
    assert client.submit(square, 3).result(timeout=20) == 9


def test_an_error_ends_the_calls_that_run(in_use, client):
    with pytest.raises(TypeError):
        Parallel()(delayed(time.sleep)(seconds) for seconds in ["a", LONG, LONG, LONG])
    assert client.submit(square, 3).result(timeout=20) == 9


def test_a_call_has_no_results_of_the_aborted_one_before_it(client):
    class Patient(ScalerBackend):
        """Has its second batch wait for the error of the first, when there is a third that joblib has made already."""

        def compute_batch_size(self):
            if self.parallel.n_dispatched_tasks == 1 and not isinstance(self.parallel.n_tasks, int):
                until(lambda: self.parallel._aborting)
            return 1

    parallel = Parallel(n_jobs=3, backend=Patient(client=client))
    with pytest.raises(LookupError):
        parallel(delayed(fail_at_seven)(n) for n in (7, 8, 9))
    assert parallel([delayed(square)(n) for n in range(3)]) == [0, 1, 4]
    with parallel:  # joblib does not configure the backend between these
        with pytest.raises(LookupError):
            parallel(delayed(fail_at_seven)(n) for n in (7, 8, 9))
        assert parallel([delayed(square)(n) for n in range(3)]) == [0, 1, 4]


def test_an_array_of_all_calls_is_stored_once(in_use, client):
    table = numpy.arange(1_000_000)
    before = sum(1 for entry in remembered_entries(client) if entry.sent is not None)
    results = Parallel(batch_size=1)(delayed(numpy.take)(table, n) for n in range(20))
    assert results == list(range(20))
    assert sum(1 for entry in remembered_entries(client) if entry.sent is not None) == before + 1


def test_a_call_may_change_its_array(in_use):
    def add_one(array):
        array += 1
        return int(array[0])

    zeros = numpy.zeros(100_000)
    assert Parallel(batch_size=1)(delayed(add_one)(zeros) for _ in range(6)) == [1] * 6
    assert not zeros.any()


@pytest.mark.parametrize("level", [1, 2])
def test_calls_inside_calls_run_on_the_same_cluster_and_end(in_use, level):
    assert Parallel()(delayed(depth_of)(level) for _ in range(4)) == [level + 1] * 4


def test_calls_inside_calls_are_one_task_deeper_each_whichever_connected_first_in_its_process(in_use):
    def nestings(calls):
        from scaler.worker import context

        inner = Parallel(n_jobs=2)([delayed(nestings)(calls - 1)])[0] if calls else []
        return [context.current().nesting, *inner]

    for calls in 4, 1, 3, 2:
        assert Parallel(n_jobs=2)([delayed(nestings)(calls)]) == [list(range(calls + 1))]


def test_calls_inside_a_task_may_run_event_loops_also_if_it_has_one(client):
    async def five():
        return 5

    def inner():
        return asyncio.run(five())

    async def calls():
        with joblib.parallel_config("scaler"):
            return Parallel(n_jobs=2)(delayed(inner)() for _ in range(4))

    assert client.submit(lambda: asyncio.run(calls())).result() == [5] * 4


def test_calls_inside_calls_are_sequential_unless_they_say_how_many(in_use):
    def inner():
        parallel = Parallel()
        return parallel._effective_n_jobs(), type(joblib.parallel.get_active_backend()[0]).__name__

    assert set(Parallel()(delayed(inner)() for _ in range(4))) == {(1, "ScalerBackend")}


def test_no_more_run_than_n_jobs_say(start_cluster, connect, tmp_path):
    def most_at_a_time(n):
        mark = tmp_path / str(n)
        mark.touch()
        until = time.monotonic() + (20 if n < 2 else 0.005)  # the first two wait for each other
        while (count := len(list(tmp_path.iterdir()))) < 2 and time.monotonic() < until:
            time.sleep(0.001)
        if n < 2:
            time.sleep(0.05)  # a third one would come now
            count = max(count, len(list(tmp_path.iterdir())))
        mark.unlink()
        return count

    client = connect(start_cluster(n_workers=3))
    with joblib.parallel_config(ScalerBackend(client=client)):
        counts = Parallel(n_jobs=2, pre_dispatch="all", batch_size=1)(delayed(most_at_a_time)(n) for n in range(20))
    assert max(counts) == 2


def test_two_threads_use_one_backend_at_a_time_each_on_its_own(backend):
    totals = []

    def use():
        totals.extend(sum(Parallel(n_jobs=2, backend=backend)(delayed(square)(n) for n in range(20))) for _ in range(5))

    threads = [threading.Thread(target=use) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert totals == [sum(n * n for n in range(20))] * 15


def test_n_jobs_counts_workers(backend):
    assert [backend.effective_n_jobs(n) for n in (1, 5, -1, -2, -9, None)] == [1, 5, 2, 1, 1, 2]
    with pytest.raises(ValueError, match="n_jobs == 0"):
        backend.effective_n_jobs(0)


def test_workers_are_initialised_once(client):
    def note(place):
        os.environ["NOTED"] = os.environ.get("NOTED", "") + place

    with joblib.parallel_config(ScalerBackend(client=client, initializer=note, initargs=("here",))):
        assert set(Parallel(batch_size=1)(delayed(os.getenv)("NOTED") for _ in range(20))) == {"here"}


def test_libraries_have_as_many_threads_as_they_are_told(client):
    pytest.importorskip("threadpoolctl", reason="threadpoolctl is not installed")

    def threads():
        import threadpoolctl

        return {library["num_threads"] for library in threadpoolctl.threadpool_info()}

    with joblib.parallel_config(ScalerBackend(client=client), inner_max_num_threads=1):
        assert set().union(*Parallel()(delayed(threads)() for _ in range(4))) <= {1}


def test_a_backend_pickles():
    copy = pickle.loads(pickle.dumps(ScalerBackend("tcp://127.0.0.1:1", nesting_level=2)))
    assert (copy._address, copy.nesting_level) == ("tcp://127.0.0.1:1", 2)


def test_threads_that_report_end_with_the_call(in_use):
    def reporting():
        return [thread for thread in threading.enumerate() if thread.name == "scaler-joblib"]

    Parallel()(delayed(square)(n) for n in range(10))
    until(lambda: not reporting())


def test_an_address_is_given_by_name(cluster):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with joblib.parallel_backend("scaler", address=cluster.address):
            assert Parallel()(delayed(square)(n) for n in range(5)) == [0, 1, 4, 9, 16]


PROGRAM = """
import multiprocessing, joblib, scaler.joblib

def put(queue, n):
    queue.put(n)

with multiprocessing.Manager() as manager:
    queue = manager.Queue()
    with joblib.parallel_config(backend="scaler", n_jobs=2):
        joblib.Parallel()(joblib.delayed(put)(queue, n) for n in range(5))
    print(sorted(queue.get() for _ in range(5)))
"""


def test_without_an_address_the_process_has_a_cluster_whose_tasks_reach_its_managers(traces, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=50)
    assert (ended.stdout.strip(), ended.stderr) == ("[0, 1, 2, 3, 4]", "")


def test_what_the_page_on_the_switch_asserts_holds(scripts):
    page = (ROOT / "docs/from-joblib.md").read_text()
    scripts.run("\n".join(re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)), within=45.0)


def mapped(tmp_path, mode="w+"):
    return numpy.memmap(tmp_path / "out", "f8", mode, shape=(1000, 50))


def put_square(out, n):
    out[n] = n * n


def put_inside(things, n):
    put_square(things["out"], n)


def put_by_calls_inside(out, n):
    Parallel(n_jobs=2)(delayed(put_square)(out, n + 10 * k) for k in range(2))


SQUARES = [float(n * n) for n in range(5)]


@pytest.mark.parametrize("view", [lambda out: out, lambda out: numpy.asarray(out)[::1], lambda out: out[::2]])
def test_a_file_that_is_mapped_for_writing_is_written_by_the_calls(in_use, tmp_path, view):
    out = mapped(tmp_path)
    part = view(out)
    Parallel()(delayed(put_square)(part, n) for n in range(5))
    assert part[:5, 0].tolist() == SQUARES
    Parallel()(delayed(put_inside)({"out": part}, n + 5) for n in range(5))
    assert view(mapped(tmp_path, "r"))[5:10, 49].tolist() == [float(n * n) for n in range(5, 10)]


def test_calls_inside_of_calls_write_it_too(in_use, tmp_path):
    out = mapped(tmp_path)
    Parallel()(delayed(put_by_calls_inside)(out, n) for n in range(5))
    assert out[:5, 0].tolist() == SQUARES
    assert out[13, 0] == 169


def test_a_file_that_is_mapped_is_not_stored(client, in_use, tmp_path):
    before = set(remembered_entries(client))
    mapped(tmp_path)[3] = 3
    file = joblib.dump(numpy.arange(100_000.0), tmp_path / "dumped")[0]
    for out in mapped(tmp_path, "r"), mapped(tmp_path, "c"):
        assert Parallel()(delayed(numpy.sum)(out) for _ in range(3)) == [150.0] * 3
    loaded = joblib.load(file, mmap_mode="r+")
    Parallel()(delayed(put_square)(loaded, n) for n in range(5))
    assert loaded[:5].tolist() == SQUARES
    assert set(remembered_entries(client)) <= before


def test_elsewhere_nothing_that_is_written_is_lost_unseen(daemons, tmp_path):
    daemons.start_scheduler()
    daemons.start_agent(2)
    out = mapped(tmp_path)
    with joblib.parallel_config(ScalerBackend(client=daemons.client())):
        assert Parallel()(delayed(numpy.sum)(out) for _ in range(2)) == [0.0] * 2
        with pytest.raises(ValueError, match="read-only"):
            Parallel()(delayed(put_square)(out, n) for n in range(5))
