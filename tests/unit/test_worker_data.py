"""Values that are large: as files of the store, and as objects that stay in the worker."""

import errno
import gc
import mmap
import os
import pickle
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support import DEADLINE
from support.runner import ARGUMENTS, BATCH, CLIENT, FUNCTION, Agent, Kept

from scaler.errors import ObjectLost, ObjectTooLarge, StoreFull
from scaler.protocol.error_record import ErrorKind, ErrorRecord
from scaler.protocol.messages import (
    DOUBTFUL,
    EACH,
    GRAPH,
    KEEP,
    LACKING,
    LIVE,
    PROFILE,
    SIZE,
    STORED,
    VALUES_EACH,
    VALUES_LIST,
)
from scaler.serialize import Serializer, payload
from scaler.serialize.call import Slot, encode_call, encode_function, pack_entries, pack_function
from scaler.serialize.entry import Entry
from scaler.serialize.outofband import pack, unpack
from scaler.store import segments
from scaler.store.directory import StoreDirectory
from scaler.store.layout import Key, file_name
from scaler.worker import context, fitness, inputs, result_writer
from scaler.worker.live_values import LiveValues
from scaler.worker_protocol import messages as wm
from scaler.worker_protocol.encoding import from_worker, read_by_agent, read_by_worker, to_worker

#: bytes of the arrays here: large enough to be stored
MB = 1 << 20
OTHER = (CLIENT, 50)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[str]:
    directory = StoreDirectory(str(tmp_path))
    yield directory.path
    directory.remove()


@pytest.fixture
def agent(store: str) -> Iterator[Agent]:
    made = Agent()
    context.set_surroundings({"store": store, "inline": 1 << 17, "live": 8 * MB})
    yield made
    context._surroundings = None
    context.uninstall()


def key_of(row: int) -> Key:
    return CLIENT, BATCH + row


def stored_value(store: str, key: Key) -> Any:
    stored = segments.open_object(store, key)
    return unpack(stored.inband, stored.buffers)


def put(store: str, key: Key, value: Any) -> None:
    segments.write(store, key, *pack(value))


def files(store: str) -> set[str]:
    return {name for name in os.listdir(store) if "-" in name}


def owner_of_memory(array: Any) -> Any:
    """Return the object whose memory an array uses."""
    while not isinstance(array, mmap.mmap):
        owner = array.obj if isinstance(array, memoryview) else array.base
        if owner is None:
            return array
        array = owner
    return array


