"""Large values between hosts: who need not reach whom, what passes where, and what happens when a way is cut."""

import re

from support import until

#: small, so that the tests need not wait
QUICK = ("--heartbeat-interval", "0.2", "--agent-timeout", "2", "--client-timeout", "2")
MB = 1_000_000

CLIENT = """
    import sys
    import numpy as np
    import scaler

    client = scaler.Client(sys.argv[1])
"""


def peak_memory(pid):
    """The most bytes that a process ever had in memory."""
    with open(f"/proc/{pid}/status") as status:
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read())[1]) * 1024


def test_a_client_without_a_way_to_the_agents_gets_large_values_and_the_scheduler_does_not_see_them(network):
    middle = network.host("middle", ["inside", "outside"])
    worker = network.host("worker", ["inside"])
    outsider = network.host("outsider", ["outside"])
    scheduler = middle.start_scheduler(*QUICK, "--standalone-store-port", "7711")
    agent = worker.start_agent(middle.url("inside"), 1, "--store-port", "7712")
    assert not outsider.reaches(worker.address)
    before = peak_memory(scheduler.pid)
    script = outsider.start_script(
        CLIENT
        + """
    def double(array):
        return array * 2

    array = np.arange(int(sys.argv[2]), dtype=float)
    assert client.submit(len, "abc").result(10) == 3
    future = client.submit(double, array)
    doubled = future.result(40)
    assert (doubled == array * 2).all()
    print("right", flush=True)
    """,
        middle.url("outside"),
        str(100 * MB // 8),
    )
    script.says("right")
    assert script.ends(5) == 0
    assert worker.sent_bytes() > 100 * MB
    assert middle.ports() == {middle.port, 7711}
    assert worker.ports() == {7712}
    assert peak_memory(scheduler.pid) - before < 50 * MB
    assert agent.process.poll() is None


def test_a_large_object_leaves_its_host_about_once_however_many_hosts_need_it(network):
    size = 64 << 20
    source = network.host("source")
    source.start_scheduler(*QUICK)
    names = ["first", "second", "third", "fourth"]
    hosts = [network.host(name) for name in names]
    for host in hosts:
        host.start_agent(source.url(), 1, "--capabilities", host.name)
    script = source.start_script(
        CLIENT
        + """
    import hashlib

    def digest(array):
        return hashlib.sha256(array).hexdigest()

    names = sys.argv[3:]
    assert [client.with_options(capabilities=name).submit(len, name).result(10) for name in names] == [*map(len, names)]
    array = np.random.default_rng(1).integers(0, 256, int(sys.argv[2]), dtype=np.uint8)
    sent = client.send_object(array)
    futures = [client.with_options(capabilities=name).submit(digest, sent) for name in names]
    assert {future.result(40) for future in futures} == {digest(array)}
    print("right", flush=True)
    """,
        source.url(),
        str(size),
        *names,
    )
    script.says("right")
    assert script.ends(5) == 0
    assert size < source.sent_bytes() < 1.5 * size
    assert sum(host.sent_bytes() for host in hosts) > 2 * size


WAY_CUT = (
    CLIENT
    + """
    def make(number):
        return np.full(500_000, number, dtype=float)

    def add(one, other):
        return one + other

    def tell(array):
        assert np.ptp(array) == 0
        return float(array[0])

    size = int(sys.argv[2])
    graph = {}
    for x in range(size):
        graph[f"made {x}"] = (make, x)
    for x in range(size):
        # needed by two, from far apart: with two hosts half of them have to travel
        graph[f"sum {x}"] = (add, f"made {x}", f"made {(x + size // 2) % size}")
        graph[f"told {x}"] = (tell, f"sum {x}")
    futures = client.submit_graph(graph, [f"told {x}" for x in range(size)])
    print("sent", flush=True)
    values = [future.result(45) for future in futures]
    assert values == [float(x + (x + size // 2) % size) for x in range(size)], values
    print("right", flush=True)
    """
)


def test_a_way_that_is_cut_between_two_agents_costs_no_result(network):
    middle = network.host("middle")
    one, other = network.host("one"), network.host("other")
    middle.start_scheduler(*QUICK)
    agents = [host.start_agent(middle.url(), 1) for host in (one, other)]
    script = middle.start_script(WAY_CUT, middle.url(), "200")
    script.says("sent")
    # one host may happen to run nearly all of it, and then few bytes travel
    until(lambda: one.sent_bytes() + other.sent_bytes() > 20 * MB or "right" in script.text, "bytes to travel")
    one.cut(other)
    script.says("right")
    assert script.ends(5) == 0
    assert all(agent.process.poll() is None for agent in agents)
    one.mend(other)
    again = middle.start_script(WAY_CUT, middle.url(), "50")
    again.says("right")
    assert again.ends(5) == 0


def test_a_way_that_is_cut_to_the_only_source_ends_with_the_value_from_elsewhere(network):
    middle = network.host("middle")
    one, other = network.host("one"), network.host("other")
    middle.start_scheduler(*QUICK)
    one.start_agent(middle.url(), 1, "--capabilities", "maker,one")
    script = middle.start_script(
        CLIENT
        + """
    maker, user = client.with_options(capabilities="maker"), client.with_options(capabilities="user")
    made = [maker.submit(np.full, 2_500_000, x) for x in range(5)]
    total = [user.submit(np.sum, one) for one in made]
    print("sent", flush=True)
    assert [future.result(45) for future in total] == [2_500_000 * x for x in range(5)]
    print("right", flush=True)
    """,
        middle.url(),
    )
    script.says("sent")
    sent = one.sent_bytes()
    other.start_agent(middle.url(), 1, "--capabilities", "user,other")
    until(lambda: one.sent_bytes() > sent + 5 * MB, "bytes to travel")
    one.cut(other)
    network.host("third").start_agent(middle.url(), 1, "--capabilities", "maker,third")
    script.says("right")
    assert script.ends(5) == 0


def test_what_two_hosts_alone_can_make_that_do_not_reach_each_other_is_put_together_on_a_third(network):
    middle = network.host("middle")
    one, other = network.host("one"), network.host("other")
    middle.start_scheduler(*QUICK)
    for host in (one, other, network.host("third")):
        host.start_agent(middle.url(), 1, "--capabilities", host.name)
    one.cut(other)
    script = middle.start_script(
        CLIENT
        + """
    import os

    def make(number):
        return np.full(500_000, number, dtype=float), os.getppid()

    def add(one, other):
        return one[0][0] + other[0][0], {one[1], other[1]}, os.getppid()

    one, other = client.with_options(capabilities="one"), client.with_options(capabilities="other")
    made = one.submit(make, 1), other.submit(make, 2)
    total, makers, adder = client.submit(add, *made).result(45)
    assert total == 3 and len(makers) == 2 and adder not in makers
    print("right", flush=True)
    """,
        middle.url(),
    )
    script.says("right")
    assert script.ends(5) == 0


def test_a_transfer_whose_way_is_cut_goes_on_from_another_source(network):
    middle = network.host("middle")
    one, other = network.host("one"), network.host("other")
    middle.start_scheduler(*QUICK)
    one.start_agent(middle.url(), 1, "--capabilities", "one")
    other.start_agent(middle.url(), 1, "--capabilities", "other")
    script = middle.start_script(
        CLIENT
        + """
    one, other = client.with_options(capabilities="one"), client.with_options(capabilities="other")
    array = np.arange(16_000_000)  # 128 MB
    sent = client.send_object(array)
    assert one.submit(np.sum, sent).result(20) == array.sum()
    future = other.submit(np.sum, sent)  # from both who have it
    print("sent", flush=True)
    assert future.result(40) == array.sum()
    print("right", flush=True)
    """,
        middle.url(),
    )
    script.says("sent")
    until(lambda: one.sent_bytes() > 10 * MB, "bytes to travel")
    one.cut(other)
    script.says("right")
    assert script.ends(5) == 0


BOTH_WAYS = (
    CLIENT
    + """
    one, other = client.with_options(capabilities="one"), client.with_options(capabilities="other")
    for maker, user in ((one, other), (other, one)):
        made = maker.submit(np.full, 500_000, 3.0)
        assert user.submit(np.sum, made).result(40) == 1_500_000
        assert made.result(40).sum() == 1_500_000
        sent = client.send_object(np.full(500_000, 4.0))
        assert user.submit(np.sum, sent).result(40) == 2_000_000
    print("right", flush=True)
    """
)


def test_an_agent_that_reaches_its_scheduler_by_loopback_serves_other_hosts_if_the_scheduler_does(network):
    middle, other = network.host("middle"), network.host("other")
    middle.start_scheduler(*QUICK)
    middle.start_agent(f"tcp://127.0.0.1:{middle.port}", 1, "--capabilities", "one")
    other.start_agent(middle.url(), 1, "--capabilities", "other")
    for script in (
        middle.start_script(BOTH_WAYS, f"tcp://127.0.0.1:{middle.port}"),
        other.start_script(BOTH_WAYS, middle.url()),
    ):
        script.says("right")
        assert script.ends(5) == 0


def test_hosts_that_share_a_kernel_and_its_boot_but_no_memory_read_each_others_values(network):
    middle, one, other = network.host("middle"), network.host("one"), network.host("other")
    middle.start_scheduler(*QUICK)
    for host in (one, other):
        host.start_agent(middle.url(), 1, "--capabilities", host.name)
    for host in (one, other):
        script = host.start_script(BOTH_WAYS, middle.url())
        script.says("right")
        assert script.ends(5) == 0


def test_an_agent_that_gets_another_address_serves_other_hosts_from_there(network):
    middle, one, other = network.host("middle"), network.host("one"), network.host("other")
    middle.start_scheduler(*QUICK)
    agent = one.start_agent(middle.url(), 1, "--capabilities", "one")
    other.start_agent(middle.url(), 1, "--capabilities", "other")
    script = other.start_script(BOTH_WAYS, middle.url())  # all know where all are
    script.says("right")
    one.move("10.77.0.99")
    agent.says(r"others find the store of this host at tcp://10\.77\.0\.99:")
    script = other.start_script(BOTH_WAYS, middle.url())
    script.says("right")
    assert script.ends(5) == 0
