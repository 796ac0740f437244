"""What a worker makes of a process in which rows have run, and of the errors of its own steps."""

import errno
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from scaler.worker import fitness
from scaler.worker.fitness import Fitness

#: in processes of their own, as their limits and descriptors are changed
LIMITS = """
import itertools, resource
from scaler.worker import fitness, leftovers

told = []
fit = fitness.watch(told.append)
fit._clock = itertools.count(fitness.EVERY_NS, fitness.FAILED_NS).__next__
before = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
assert fitness.is_doubtful(ValueError()), "it was not as it should be"
assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
assert not fitness.is_doubtful(ValueError())
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
fit.attend(True)
assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 0 and not told

resource.setrlimit(resource.RLIMIT_NOFILE, (100, before[1]))
leftovers.keep()
fit.attend(True)
assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 100, "what was meant to last was put back"
resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
fit.attend(True)
assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 200, "a task may allow itself more"

resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
kept = []
try:
    while True:
        kept.append(open("/dev/null"))
except OSError:
    fit.attend(False)
    assert not told, "it was looked at a moment ago"
    fit.attend(True)
    fit.attend(True)
    assert len(told) == 1, told
"""

DESCRIPTORS = """
import os
from scaler.worker import fitness, leftovers

told, asked = [], []
os.fstat = lambda number, fstat=os.fstat: asked.append(number) or fstat(number)
leftovers.watch()
fit = fitness.watch(told.append)
fit._clock = lambda: fitness.EVERY_NS
fit.attend(False)

def see():
    return [os.fstat(number)[:3] + (os.get_inheritable(number),) for number in range(3)]

before = see()
asked.clear()
fit.attend(False)
assert not asked, "they were compared, though they were a moment ago, and nothing has happened since"

def open_another():
    os.close(1)
    assert os.open("/", os.O_RDONLY) == 1

for spoil in (
    lambda: os.close(0),
    lambda: os.closerange(1, 3),
    lambda: os.set_inheritable(2, False),
    open_another,
    lambda: os.dup2(os.open("/", os.O_RDONLY), 1),
):
    spoil()
    fit.attend(False)
    assert see() == before
    os.close(1)
    assert fitness.is_doubtful(ValueError()) and not fitness.is_doubtful(ValueError())
    assert see() == before

os.dup2(1, 2)
leftovers.keep()
fit.attend(False)
assert os.path.sameopenfile(1, 2), "what was meant to last was put back"
held = len(os.listdir("/dev/fd"))
leftovers.keep()
assert len(os.listdir("/dev/fd")) == held, "copies of what they were are still open"

assert not told
copy = fit._standard._kept[1][1]
os.close(1)
os.dup2(os.open("/", os.O_RDONLY), copy)
fit.attend(False)
assert told == ["has lost descriptor 1, which can't be put back"], told
fitness.leave()
assert len(os.listdir("/dev/fd")) == held - 2, "copies are open, or what a task has opened in the place of one is not"
"""


@pytest.mark.parametrize("program", [LIMITS, DESCRIPTORS])
def test_what_was_taken_away_is_put_back_and_what_cannot_be_is_told_once(program: str) -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environ, timeout=60)
    assert ran.returncode == 0, ran.stderr + ran.stdout


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def fit(told: list[str]) -> Fitness:
    return Fitness(told.append)


def refused(*_: object) -> None:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def test_a_limit_that_cannot_be_put_back_is_told(
    fit: Fitness, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = resource.getrlimit

    def getrlimit(number: int) -> tuple[int, int]:
        return (0, 0) if number == resource.RLIMIT_FSIZE else limits(number)

    monkeypatch.setattr(resource, "getrlimit", getrlimit)
    monkeypatch.setattr(resource, "setrlimit", refused)
    fit.attend(False)
    assert told == ["has RLIMIT_FSIZE at 0, which can't be put back"]


def test_so_is_another_user(fit: Fitness, told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    monkeypatch.setattr(os, "seteuid", refused)
    fit.attend(False)
    assert told == [f"is the process of user 65534 and group {os.getegid()} now"]


def test_and_files_that_can_no_more_be_opened(fit: Fitness, told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "devnull", "/as/under/chroot")
    fit.attend(False)
    assert told == ["can open no files: No such file or directory"]


def test_and_memory_that_is_used_up(fit: Fitness, told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitness, "LEAST_MEMORY", 1 << 60)
    fit.attend(True)
    assert told == ["can have no more memory: Cannot allocate memory"]


def test_what_was_scarce_from_the_beginning_is_no_fault_of_tasks(
    told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitness, "LEAST_MEMORY", 1 << 60)
    monkeypatch.setattr(os, "devnull", "/not/there")
    Fitness(told.append).attend(True)
    assert not told


def starts_no_thread() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "excepthook", None)
        threading.Thread()


def from_a_shortage() -> None:
    try:
        raise MemoryError
    except MemoryError as error:
        raise ValueError("that comes of it") from error


def raises(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def error_of(fails: Callable[[], None]) -> Exception:
    try:
        fails()
    except Exception as error:
        return error
    raise AssertionError("it raised nothing")


@pytest.mark.parametrize(
    ("fails", "is_doubtful"),
    [
        (raises(OSError(errno.EMFILE, "too many")), True),
        (raises(OSError(errno.EBADF, "closed")), True),
        (raises(MemoryError()), True),
        (starts_no_thread, True),
        (from_a_shortage, True),
        (raises(AttributeError("Can't get attribute 'sum' on <module '?'>")), True),
        (raises(AttributeError("Can't get attribute 'sum' on <module 'numpy' (built-in)>")), False),
        (raises(ModuleNotFoundError("No module named 'there'", name="there")), False),
        (raises(FileNotFoundError(errno.ENOENT, "no such file")), False),
        (raises(RuntimeError("of the user's")), False),
    ],
)
def test_errors_that_may_be_the_processs_are_those_of_shortages_and_damage(
    fails: Callable[[], None], is_doubtful: bool
) -> None:
    assert fitness.is_doubtful(error_of(fails)) is is_doubtful


def test_any_error_may_be_the_processs_once_its_modules_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    error = AttributeError("module 'sys' has no attribute 'warnoptions'")
    assert not fitness.is_doubtful(error)
    monkeypatch.delitem(sys.modules, "sys")
    assert fitness.is_doubtful(error)
