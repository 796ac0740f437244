"""Mistakes of users: each a clear error within a second, and nothing else is lost."""

import os
import pickle
import socket
import sys
import time

import numpy
import pytest
from support import Daemons, within

from scaler import (
    AddressError,
    Client,
    ClientClosed,
    ConnectionFailed,
    ConnectionTimeout,
    CycleError,
    Executor,
    FunctionNotFound,
    ObjectTooLarge,
    SchedulerClusterCombo,
    SerializationError,
    TaskError,
)
from scaler.client.client import parts_of
from scaler.client.scope import WholeSession
from scaler.client.submitting import templates
from scaler.client.values.stores import Stores


def double(x):
    return 2 * x


@pytest.fixture(autouse=True)
def _at_once():
    with within(5.0):
        yield


class Unpicklable:
    def __reduce__(self):
        raise TypeError("I stay here")


class Explosive:
    """Cannot be unpickled."""

    def __reduce__(self):
        return explode, ()


def explode():
    raise ArithmeticError("it went off")


@pytest.mark.parametrize("given", [3, "abs", None])
def test_what_is_no_function_is_refused_where_it_is_given(client, given):
    for call in (client.submit, client.map):
        with pytest.raises(TypeError, match=f"a function is wanted.*not {given!r}"):
            call(given, [1])
    assert client.submit(abs, -1).result(20) == 1


def test_no_scheduler_at_the_address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    with (
        within(1.0),
        pytest.raises(ConnectionFailed, match=rf"nothing listens at {address}.*scaler_scheduler {address}"),
    ):
        Client(address)


def test_something_that_never_answers_is_given_up_after_the_timeout():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with within(1.5), pytest.raises(ConnectionTimeout):
            Client(f"tcp://127.0.0.1:{silent.getsockname()[1]}", timeout=0.5)


def test_a_scheduler_that_does_not_come_is_waited_for_until_the_timeout():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        began = time.monotonic()
        with pytest.raises(ConnectionFailed, match="nothing listens at"):
            Client(f"tcp://127.0.0.1:{free.getsockname()[1]}", timeout=0.2)
        assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize("address", [3, ["tcp://127.0.0.1:1"], object])
def test_what_is_no_address(address):
    with pytest.raises(TypeError, match=r"address must be like tcp://host:port, or a cluster, not [^\n]*$"):
        Client(address)


@pytest.mark.parametrize("serializer", [3, object, "pickle"])
def test_what_is_no_serializer(serializer):
    with pytest.raises(TypeError, match=r"serializer must have the methods serialize and deserialize; .* has no "):
        Client("tcp://127.0.0.1:1", serializer=serializer)


@pytest.mark.parametrize(
    ("make", "given", "hint"),
    [
        (Client, {"adress": "tcp://127.0.0.1:1"}, "did you mean 'address'"),
        (Client, {"n_workers": 2}, "SchedulerClusterCombo"),
        (SchedulerClusterCombo, {"workers": 2}, "did you mean 'n_workers'"),
        (Executor, {"max_workers": "tcp://127.0.0.1:1"}, "address="),
        (
            Client,
            {"address": "tcp://127.0.0.1:1", "timeout": "long"},
            "timeout must be a number of seconds, not 'long'",
        ),
    ],
)
def test_an_argument_that_is_another_ones_is_told_whose(make, given, hint):
    with pytest.raises(TypeError, match=hint):
        make(**given)


def test_a_serializer_that_makes_no_bytes(cluster):
    class Text:
        serialize = staticmethod(str)
        deserialize = staticmethod(bytes)

    with (
        Client(cluster.address, serializer=Text) as client,
        pytest.raises(SerializationError, match="serialize must return bytes, not str"),
    ):
        client.submit(abs, -1)


def test_a_graph_that_is_no_dict(client):
    with pytest.raises(TypeError, match="a graph is a dict of keys"):
        client.get([("a", 1)], ["a"])


def test_an_option_among_the_arguments_is_told_where_it_belongs(client):
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'priority'; options .* with_options"):
        client.submit(lambda x: x, 1, priority=1)


