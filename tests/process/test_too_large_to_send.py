"""What is too large for a message ends in one clear error, or goes in pieces, and nobody else notices."""

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from support import Daemons

from scaler import Client, ObjectTooLarge, TaskError
from scaler.extension import issue_warnings, with_warnings_kept

#: both of the scheduler and of its agents; 1 MB more is for the engine's own headers
LIMIT = 1_000_000


@pytest.fixture(params=["apart", "combo"])
def cluster(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Starts a cluster of two workers, and says where."""

    def apart() -> str:
        daemons: Daemons = request.getfixturevalue("daemons")
        daemons.start_scheduler("--max-message-bytes", str(LIMIT))
        daemons.start_agent(2, "--max-message-bytes", str(LIMIT))
        return daemons.address

    def combo() -> str:
        start = request.getfixturevalue("start_cluster")
        return start(2, max_message_bytes=LIMIT).address

    return apart if request.param == "apart" else combo


def raising(size: int) -> None:
    raise ValueError("x" * size)


def noting(size: int) -> None:
    error = ValueError("small")
    error.add_note("n" * size)
    raise error


def chaining(size: int) -> None:
    try:
        raise KeyError("c" * size)
    except KeyError as cause:
        raise ExceptionGroup("several", [ValueError(1), TypeError("t" * size)]) from cause


def printing(size: int) -> int:
    print("y" * size)
    return 1


def warning(size: int) -> int:
    warnings.warn("w" * size, stacklevel=1)
    return 1


def value(_: int) -> bytes:
    return b"v" * 100_000


def total(*values: bytes) -> int:
    return sum(map(len, values))


def unpicklable(size: int) -> object:
    class Refusing:
        def __reduce__(self) -> tuple[object, ...]:
            raise TypeError("r" * size)

    return Refusing()


def test_what_a_task_says_is_never_too_large(cluster: Callable[[], str], capsys: pytest.CaptureFixture[str]) -> None:
    address = cluster()
    with Client(address, stream_output=True) as client, Client(address) as other:
        for function, name in ((raising, "ValueError"), (noting, "ValueError"), (chaining, "ExceptionGroup")):
            with pytest.raises(TaskError, match="too large to be brought") as raised:
                client.submit(function, 3_000_000).result(60)
            assert name in raised.value.args[0]
            assert function.__name__ in str(raised.value.__cause__)
            assert len(str(raised.value)) + len(str(raised.value.__cause__)) < 200_000
            assert other.submit(pow, 2, 3).result(60) == 8
        with pytest.raises(Exception, match="rrr"):
            client.submit(unpicklable, 3_000_000).result(60)
        assert with_warnings_kept(client).submit(warning, 3_000_000).result(60) == 1
        with pytest.warns(UserWarning, match="www") as warned:
            issue_warnings(client)
        assert len(str(warned[0].message)) < 100_000
        capsys.readouterr()
        assert client.submit(printing, 3_000_000).result(60) == 1
        assert other.map(pow, [2] * 100, [3] * 100) == [8] * 100
    assert capsys.readouterr().out == "y" * 3_000_000 + "\n"


def test_results_that_are_small_one_by_one_are_too_large_together_for_no_message(cluster: Callable[[], str]) -> None:
    with Client(cluster()) as client:
        assert client.map(lambda size: b"v" * size, [100_000] * 200) == [b"v" * 100_000] * 200
        assert client.map(lambda size: "t" * size, [4_000] * 3_000) == ["t" * 4_000] * 3_000
        rows = {f"value {number}": (value, number) for number in range(40)}
        assert client.get({**rows, "total": (total, *rows)}, ["total"]) == {"total": 4_000_000}
        for future in [client.submit(raising, 300_000) for _ in range(30)]:
            with pytest.raises(ValueError, match="xxx"):
                future.result(60)


def test_an_agent_that_may_say_more_than_its_scheduler_hears_says_why_it_does_not(
    daemons: Daemons, tmp_path: Path
) -> None:
    daemons.start_scheduler("--max-message-bytes", str(LIMIT), "--journal", str(tmp_path / "journal"))
    agent = daemons.start_agent(2)
    with daemons.client() as client:
        small, large = client.submit_job(bytes, [10, 4_000_000], name="job").ended(timeout=60)
        assert small.value == bytes(10)
        assert isinstance(large.error, ObjectTooLarge)
        assert "row 1 of job 'job': its result, or what it raised, takes 4,0" in str(large.error)
        assert "max_message_bytes" in str(large.error)
        assert client.map(value, range(200)) == [b"v" * 100_000] * 200
    assert agent.text.count("and 1 rows end with an error") == 1
    assert agent.process.poll() is None
