"""Exceptions that came from a worker get the frames of their remote tracebacks."""

import sys
import threading
import traceback

import pytest

pytest.importorskip("dask")

from scaler.serialize.record import decode_error, exception_record
from scaler_dask.frames import with_frames


def inner():
    raise ZeroDivisionError("inner")


def chained():
    try:
        inner()
    except ZeroDivisionError:
        raise KeyError("chained")  # noqa: B904


def with_another_ones_traceback_as_message():
    try:
        chained()
    except KeyError:
        raise RuntimeError(traceback.format_exc())  # noqa: B904


def with_another_ones_traceback_in_a_note():
    try:
        chained()
    except KeyError:
        error = RuntimeError("noted")
        error.add_note(traceback.format_exc())
        raise error  # noqa: B904


def group():
    members = []
    for function in (inner, chained):
        try:
            function()
        except Exception as error:
            members.append(error)
    raise ExceptionGroup("several", members)


def group_with_a_traceback_as_message():
    try:
        inner()
    except ZeroDivisionError:
        raise ExceptionGroup(traceback.format_exc(), [ExceptionGroup("nested", [ValueError(1)])])  # noqa: B904


def from_a_group():
    try:
        group()
    except ExceptionGroup as error:
        raise KeyError("outer") from error


def underlined_within_its_line(numbers=(1, 0)):
    return len("é"), 1 / numbers[1]


def without_text():
    try:
        inner()
    except ZeroDivisionError:
        raise AssertionError  # noqa: B904


def travelled(function):
    try:
        function()
    except Exception as error:
        error.__traceback__ = error.__traceback__.tb_next  # without this frame
        return decode_error(exception_record(error))


def names(error):
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


@pytest.mark.parametrize(
    "function",
    [
        inner,
        with_another_ones_traceback_as_message,
        with_another_ones_traceback_in_a_note,
        group,
        group_with_a_traceback_as_message,
        from_a_group,
        without_text,
    ],
)
def test_the_frames_are_those_of_the_exception_itself(function):
    error = with_frames(travelled(function))
    assert names(error) == [function.__name__]
    assert with_frames(error) is error
    assert names(error) == [function.__name__]


@pytest.mark.parametrize("function", [underlined_within_its_line, inner, group, from_a_group])
def test_what_is_printed_of_a_frame_is_what_the_worker_would_print(function):
    try:
        function()
    except Exception as error:
        own = traceback.format_tb(error.__traceback__.tb_next)
    assert traceback.format_tb(with_frames(travelled(function)).__traceback__) == own


def from_none():
    try:
        inner()
    except ZeroDivisionError:
        raise KeyError("alone") from None


@pytest.mark.parametrize(("function", "is_hidden"), [(from_none, True), (chained, False)])
def test_an_exception_hides_its_context_if_it_was_raised_from_none(function, is_hidden):
    error = with_frames(travelled(function))
    assert (error.__cause__, error.__suppress_context__) == (None, is_hidden)
    assert isinstance(error.__context__, ZeroDivisionError)
    assert ("ZeroDivisionError" in "".join(traceback.format_exception(error))) is not is_hidden


def test_nothing_is_underlined_where_another_line_stands_in_this_process():
    error = travelled(underlined_within_its_line)
    error.__cause__.text = error.__cause__.text.replace("return len", "return 2 * len")
    (shown,) = traceback.format_tb(with_frames(error).__traceback__)
    assert 'return len("é")' in shown
    assert "^" not in shown


def test_an_exception_without_frames_has_the_traceback_it_is_to_have_otherwise():
    error = travelled(inner)
    error.__cause__.text = "nothing to be read"
    try:
        raise error
    except ZeroDivisionError:
        raised = error.__traceback__
    assert with_frames(error, raised).__traceback__ is raised
    assert with_frames(error).__traceback__ is None


@pytest.mark.parametrize("function", [inner, from_a_group], ids=["cause", "note"])
def test_threads_may_ask_for_the_frames_of_one_exception_at_once(function):
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(50):
            error, seen = travelled(function), []
            barrier = threading.Barrier(4)

            def ask(error=error, seen=seen, barrier=barrier):
                barrier.wait()
                seen.append(names(with_frames(error)))

            threads = [threading.Thread(target=ask) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert seen == [[function.__name__]] * 4
    finally:
        sys.setswitchinterval(interval)