def test_no_address_at_all():
    with pytest.raises(ValueError, match="SCALER_ADDRESS"):
        Client()


@pytest.mark.parametrize(
    "address", ["localhost", "http://localhost:80", "tcp://localhost", "tcp://localhost:99999", ""]
)
@pytest.mark.parametrize("make", [Client, SchedulerClusterCombo])
def test_a_malformed_address(make, address):
    if address == "" and make is Client:
        pytest.skip("means none")
    with pytest.raises(AddressError, match="the form is tcp://host:port"):
        make(address)


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "2", numpy.int64(0), numpy.float64(2)])
def test_a_cluster_of_no_workers(n):
    with pytest.raises(ValueError, match="n_workers must be 1 or more") as caught:
        SchedulerClusterCombo(n_workers=n)
    assert f"as an integer, not {n!r}:" in str(caught.value)


def test_a_cluster_of_as_many_workers_as_numpy_counted():
    with SchedulerClusterCombo(n_workers=numpy.int64(1)) as cluster:
        assert cluster.n_workers == 1


def test_a_cluster_with_sizes_as_people_write_them():
    sizes = {"memory_limit": "512MiB", "max_message_bytes": "0.1 GB"}
    with SchedulerClusterCombo(n_workers=1, **sizes) as cluster, Client(cluster.address) as client:
        assert client.submit(pow, 2, 3).result(20) == 8
    with pytest.raises(ValueError, match="memory_limit must be a number of bytes, like 2GB or 512MiB, not '2 crates'"):
        SchedulerClusterCombo(n_workers=1, memory_limit="2 crates")


def test_an_executor_of_no_workers():
    with pytest.raises(ValueError, match="max_workers"):
        Executor(0)


def test_an_argument_that_cannot_be_pickled_is_named(client):
    with pytest.raises(SerializationError, match=r"argument 1 of .*pow.*I stay here"):
        client.submit(pow, 2, Unpicklable())
    with pytest.raises(SerializationError, match=r"argument 'exp' of .*pow"):
        client.submit(pow, 2, exp=Unpicklable())
    with pytest.raises(pickle.PicklingError):
        client.map(double, [1, Unpicklable(), 3])
    assert client.submit(double, 1).result(20) == 2


def test_a_function_that_cannot_be_pickled_names_what_in_it(client):
    inside = Unpicklable()
    with pytest.raises(SerializationError, match="I stay here"):
        client.submit(lambda: inside)
    assert client.submit(double, 1).result(20) == 2


def test_a_result_that_cannot_be_pickled_fails_alone(client):
    def choose(x):
        return Unpicklable() if x == 3 else x

    futures = [client.submit(choose, x) for x in range(6)]
    with pytest.raises(SerializationError, match="choose"):
        futures[3].result(20)
    assert [future.result(20) for x, future in enumerate(futures) if x != 3] == [0, 1, 2, 4, 5]


def test_an_argument_that_raises_while_it_is_unpickled_fails_its_task_alone(client):
    before = client.submit(double, 1)
    bad = client.submit(double, Explosive())
    after = client.submit(double, 2)
    with pytest.raises(Exception, match="it went off"):
        bad.result(20)
    assert (before.result(20), after.result(20)) == (2, 4)


def test_a_result_that_raises_while_it_is_unpickled_fails_its_task_alone(client):
    bad = client.submit(Explosive)
    with pytest.raises(ArithmeticError, match="it went off"):
        bad.result(20)
    with pytest.raises(ArithmeticError, match="it went off"):
        client.map(lambda x: Explosive() if x == 2 else x, range(4))
    assert client.submit(double, 2).result(20) == 4


def make_explosive(size):
    """A result of so many bytes and more."""
    return b"x" * size, Explosive()


@pytest.mark.parametrize("size", [1, 4 << 20])
def test_a_result_that_raises_while_it_is_unpickled_says_of_which_task_it_is(client, size):
    note = f"(raised on the client, while the result of task {__name__}.make_explosive was unpickled)"
    for call in (lambda: client.submit(make_explosive, size).result(20), lambda: client.map(make_explosive, [size])):
        with pytest.raises(ArithmeticError) as caught:
            call()
        assert note in caught.value.__notes__


