import concurrent.futures
import linecache
import threading

import pytest

from scaler import errors
from scaler.protocol.error_record import LONGEST_TEXT, SMALL_EXCEPTION, ErrorKind, ErrorRecord
from scaler.serialize.record import decode_error, exception_record
from scaler.serialize.source_lines import with_source_lines
from scaler.transport.port import SLACK_BYTES


def travelled(raiser):
    """Return the exception as a client gets it."""
    try:
        raiser()
    except BaseException as error:
        return decode_error(exception_record(error, "m.f"), "task 3 (m.f)")
    raise AssertionError("nothing was raised")


class TwoArguments(Exception):
    def __init__(self, code, reason):
        super().__init__(f"{code}: {reason}")
        self.code = code


class Garbling(Exception):
    def __init__(self, code=3):
        super().__init__(f"code {code}")


class KeywordOnly(OSError):
    def __init__(self, *, path):
        super().__init__(2, "gone", path)


class BadText(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Quitting(Exception):
    def __str__(self):
        raise SystemExit(3)


class Interrupting(Exception):
    def __reduce__(self):
        raise KeyboardInterrupt


class Denying(Exception):
    def __getattribute__(self, name):
        raise RuntimeError(name)


class WithOwnReduce(Exception):
    def __init__(self, a):
        super().__init__("fixed text")
        self.a = a

    def __reduce__(self):
        return WithOwnReduce, (self.a,)


def raising(error):
    def raiser():
        raise error

    return raiser


@pytest.mark.parametrize(
    "error",
    [
        ValueError("wrong"),
        KeyError("k"),
        FileNotFoundError(2, "No such file", "/x"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        SystemExit(3),
        KeyboardInterrupt(),
        StopIteration(4),
        concurrent.futures.CancelledError(),
        TwoArguments(7, "why"),
        Garbling(9),
        KeywordOnly(path="/x"),
        WithOwnReduce(5),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_exception_comes_back_as_its_own_type_with_its_text(error):
    back = travelled(raising(error))
    assert type(back) is type(error)
    assert (str(back), back.args) == (str(error), error.args)


def test_attributes_and_notes_come_back():
    error = TwoArguments(7, "why")
    error.add_note("a note")
    back = travelled(raising(error))
    assert back.code == 7
    assert back.__notes__[0] == "a note"


def test_the_remote_traceback_is_the_cause_and_starts_at_the_users_frames():
    def raiser():
        raise ValueError("here")

    cause = travelled(raiser).__cause__
    assert type(cause) is errors.RemoteTraceback
    assert 'raise ValueError("here")' in cause.text
    assert cause.text.startswith("Traceback (most recent call last)")


def raised_in_a_cell(source: str) -> bytes:
    """The record of what this raises as the cell of a notebook that is on another machine."""
    try:
        exec(compile(source, "/nowhere/ipykernel_17/4711.py", "exec"), {})
    except Exception as error:
        return exception_record(error, "m.f")
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("def half(n):\n    return n / 0\nhalf(3)", ["    half(3)\n", "    return n / 0\n"]),
        (
            "def down(n):\n    return down(n - 1) if n else 1 / 0\ndown(9)",
            ["    down(9)\n", "    return down(n - 1) if n else 1 / 0\n  [Previous line repeated 7 more times]\n"],
        ),
        (
            "try:\n    {}['k']\nexcept KeyError as error:\n    raise ExceptionGroup('two', [error, OSError()])",
            ["    raise ExceptionGroup('two', [error, OSError()])\n", "    |     {}['k']\n"],
        ),
    ],
)
def test_lines_of_source_that_are_known_to_the_client_alone_are_shown(
    source: str, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = raised_in_a_cell(source)
    place = "/nowhere/ipykernel_17/4711.py"
    monkeypatch.setitem(linecache.cache, place, (len(source), None, source.splitlines(keepends=True), place))
    cause = decode_error(record).__cause__
    assert isinstance(cause, errors.RemoteTraceback)
    for lines in shown:
        assert lines in cause.text, cause.text


def test_a_traceback_that_has_its_lines_is_left_as_it_is() -> None:
    def raiser() -> None:
        raise ValueError("here")

    text = travelled(raiser).__cause__.text
    assert with_source_lines(text) == text
    assert text.count("raise ValueError") == 1


def test_frames_of_the_engine_above_the_users_are_left_out():
    from scaler.serialize.entry import Entry

    def user_function():
        raise ValueError

    text = travelled(lambda: Entry(("k", user_function)).run([])).__cause__.text
    assert "user_function" in text
    (entry,) = [Entry(("k", user_function))]
    try:
        entry.run([])
    except ValueError as error:
        error.__traceback__ = error.__traceback__.tb_next
        text = decode_error(exception_record(error, "m.f")).__cause__.text
    assert "user_function" in text
    assert "entry.py" not in text


def test_a_cause_of_the_users_own_is_kept_and_the_traceback_becomes_a_note():
    def raiser():
        try:
            raise Garbling(5)
        except Garbling as error:
            raise ValueError("outer") from error

    back = travelled(raiser)
    assert type(back.__cause__) is Garbling
    assert str(back.__cause__) == "code 5"
    assert "Remote traceback" in back.__notes__[-1]
    assert "code 5" in back.__notes__[-1]


def test_the_context_is_kept():
    def raiser():
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("second")  # noqa: B904

    assert repr(travelled(raiser).__context__) == "KeyError('first')"


@pytest.mark.parametrize("link", ["__cause__", "__context__"])
def test_a_chain_of_any_length_comes_back_whole(link):
    """A function that calls itself, and raises another error from each, makes one."""
    error = None
    for number in range(2_000):
        inner, error = error, Garbling(number)
        setattr(error, link, inner)
    assert error is not None
    back, texts = decode_error(exception_record(error)), []  # to raise it might give it another context
    while isinstance(back, Garbling):
        texts.append(str(back))
        back = getattr(back, link)
    assert texts == [f"code {number}" for number in reversed(range(2_000))]


def test_exceptions_that_cause_each_other_travel():
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    back = travelled(raising(first))
    assert back.__cause__.__cause__ is back


def test_a_group_comes_back_with_all_its_members():
    back = travelled(raising(ExceptionGroup("several", [TwoArguments(1, "x"), Garbling(2), KeyError("k")])))
    assert type(back) is ExceptionGroup
    assert [repr(error) for error in back.exceptions] == ["TwoArguments('1: x')", "Garbling('code 2')", "KeyError('k')"]
    assert back.exceptions[0].code == 1


def test_groups_in_groups_ask_the_innermost_error_for_its_text_but_once():
    asked = []

    class Counting(Exception):
        def __repr__(self):
            asked.append(self)
            return "Counting()"

    error = Counting()
    for number in range(100):
        error = ExceptionGroup(f"group {number}", [error])
    back = travelled(raising(error))
    assert back.message == "group 99"
    assert len(asked) <= 1


def test_arguments_and_attributes_that_cannot_travel_become_their_repr():
    error = ValueError("text", threading.Lock())
    error.lock, error.number = threading.Lock(), 5
    back = travelled(raising(error))
    assert type(back) is ValueError
    assert back.args[0] == "text"
    assert "lock" in back.args[1]
    assert "lock" in back.lock
    assert back.number == 5


def test_an_exception_that_cannot_travel_comes_back_as_text():
    class Unpicklable(Exception):
        __rows__ = (n for n in ())

    back = travelled(raising(Unpicklable("the text")))
    assert type(back) is errors.TaskError
    assert back.type_name.endswith("Unpicklable")
    assert "the text" in str(back)
    assert "task 3 (m.f)" in str(back)
    assert "the text" in back.traceback
    assert type(back.__cause__) is errors.RemoteTraceback


def test_an_exception_without_text_still_gives_a_record():
    back = travelled(raising(BadText()))
    assert isinstance(back, (BadText, errors.TaskError))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (ErrorKind.LOST, errors.WorkerLost),
        (ErrorKind.TIMEOUT, errors.TaskTimeout),
        (ErrorKind.SERIALIZATION, errors.SerializationError),
        (ErrorKind.FUNCTION, errors.FunctionNotFound),
        (ErrorKind.OBJECT, errors.ObjectLost),
        (ErrorKind.SIZE, errors.ObjectTooLarge),
        (ErrorKind.MEMORY, errors.WorkerMemoryExceeded),
        (ErrorKind.FULL, errors.StoreFull),
        (ErrorKind.CANCELLED, concurrent.futures.CancelledError),
        (200, errors.TaskError),  # of a later version
    ],
)
def test_the_engines_own_errors_name_the_task_once(kind, expected):
    error = decode_error(ErrorRecord(kind, "killed by SIGKILL").encode(), "task 3 (m.f)")
    assert type(error) is expected
    assert str(error) == "task 3 (m.f): killed by SIGKILL"
    error = decode_error(ErrorRecord(kind, "task 3 (m.f) was killed").encode(), "task 3 (m.f)")
    assert str(error) == "task 3 (m.f) was killed"


def test_what_is_unpickled_badly_comes_back_as_text():
    record = ErrorRecord(ErrorKind.RAISED, "text", "m.f", "m.Odd", "Traceback", b"not a pickle")
    error = decode_error(record.encode(), "task 3")
    assert type(error) is errors.TaskError
    assert "cannot be unpickled here" in str(error)


@pytest.mark.parametrize("record", [b"", b"x", b"\xff\xff", b"N", b"(\x00\x00\x00\x00", bytes(range(200))])
def test_bytes_that_are_no_record_give_an_error_and_no_exception(record):
    assert type(decode_error(record, "task 3")) is errors.TaskError


def test_lone_surrogates_in_a_message_travel_as_escapes():
    assert type(travelled(raising(ValueError("\udc80")))) in (ValueError, errors.TaskError)


def test_notes_of_a_record_are_shown_below_the_error():
    record = ErrorRecord(ErrorKind.LOST, "task f (3): gone", notes=("sent to a", "lost with a"))
    error = decode_error(record.encode())
    assert error.__notes__ == ["sent to a", "lost with a"]


def test_notes_of_a_record_come_behind_those_of_the_users_exception():
    raised = ValueError("no")
    raised.add_note("the user's")
    record = ErrorRecord.decode(exception_record(raised)).with_note("the engine's")
    error = decode_error(record.encode())
    assert type(error) is ValueError
    assert error.__notes__ == ["the user's", "the engine's"]


def test_an_exception_of_an_unknown_encoding_comes_back_as_text():
    record = ErrorRecord(ErrorKind.RAISED, "no", "f", "ValueError", "Traceback", b"...", 99).encode()
    error = decode_error(record)
    assert type(error) is errors.TaskError
    assert "its encoding, 99, is not known here" in str(error)


@pytest.mark.parametrize("kind", [Quitting, Interrupting, Denying])
def test_a_class_that_raises_whatever_is_asked_of_it_has_a_record(kind):
    error = travelled(raising(kind()))
    assert type(error) is errors.TaskError
    assert kind.__name__ in error.type_name
    assert "its text cannot be made" in str(error)


def test_a_kind_of_exception_that_says_nothing_of_itself_has_a_record():
    class Silent(type):
        def __getattribute__(cls, name):
            raise RuntimeError(name)

    class OfASilentKind(Exception, metaclass=Silent):
        pass

    error = travelled(raising(OfASilentKind()))
    assert type(error) is errors.TaskError
    assert error.type_name.endswith(".OfASilentKind")


def noted(text):
    error = ValueError("small")
    error.add_note(text)
    return error


def caused(text):
    error = ValueError("small")
    error.__cause__ = KeyError(text)
    return error


LARGE = "x" * 3_000_000


@pytest.mark.parametrize(
    "error",
    [
        ValueError(LARGE),
        ValueError("\udcff" * 1_000_000),
        TwoArguments(LARGE, LARGE),
        noted(LARGE),
        caused(LARGE),
        ExceptionGroup("several", [ValueError(1), TypeError(LARGE)]),
        type("N" * 3_000_000, (ValueError,), {})("small"),
    ],
    ids=["text", "surrogates", "own", "note", "cause", "group", "name"],
)
def test_an_exception_that_is_too_large_comes_as_text_and_says_how_large_it_was(error):
    try:
        raise error
    except Exception as raised:
        record = exception_record(raised, "f" * 3_000_000)
    assert len(record) < SLACK_BYTES  # so it fits into each message
    back = decode_error(record, "task 3 (m.f)")
    assert type(back) is errors.TaskError
    assert f"was too large to be brought: it takes {ErrorRecord.decode(record).omitted:,} bytes" in str(back)
    assert type(error).__qualname__[:9] in back.type_name
    assert "raise error" in str(back.__cause__)


def test_an_exception_that_is_not_small_comes_as_itself():
    back = travelled(raising(ValueError("x" * (SMALL_EXCEPTION - 4096))))
    assert type(back) is ValueError
    assert len(str(back)) == SMALL_EXCEPTION - 4096


def test_the_engines_own_words_are_cut():
    record = ErrorRecord(ErrorKind.SERIALIZATION, LARGE, "f", traceback=LARGE, notes=(LARGE,)).encode()
    assert len(record) < 4 * LONGEST_TEXT
    assert ErrorRecord.decode(record).encode() == record
    assert "characters are left out" in str(decode_error(record))
