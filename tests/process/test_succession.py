"""Two schedulers: one leads, the other stands by, and takes its place when it is gone, cut off, or handed over."""

import signal
from collections import Counter

import pytest
from support import noting, until
from support.ports import fresh_address
from support.programs import Daemons, program
from support.two_schedulers import PATIENCE, QUICK, command, start_agents

from scaler import Client, SchedulerStandsBy
from scaler.monitor.questions import Questions


class Pair:
    """Two schedulers of one test, and what is given both addresses."""

    def __init__(self, daemons: Daemons, *options: str) -> None:
        self._daemons = daemons
        self._options = (*QUICK, *options)
        self.first = daemons.start_scheduler(*self._options)
        self.first_address = daemons.address
        self.second = daemons.run(
            "scaler_scheduler", "scheduler", *self._options, "--standby-of", self.first_address, fresh_address()
        )
        self.second_address = self.second.says(r"listens at (tcp://\S+)")[1]
        self.second.says("stands by for the one at")
        daemons.address = self.both

    @property
    def both(self) -> str:
        """As users give them."""
        return f"{self.first_address},{self.second_address}"

    def restart_first(self):
        """Start it again as it was started."""
        self.first = self._daemons.run("scaler_scheduler", "scheduler", *self._options, self.first_address)
        self.first.says("listens at")


@pytest.fixture
def pair(daemons):
    return Pair(daemons)


def test_the_one_that_leads_is_killed_and_no_row_runs_twice(daemons, pair, tmp_path):
    start_agents(daemons, 3)
    client = daemons.client()
    noted = noting(tmp_path / "ran", 0.01)
    futures = [client.submit(noted, x) for x in range(600)]
    futures[50].result(timeout=PATIENCE)
    pair.first.signal(signal.SIGKILL)
    with Client(pair.both) as early:  # before anybody leads
        assert early.submit(abs, -6).result(timeout=PATIENCE) == 6
    assert [future.result(timeout=PATIENCE) for future in futures] == [3 * x for x in range(600)]
    assert set(Counter((tmp_path / "ran").read_text().split()).values()) == {1}
    pair.second.says("leads from now on, in term 1")
    assert client.submit(abs, -7).result(timeout=PATIENCE) == 7
    # the first one comes back as it was started, and stands by
    pair.restart_first()
    pair.first.says(f"stands by for the one at {pair.second_address}")
    assert client.submit(abs, -8).result(timeout=PATIENCE) == 8
    with Client(pair.both) as late:
        assert late.submit(abs, -9).result(timeout=PATIENCE) == 9


def test_the_status_of_a_pair_says_who_leads_and_when_nobody_stands_by(daemons, pair):
    start_agents(daemons, 1)
    both = f"pair      with the scheduler at {pair.second_address}, which stands by; 1 agents that both count"
    until(lambda: both in command("status", pair.first_address).stdout, "a pair that counts its agent")
    of_second = command("status", pair.second_address).stdout
    assert f"with the scheduler at {pair.first_address}, which leads, and this one stands by; 1 " in of_second
    assert "trouble" not in of_second
    pair.second.signal(signal.SIGKILL)
    until(lambda: "nobody stands by" in command("status", pair.first_address).stdout, "it to be missed")


def test_a_hand_over_there_and_back(daemons, pair, tmp_path):
    start_agents(daemons, 2)
    client = daemons.client()
    noted = noting(tmp_path / "ran", 0.01)
    futures = [client.submit(noted, x) for x in range(400)]
    futures[20].result(timeout=PATIENCE)
    said = command("hand-over", pair.both)
    assert said.stdout == "handed over: the other scheduler leads, and this one stands by for it\n", said.stderr
    pair.first.says("stands by for the one at")
    assert futures[-1].result(timeout=PATIENCE) == 3 * 399
    until(lambda: command("hand-over", pair.both).returncode == 0, "a hand-over back")
    assert [future.result(timeout=PATIENCE) for future in futures] == [3 * x for x in range(400)]
    assert client.submit(abs, -8).result(timeout=PATIENCE) == 8
    assert set(Counter((tmp_path / "ran").read_text().split()).values()) == {1}


def test_half_of_the_agents_are_not_enough_until_somebody_promotes_the_standby(daemons, pair):
    _, gone = start_agents(daemons, 2)
    client = daemons.client()
    assert client.submit(abs, -1).result(timeout=PATIENCE) == 1
    gone.signal(signal.SIGKILL)
    pair.first.signal(signal.SIGKILL)
    pair.second.says("the connection to the other scheduler is lost")
    future = client.submit(abs, -2)
    until(lambda: "does not lead yet" in command("status", pair.both).stderr, "a standby that does not lead yet")
    said = command("promote", pair.second_address)
    assert said.stdout == f"leads: {pair.second_address}\n", said.stderr
    assert future.result(timeout=PATIENCE) == 2
    said = command("promote", pair.second_address)
    assert "this scheduler leads already" in said.stderr


def test_the_one_that_leads_is_stopped_for_a_while(daemons, pair):
    start_agents(daemons, 3)
    client = daemons.client()
    assert client.submit(abs, -1).result(timeout=PATIENCE) == 1
    pair.first.signal(signal.SIGSTOP)
    try:
        assert client.submit(abs, -2).result(timeout=PATIENCE) == 2
    finally:
        pair.first.signal(signal.SIGCONT)
    pair.first.says("stands by from now on")
    pair.first.says(f"stands by for the one at {pair.second_address}")
    assert client.submit(abs, -3).result(timeout=PATIENCE) == 3


