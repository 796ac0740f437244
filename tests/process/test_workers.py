import contextlib
import errno
import itertools
import os
import pickle
import resource
import select
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from support import no_descriptor_stays, until

from scaler.agent.worker_processes import Exited, Started, WorkerOptions, WorkerProcess, Zygote
from scaler.common.exits import describe_exit
from scaler.protocol.messages import ERROR, GRAPH, KEEP, LIVE, PROFILE, SIZE, STREAM, TOGETHER, VALUES_LIST
from scaler.serialize import payload
from scaler.serialize.call import encode_entries, encode_function
from scaler.serialize.outofband import unpack
from scaler.serialize.record import decode_error
from scaler.store.segments import open_object
from scaler.store.spill import SPILL_PREFIX
from scaler.worker import worker_process
from scaler.worker_protocol import messages as wm

DEADLINE = 20.0
CLIENT, BATCH = 3, 100


class Host:
    """An agent with nothing but workers."""

    def __init__(self, slots: int = 2, options: WorkerOptions | None = None) -> None:
        self.zygote = Zygote.start(slots, options)
        self.workers: dict[int, WorkerProcess] = {}
        self.reports: list[Started | Exited] = []
        self.messages: dict[int, list[wm.FromWorker]] = {}
        self._keys = 0
        #: what workers are told before anything else
        self.surroundings: dict[str, Any] = {}

    def fork(self, slot: int = 0) -> WorkerProcess:
        """Start a worker and wait until it is ready."""
        worker = self.begin(slot)
        self.until(lambda: any(isinstance(message, wm.Ready) for message in self.messages[slot]))
        return worker

    def begin(self, slot: int) -> WorkerProcess:
        worker = self.workers[slot] = self.zygote.fork_worker(slot)
        worker.send(wm.Surroundings(self.surroundings))
        self.messages[slot] = []
        return worker

    def until(self, condition: Callable[[], Any]) -> Any:
        """Take in what comes until the condition holds; fail at the deadline."""
        deadline = time.monotonic() + DEADLINE
        while not (value := condition()):
            poll = select.poll()
            if not self.zygote.ended:
                poll.register(self.zygote, select.POLLIN)
            for worker in self.workers.values():
                if not worker.ended:
                    poll.register(worker, select.POLLIN)
                for descriptor in worker.want_write():
                    poll.register(descriptor, select.POLLIN | select.POLLOUT)
            left = deadline - time.monotonic()
            assert left > 0, (self.reports, self.messages)
            poll.poll(50)  # what is waited for may come without a message
            self.reports += self.zygote.receive()
            for slot, worker in self.workers.items():
                worker.flush()
                self.messages[slot] += worker.receive()
        return value

    def hand_out(
        self, function: Any, items: list[tuple[Any, ...]], slot: int = 0, flags: int = 0, number: int = 1
    ) -> None:
        """Give rows that share a list of arguments."""
        self._keys += 2
        function_key, arguments_key = (CLIENT, self._keys), (CLIENT, self._keys + 1)
        objects = [(function_key, encode_function(function)), (arguments_key, payload.dumps(items))]
        self.workers[slot].send(
            wm.Run(number, CLIENT, BATCH, 0, len(items), TOGETHER, function_key, arguments_key, flags, 0, "f",
                   None, None, None, objects, [], None)
        )  # fmt: skip

    def results(self, slot: int = 0) -> list[Any]:
        """Return the values and errors that have come, in the order of rows."""
        rows: dict[int, Any] = {}
        for message in self.messages[slot]:
            for ended in message.ended if isinstance(message, wm.Results) else []:
                lo, hi, outcome, ends, body = ended.lo, ended.hi, ended.outcome, ended.sizes, ended.body
                if outcome == VALUES_LIST:
                    rows.update(zip(range(lo, hi), pickle.loads(body), strict=True))
                elif outcome == ERROR:
                    rows[lo] = decode_error(body, "a task")
                else:
                    for row, size in zip(range(lo, hi), ends, strict=True):
                        rows[row], body = pickle.loads(body[:size]), body[size:]
        return [rows[row] for row in sorted(rows)]

    def call(self, function: Any, *args: Any, slot: int = 0, flags: int = 0) -> Any:
        """Run one row and return its value, or its exception."""
        self.messages[slot].clear()
        self.hand_out(function, [args], slot, flags)
        return self.until(lambda: self.results(slot))[0]

    def exit_of(self, slot: int = 0) -> Exited:
        """Wait for the exit of a worker."""

        def exits() -> list[Exited]:
            return [report for report in self.reports if isinstance(report, Exited) and report.slot == slot]

        return self.until(exits)[-1]


