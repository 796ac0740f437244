"""Workers that the tasks of one user have spoilt do not fail the tasks of another one."""

import errno
import os
import resource

import pytest

from scaler import SerializationError
from scaler.agent.state.doubts import TRIES

numpy = pytest.importorskip("numpy")

#: tasks of the other user
COUNT = 30


def use_up_descriptors():
    """Open files until there are no more, and keep them."""
    os.kept = []
    try:
        while True:
            os.kept.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return len(os.kept)


def take_down(name, most, for_good):
    """Allow this process less."""
    number = getattr(resource, name)
    resource.setrlimit(number, (most, most if for_good else resource.getrlimit(number)[1]))


def become_another_user():
    os.setuid(65534)


def start_no_threads():
    import threading

    threading.excepthook = None


def empty_a_module():
    import numpy

    numpy.__dict__.clear()


def use_up_memory():
    """Leave so little that what is small can be done."""
    with open("/proc/self/statm") as status:
        taken = int(status.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken, taken))


def ask(client):
    """A nested task by a client that came with the arguments."""
    return client.submit(abs, -1).result()


def large(size):
    """What goes to the store."""
    return numpy.arange(size)


SPOILS = [
    pytest.param(use_up_descriptors, (), id="descriptors"),
    *(
        pytest.param(take_down, (name, most, for_good), id=f"{name}{'-for-good' * for_good}")
        for name, most in (("RLIMIT_NOFILE", 5), ("RLIMIT_FSIZE", 0), ("RLIMIT_AS", 64 << 20))
        for for_good in (False, True)
    ),
    pytest.param(use_up_memory, (), id="memory", marks=pytest.mark.skipif(not os.path.exists("/proc"), reason="Linux")),
    pytest.param(
        become_another_user, (), id="user", marks=pytest.mark.skipif(os.geteuid() != 0, reason="root alone may do that")
    ),
    pytest.param(start_no_threads, (), id="threads"),
    pytest.param(empty_a_module, (), id="module"),
]


@pytest.mark.parametrize(("spoil", "arguments"), SPOILS)
def test_no_task_of_another_user_fails_for_what_one_has_done_to_its_worker(start_cluster, connect, spoil, arguments):
    cluster = start_cluster(2)
    other, one = connect(cluster), connect(cluster)
    one.submit(spoil, *arguments).result(60)
    one.disconnect()
    values = numpy.arange(100_000)
    for i in range(COUNT):
        assert other.submit(numpy.sum, values + i).result(60) == values.sum() + i * len(values)
        if i % 10 == 0:
            assert len(other.submit(large, 200_000).result(60)) == 200_000
            assert other.submit(ask, other).result(60) == 1


class UnreadableHere:
    """Can't be unpickled, as if there were no descriptors; the process that tries notes that it did."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return fail, (self.path,)


def fail(path):
    with open(path, "a") as tries:
        tries.write(f"{os.getpid()}\n")
    raise OSError(errno.EMFILE, "no descriptors, it says")


@pytest.mark.parametrize("by_map", [False, True])
def test_rows_that_can_be_unpickled_nowhere_fail_and_cost_few_workers(start_cluster, connect, tmp_path, by_map):
    client = connect(start_cluster(2))
    client.map(abs, range(1000))
    arguments = [UnreadableHere(tmp_path / "tries")] * 300
    if by_map:
        with pytest.raises(SerializationError, match="no descriptors, it says"):
            client.map(len, arguments)
    else:
        for future in [client.submit(len, argument) for argument in arguments]:
            assert isinstance(future.exception(60), SerializationError)
    tried = set((tmp_path / "tries").read_text().split())
    assert len(tried) <= 2 + TRIES, "those that were there, and those that came for rows that were tried again"
    assert client.submit(abs, -1).result(60) == 1
