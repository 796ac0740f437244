"""A client that does not read what it asked for: the scheduler's memory stays bounded, and the others' work goes on."""

import time

import pytest
from support import DEADLINE, patience, until
from support.client_parts import connection_of

from scaler.protocol.codec import decode, encode
from scaler.protocol.hello import hello_of
from scaler.protocol.messages import INLINE, TOGETHER, Heartbeat, ObjectAnnounce, Task, Welcome, u8, u32, u64
from scaler.serialize import payload
from scaler.serialize.call import encode_function
from scaler.serialize.versions import packages
from scaler.transport import connect, load_or_create

ROWS, EACH = 2_000, 100_000


def large(_):
    time.sleep(0.002)
    return b"x" * EACH


def double(x):
    return 2 * x


class Deaf:
    """Asks for much and says that it is there, but reads nothing after the Welcome."""

    def __init__(self, address, shortcut):
        self.connection = connect(address, load_or_create(), shortcut=shortcut)
        self.connection.send(encode(hello_of("client", "deaf", 4711, packages=packages())))
        until(lambda: any(isinstance(decode(frames).message, Welcome) for frames in self.connection.receive()))
        self.seq = 0

    def say(self, message):
        self.seq += 1
        self.connection.send(encode(message, self.seq, 0))

    def ask(self, function, rows):
        self.say(ObjectAnnounce(u64([1]), u8([INLINE]), [encode_function(function)]))
        task = Task(0, 10, rows, TOGETHER, 8, 1, 2, "large", spans=u32([0, rows]))
        task.objects, task.bodies = u64([2]), [payload.dumps(list(range(rows)))]
        self.say(task)

    def beat(self):
        self.say(Heartbeat(time.monotonic()))


@pytest.mark.parametrize("shortcut", [True, False], ids=["local socket", "tcp"])
def test_a_client_that_reads_nothing_is_waited_for_then_given_up(daemons, shortcut):
    daemons.start_scheduler("--client-timeout", "3")
    daemons.start_agent(2)
    friend = daemons.client()
    assert friend.submit(double, 21).result(20) == 42
    connection = connection_of(friend)
    deaf = Deaf(daemons.address, shortcut)
    try:
        deaf.ask(large, ROWS)
        end = time.monotonic() + patience(DEADLINE)
        while "is gone: read nothing" not in daemons.scheduler.text:
            deaf.beat()
            assert friend.submit(double, 21).result(20) == 42
            assert time.monotonic() < end, daemons.scheduler.text
        waits = daemons.scheduler.says(r"deaf\) does not read, and (\d+) MB wait for it: its rows wait, too")
        assert int(waits[1]) * 1e6 < ROWS * EACH * 0.9
        dropped = daemons.scheduler.says(r"deaf\) is gone: read nothing for 3 s, while \d+ MB .*; dropped (\d+) rows")
        assert int(dropped[1]) > 0
        assert connection_of(friend) is connection
    finally:
        deaf.connection.close(0)