def stop(*pids: int) -> None:
    """Stop processes, and wait until they are."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
        until(lambda pid=pid: psutil.Process(pid).status() == psutil.STATUS_STOPPED)


def expect_gone(*pids: int) -> None:
    """As `wait_gone`, and none lives on if they are not."""
    try:
        wait_gone(*pids)
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def start() -> Iterator[Callable[..., Host]]:
    hosts: list[Host] = []

    def make(*args: Any, **kwargs: Any) -> Host:
        hosts.append(Host(*args, **kwargs))
        return hosts[-1]

    yield make
    left = []
    for host in hosts:
        host.zygote.close()
        for worker in host.workers.values():
            worker.close()
        pids = [host.zygote.pid, *(report.pid for report in host.reports if isinstance(report, Started))]
        left += [pid for pid in pids if alive(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    assert not left


@pytest.fixture
def host(start: Callable[..., Host]) -> Host:
    host = start()
    host.fork(0)
    return host


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_gone(*pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            try:
                assert select.select([descriptor], [], [], DEADLINE)[0] or not alive(pid), f"{pid} lives"
            finally:
                os.close(descriptor)


def test_rows_run_and_their_results_come_back(host: Host) -> None:
    host.hand_out(lambda x: x * x, [(i,) for i in range(1000)])
    host.until(lambda: len(host.results()) == 1000)
    assert host.results() == [i * i for i in range(1000)]


def test_large_arguments_and_results_pass(host: Host) -> None:
    data = os.urandom(20_000_000)
    assert host.call(lambda x: x[::-1], data) == data[::-1]


def test_a_worker_is_like_a_script(host: Host) -> None:
    def look() -> dict[str, Any]:
        import asyncio
        import multiprocessing
        import signal
        import threading

        async def answer() -> int:
            await asyncio.sleep(0)
            return 42

        return {
            "main thread": threading.current_thread() is threading.main_thread(),
            "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
            "others": {signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)}
            == {signal.SIG_DFL},
            "wakeup": signal.set_wakeup_fd(-1),
            "asyncio": asyncio.run(answer()),
            "name": multiprocessing.current_process().name,
            "parent": multiprocessing.parent_process(),
            "daemon": multiprocessing.current_process().daemon,
            "stdin": sys.stdin.read(),
            "file": hasattr(sys.modules["__main__"], "__file__"),
        }

    assert host.call(look) == {
        "main thread": True,
        "interrupt": True,
        "others": True,
        "wakeup": -1,
        "asyncio": 42,
        "name": "ScalerWorker-0",
        "parent": None,
        "daemon": False,
        "stdin": "",
        "file": False,
    }


def test_a_signal_handler_set_by_a_task_is_called(host: Host) -> None:
    def alarm() -> str:
        def on_alarm(*_: Any) -> None:
            raise TimeoutError("rang")

        signal.signal(signal.SIGALRM, on_alarm)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        try:
            while True:
                signal.pause()
        except TimeoutError as error:
            return str(error)

    assert host.call(alarm) == "rang"


def test_tasks_may_use_processes_of_their_own(host: Host) -> None:
    def use() -> list[Any]:
        import concurrent.futures
        import multiprocessing
        import subprocess

        with multiprocessing.get_context("fork").Pool(2) as pool:
            forked = pool.map(abs, [-1, -2])
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as executor:
            spawned = executor.submit(abs, -3).result()
        return [forked, spawned, subprocess.run([sys.executable, "-c", "print(4)"], capture_output=True).stdout]

    assert host.call(use) == [[1, 2], 3, b"4\n"]
    assert host.call(abs, -5) == 5


def test_a_process_forked_by_a_task_cannot_disturb_its_worker(host: Host) -> None:
    def fork() -> int:
        pid = os.fork()
        if pid == 0:
            print("from the child")
            return 1  # goes on as if it was the worker
        return os.waitpid(pid, 0)[0] and 2

    assert host.call(fork) == 2
    assert host.call(abs, -1) == 1


@pytest.mark.parametrize(
    ("end", "status", "told"),
    [
        ("return 1", 0, ""),
        ("return 'x' * 3_000_000", 0, ""),
        ("return [1] * 1_000_000", 0, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('no luck')", 1, "no luck\n"),
        ("[][0]", 1, "IndexError: list index out of range\n"),
        ("raise ValueError('no luck')", 1, "ValueError: no luck\n"),
    ],
)
@pytest.mark.parametrize("flags", [0, KEEP, PROFILE])
def test_a_process_forked_by_a_task_ends_as_a_program_does(
    host: Host, end: str, status: int, told: str, flags: int
) -> None:
    script = f"""
