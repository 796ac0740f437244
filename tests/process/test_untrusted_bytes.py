"""No bytes of a peer reach an unpickler in a scheduler or an agent, whoever makes them."""

import os
import pickle
import signal
import textwrap

import pytest
from support import until

from scaler import WorkerLost

#: small, so that the tests need not wait
QUICK = ("--heartbeat-interval", "0.2", "--agent-timeout", "1", "--client-timeout", "2")

#: runs in every process of Python that starts: notes what is unpickled or unmarshalled there, but for code of modules
HOOK = """
    import os, sys

    def note(event, arguments):
        if event in ("pickle.find_class", "marshal.loads", "marshal.load"):
            caller = sys._getframe(1).f_code.co_filename
            if not caller.startswith("<frozen importlib"):
                with open(os.environ["UNPICKLED"], "a") as file:
                    file.write(f"{os.getpid()} {event} {caller}\\n")

    sys.addaudithook(note)
"""


@pytest.fixture
def unpickled(tmp_path, monkeypatch):
    """Which processes have unpickled or unmarshalled anything so far, by the programs that are started from now on."""
    log = tmp_path / "unpickled"
    log.touch()
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(textwrap.dedent(HOOK))
    monkeypatch.syspath_prepend(str(tmp_path / "hook"))
    monkeypatch.setenv("UNPICKLED", str(log))
    return lambda: {int(line.split()[0]): line for line in log.read_text().splitlines()}


class Evil:
    """Unpickled, it leaves the process id of whoever did that."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return exec, (f"import os; open({self.path!r}, 'a').write(str(os.getpid()) + '\\n')",)


def poison_the_ledger(payload):
    """In a worker: from now on it answers with these bytes instead of values, as a list even where none is wanted."""
    from array import array

    from scaler.protocol.codes import VALUES_LIST
    from scaler.worker.ledger import Ledger

    add = Ledger._add

    def add_chosen(self, lo, hi, outcome, now, used, sizes, body):
        add(self, lo, hi, VALUES_LIST, now, used, array("I", [len(payload)]), payload)

    Ledger._add = add_chosen


def test_what_users_do_is_unpickled_by_workers_and_clients_alone(daemons, unpickled):
    def outer(x):
        from scaler import Client

        with Client() as inner:
            return inner.submit(abs, -x).result()

    def fail(x):
        raise ValueError({"why": x})

    scheduler, agents = daemons.start_scheduler(), [daemons.start_agent(1), daemons.start_agent(1)]
    client = daemons.client()
    large = client.submit(bytes, 5_000_000)
    assert client.submit(len, large).result(20) == 5_000_000
    assert client.map(lambda x: {x: [x]}, range(50), timeout=20)[7] == {7: [7]}
    assert client.submit(outer, 3).result(20) == 3
    with pytest.raises(ValueError, match="why"):
        client.submit(fail, 1).result(20)
    graph = {"a": 2, "b": (lambda x: [x] * 3, "a"), "c": (sum, "b")}
    assert client.get(graph, ["c"]) == {"c": 6}
    seen = unpickled()
    assert seen, "workers unpickle what they run"
    for process in (scheduler, *agents):
        assert process.pid not in seen, seen[process.pid]


def test_chosen_bytes_for_a_row_that_runs_again_harm_nobody_but_who_reads_them(daemons, unpickled, tmp_path):
    marker, begun = tmp_path / "marker", tmp_path / "begun"
    marker.touch()
    payload = pickle.dumps([Evil(str(marker))], 5)

    def make():
        if not begun.exists():
            begun.touch()
            return b"x" * 5_000_000  # stored on a host that dies
        poison_the_ledger(payload)
        return 1

    scheduler = daemons.start_scheduler(*QUICK)
    first = daemons.start_agent(1)
    client = daemons.client()
    lost = client.submit(make)
    until(lost.done)
    second = daemons.start_agent(1)
    until(lambda: client.n_workers == 2)
    first.signal(signal.SIGKILL)
    until(lambda: client.n_workers == 1)
    with pytest.raises(WorkerLost, match="answers with a list where each value is to stand by itself"):
        client.submit(len, lost).result(40)
    assert client.with_options(fresh_worker=True).submit(abs, -7).result(20) == 7
    assert second.text.count("connected to the scheduler") == 1  # who wrote them was ended, its agent went on
    unpicklers = {int(line) for line in marker.read_text().split()}
    assert not unpicklers & {scheduler.pid, first.pid, second.pid, os.getpid()}
    for process in (scheduler, first, second):
        assert process.pid not in unpickled(), unpickled()[process.pid]
    assert scheduler.process.poll() is None
