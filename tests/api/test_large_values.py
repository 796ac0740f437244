"""Large arguments, functions, objects and results: what a user sees of their being stored, which is little."""

import asyncio
import functools
import gc
import os
import random
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from pathlib import Path

import numpy as np
import pytest
from support import until
from support.client_parts import forget_stores, store_place
from support.stores import objects

from scaler import Client, ConnectionFailed, Executor, ObjectLost, SerializationError, Serializer, StoreFull
from scaler.client.client import parts_of
from scaler.client.values import places as places_module
from scaler.client.values import stores as stores_module
from scaler.store import StoreFull as NoRoom

#: of an array of 2.4 MB
NUMBERS = 300_000


def first(array, plus=0):
    return float(array[0] + plus)


def total(array):
    return float(array.sum())


def make(number):
    return np.full(NUMBERS, number)


def files(client):
    """The objects in the store that a client uses."""
    place = store_place(client)
    return {} if place is None else objects(Path(place.store.path))


def files_of(client):
    """The names of those that are its own."""
    number = parts_of(client)[0].driver.welcome.number
    return {name for name in files(client) if name.startswith(f"{number}-")}


def writes(client, monkeypatch):
    """What this client has written since, by object id."""
    written = []
    write = places_module.write_object

    def count(path, key, inband, buffers, fill):
        written.append(key[1])
        return write(path, key, inband, buffers, fill)

    monkeypatch.setattr(places_module, "write_object", count)
    return written


# ---- arguments -------------------------------------------------------------------------------------------------------
def test_an_array_given_a_thousand_times_is_written_once(client, monkeypatch):
    array = np.arange(2_500_000.0)
    written = writes(client, monkeypatch)
    futures = [client.submit(first, array, n) for n in range(500)]
    futures += [client.submit(first, plus=n, array=array) for n in range(500)]
    assert [future.result(40) for future in futures] == [float(n) for n in range(500)] * 2
    assert len(written) == 1


def test_threads_that_give_the_same_array_write_it_once(client, monkeypatch):
    array = np.arange(2_500_000.0)
    written = writes(client, monkeypatch)
    with ThreadPoolExecutor(8) as pool:
        futures = list(pool.map(lambda n: client.submit(first, array, n), range(80)))
    assert [future.result(40) for future in futures] == [float(n) for n in range(80)]
    assert len(written) == 1


def test_threads_with_arrays_of_their_own_do_not_disturb_each_other(client):
    def work(seed):
        rng = np.random.default_rng(seed)
        array = np.zeros(50_000)
        expected, futures = [], []
        for _ in range(20):
            array[rng.integers(50_000)] += 1
            expected.append(array.sum())
            futures.append(client.submit(total, array))
        return [future.result(40) for future in futures] == expected

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(12)))


def test_every_call_gets_what_the_array_held_when_it_was_submitted(client):
    rng = random.Random(7)
    arrays = [np.zeros(30_000), np.asfortranarray(np.zeros((200, 200))), np.zeros(60_000, "f4")]
    expected, futures = [], []
    for _ in range(200):
        array = rng.choice(arrays)
        flat = array.reshape(-1, order="A")
        if rng.random() < 0.6:
            flat[rng.randrange(array.size)] += rng.randrange(10)
        value = [array] if rng.random() < 0.2 else array
        expected.append(float(array.sum()))
        futures.append(client.submit(lambda a: float(a[0].sum() if isinstance(a, list) else a.sum()), value))
        del value
    assert [future.result(40) for future in futures] == expected


def test_arguments_that_are_one_object_stay_one(client):
    array = np.zeros(NUMBERS)
    assert client.submit(lambda a, b, c: (a is b, a is c), array, array, array.copy()).result(20) == (True, False)


def test_small_and_large_arguments_mix(client):
    array, text = np.ones(NUMBERS), "x" * 500_000
    future = client.submit(lambda a, n, s, k=None: (a.sum(), n, len(s), k), array, 5, text, k=[1, 2])
    assert future.result(20) == (NUMBERS, 5, 500_000, [1, 2])