def fork(number):
    if number != 1:
        return number
    import os, sys
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(writing, 1), os.dup2(writing, 2), os.close(writing)
        print("here")
        {end}
    os.close(writing)
    with open(reading) as file:
        said = file.read()
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said]
"""
    names: dict[str, Any] = {}
    exec(script, names)
    host.hand_out(names["fork"], [(0,), (1,), (2,)], flags=flags)
    first, (ended, said), last = host.until(lambda: len(found := host.results()) == 3 and found)
    assert (first, ended, last) == (0, status, 2)
    assert said.startswith("here\n")
    assert said.endswith(told)
    assert "scaler" not in said
    assert said.count("Traceback") == told.count("Error")


def test_workers_differ_in_their_random_numbers(start: Callable[..., Host]) -> None:
    def draw() -> float:
        import random

        return random.random()

    host = start()
    host.fork(0)
    host.fork(1)
    assert host.call(draw, slot=0) != host.call(draw, slot=1)


def test_a_worker_has_no_files_but_its_own(host: Host) -> None:
    def files() -> list[str]:
        links = []
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):  # that of the listing itself
                links.append((int(name), os.readlink(f"/proc/self/fd/{name}")))
        return [link for _, link in sorted(links)]

    found = host.call(files)
    standard, others = found[:3], found[3:]
    for copied in standard:  # it has a copy of each, to put them back
        others.remove(copied)
    kinds = [link.partition(":")[0] for link in others]
    if "uvloop" in sys.modules:  # libuv, once used in a process, opens a pipe in all that are forked of it
        kinds = [kind for kind in kinds if kind != "pipe"]
    assert kinds == ["socket", "socket"]


def test_options_bring_the_path_directory_and_environment_of_the_program(
    start: Callable[..., Host], tmp_path: Path
) -> None:
    (tmp_path / "only_here.py").write_text("def answer():\n    return 42\n")
    environ = {**os.environ, "ONLY_HERE": "yes"}
    host = start(options=WorkerOptions([str(tmp_path), *sys.path], str(tmp_path), environ))
    host.fork(0)

    def look() -> tuple[Any, ...]:
        import only_here  # type: ignore[import-not-found]

        return only_here.answer(), os.getcwd(), os.environ["ONLY_HERE"]

    assert host.call(look) == (42, str(tmp_path), "yes")
    assert "ONLY_HERE" not in os.environ


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (lambda: os._exit(3), "ended with exit code 3"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "was killed by SIGSEGV"),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), "was killed by SIGTERM"),
    ],
)
def test_the_death_of_a_worker_is_reported_with_the_row_it_ran(host: Host, way: Callable[[], Any], words: str) -> None:
    def die(row: int) -> None:
        if row == 2:
            way()

    host.hand_out(die, [(row,) for row in range(5)], number=17)
    exited = host.exit_of(0)
    assert describe_exit(exited.status) == words
    assert host.zygote.progress(0) == (17, 2)
    assert 0 < host.zygote.begun(0) <= time.monotonic_ns()
    host.workers[0].close()
    host.fork(0)
    assert host.zygote.progress(0) == (0, -1)
    assert host.call(abs, -1) == 1


def test_killing_a_worker_kills_what_its_task_has_started(host: Host) -> None:
    def start_and_hang() -> None:
        child = subprocess.Popen(["sleep", "1000"])
        print(child.pid, flush=True)
        child.wait()

    host.hand_out(start_and_hang, [()], flags=STREAM)
    output = host.until(lambda: [message for message in host.messages[0] if isinstance(message, wm.Output)])
    child = int(output[0].text)
    host.workers[0].kill()
    assert describe_exit(host.exit_of(0).status) == "was killed by SIGKILL"
    wait_gone(child)


def test_a_worker_that_a_task_has_put_into_another_group_can_be_killed(host: Host) -> None:
    def leave_the_group() -> None:
        import time

        os.setpgid(0, os.getppid())
        time.sleep(1000)

    pid = host.until(lambda: host.workers[0].pid)
    host.hand_out(leave_the_group, [()])
    host.until(lambda: os.getpgid(pid) != pid)
    host.workers[0].kill()
    assert host.exit_of(0).status == signal.SIGKILL
    assert not host.zygote.ended


def test_rows_come_back_while_user_code_runs(host: Host, tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")
    os.mkfifo(gate)

    def hold(x: int) -> int:
        if x == 2:
            print("holding")
            with open(gate) as file:
                file.read()
        return x

    host.hand_out(hold, [(x,) for x in range(6)], number=4, flags=STREAM)
    host.until(lambda: [message for message in host.messages[0] if isinstance(message, wm.Output)])
    host.hand_out(hold, [(x,) for x in range(3)], number=5)
    host.workers[0].control(wm.Recall(77, 2))
    (returned,) = host.until(lambda: [message for message in host.messages[0] if isinstance(message, wm.Returned)])
    assert returned == wm.Returned(
        77, [wm.ReturnedSpan(5, CLIENT, BATCH, 0, 3), wm.ReturnedSpan(4, CLIENT, BATCH, 4, 6)], (4, 2)
    )
    assert host.results() == [0, 1]
    Path(gate).write_text("go on")
    host.until(lambda: len(host.results()) == 4)
    assert host.results() == [0, 1, 2, 3]


def test_values_are_published_and_dropped_while_user_code_runs(host: Host, tmp_path: Path) -> None:
    """The first row's value stays; the second row runs until it is told that its work is done."""
    go_on = tmp_path / "go on"

    def make() -> Any:
        return bytearray(160 << 20)  # more than malloc keeps for the next ones

    def spin() -> int:
        turns = 0
        while not go_on.exists():
            turns += 1
        return turns

    worker, key = host.workers[0], (CLIENT, BATCH)
    worker.send(wm.Surroundings({"store": str(tmp_path), "live": 1 << 30}))
    entries = (CLIENT, 1), encode_entries([("make", make), ("spin", spin)])
    worker.send(
        wm.Run(
            1, CLIENT, BATCH, 0, 2, GRAPH, entries[0], None, KEEP, 0, "f", None, None, [[], []], [entries], [], b"\0\1"
        )
    )

    def told(kind: type[wm.FromWorker]) -> list[Any]:
        return [message for message in host.messages[0] if type(message) is kind]

    host.until(lambda: host.zygote.progress(0) == (1, 1))
    worker.control(wm.Recall(1, 0))  # has finished rows reported
    host.until(lambda: told(wm.Results))
    (live,) = told(wm.Results)[0].ended
    assert live[3:6] == (0, 1, LIVE)
    process = psutil.Process(worker.pid)
    before = process.memory_info().rss
    worker.control(wm.Publish([key]))
    host.until(lambda: told(wm.Published))
    assert told(wm.Published) == [wm.Published([wm.PublishedValue(key, SIZE.unpack(live.body)[0], None)])]
    written = open_object(str(tmp_path), key)
    assert unpack(written.inband, written.buffers) == make()
    worker.control(wm.Drop([key]))
    until(lambda: before - process.memory_info().rss > 150 << 20)
    assert len(told(wm.Results)) == 1
    go_on.touch()
    host.until(lambda: len(told(wm.Results)) == 2)


