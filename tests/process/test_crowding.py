"""Programs that have the scheduler keep more than its memory holds, beside one whose tasks go on."""

import sys
import time

import pytest
from support import until
from support.client_parts import connection_of

from scaler.errors import ConnectionFailed
from scaler.protocol.codec import decode, encode
from scaler.protocol.hello import hello_of
from scaler.protocol.messages import EACH, INLINE, ObjectAnnounce, Refused, Task, Welcome, u8, u32, u64
from scaler.serialize.call import encode_function
from scaler.serialize.versions import packages
from scaler.transport import connect, load_or_create

#: of the scheduler's host, as it is told: half of it may be kept
MEMORY = 8_000_000
#: runs the program that comes behind it on a host that has so much
SMALL_HOST = (
    "import sys; from scaler.common import host_memory; "
    f"host_memory.available_memory = lambda root='/': {MEMORY}; "
    "program = sys.argv[3]; sys.argv[1:4] = []; exec(program)"
)
REFUSAL = r"sent more than the scheduler can keep: with \d\.\d MB .* and it may keep 4\.0 MB, half of its memory"


def double(x):
    return 2 * x


def doze(x):
    time.sleep(0.05)
    return x


@pytest.fixture
def crowded(daemons):
    daemons.scheduler = daemons.run(
        "scaler_scheduler", "scheduler", daemons.address, through=(sys.executable, "-c", SMALL_HOST)
    )
    daemons.address = daemons.scheduler.says(r"listens at (tcp://\S+)")[1]
    daemons.start_agent(2)
    return daemons


@pytest.mark.parametrize("shortcut", [True, False], ids=["local socket", "tcp"])
def test_a_flood_costs_its_sender_the_session_and_nobody_else(crowded, shortcut):
    friend = crowded.client()
    assert friend.submit(double, 21).result(20) == 42
    before = connection_of(friend)
    connection = connect(crowded.address, load_or_create(), shortcut=shortcut)
    try:
        connection.send(encode(hello_of("client", "flood", 4711, packages=packages())))
        until(lambda: any(isinstance(decode(frames).message, Welcome) for frames in connection.receive()))
        connection.send(encode(ObjectAnnounce(u64([1]), u8([INLINE]), [encode_function(doze)]), 1, 0))
        refusals = []
        for number in range(2, 5_000):
            said = Task(0, number, 1, EACH, 0, 1, 0, "doze", spans=u32([0, 1]), sizes=u32([0]), bodies=[b""])
            said.capabilities = ("what no agent has",)
            connection.send(encode(said, number, 0))
            if number % 100 == 0:
                assert friend.submit(double, number).result(20) == 2 * number
                messages = [decode(frames).message for frames in connection.receive()]
                refusals += [message for message in messages if isinstance(message, Refused)]
            if refusals or connection.is_closed:
                break
        crowded.scheduler.says(rf"flood\) is gone: {REFUSAL}")
        assert [refused.final for refused in refusals] == [True]
    finally:
        connection.close(0)
    assert friend.submit(double, 21).result(20) == 42
    assert connection_of(friend) is before
    assert "flood); beyond 4.0 MB the client that has most is given up" in crowded.scheduler.text


def test_a_program_that_submits_too_much_is_told_at_once_and_others_go_on(crowded):
    friend, careless = crowded.client(), crowded.client(name="careless")
    assert friend.submit(double, 21).result(20) == 42
    before = connection_of(friend)
    futures = []

    def submit_all():
        for number in range(20_000):  # each on its own: a batch
            futures.append(careless.with_options(priority=number).submit(doze, number))  # noqa: PERF401 - may raise
        return futures[-1].result(20)

    with pytest.raises(ConnectionFailed, match=REFUSAL):
        submit_all()
    assert friend.submit(double, 21).result(20) == 42
    assert connection_of(friend) is before
    errors = [future.exception(20) for future in futures]
    assert all(error is None or isinstance(error, ConnectionFailed) for error in errors)
    crowded.scheduler.says(rf"careless\) is gone: {REFUSAL}")
    assert crowded.scheduler.text.count("careless) is gone") == 1
    again = crowded.client()
    assert again.submit(double, 4).result(20) == 8