def test_memory_that_nobody_needs_any_more_is_let_go_of(client):
    array = np.ones(NUMBERS)
    futures = [client.submit(total, array), client.submit(make, 1), client.submit(len, bytes(300_000))]
    reference = client.send_object(np.ones(NUMBERS))
    client.submit(functools.partial(np.dot, np.ones(NUMBERS)), np.ones(NUMBERS)).result(20)
    client.map(total, [np.ones(NUMBERS)] * 4)
    [future.result(20) for future in futures]
    until(lambda: len(files_of(client)) == 3, "all but the array, the result and the object to go")
    del array, futures, reference
    gc.collect()
    until(lambda: not files_of(client), "the store to be empty")


def test_an_argument_that_cannot_be_pickled_is_named_beside_large_ones(client):
    def takes_both(array, bad):
        return first(array)

    with pytest.raises(SerializationError, match=r"argument 'bad' of .*takes_both"):
        client.submit(takes_both, np.ones(NUMBERS), bad=(number for number in ()))


def test_a_full_store_names_the_argument_its_size_and_the_room(client, monkeypatch):
    def full(path, key, inband, buffers, fill):
        raise NoRoom(path, 2_400_064, 1_000)

    monkeypatch.setattr("scaler.store.ROOM_PATIENCE", 0.0)
    client.submit(total, np.ones(NUMBERS)).result(20)
    monkeypatch.setattr(places_module, "write_object", full)
    with pytest.raises(StoreFull, match=r"argument 'plus' of .*first takes 2,400,064 bytes: .* 1,000 are free"):
        client.submit(first, 1, plus=np.full(NUMBERS, 2))
    with pytest.raises(OSError, match=r"the object table takes"):
        client.send_object(np.ones(NUMBERS), name="table")
    with pytest.raises(StoreFull, match=r"a block of 1 arguments of .*total"):
        client.map(total, [np.full(NUMBERS, 3)])
    monkeypatch.undo()
    assert client.submit(first, np.ones(NUMBERS)).result(20) == 1.0