def test_output_is_streamed_by_lines_and_names_its_task(host: Host) -> None:
    def speak(x: int) -> None:
        print("row", x, end="" if x else "\n")
        if x:
            sys.stderr.buffer.write(b"raw \xe2\x82\xac")

    host.hand_out(speak, [(0,), (1,)], flags=STREAM)
    host.until(lambda: len(host.results()) == 2)
    output = [message for message in host.messages[0] if isinstance(message, wm.Output)]
    assert sorted(output) == [
        wm.Output(CLIENT, BATCH, 1, "f", "row 0\n"),
        wm.Output(CLIENT, BATCH + 1, 1, "f", "row 1"),
        wm.Output(CLIENT, BATCH + 1, 2, "f", "raw €"),
    ]
    kinds = [type(message) for message in host.messages[0]]
    assert kinds.index(wm.Results) > kinds.index(wm.Output)


def test_output_that_nobody_streams_goes_to_the_agents_own(
    start: Callable[..., Host], capfd: pytest.CaptureFixture[str]
) -> None:
    host = start()
    host.fork(0)
    assert host.call(lambda: (print("hello"), sys.stdout.fileno(), sys.stdout.isatty())[1:]) == (1, False)
    assert host.call(lambda: os.system("echo there")) == 0
    assert capfd.readouterr().out == "hello\nthere\n"