def ones(count: int) -> Any:
    """Return so many MB."""
    return np.ones(count * MB // 8)


def give_functions(agent: Agent, *functions: Callable[..., Any]) -> None:
    """Have the graph's rows call these very functions."""
    agent.runner._inputs._functions[FUNCTION] = ([Entry((row, each)) for row, each in enumerate(functions)], None)


def hand_out_graph(
    agent: Agent, rows: range, deps: list[list[Key]], wanted: bytes | None, number: int = 1, flags: int = KEEP
) -> None:
    needs = [[(key, -1) for key in keys] for keys in deps]
    agent.hand_out(number, None, rows, form=GRAPH, deps=needs, wanted=wanted, flags=flags)


# results


@pytest.mark.parametrize(
    "value",
    [
        np.arange(100_000),
        {"a": np.arange(5000), "b": [np.zeros((300, 300)), "text"]},
        b"x" * MB,
        bytearray(MB),
        "é" * MB,
        list(range(200_000)),
        1 << (8 * MB),
    ],
    ids=["array", "dict", "bytes", "bytearray", "text", "list", "number"],
)
def test_a_large_result_is_a_file_that_is_complete_when_it_is_reported(agent: Agent, store: str, value: Any) -> None:
    agent.hand_out(1, None, range(3, 4), arguments=[()] * 4)
    agent.runner._inputs._functions[FUNCTION] = (lambda: value, None)
    agent.run()
    path = Path(store, file_name(key_of(3)))
    if isinstance(value, int):  # builtin numbers travel in messages
        assert agent.outcomes() == {3: value}
        return
    assert agent.outcomes() == {3: Kept(STORED, path.stat().st_size)}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    came = stored_value(store, key_of(3))
    assert type(came) is type(value)
    if isinstance(value, np.ndarray):
        assert np.array_equal(came, value)
    elif isinstance(value, dict):
        assert np.array_equal(came["a"], value["a"])
        assert came["b"][0].shape == (300, 300)
    else:
        assert came == value


def test_small_results_travel_in_messages_and_spans_have_one_outcome(
    agent: Agent, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scaler.worker.row_runner.FLUSH_NS", 1 << 60)  # all results together

    def make(x: int) -> Any:
        return {0: 5, 1: [1], 2: ones(1), 3: ones(1), 4: "text", 5: np.arange(3000), 6: 7}[x]

    agent.hand_out(1, make, range(7), arguments=[(i,) for i in range(7)])
    agent.run()
    assert [span[3:6] for span in agent.spans()] == [
        (0, 1, VALUES_LIST),
        (1, 2, VALUES_EACH),
        (2, 4, STORED),
        (4, 7, VALUES_EACH),
    ]
    outcomes = agent.outcomes()
    assert [outcomes[row] for row in (0, 1, 4, 6)] == [5, [1], "text", 7]
    assert outcomes[5].tolist() == list(range(3000))
    assert files(store) == {file_name(key_of(2)), file_name(key_of(3))}


@pytest.mark.parametrize("size", [(1 << 17) - 1, 1 << 17])
def test_the_limit_counts_pickle_and_buffers(agent: Agent, size: int) -> None:
    overhead = pack(bytearray(10_000)).size - 10_000
    agent.hand_out(1, bytearray, range(1), arguments=[(size - overhead,)])
    agent.run()
    assert [span[5] for span in agent.spans()] == [STORED if size >= 1 << 17 else VALUES_EACH]


def test_a_value_that_fits_no_message_is_stored(agent: Agent, store: str) -> None:
    context.set_surroundings({"store": store, "limit": 1000})
    agent.hand_out(1, bytearray, range(2), arguments=[(2000,), (10,)])
    agent.run()
    assert agent.outcomes()[0].outcome == STORED
    assert agent.outcomes()[1] == bytearray(10)


def test_without_a_store_large_values_travel_in_messages_up_to_their_limit(agent: Agent) -> None:
    context.set_surroundings({"store": None, "limit": 2 * MB})
    agent.hand_out(1, bytearray, range(2), arguments=[(MB,), (3 * MB,)])
    agent.run()
    assert agent.outcomes()[0] == bytearray(MB)
    assert isinstance(agent.outcomes()[1], ObjectTooLarge)


def test_small_values_are_too_many_for_no_message(agent: Agent) -> None:
    context.set_surroundings({"store": None, "limit": 5000})
    agent.hand_out(1, str, range(100), arguments=[("t" * (6000 if row == 50 else 100),) for row in range(100)])
    agent.run()
    outcomes = agent.outcomes()
    assert [row for row in range(100) if outcomes[row] != "t" * 100] == [50]
    assert isinstance(outcomes[50], ObjectTooLarge)
    assert all(len(span[9]) <= 5000 for span in agent.spans())


def test_profiled_rows_are_stored_one_by_one(agent: Agent) -> None:
    agent.hand_out(1, ones, range(3), arguments=[(1,), (2,), (0,)], flags=PROFILE)
    agent.run()
    assert [span[3:6] for span in agent.spans()] == [(0, 1, STORED), (1, 2, STORED), (2, 3, VALUES_EACH)]
    assert agent.spans()[0][7] > 0


class Tagged(Serializer):
    @staticmethod
    def serialize(obj: Any) -> bytes:
        return b"T" + pickle.dumps(obj)

    @staticmethod
    def deserialize(payload: bytes) -> Any:
        assert type(payload) is bytes
        assert payload[:1] == b"T"
        return pickle.loads(payload[1:])


def test_a_serializers_large_bytes_are_stored_and_read_as_they_are(agent: Agent, store: str) -> None:
    segments.write(store, OTHER, Tagged.serialize([0] * 200_000))
    agent.hand_out(
        1,
        encode_function(list, Tagged),
        range(2),
        form=EACH,
        calls=[encode_call((Slot(0),), {}, Tagged), encode_call(((1, 2),), {}, Tagged)],
        deps=[[(OTHER, -1)], []],
    )
    agent.run()
    written = segments.open_object(store, key_of(0))
    assert bytes(written.inband) == Tagged.serialize([0] * 200_000)
    assert written.buffers == []
    assert [span[5] for span in agent.spans()] == [STORED, VALUES_EACH]


def no_room(monkeypatch: pytest.MonkeyPatch, above: int = 0) -> None:
    """Have the file system refuse what is larger."""

    def refuse(fd: int, offset: int, size: int) -> None:
        if size > above:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)


def test_a_result_that_has_no_room_fails_its_row_alone(
    agent: Agent, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_room(monkeypatch, 3 * MB)
    monkeypatch.setattr(result_writer, "ROOM_PATIENCE", 0.1)
    agent.hand_out(1, ones, range(3), arguments=[(1,), (4,), (2,)])
    agent.run()
    outcomes = agent.outcomes()
    assert (outcomes[0].outcome, outcomes[2].outcome) == (STORED, STORED)
    assert isinstance(outcomes[1], StoreFull)
    for words in ("result of mod.fn", "numpy.ndarray", f"{4 * MB:,}"[:3], store, "are free"):
        assert words in str(outcomes[1])
    assert files(store) == {file_name(key_of(0)), file_name(key_of(2))}


def test_a_result_that_has_no_place_for_what_rows_before_have_done_to_the_worker_is_another_workers_to_give(
    agent: Agent, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its agent knew already, and the row had come before that."""
    no_room(monkeypatch)
    monkeypatch.setattr(result_writer, "ROOM_PATIENCE", 0.0)
    monkeypatch.setattr(fitness, "is_unfit", lambda: True)
    agent.hand_out(1, ones, range(1), arguments=[(1,)])
    agent.run()
    assert [span.outcome for span in agent.spans()] == [DOUBTFUL]


def test_what_earlier_rows_had_mapped_makes_way_for_a_result_that_has_no_room(
    agent: Agent, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, ARGUMENTS, [(1,), (2,)])
    agent.runner._inputs.drop([ARGUMENTS])
    held = []

    def refuse_at_first(fd: int, offset: int, size: int) -> None:
        held.append(ARGUMENTS in agent.runner._inputs._lists)
        if len(held) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse_at_first)
    agent.hand_out(1, ones, range(2), arguments=[])
    run = agent.inbox[-1]
    assert isinstance(run, wm.Run)
    agent.inbox[-1] = run._replace(objects=[pair for pair in run.objects if pair[0] != ARGUMENTS])
    agent.run()
    assert held == [True, False, False]
    assert {row: outcome.outcome for row, outcome in agent.outcomes().items()} == {0: STORED, 1: STORED}
    assert any(isinstance(message, wm.Crowded) for message in agent.sent)


def test_a_row_that_fails_after_its_result_was_written_leaves_no_file(
    agent: Agent, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = segments.write

    def interrupted(*args: Any) -> int:
        write(*args)
        raise TimeoutError("a signal handler of the user")

    monkeypatch.setattr(segments, "write", interrupted)
    agent.hand_out(1, ones, range(1), arguments=[(1,)])
    agent.run()
    assert "a signal handler" in str(agent.outcomes()[0])
    assert files(store) == set()


# needs


def test_an_array_of_a_file_is_not_copied_and_can_be_written_to(agent: Agent, store: str) -> None:
    put(store, OTHER, ones(1))

    def change(array: Any) -> bool:
        array[:] = 7
        return isinstance(owner_of_memory(array), mmap.mmap)

    agent.runner._inputs._functions[FUNCTION] = (change, None)
    calls = [encode_call((Slot(0),), {})] * 2
    agent.hand_out(1, None, range(2), form=EACH, calls=calls, deps=[[(OTHER, -1)]] * 2)
    agent.run()
    assert agent.outcomes() == {0: True, 1: True}
    assert (stored_value(store, OTHER) == 1).all()


def test_what_could_not_be_changed_before_cannot_be_changed_there(agent: Agent, store: str) -> None:
    array = ones(1)
    array.flags.writeable = False
    put(store, OTHER, array)
    agent.runner._inputs._functions[FUNCTION] = (lambda array: array.flags.writeable, None)
    agent.hand_out(1, None, range(1), form=EACH, calls=[encode_call((Slot(0),), {})], deps=[[(OTHER, -1)]])
    agent.run()
    assert agent.outcomes() == {0: False}


def test_an_object_needed_twice_is_one_value(agent: Agent, store: str) -> None:
    small = (CLIENT, 51)
    put(store, OTHER, ones(1))
    give_functions(agent, lambda a, b, c, d: (a is b, c is d))
    agent.hand_out(
        1,
        None,
        range(1),
        form=GRAPH,
        deps=[[(OTHER, -1), (OTHER, -1), (small, -1), (small, -1)]],
        objects=((small, payload.dumps([1])),),
    )
    agent.run()
    assert agent.outcomes() == {0: (True, True)}


def is_mapped(array: Any, *_: Any) -> bool:
    return isinstance(owner_of_memory(array), mmap.mmap)


def test_a_function_that_holds_data_is_mapped(agent: Agent, store: str) -> None:
    segments.write(store, FUNCTION, *pack_function(partial(is_mapped, ones(1))))
    agent.hand_out(1, None, range(2), arguments=[(0,), (1,)])
    agent.run()
    assert agent.outcomes() == {0: True, 1: True}


def test_constants_of_a_graph_are_mapped(agent: Agent, store: str) -> None:
    segments.write(store, FUNCTION, *pack_entries([("a", is_mapped, (ones(1),), (), ())]))
    hand_out_graph(agent, range(1), [[]], None)
    agent.run()
    assert agent.outcomes() == {0: True}


def test_lists_of_arguments_are_mapped(agent: Agent, store: str) -> None:
    put(store, ARGUMENTS, [(ones(1),), (ones(1),)])
    agent.runner._inputs.drop([ARGUMENTS])
    agent.hand_out(1, is_mapped, range(2), arguments=[])
    run = agent.inbox[-1]
    assert isinstance(run, wm.Run)
    agent.inbox[-1] = run._replace(objects=[pair for pair in run.objects if pair[0] != ARGUMENTS])
    agent.run()
    assert agent.outcomes() == {0: True, 1: True}


def test_a_needed_file_that_is_missing_is_told_as_a_missing_object(agent: Agent) -> None:
    calls = [encode_call((Slot(0),), {})]
    agent.hand_out(1, len, range(1), form=EACH, calls=calls, deps=[[(OTHER, -1)]])
    agent.run()
    assert isinstance(agent.outcomes()[0], ObjectLost)
    assert "object 50" in str(agent.outcomes()[0])
    (span,) = agent.spans()
    assert (span.outcome, SIZE.unpack_from(span.body)) == (LACKING, (50,))
    assert ErrorRecord.decode(span.body[SIZE.size :]).kind == ErrorKind.OBJECT


@pytest.mark.parametrize(("number", "outcome"), [(errno.EIO, LACKING), (errno.EMFILE, DOUBTFUL)])
def test_so_is_one_that_cannot_be_read_unless_the_worker_is_short_of_descriptors(
    agent: Agent, store: str, monkeypatch: pytest.MonkeyPatch, number: int, outcome: int
) -> None:
    def fails(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    put(store, OTHER, ones(1))
    monkeypatch.setattr(inputs, "open_object", fails)
    agent.hand_out(1, len, range(1), form=EACH, calls=[encode_call((Slot(0),), {})], deps=[[(OTHER, -1)]])
    agent.run()
    (span,) = agent.spans()
    assert span.outcome == outcome


def test_a_missing_function_is_told_as_a_missing_object_for_each_row(agent: Agent) -> None:
    agent.hand_out(1, None, range(2), arguments=[(), ()])
    agent.run()
    assert [(span.outcome, *SIZE.unpack_from(span.body)) for span in agent.spans()] == [(LACKING, FUNCTION[1])] * 2


def test_files_are_not_mapped_any_more_after_the_row(agent: Agent, store: str) -> None:
    put(store, OTHER, ones(2))
    agent.runner._inputs._functions[FUNCTION] = (len, None)
    calls = [encode_call((Slot(0),), {})]
    agent.hand_out(1, None, range(1), form=EACH, calls=calls, deps=[[(OTHER, -1)]])
    recycled = []

    def idle() -> None:
        segments.free(store, OTHER)
        recycled.extend(os.listdir(os.path.join(store, segments.FREE)))
        agent.quit()

    agent.when_idle = idle
    agent.run()
    assert len(recycled) == 1  # what is mapped is not recycled


# values that stay


def test_a_value_that_only_the_graph_needs_stays_and_is_shared(agent: Agent, store: str) -> None:
    made = ones(1)
    seen: list[Any] = []
    give_functions(agent, lambda: made, seen.append, seen.append)
    hand_out_graph(agent, range(3), [[], [key_of(0)], [key_of(0), key_of(0)][:1]], b"\0\1\1")
    agent.run()
    outcomes = agent.outcomes()
    assert outcomes[0] == Kept(LIVE, segments.write(store, OTHER, *pack(made)))
    assert [value is made for value in seen] == [True, True]
    assert files(store) == {file_name(OTHER)}


@pytest.mark.parametrize(
    ("wanted", "flags", "live"), [(b"\1", KEEP, 8 * MB), (None, KEEP, 8 * MB), (b"\0", 0, 8 * MB), (b"\0", KEEP, MB)]
)
def test_other_values_do_not_stay(agent: Agent, store: str, wanted: bytes | None, flags: int, live: int) -> None:
    context.set_surroundings({"store": store, "live": live})
    give_functions(agent, lambda: ones(1))
    hand_out_graph(agent, range(1), [[]], wanted, flags=flags)
    agent.run()
    assert agent.outcomes()[0].outcome == STORED
    assert files(store) == {file_name(key_of(0))}
    assert agent.runner._live.memory == 0


def test_small_values_of_graphs_travel_in_messages(agent: Agent) -> None:
    give_functions(agent, lambda: [1, 2])
    hand_out_graph(agent, range(1), [[]], b"\0")
    agent.run()
    assert agent.outcomes() == {0: [1, 2]}


def test_wanted_is_said_of_the_rows_of_the_dispatch(agent: Agent) -> None:
    give_functions(agent, *[lambda: ones(1)] * 6)
    hand_out_graph(agent, range(3, 6), [[], [], []], b"\0\1\0")
    agent.run()
    assert {row: kept.outcome for row, kept in agent.outcomes().items()} == {3: LIVE, 4: STORED, 5: LIVE}


def in_control_thread(act: Callable[[], None]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def test_a_value_is_published_while_user_code_runs(agent: Agent, store: str) -> None:
    def busy() -> int:
        thread = threading.Thread(target=lambda: agent.runner.publish([key_of(0)]))
        thread.start()
        deadline = time.monotonic() + 20
        turns = 0
        while not agent.published():
            turns += 1
            assert time.monotonic() < deadline
        thread.join()
        return turns

    made = np.arange(MB // 4)
    give_functions(agent, lambda: made, busy, lambda value: value is made)
    hand_out_graph(agent, range(3), [[], [], [key_of(0)]], b"\0\1\1")
    agent.run()
    assert agent.published() == [(key_of(0), agent.outcomes()[0].size, None)]
    assert np.array_equal(stored_value(store, key_of(0)), made)
    assert agent.outcomes()[2] is True  # it stays here too
    assert agent.runner._live.memory > 2 * MB


def test_publishing_again_says_the_same(agent: Agent, store: str) -> None:
    give_functions(agent, lambda: ones(1))
    hand_out_graph(agent, range(1), [[]], b"\0")
    agent.run()
    for _ in range(2):
        agent.runner.publish([key_of(0)])
    agent.runner.drop(wm.Drop([key_of(0)]))
    agent.runner.publish([key_of(0)])  # there is the file
    assert set(agent.published()) == {(key_of(0), agent.outcomes()[0].size, None)}
    segments.free(store, key_of(0))
    agent.runner.publish([key_of(0)])
    assert agent.published()[-1][2] == "the worker that made it does not have it any more"


def test_a_published_file_that_is_gone_is_written_again(agent: Agent, store: str) -> None:
    give_functions(agent, lambda: ones(1))
    hand_out_graph(agent, range(1), [[]], b"\0")
    agent.run()
    agent.runner.publish([key_of(0)])
    segments.free(store, key_of(0))
    agent.runner.publish([key_of(0)])
    assert [error for _, _, error in agent.published()] == [None, None]
    assert files(store) == {file_name(key_of(0))}


def test_what_cannot_be_published_is_told(agent: Agent, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    give_functions(agent, lambda: ones(1))
    hand_out_graph(agent, range(1), [[]], b"\0")
    agent.run()
    no_room(monkeypatch)
    agent.runner.publish([key_of(0), OTHER])
    (key, size, full), (other, _, unknown) = agent.published()
    assert (key, other) == (key_of(0), OTHER)
    assert size == agent.outcomes()[0].size
    assert "has no room" in full
    assert "does not have it" in unknown
    context.set_surroundings({"store": None})
    agent.runner.publish([OTHER])
    assert agent.published()[-1] == (OTHER, 0, "there is no store")


def test_a_value_that_is_dropped_while_it_is_written_leaves_no_file(
    agent: Agent, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_functions(agent, lambda: ones(1))
    hand_out_graph(agent, range(1), [[]], b"\0")
    agent.run()
    write = segments.write

    def slow(*args: Any) -> int:
        agent.runner.drop(wm.Drop([key_of(0)]))
        return write(*args)

    monkeypatch.setattr(segments, "write", slow)
    agent.runner.publish([key_of(0)])
    assert agent.published()[0][2] == "it was dropped while it was written"
    assert files(store) == set()


def test_a_dropped_value_is_freed_at_once_while_user_code_runs(agent: Agent) -> None:
    seen: list[Any] = []

    def make() -> Any:
        made = ones(1)
        seen.append(weakref.ref(made))
        return made

    def other() -> bool:
        before = seen[0]() is not None
        in_control_thread(lambda: agent.runner.drop(wm.Drop([key_of(0)])))
        return before and seen[0]() is None

    give_functions(agent, make, other)
    hand_out_graph(agent, range(2), [[], []], b"\0\1")
    agent.run()
    assert agent.outcomes()[1] is True
    assert agent.runner._live.memory == 0


def test_values_over_the_limit_are_published_least_recently_used_first(agent: Agent, store: str) -> None:
    context.set_surroundings({"store": store, "live": int(3.5 * MB)})
    one = [lambda: ones(1)] * 3
    give_functions(agent, *one, lambda value: 0, lambda: ones(2))
    hand_out_graph(agent, range(5), [[], [], [], [key_of(0)], []], b"\0\0\0\1\0")
    agent.run()
    outcomes = agent.outcomes()
    assert [outcomes[row].outcome for row in (0, 1, 2, 4)] == [LIVE] * 4
    assert [told[0] for told in agent.published()] == [key_of(1), key_of(2)]
    assert files(store) == {file_name(key_of(1)), file_name(key_of(2))}
    assert (stored_value(store, key_of(1)) == 1).all()
    assert agent.runner._live.memory < 3.5 * MB
    # The agent learns that a value is here before it learns that it is not any more.
    said: list[tuple[str, Key]] = []
    for message in agent.sent:
        if isinstance(message, wm.Published):
            said += [("published", told.key) for told in message.values]
        else:
            said += [("reported", key_of(row)) for span in message.ended for row in range(span.lo, span.hi)]
    for key in (key_of(1), key_of(2)):
        assert said.index(("reported", key)) < said.index(("published", key))
    assert said.index(("published", key_of(2))) < said.index(("reported", key_of(4)))


def test_rows_find_values_that_were_let_go_as_files(agent: Agent, store: str) -> None:
    context.set_surroundings({"store": store, "live": int(1.5 * MB)})
    give_functions(agent, lambda: ones(1), lambda: ones(1), lambda value: float(value.sum()))
    hand_out_graph(agent, range(3), [[], [], [key_of(0)]], b"\0\0\1")
    agent.run()
    assert agent.outcomes()[2] == MB / 8


def test_a_published_value_is_let_go_without_being_written_again(
    agent: Agent, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context.set_surroundings({"store": store, "live": int(1.5 * MB)})
    writes: list[Key] = []
    write = segments.write
    monkeypatch.setattr(segments, "write", lambda *args: writes.append(args[1]) or write(*args))  # type: ignore[func-returns-value]
    give_functions(agent, lambda: ones(1), lambda: agent.runner.publish([key_of(0)]), lambda: ones(1))
    hand_out_graph(agent, range(3), [[], [], []], b"\0\1\0")
    agent.run()
    assert writes == [key_of(0)]
    assert agent.runner._live.get(key_of(0)) is None


def test_a_result_waits_for_the_room_that_its_agent_makes(
    agent: Agent, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_room(monkeypatch)
    refuse = os.posix_fallocate

    def refuse_until_told(*args: int) -> None:
        if not any(isinstance(message, wm.Crowded) for message in agent.sent):
            refuse(*args)

    monkeypatch.setattr(os, "posix_fallocate", refuse_until_told)
    agent.hand_out(1, ones, range(1), arguments=[(1,)])
    agent.run()
    assert [message.size > MB for message in agent.sent if isinstance(message, wm.Crowded)] == [True]
    assert agent.outcomes()[0].outcome == STORED


def test_a_value_that_finds_no_room_fails_its_row_and_the_others_stay(
    agent: Agent, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context.set_surroundings({"store": store, "live": int(1.5 * MB)})
    no_room(monkeypatch)
    give_functions(agent, lambda: ones(1), lambda: ones(1), lambda value: float(value.sum()))
    hand_out_graph(agent, range(3), [[], [], [key_of(0)]], b"\0\0\1")
    agent.run()
    outcomes = agent.outcomes()
    assert outcomes[0].outcome == LIVE
    assert isinstance(outcomes[1], StoreFull)
    assert outcomes[2] == MB / 8
    assert agent.published() == []


def test_a_value_that_was_made_again_replaces_the_first_one(agent: Agent) -> None:
    give_functions(agent, lambda: ones(1))
    for number in (1, 2):
        hand_out_graph(agent, range(1), [[]], b"\0", number)
    agent.run()
    memory = agent.runner._live.memory
    assert MB < memory < 1.1 * MB
    agent.runner.drop(wm.Drop([key_of(0)]))
    assert agent.runner._live.memory == 0


def test_a_value_that_was_made_again_is_not_dropped_with_the_first_one(agent: Agent) -> None:
    """The control thread may get no processor for a while: rows that came later have run meanwhile."""
    give_functions(agent, lambda: ones(1))
    for number in (1, 2):
        hand_out_graph(agent, range(1), [[]], b"\0", number)
    agent.run()
    agent.runner.drop(wm.Drop([key_of(0)], 1))
    assert agent.runner._live.memory > MB
    agent.runner.drop(wm.Drop([key_of(0)], 2))
    assert agent.runner._live.memory == 0


def test_publishing_and_dropping_race_with_the_rows(agent: Agent, store: str) -> None:
    """Whatever the order, a value is here, in a file, or was dropped, and the account of memory is right."""
    context.set_surroundings({"store": store, "inline": 1000, "live": 40_000})
    rows = 400
    give_functions(agent, *[lambda: bytearray(4000)] * rows)
    dropped: set[Key] = set()
    over = threading.Event()

    def control() -> None:
        turn = 0
        while not over.is_set():
            keys = [key for key in list(agent.runner._live._values) if key not in dropped]
            if keys and turn % 3 == 0:
                dropped.add(keys[0])
                agent.runner.drop(wm.Drop(keys[:1]))
            elif keys:
                agent.runner.publish(keys[-1:])
            turn += 1

    thread = threading.Thread(target=control)
    thread.start()
    try:
        hand_out_graph(agent, range(rows), [[]] * rows, bytes(rows))
        agent.run()
    finally:
        over.set()
        thread.join()
    here = agent.runner._live._values
    for row in range(rows):
        key = key_of(row)
        if key not in dropped:
            assert key in here or stored_value(store, key) == bytearray(4000)
    assert agent.runner._live.memory == sum(value.memory for value in here.values()) <= 40_000


# memory


def test_arguments_and_results_are_freed_when_their_row_has_ended(agent: Agent, store: str) -> None:
    put(store, OTHER, ones(1))
    seen: list[weakref.ref[Any]] = []
    left: list[int] = []

    def alive() -> int:
        return sum(ref() is not None for ref in seen)

    def follow(array: Any) -> Any:
        left.append(alive())
        result = ones(1)
        seen.extend([weakref.ref(array), weakref.ref(result)])
        if len(seen) == 4:
            raise ValueError("the second row")
        return result

    agent.runner._inputs._functions[FUNCTION] = (follow, None)
    calls = [encode_call((Slot(0),), {})] * 3
    agent.hand_out(1, None, range(3), form=EACH, calls=calls, deps=[[(OTHER, -1)]] * 3)

    def idle() -> None:
        left.append(alive())
        agent.quit()

    agent.when_idle = idle
    gc.collect()
    gc.disable()
    try:
        agent.run()
    finally:
        gc.enable()
    assert left == [0, 0, 0, 0]
    assert [type(outcome) for outcome in agent.outcomes().values()] == [Kept, ValueError, Kept]


def test_profiled_rows_free_their_results_too(agent: Agent) -> None:
    seen: list[weakref.ref[Any]] = []
    left: list[int] = []

    def make() -> Any:
        left.append(sum(ref() is not None for ref in seen))
        result = ones(1)
        seen.append(weakref.ref(result))
        return result

    agent.runner._inputs._functions[FUNCTION] = (make, None)
    agent.hand_out(1, None, range(3), arguments=[(), (), ()], flags=PROFILE)
    agent.run()
    assert left == [0, 0, 0]
    assert [ref() for ref in seen] == [None] * 3


def test_values_that_stayed_are_freed_when_they_are_dropped_with_the_next_rows(agent: Agent) -> None:
    seen: list[weakref.ref[Any]] = []

    def make() -> Any:
        result = ones(1)
        seen.append(weakref.ref(result))
        return result

    give_functions(agent, make, lambda value: None, lambda: seen[0]() is None)
    hand_out_graph(agent, range(2), [[], [key_of(0)]], b"\0\1")

    def idle() -> None:
        if 2 in agent.done():
            agent.quit()
        elif agent.done():
            agent.hand_out(2, None, range(2, 3), form=GRAPH, flags=KEEP, wanted=b"\1", stale=(key_of(0),))

    agent.when_idle = idle
    agent.run()
    assert agent.outcomes()[2] is True


def test_messages_about_data_pass_between_processes(agent: Agent) -> None:
    give_functions(agent, lambda: ones(1), lambda: ones(1))
    hand_out_graph(agent, range(2), [[], []], b"\0\1")
    inbox = list(agent.inbox)
    agent.run()
    agent.runner.publish([key_of(0), OTHER])
    assert [read_by_worker(to_worker(message)) for message in inbox] == inbox
    assert [read_by_agent(memoryview(from_worker(message))) for message in agent.sent] == agent.sent


@pytest.mark.parametrize(("dropped", "kept"), [([], True), ([(1, 8)], True), ([(1, 7)], False)])
def test_what_was_decoded_is_kept_unless_it_was_dropped_meanwhile(
    monkeypatch: pytest.MonkeyPatch, dropped: list[Any], kept: bool
) -> None:
    """Messages come all the time: a function that takes long to load would be loaded for every row."""
    known = inputs.Inputs(LiveValues(lambda told: None))
    known.add([((1, 7), encode_function(abs))])
    decode = inputs.decode_function

    def decode_while_messages_come(*parts: Any) -> Any:
        known.drop(dropped)
        return decode(*parts)

    monkeypatch.setattr(inputs, "decode_function", decode_while_messages_come)
    dispatch: Any = SimpleNamespace(function=(1, 7), name="abs")
    assert known.function(dispatch)[0] is abs
    assert known.knows(dispatch) is kept


def test_a_function_whose_decoding_ends_in_the_midst_of_its_being_dropped_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = inputs.Inputs(LiveValues(lambda told: None))
    known.add([((1, 7), encode_function(abs))])
    dispatch: Any = SimpleNamespace(function=(1, 7), name="abs")
    decode, drop_values = inputs.decode_function, known.drop_values
    has_begun, may_end = threading.Event(), threading.Event()

    def decode_slowly(*parts: Any) -> Any:
        has_begun.set()
        assert may_end.wait(DEADLINE)
        return decode(*parts)

    def end_decoding_first(keys: list[Any]) -> None:
        may_end.set()
        decoding.join(DEADLINE)
        drop_values(keys)

    monkeypatch.setattr(inputs, "decode_function", decode_slowly)
    monkeypatch.setattr(known, "drop_values", end_decoding_first)
    decoding = threading.Thread(target=known.function, args=[dispatch])
    decoding.start()
    assert has_begun.wait(DEADLINE)
    known.drop([(1, 7)])
    assert not known.knows(dispatch)