def test_both_are_killed_and_the_agents_tell_who_counts(daemons, pair):
    start_agents(daemons, 2)
    client = daemons.client()
    assert client.submit(abs, -1).result(timeout=PATIENCE) == 1
    with Questions(pair.first_address) as questions:
        heard = questions.snapshot().received["Heartbeat"]
        told = heard + 12  # of two agents and a client: each has been answered again, and told that two count
        until(lambda: questions.snapshot().received["Heartbeat"] >= told, "heartbeats")
    pair.second.signal(signal.SIGKILL)
    pair.first.signal(signal.SIGKILL)
    future = client.submit(abs, -2)
    pair.restart_first()
    pair.first.says("more than half of 2 agents want it")
    assert future.result(timeout=PATIENCE) == 2


def test_a_client_that_knows_the_standby_alone_is_told(daemons, pair):
    with pytest.raises(
        SchedulerStandsBy, match=f"it stands by for the one at {pair.first_address}: give the addresses"
    ):
        Client(pair.second_address)
    said = command("hand-over", pair.second_address)
    assert "this scheduler stands by for the one at" in said.stderr


def test_a_third_scheduler_is_told_that_there_are_two_and_changes_nothing(daemons, pair):
    third = daemons.run("scaler_scheduler", "scheduler", *QUICK, "--standby-of", pair.first_address, fresh_address())
    third.says(f"one of a pair with the one at {pair.second_address}, and there is no third")
    for one in (pair.first, pair.second):
        assert "is lost" not in one.text
    assert third.text.count("there is no third") == 1


def test_a_scheduler_that_is_to_stand_by_for_itself_says_so(daemons):
    port = fresh_address().rpartition(":")[2]
    alone = daemons.run(
        "scaler_scheduler", "scheduler", "--standby-of", f"tcp://127.0.0.1:{port}", f"tcp://0.0.0.0:{port}"
    )
    alone.says(f"127.0.0.1:{port} is this scheduler itself: --standby-of names the other one of a pair")


def test_commands_about_pairs_say_that_there_is_none(daemons):
    daemons.start_scheduler(*QUICK)
    assert "no other scheduler stands by for this one" in command("hand-over", daemons.address).stderr
    assert "this scheduler leads already" in command("promote", daemons.address).stderr


def test_a_durable_job_goes_on_at_the_standby(daemons, tmp_path):
    pair = Pair(daemons, "--journal", str(tmp_path / "journal"))
    start_agents(daemons, 2)
    client = daemons.client()
    job = client.submit_job(noting(tmp_path / "ran", 0.01), range(300), name="long")
    until(lambda: job.status().done > 20, "rows of the job that have ended")
    said = command("hand-over", pair.both)
    assert said.returncode == 0, said.stderr
    until(lambda: job.status().done > 100, "more of them")
    pair.second.signal(signal.SIGKILL)
    pair.first.says("leads from now on")
    assert list(job.results()) == [3 * x for x in range(300)]


def test_large_results_of_a_durable_job_are_there_at_the_standby(daemons, tmp_path):
    pair = Pair(daemons, "--journal", str(tmp_path / "journal"), "--results", str(tmp_path / "results"))
    start_agents(daemons, 2)
    job = daemons.client().submit_job(lambda x: bytes([x]) * (1 << 20), range(60), name="large")
    until(lambda: job.status().done > 5, "rows of the job that have ended")
    said = command("hand-over", pair.both)
    assert said.returncode == 0, said.stderr
    assert [value[:1] for value in job.results(timeout=60)] == [bytes([x]) for x in range(60)]
    pair.second.signal(signal.SIGKILL)
    pair.first.says("leads from now on")
    assert job.status().file_bytes > 60 << 20
    job.delete()
    until(lambda: not [path for path in tmp_path.glob("results/*/*") if path.is_file()], "nothing left")


def test_the_host_of_the_one_that_leads_vanishes(network, tmp_path):
    hosts = [network.host(name) for name in ("head", "second", "one", "two", "three")]
    head, second, *others = hosts
    key = ("--key-file", str(tmp_path / "key"))
    first = head.start_scheduler(*key, *QUICK)
    started = program("scaler_scheduler", "scheduler")
    standby = second.start("standby", *started, *key, *QUICK, "--standby-of", head.url(), "tcp://0.0.0.0:0")
    port = standby.says(r"listens at tcp://0\.0\.0\.0:(\d+)")[1]
    standby.says("stands by for the one at")
    both = f"{head.url()},tcp://{second.address}:{port}"
    for host in others:
        host.start_agent(both, 1, *key)
    first.says(f"the one at tcp://{second.address}:{port} stands by")
    script = others[0].start_script(
        """
        import sys, time
        from scaler import Client
        from scaler.transport import load_or_create
        with Client(sys.argv[1], security=load_or_create(sys.argv[2])) as client:
            assert client.submit(abs, -1).result(timeout=60) == 1
            longest = 0.0
            print("begun", flush=True)
            while longest < 1.0:
                began = time.monotonic()
                assert client.submit(abs, -2).result(timeout=60) == 2
                longest = max(longest, time.monotonic() - began)
            print(f"paused for {longest:.2f} s", flush=True)
            print([client.submit(abs, -x).result(timeout=60) for x in range(5)], flush=True)
        """,
        both,
        str(tmp_path / "key"),
    )
    script.says("begun")
    for host in hosts[1:]:
        head.cut(host)
    paused = float(script.says(r"paused for (\S+) s")[1])
    script.says(r"\[0, 1, 2, 3, 4\]")
    script.ends(PATIENCE)
    assert paused < 15, "far more than it is on a machine with nothing else to do"
    # it is back, and has nothing to say
    for host in hosts[1:]:
        head.mend(host)
    first.says("stands by for the one at")
