"""`scaler.extension`: what adapters of other libraries are built on."""

import subprocess
import sys
import threading

import pytest

from scaler import extension
from scaler.extension import CallbackThread, forget_run, pickled_if_small, run_once


@pytest.fixture
def key():
    yield "test"
    forget_run("test")


def test_each_name_is_there_and_says_what_it_is() -> None:
    assert set(extension._HOMES) == set(extension.__all__)
    for name in extension.__all__:
        value = getattr(extension, name)
        assert not callable(value) or value.__doc__, f"{name} has no docstring"
    assert set(extension.__all__) <= set(dir(extension))
    with pytest.raises(AttributeError, match="has no attribute 'once'"):
        extension.once  # noqa: B018


def test_what_runs_in_workers_loads_no_client() -> None:
    program = "import sys; from scaler.extension import run_once; sys.exit('scaler.client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_something_is_run_once_under_its_key_and_again_when_that_is_forgotten(key: str) -> None:
    calls: list[int] = []
    run_once(key, calls.append, 1)
    run_once(key, calls.append, 2)
    assert calls == [1]
    assert forget_run(key)
    assert not forget_run(key)
    run_once(key, calls.append, 3)
    assert calls == [1, 3]


def test_what_raises_counts_as_not_run(key: str) -> None:
    with pytest.raises(ZeroDivisionError):
        run_once(key, lambda: 1 / 0)
    assert not forget_run(key)


def test_what_is_run_inside_itself_finds_itself_done(key: str) -> None:
    calls: list[str] = []

    def setup() -> None:
        calls.append("begun")
        run_once(key, setup)

    run_once(key, setup)
    assert calls == ["begun"]


def test_callbacks_are_called_in_order_on_one_thread_whatever_they_raise(caplog: pytest.LogCaptureFixture) -> None:
    callbacks, ended = CallbackThread("test-callbacks"), threading.Event()
    names: list[str] = []

    def note() -> None:
        names.append(threading.current_thread().name)

    callbacks.run(note)
    callbacks.run(lambda: 1 / 0)
    callbacks.run(note)
    callbacks.run(ended.set)
    assert ended.wait(10)
    callbacks.close()
    assert names == ["test-callbacks"] * 2
    assert "ZeroDivisionError" in caplog.text


def test_callbacks_whose_thread_could_not_be_started_have_one_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("can't start new thread")

    callbacks, called = CallbackThread("test-callbacks"), threading.Event()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError):
            callbacks.run(called.set)
    assert not called.is_set()
    callbacks.run(called.set)
    assert called.wait(10)
    callbacks.close()


def test_only_small_values_are_pickled_to_be_part_of_a_message() -> None:
    assert pickled_if_small([1, 2]) is not None
    assert pickled_if_small(bytes(1 << 20)) is None