# ---- functions -------------------------------------------------------------------------------------------------------
def test_a_function_with_large_data_is_written_once(client, monkeypatch):
    array = np.ones(25_000_000 // 8)
    written = writes(client, monkeypatch)
    held = functools.partial(first, array)
    assert [client.submit(held, n).result(20) for n in range(20)] == [1.0 + n for n in range(20)]
    assert [client.submit(functools.partial(first, array), n).result(20) for n in range(20)] == [
        1.0 + n for n in range(20)
    ]
    assert client.map(held, range(100)) == [1.0 + n for n in range(100)]
    assert len(written) == 1
    array[0] = 5
    assert client.submit(held, 1).result(20) == 6.0


def test_a_closure_over_a_large_array_sees_its_changes(client):
    array = np.zeros(NUMBERS)

    def look():
        return float(array[7])

    assert client.submit(look).result(20) == 0.0
    array[7] = 3
    assert client.submit(look).result(20) == 3.0


# ---- objects, maps, graphs -------------------------------------------------------------------------------------------
def test_a_sent_object_is_what_it_was_when_it_was_sent(client):
    array = np.zeros(NUMBERS)
    reference = client.send_object(array)
    array[:] = 1
    assert client.submit(total, reference).result(20) == 0.0
    assert reference.size > 8 * NUMBERS


def test_a_map_of_arrays(client):
    arrays = [np.full(50_000, number) for number in range(40)]
    assert client.map(total, arrays) == [50_000.0 * number for number in range(40)]
    results = client.map(make, range(10))
    assert [(len(result), int(result[0])) for result in results] == [(NUMBERS, number) for number in range(10)]
    assert client.map(lambda a, b: float((a + b).sum()), arrays[:3], arrays[:3]) == [0.0, 100_000.0, 200_000.0]


@pytest.mark.parametrize("mapped", ["single", "zipped", "starred"])
def test_an_array_in_all_rows_of_a_map_is_written_once(client, monkeypatch, mapped):
    array = np.ones(2_500_000)
    written = writes(client, monkeypatch)
    for _ in range(2):
        if mapped == "single":
            assert client.map(total, [array] * 40) == [2_500_000.0] * 40
        elif mapped == "zipped":
            assert client.map(first, [array] * 40, range(40)) == [1.0 + n for n in range(40)]
        else:
            assert client.starmap(first, [(array, n) for n in range(40)]) == [1.0 + n for n in range(40)]
    assert len(written) == 1
    array[0] = 5
    assert client.map(first, [array] * 40) == [5.0] * 40


def test_rows_of_a_map_that_share_an_array_may_change_it_each_for_itself(client):
    def grow(array, by):
        array += by
        return float(array[0])

    assert client.map(grow, [np.zeros(NUMBERS)] * 8, range(8)) == [float(n) for n in range(8)]


def test_arrays_that_rows_of_a_map_have_of_their_own_leave_the_store_with_them(client):
    arrays, settings = [np.full(NUMBERS, number) for number in range(6)], {"plus": 1}
    assert client.map(lambda a, s: first(a, **s), arrays, [settings] * 6) == [1.0 + n for n in range(6)]
    until(lambda: not files_of(client), "the store to be empty")


def test_constants_of_graphs_are_written_once(client, monkeypatch):
    array = np.ones(NUMBERS)
    written = writes(client, monkeypatch)
    for n in range(5):
        graph = {"a": array, "s": (total, "a"), "f": (first, "a", n), "w": (make, n)}
        found = client.get(graph, ["s", "f", "w"])
        assert (found["s"], found["f"], found["w"][0]) == (NUMBERS, 1.0 + n, n)
    assert len(written) == 1


def test_a_large_graph_of_small_constants(client):
    graph = {f"k{n}": (len, [f"{n} {m}" for m in range(200)]) for n in range(300)}
    assert set(client.get(graph, list(graph)).values()) == {200}


# ---- results ---------------------------------------------------------------------------------------------------------
def test_a_stored_result_is_a_value_like_any_other(client):
    future = client.submit(make, 7)
    assert future.exception(20) is None
    assert future.result() is future.result()
    assert future.result().flags.writeable
    future.result()[0] = 1
    assert client.submit(first, future).result(20) == 7.0  # what the task made


def test_a_stored_result_given_on_does_not_come_here(client):
    future = client.submit(make, 7)
    wait([future], 20)
    assert client.submit(total, future).result(20) == 7.0 * NUMBERS
    assert future._unread is not None
    assert client.map(first, [make(1)]) == [1.0]


def test_callbacks_and_iterators_get_stored_results(client):
    got = []
    futures = [client.submit(make, n) for n in range(4)]
    for future in futures:
        future.add_done_callback(lambda future: got.append(float(future.result()[0])))
    assert sorted(float(future.result()[0]) for future in as_completed(futures, 20)) == [0, 1, 2, 3]
    until(lambda: sorted(got) == [0, 1, 2, 3])


def test_callbacks_may_submit_and_wait_for_large_values(client):
    done = []

    def again(_):
        done.append(client.submit(first, client.submit(make, 3)))

    def large(_):
        done.append(client.submit(first, np.full(NUMBERS, 3)))

    for function, callback in ((abs, again), (abs, large), (make, again), (make, large)):
        client.submit(function, 3).add_done_callback(callback)
    until(lambda: len(done) == 4)
    assert [future.result(20) for future in done] == [3.0] * 4


def test_the_first_large_value_may_be_a_callbacks(cluster):
    with Client(cluster.address) as client:
        done = []
        client.submit(abs, -1).add_done_callback(lambda _: done.append(client.submit(total, np.ones(NUMBERS))))
        until(lambda: done)
        assert done[0].result(20) == NUMBERS


def test_stored_results_are_awaited(client):
    async def main():
        one = await client.submit(make, 1)
        two = await asyncio.wrap_future(client.submit(make, 2))
        three, four = await asyncio.gather(client.submit(make, 3), client.submit(make, 4))
        return [float(array[0]) for array in (one, two, three, four)]

    assert asyncio.run(main()) == [1, 2, 3, 4]


def test_results_outlive_their_client(start_cluster):
    cluster = start_cluster()
    with Client(cluster.address) as client:
        futures = [client.submit(make, n) for n in range(3)]
        wait(futures)
    cluster.shutdown()
    assert [float(future.result()[0]) for future in futures] == [0, 1, 2]


def test_a_result_that_is_gone_names_task_and_object(client):
    future = client.submit(make, 1)
    wait([future], 20)
    parts_of(client)[0].driver.release(future.id)
    client.submit(abs, 1).result(20)
    until(lambda: not files_of(client))
    with pytest.raises(ObjectLost, match=rf"result of task .*make \({future.id}\) is lost"):
        future.result(20)
    assert isinstance(future.exception(), ObjectLost)


def test_clear_leaves_results_that_have_come(client):
    future = client.submit(make, 4)
    wait([future], 20)
    client.clear()
    assert future.result(20)[0] == 4
    assert client.submit(total, np.ones(NUMBERS)).result(20) == NUMBERS


def test_large_results_are_profiled(client):
    future = client.submit(make, 1, profiling=True)
    assert future.result(20)[0] == 1
    assert future.profiling_info().duration_us > 0


# ---- around it -------------------------------------------------------------------------------------------------------
def test_nested_tasks_send_and_receive_large_values(client):
    def nested(client, array):
        made = [client.submit(make, n) for n in range(3)]
        sums = [client.submit(first, array, n) for n in range(3)]
        return (
            [float(future.result()[0]) for future in made],
            [future.result() for future in sums],
            client.map(total, [array] * 3),
            client.submit(total, made[2]).result(),
        )

    array = np.ones(NUMBERS)
    assert client.submit(nested, client, array).result(40) == (
        [0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [float(NUMBERS)] * 3, 2.0 * NUMBERS,
    )  # fmt: skip


def test_an_executor_takes_and_gives_arrays():
    with Executor(2) as pool:
        future = pool.submit(first, np.full(NUMBERS, 2.0), plus=1)
        values = pool.map(make, range(6))
        sums = pool.map(total, [np.full(NUMBERS, float(n)) for n in range(6)])
    assert future.result() == 3.0
    assert [float(array[0]) for array in values] == [0, 1, 2, 3, 4, 5]
    assert list(sums) == [n * float(NUMBERS) for n in range(6)]


def test_an_executors_initializer_with_large_data(tmp_path):
    def load(array):
        globals()["_loaded"] = float(array.sum())

    with Executor(1, initializer=load, initargs=(np.ones(NUMBERS),)) as pool:
        for _ in range(3):
            assert pool.submit(abs, -1).result(20) == 1
        assert len(files_of(pool.client)) == 1


class Plain(Serializer):
    """Large values as one piece of bytes."""


def test_large_values_with_a_serializer_of_the_users(cluster):
    with Client(cluster.address, serializer=Plain) as client:
        array = np.full(NUMBERS, 2.0)
        assert [client.submit(first, array, plus=n).result(20) for n in range(3)] == [2.0, 3.0, 4.0]
        assert client.submit(make, 3).result(20)[0] == 3
        assert client.submit(first, client.send_object(array)).result(20) == 2.0
        assert client.map(first, [array]) == [2.0]
        assert client.submit(functools.partial(first, array), 1).result(20) == 3.0


def test_a_client_that_is_on_no_agents_host_uses_the_store_beside_the_scheduler(cluster, monkeypatch):
    monkeypatch.setattr(stores_module, "is_same_host", lambda path, token: False)
    with Client(cluster.address) as client:
        array = np.arange(float(NUMBERS))
        futures = [client.submit(total, array) for _ in range(20)]
        array[0] = 5
        futures.append(client.submit(total, array))
        assert [future.result(20) for future in futures] == [array.sum() - 5] * 20 + [array.sum()]
        assert client.submit(make, 3).result(20)[0] == 3
        assert [array[0] for array in client.map(make, range(3))] == [0, 1, 2]
        left = client.submit(make, 4)
        wait([left], 20)
    assert left.result()[0] == 4


def test_a_forked_child_can_read_nothing_that_it_would_have_to_ask_for(client):
    future = client.submit(make, 1)
    wait([future], 20)
    pid = os.fork()
    if not pid:
        code = 1
        try:
            forget_stores(client)
            future.result()
        except RuntimeError as error:
            code = 0 if "forked" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert future.result()[0] == 1


@pytest.mark.parametrize("fetches", [True, False])
def test_a_client_that_leaves_fetches_large_results_unless_it_is_told_not_to(cluster, fetches):
    client = Client(cluster.address)
    made = client.submit(make, 7)
    until(made.done)
    client.disconnect(fetch_results=fetches)
    if fetches:
        assert first(made.result()) == 7
    else:
        with pytest.raises(ConnectionFailed, match="disconnected"):
            made.result()
