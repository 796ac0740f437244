"""What a worker's tasks have printed last is told to whoever asks, also while one runs, and by nobody else's doing."""

import threading

import pytest
from support import until

from scaler.monitor import Watcher
from scaler.monitor.questions import Questions


def prints(gate):
    import sys
    import time
    from pathlib import Path

    print("first\x1b[31m")
    sys.stderr.write("oh\n")
    sys.stdout.buffer.write(b"bytes\n")
    while not Path(gate).exists():
        time.sleep(0.01)


EXPECTED = (("stdout", "first?[31m"), ("stderr", "oh"), ("stdout", "bytes"))


@pytest.mark.parametrize("is_streamed", [False, True])
def test_the_lines_of_a_task_that_runs(start_cluster, connect, tmp_path, is_streamed):
    cluster = start_cluster(1)
    client = connect(cluster, stream_output=is_streamed)
    gate = tmp_path / "gate"
    future = client.submit(prints, str(gate))
    try:
        with Questions(cluster.monitor_address) as questions:
            [worker] = questions.listed("workers").records
            name = worker["worker"]
            until(lambda: questions.last_output(name).lines == EXPECTED, "the lines")
            assert questions.last_output("99.0").error == "agent 99 is not there"
            assert "no worker 700" in questions.last_output(name.split(".")[0] + ".700").error
            assert "AGENT.SLOT" in questions.last_output("what").error
    finally:
        gate.touch()
    future.result(20)


def test_a_watcher_asks_for_what_is_looked_at(start_cluster, connect, tmp_path):
    cluster = start_cluster(1)
    client = connect(cluster)
    client.submit(print, "hello").result(20)
    come = threading.Event()
    with Watcher(cluster.monitor_address, 0.1, on_change=lambda seen: come.set() if seen.outputs else None) as watcher:
        seen = watcher.wait(0, 20)
        assert seen is not None
        assert not seen.outputs
        place = seen.snapshot.agents.numbers[0], seen.snapshot.workers.slots[0]
        watcher.look_at([place])
        assert come.wait(20)
        assert watcher.seen.outputs[place].lines == (("stdout", "hello"),)
        client.submit(print, "again").result(20)
        until(lambda: watcher.seen.outputs[place].lines[-1] == ("stdout", "again"), "what was printed since")


def test_what_a_task_of_a_local_cluster_prints_appears_once_though_its_client_prints_it(scripts):
    said = scripts.run(
        """
        import scaler
        with scaler.Executor(1, stream_output=True) as pool:
            pool.submit(print, "streamed").result(20)
        with scaler.Executor(1) as pool:
            pool.submit(print, "not streamed").result(20)
        """
    )
    assert sorted(said.splitlines()) == ["not streamed", "streamed"]


def writes_no_text():
    import os
    import sys

    try:
        sys.stdout.write(b"bytes")
    except TypeError as error:
        print(error)
    return os.getpid()


def test_a_worker_survives_the_question_when_a_task_has_tried_to_write_bytes(start_cluster, connect):
    cluster = start_cluster(1)
    client = connect(cluster)
    pid = client.submit(writes_no_text).result(20)
    with Questions(cluster.monitor_address) as questions:
        [worker] = questions.listed("workers").records
        assert questions.last_output(worker["worker"]).lines == (("stdout", "write() argument must be str, not bytes"),)
    assert client.submit(writes_no_text).result(20) == pid