def test_quit_ends_the_worker_after_its_rows_and_atexit(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "mark"

    def register() -> None:
        import atexit

        atexit.register(path.touch)

    host.hand_out(register, [()])
    host.workers[0].send(wm.Quit())
    assert host.exit_of(0).status == 0
    assert host.results() == [None]
    assert path.exists()


@pytest.mark.parametrize(("may_start_threads", "status"), [(True, 0), (False, signal.SIGALRM)])
def test_a_worker_that_is_to_quit_does_not_wait_for_ever_for_threads_of_its_tasks(
    start: Callable[..., Host], monkeypatch: pytest.MonkeyPatch, may_start_threads: bool, status: int
) -> None:
    monkeypatch.setattr(worker_process, "END_SECONDS", 0.1)
    host = start()
    host.fork(0)

    def leave_a_thread() -> None:
        import threading

        threading.Thread(target=threading.Event().wait, name="left").start()
        if not may_start_threads:
            threading.excepthook = None  # type: ignore[assignment]

    host.hand_out(leave_a_thread, [()])
    host.workers[0].send(wm.Quit())
    assert host.exit_of(0).status == status
    assert host.results() == [None]


def test_an_agent_may_start_more_workers_than_commands_and_reports_fit_into_the_sockets(
    start: Callable[..., Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads no reports while it starts them."""

    def narrow_pair(*, make: Callable[[], tuple[socket.socket, socket.socket]] = socket.socketpair) -> Any:
        pair = make()
        for each in pair:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the least there is: a few messages
        return pair

    workers = 24
    monkeypatch.setattr(socket, "socketpair", narrow_pair)
    host = start(workers)
    monkeypatch.undo()
    thread = threading.Thread(target=lambda: [host.begin(slot) for slot in range(workers)], daemon=True)
    thread.start()
    thread.join(DEADLINE)
    assert not thread.is_alive(), f"{len(host.workers)} of {workers} were asked for"
    host.until(lambda: sum(isinstance(report, Started) for report in host.reports) == workers)


def test_a_death_is_noticed_where_the_program_has_blocked_the_signal_for_that(start: Callable[..., Host]) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    try:
        host = start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    host.fork(0)
    host.hand_out(os._exit, [(3,)])
    assert os.waitstatus_to_exitcode(host.exit_of(0).status) == 3


def test_a_slot_whose_sockets_could_not_be_sent_is_free(
    start: Callable[..., Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: Any) -> None:
        raise OSError(errno.ETOOMANYREFS, "too many on their way")

    host = start()
    with no_descriptor_stays(), monkeypatch.context() as patch:
        patch.setattr(socket, "send_fds", refuse)
        with pytest.raises(OSError, match="too many"):
            host.begin(0)
    host.fork(0)
    assert host.call(abs, -3) == 3


def test_a_worker_that_the_zygote_has_no_descriptors_for_ends_alone(host: Host) -> None:
    open_there = {int(name) for name in os.listdir(f"/proc/{host.zygote.pid}/fd")}
    first_free = next(number for number in itertools.count() if number not in open_there)
    limits = resource.prlimit(host.zygote.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(host.zygote.pid, resource.RLIMIT_NOFILE, (first_free, limits[1]))
    host.begin(1)
    assert host.exit_of(1).pid == 0
    host.workers.pop(1).close()
    resource.prlimit(host.zygote.pid, resource.RLIMIT_NOFILE, limits)
    host.fork(1)
    assert host.call(abs, -3) == 3, "the other one goes on"


def test_a_slot_in_use_is_refused(host: Host) -> None:
    with pytest.raises(ValueError, match="slot 0"):
        host.zygote.fork_worker(0)
    with pytest.raises(ValueError, match="slot 2"):
        host.zygote.fork_worker(2)


def test_when_the_zygote_is_killed_its_workers_are_gone(host: Host) -> None:
    pid = host.until(lambda: host.workers[0].pid)
    assert pid is not None
    os.kill(host.zygote.pid, signal.SIGKILL)
    assert host.exit_of(0).status == signal.SIGKILL
    assert host.zygote.ended
    wait_gone(pid)
    with pytest.raises(ConnectionError):
        host.zygote.fork_worker(1)


def test_an_interrupt_from_the_terminal_reaches_neither_zygote_nor_workers(host: Host) -> None:
    pid = host.until(lambda: host.workers[0].pid)
    assert pid is not None
    groups = {os.getpgid(0), os.getpgid(host.zygote.pid), os.getpgid(pid)}
    assert len(groups) == 3
    assert os.getsid(host.zygote.pid) == host.zygote.pid


AGENT = """
    import os, sys
    from scaler.agent.worker_processes import Zygote
    from scaler.serialize.call import encode_function
    from scaler.serialize import payload
    from scaler.worker_protocol.messages import Run, Surroundings

    def flood():
        while True:
            print("x" * 100_000)

    zygote = Zygote.start(2)
    workers = [zygote.fork_worker(slot) for slot in range(2)]
    for worker in workers:
        worker.send(Surroundings({}))
    while None in [worker.pid for worker in workers]:
        zygote.receive()
    objects = [((1, 1), encode_function(flood)), ((1, 2), payload.dumps([()]))]
    workers[1].send(Run(1, 1, 1, 0, 1, 1, (1, 1), (1, 2), 2, 0, "flood", None, None, None, objects, [], None))
    while zygote.progress(1) != (1, 0):
        pass
    print(zygote.pid, *[worker.pid for worker in workers], flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("stopped", [0, 1, 3], ids=["running", "with-a-zygote-that-is-stopped", "all-stopped"])
def test_when_the_agent_is_killed_everything_below_it_is_gone(stopped: int) -> None:
    """One worker is idle, the other blocked in sending what the agent does not read."""
    command = [sys.executable, "-c", textwrap.dedent(AGENT)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        try:
            assert agent.stdout is not None
            pids = [int(pid) for pid in agent.stdout.readline().split()]
            assert len(pids) == 3
            stop(*pids[:stopped])
        finally:
            agent.kill()
    expect_gone(*pids)


def test_what_an_agent_that_was_killed_has_moved_to_disk_is_removed(start: Callable[..., Host], tmp_path: Path) -> None:
    """Its lock ended with it."""
    left = tmp_path / f"{SPILL_PREFIX}-{os.geteuid()}-1-abc"
    left.mkdir()
    (left / "owner").touch()
    (left / "1-a").touch()
    host = start(options=WorkerOptions(spill_directory=str(tmp_path)))
    host.zygote.close()
    assert list(tmp_path.iterdir()) == []


def test_a_worker_whose_agent_has_closed_its_sockets_ends(host: Host) -> None:
    pid = host.until(lambda: host.workers[0].pid)
    host.workers.pop(0).close()
    wait_gone(pid)
    host.messages.clear()
    assert host.exit_of(0).status == 0


def test_messages_larger_than_the_socket_buffers_pass_in_both_directions() -> None:
    from scaler.worker_protocol.encoding import read_by_worker
    from scaler.worker_protocol.socketpair import QueuingSender, Receiver

    ours, its = socket.socketpair()
    with ours, its:
        sender, receiver = QueuingSender(ours), Receiver(its, read_by_worker)
        sizes = (0, 3_000_000, 1, 300_000)
        sent = [wm.Surroundings({"value": bytes(size)}) for size in sizes]
        for message in sent:
            sender.send(message, more=message is not sent[-1])
        received = []
        while len(received) < len(sent):
            sender.flush()
            received += receiver.read()
        assert received == sent
        assert not sender.waiting
        ours.close()
        with pytest.raises(EOFError):
            receiver.read()