def test_an_exception_that_cannot_be_pickled_comes_as_text(client):
    def fail():
        class Local(Exception):
            __rows__ = (n for n in ())

        raise Local("what happened")

    with pytest.raises(TaskError, match="Local: what happened") as caught:
        client.submit(fail).result(20)
    assert "in fail" in str(caught.value.__cause__)
    assert client.submit(double, 2).result(20) == 4


def test_a_function_whose_module_is_missing_on_the_worker(daemons: Daemons, tmp_path, monkeypatch):
    daemons.start_scheduler()
    daemons.start_agent(1)
    (tmp_path / "here_only").mkdir()
    (tmp_path / "here_only" / "just_mine.py").write_text("def answer():\n    return 42\n")
    monkeypatch.syspath_prepend(str(tmp_path / "here_only"))
    import just_mine

    client = daemons.client()
    with pytest.raises(FunctionNotFound, match=rf"(?s)just_mine.*{os.uname().nodename}"):
        client.submit(just_mine.answer).result(20)
    with pytest.raises(FunctionNotFound, match="install just_mine there, or have PYTHONPATH name the directory"):
        client.map(just_mine.answer, [()])
    assert client.submit(double, 2).result(20) == 4
    del sys.modules["just_mine"]


def test_a_module_in_a_directory_that_a_local_cluster_was_not_told_of(start_cluster, connect, tmp_path, monkeypatch):
    client = connect(start_cluster(1))
    (tmp_path / "found_late.py").write_text("def answer():\n    return 42\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import found_late

    words = "a cluster that the program has started has the sys"
    with pytest.raises(FunctionNotFound, match=words):
        client.submit(found_late.answer).result(20)
    del sys.modules["found_late"]


def test_a_graph_that_depends_on_itself(client):
    graph = {"a": (double, "b"), "b": (double, "c"), "c": (double, "a")}
    with pytest.raises(CycleError, match="a -> b -> c -> a"):
        client.get(graph, ["a"])


def test_a_key_that_is_missing(client):
    with pytest.raises(KeyError, match="nowhere"):
        client.get({"a": (double, 1)}, ["nowhere"])
    assert client.get({"a": (double, 1)}, ["a"]) == {"a": 2}


def test_iterables_of_unequal_length_end_with_the_shortest(client):
    assert client.map(pow, [2, 3, 4], [2, 2]) == list(map(pow, [2, 3, 4], [2, 2]))
    with pytest.raises(TypeError):
        client.map(double)
    assert client.map(double, []) == []


def test_use_after_goodbye(cluster):
    client = Client(cluster.address)
    done = client.submit(double, 1)
    done.result(20)
    client.disconnect()
    client.disconnect()
    assert done.result() == 2
    for use in (
        lambda: client.submit(double, 1),
        lambda: client.map(double, [1]),
        lambda: client.get({"a": (double, 1)}, ["a"]),
        lambda: client.send_object(1),
        client.clear,
        client.shutdown,
    ):
        with pytest.raises(ClientClosed, match="make a new Client"):
            use()


def test_a_result_asked_for_after_a_fork(scripts):
    text = scripts.run(
        """
        import os, time
        import scaler

        with scaler.SchedulerClusterCombo(n_workers=1) as cluster, scaler.Client(cluster.address) as client:
            assert client.submit(pow, 1, 2).result(20) == 1  # the function is known from now on
            pending = client.submit(time.sleep, 0.5)
            pid = os.fork()
            if pid == 0:
                for use in (pending.result, lambda: client.submit(pow, 1, 2), lambda: client.map(pow, [(1, 2)])):
                    try:
                        use()
                    except scaler.ForkedClient as error:
                        print("refused:", error, flush=True)
                with scaler.Client(cluster.address) as mine:
                    print(mine.submit(pow, 2, 3).result(20), flush=True)
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            assert pending.result(20) is None
            assert client.submit(pow, 2, 2).result(20) == 4
            print("the parent works on")
        """
    )
    assert text.count("refused: ") == 3
    assert text.count("this client, or Executor, was made before this process was forked: make a new one here") == 2
    assert text.endswith("8\nthe parent works on\n")


def test_no_wait_of_a_forked_child_for_what_its_parent_has_submitted_is_for_ever(scripts):
    text = scripts.run(
        """
        import asyncio, os, signal, threading, time
        from concurrent.futures import as_completed, wait
        import scaler, scaler_dask

        async def awaited(make):
            return await make()

        with scaler.Executor(2) as pool, scaler_dask.Client(pool.client.address) as client:
            ended, running = pool.submit(pow, 2, 3), pool.submit(time.sleep, 600)
            assert ended.result(20) == 8
            coming = as_completed([ended, running])
            assert next(coming) is ended
            keyed, watched = client.submit(time.sleep, 500), client.submit(time.sleep, 400)
            ends = scaler_dask.as_completed([watched])
            uses = [
                running.result,
                lambda: wait([ended, running]),
                lambda: wait([running], 500),
                lambda: list(as_completed([running, ended])),
                lambda: next(coming),
                lambda: running.add_done_callback(print),
                lambda: asyncio.run(awaited(lambda: asyncio.wrap_future(running))),
                lambda: asyncio.run(awaited(lambda: running)),
                keyed.result,
                lambda: scaler_dask.wait([keyed]),
                lambda: scaler_dask.wait([watched]),
                lambda: next(scaler_dask.as_completed([keyed])),
                lambda: client.gather([keyed]),
            ]
            pid = os.fork()
            if pid == 0:
                signal.alarm(50)
                for use in uses:
                    try:
                        print("missed:", use(), flush=True)
                    except scaler.ForkedClient as error:
                        print("refused:", error, flush=True)
                assert wait([ended]).done == {ended}
                with scaler.Executor(1) as mine:
                    future = mine.submit(pow, 2, 4)
                    print(sorted(each.result() for each in as_completed([future, ended])), flush=True)
                    print(wait([future, ended]).not_done, flush=True)
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            assert running.cancel(force=True)
            assert next(coming) is running
            keyed.engine_future.cancel(force=True)
            watched.engine_future.cancel(force=True)
        print("the parent works on")
        """,
        PYTHONWARNINGS="ignore::DeprecationWarning",  # since 3.12: forking a program with threads
    )
    assert text.count("refused: this future belongs to the parent of this forked process: ") == 13
    assert text.count("Make a new Client, or Executor, here and submit to that\n") == 13
    assert text.endswith("[8, 16]\nset()\nthe parent works on\n")


def test_a_value_over_the_limit_of_messages_is_stored(start_cluster, connect):
    client = connect(start_cluster(1, max_message_bytes=1 << 20))
    big = bytes(2 << 20)
    assert client.submit(len, big).result(20) == len(big)
    assert client.map(len, [big]) == [len(big)]
    assert client.submit(len, client.send_object(big)).result(20) == len(big)
    assert client.submit(lambda: len(big)).result(20) == len(big)
    assert client.get({"a": (len, big)}, ["a"]) == {"a": len(big)}
    assert client.submit(bytes, 2 << 20).result(20) == big


def test_a_value_over_the_limit_where_there_is_no_store(start_cluster, connect, monkeypatch):
    client = connect(start_cluster(1, max_message_bytes=1 << 20))
    monkeypatch.setattr(Stores, "write", lambda *_: None)
    big, fits = bytes(2 << 20), bytes(1 << 19)
    for use in (
        lambda value: client.submit(len, value),
        lambda value: client.map(len, [value]),
        lambda value: client.send_object(value),
        lambda value: client.submit(lambda: len(value)),
        lambda value: client.get({"a": (len, value)}, ["a"]),
    ):
        with pytest.raises(ObjectTooLarge, match="max_message_bytes"):
            use(big)
        use(fits)
    assert client.submit(len, fits).result(20) == len(fits)
    assert client.submit(lambda: len(fits)).result(20) == len(fits)


class Leaving:
    """Has its client disconnected while it is pickled, as another thread may."""

    client = None

    def __reduce__(self):
        self.client.disconnect()
        return int, ()


@pytest.mark.parametrize(
    "send",
    [
        lambda client, value: client.submit(double, value),
        lambda client, value: client.submit(double, x=value),
        lambda client, value: client.map(double, [value], timeout=2),
        lambda client, value: client.get({"a": (double, value)}, ["a"], block=False),
    ],
    ids=["submit", "keyword", "map", "graph"],
)
def test_what_is_being_packed_while_its_client_leaves_is_refused_and_not_waited_for(client, monkeypatch, send):
    monkeypatch.setattr(Leaving, "client", client)
    with pytest.raises(ClientClosed):
        send(client, Leaving())


class Meanwhile:
    """Has something done while it is pickled, as another thread may; it arrives as a 1."""

    def __init__(self, act):
        self._act = act

    def __reduce__(self):
        self._act()
        return int, (1,)


@pytest.mark.parametrize("meanwhile", ["others", "clear"])
def test_a_function_is_there_whatever_others_do_while_its_arguments_are_packed(client, monkeypatch, meanwhile):
    monkeypatch.setattr(templates, "MOST", 3)

    def use_other_functions():
        assert [client.submit(lambda n=n: n).result(20) for n in range(4)] == [0, 1, 2, 3]

    act = use_other_functions if meanwhile == "others" else client.clear
    for _ in range(2):
        assert client.submit(double, 1).result(20) == 2
        assert client.submit(double, Meanwhile(act)).result(20) == 2
        assert client.map(double, [Meanwhile(act)]) == [2]


class Attributes(dict):
    """The usual few lines; they raise KeyError where AttributeError is expected."""

    __getattr__ = dict.__getitem__


def test_arguments_whose_class_has_a_mind_of_its_own_about_attributes(client):
    assert client.submit(len, Attributes(a=1)).result(20) == 1
    assert client.map(len, [Attributes(a=1)] * 2) == [1, 1]


def test_what_is_no_function(client):
    with pytest.raises(TypeError):
        client.submit("no function").result(20)
    assert client.submit(double, 2).result(20) == 4


def test_an_exception_that_denies_that_it_has_a_class_costs_no_worker(client):
    class Denying(Exception):
        def __getattribute__(self, name):
            raise RuntimeError(name)

    def fail():
        raise Denying

    before = client.submit(os.getppid).result(5)
    with pytest.raises(TaskError, match=r"Denying: <its text cannot be made"):
        client.submit(fail).result(5)
    assert client.submit(os.getppid).result(5) == before


def test_names_of_bytes_that_are_no_text(client, start_cluster, connect):
    def named():
        return 1

    named.__qualname__ = named.__module__ = "\udcff"
    assert client.submit(named).result(5) == 1
    assert client.map(named, [()]) == [1]
    assert client.submit(abs, -1).result(5) == 1
    cluster = start_cluster(1, capabilities=("a\udcff",))
    other = connect(cluster, name="b\udcff")
    assert other.with_options(capabilities=["a\udcff"]).submit(abs, -1).result(5) == 1


def test_wrong_arguments_are_the_functions_own_error(client):
    with pytest.raises(TypeError, match="double"):
        client.submit(double, 1, 2).result(20)
    with pytest.raises(TypeError, match="double"):
        client.map(double, [(1, 2)])


def test_what_the_scheduler_refuses_again_and_again_is_not_said_for_ever(start_cluster, connect):
    """A message that is wrong costs its connection, and is said again over the next one: that has an end."""
    cluster = start_cluster(1)
    client, other = connect(cluster), connect(cluster)
    parts, options = parts_of(client)
    wrong = type(client.with_options(priority=1))(parts, options.replace(timeout=2e9), WholeSession(parts))
    with pytest.raises(ConnectionFailed, match=r"refuses what this client says: .*a timeout is a positive number"):
        wrong.submit(double, 1).result(10)
    with pytest.raises(ConnectionFailed, match="refuses what this client says"):
        client.submit(double, 1).result(10)
    assert other.submit(double, 2).result(10) == 4
