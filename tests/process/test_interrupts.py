"""One Ctrl-C ends a program, whatever it waits for and whatever its tasks do; nothing is left of it."""

import textwrap

import pytest
from support.terminal import INTERRUPTED
from support.waiting import until

#: seconds that a program may take to be gone: fewer than anything waits for what does not come
SOON = 4.0

FUNCTIONS = """
    import asyncio, ctypes, faulthandler, signal, sys, time
    faulthandler.register(signal.SIGQUIT)  # for who waits for its end in vain

    def sleeps(number=0, path=sys.argv[1]):
        open(path, "w").close()
        time.sleep(60)

    def naps(number=0, path=sys.argv[1]):
        open(path, "w").close()
        time.sleep(1)

    def keeps_to_itself(number=0, path=sys.argv[1]):
        open(path, "w").close()
        ctypes.PyDLL(None).sleep(60)  # with the interpreter's lock

    def says_that_it_waits():
        print("waits", flush=True)
"""

#: what tasks do, and how many there are; none: the program waits for something else
STATES = {
    "idle": None,
    "running": ("sleeps", 2),
    "long queue": ("naps", 2000),
    "in C code": ("keeps_to_itself", 2),
}

#: programs by what they use: how each waits for tasks, and how for something else
PROGRAMS = {
    "Client": (
        """
    import scaler
    with scaler.SchedulerClusterCombo(n_workers=2) as cluster, scaler.Client(cluster.address) as client:
        assert client.submit(pow, 2, 3).result() == 8
        futures = [client.submit({function}, number) for number in range({count})]
        says_that_it_waits(); {wait}  # here
    """,
        "futures[-1].result()",
    ),
    "Client.map": (
        """
    import scaler
    with scaler.SchedulerClusterCombo(n_workers=2) as cluster, scaler.Client(cluster.address) as client:
        assert client.submit(pow, 2, 3).result() == 8
        says_that_it_waits(); {wait}  # here
    """,
        "client.map({function}, range({count}))",
    ),
    "Executor": (
        """
    import scaler
    with scaler.Executor(2) as pool:
        assert pool.submit(pow, 2, 3).result() == 8
        futures = [pool.submit({function}, number) for number in range({count})]
        says_that_it_waits(); {wait}  # here
    """,
        "futures[-1].result()",
    ),
    "Executor.map": (
        """
    import scaler
    with scaler.Executor(2) as pool:
        assert pool.submit(pow, 2, 3).result() == 8
        says_that_it_waits(); {wait}  # here
    """,
        "list(pool.map({function}, range({count})))",
    ),
    "Executor at its end": (
        """
    import scaler
    with scaler.Executor(2) as pool:
        assert pool.submit(pow, 2, 3).result() == 8
        futures = [pool.submit({function}, number) for number in range({count})]
        says_that_it_waits(); pool.shutdown()  # here
    """,
        "",
    ),
    "Executor without with": (
        """
    import scaler
    pool = scaler.Executor(2)
    assert pool.submit(pow, 2, 3).result() == 8
    futures = [pool.submit({function}, number) for number in range({count})]
    says_that_it_waits(); {wait}  # here
    """,
        "futures[-1].result()",
    ),
    "durable Executor": (
        """
    import scaler, tempfile
    with tempfile.TemporaryDirectory() as path, scaler.SchedulerClusterCombo(n_workers=2, journal=path) as cluster:
        with scaler.Executor(address=cluster.address, durable="job") as pool:
            assert pool.submit(pow, 2, 3).result() == 8
            futures = [pool.submit({function}, number) for number in range({count})]
            says_that_it_waits()  # here, if it has not come back from printing
            if futures:
                pool.shutdown()  # here
            {wait}  # here
    """,
        "",
    ),
    "run_in_executor": (
        """
    import scaler
    async def main():
        loop = asyncio.get_running_loop()
        with scaler.Executor(2) as pool:
            assert await loop.run_in_executor(pool, pow, 2, 3) == 8
            futures = [loop.run_in_executor(pool, {function}, number) for number in range({count})]
            says_that_it_waits(); {wait}  # here
    asyncio.run(main())
    """,
        "await asyncio.gather(*futures)",
    ),
    "run_in_executor of an outer Executor": (
        """
    import scaler
    async def main(pool):
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(pool, pow, 2, 3) == 8
        futures = [loop.run_in_executor(pool, {function}, number) for number in range({count})]
        says_that_it_waits(); {wait}  # here
    with scaler.Executor(2) as pool:
        asyncio.run(main(pool))
    """,
        "await asyncio.gather(*futures)",
    ),
    "run_in_executor without with": (
        """
    import scaler
    pool = scaler.Executor(2)
    async def main():
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(pool, pow, 2, 3) == 8
        futures = [loop.run_in_executor(pool, {function}, number) for number in range({count})]
        says_that_it_waits(); {wait}  # here
    asyncio.run(main())
    """,
        "await asyncio.gather(*futures)",
    ),
    "run_until_complete": (
        """
    import scaler
    async def main():
        loop = asyncio.get_running_loop()
        with scaler.Executor(2) as pool:
            assert await loop.run_in_executor(pool, pow, 2, 3) == 8
            futures = [loop.run_in_executor(pool, {function}, number) for number in range({count})]
            says_that_it_waits(); {wait}
    asyncio.new_event_loop().run_until_complete(main())  # here
    """,
        "await asyncio.gather(*futures)",
    ),
    "scaler_get": (
        """
    from scaler_dask import scaler_get
    assert scaler_get({{"a": (pow, 2, 3)}}, "a") == 8
    graph = {{("a", number): ({function}, number) for number in range({count})}}
    says_that_it_waits(); {wait}  # here
    """,
        "scaler_get(graph, list(graph))",
    ),
    "joblib": (
        """
    import joblib, scaler.joblib
    with joblib.parallel_backend("scaler", n_jobs=2):
        assert joblib.Parallel()(joblib.delayed(pow)(number, 2) for number in range(4)) == [0, 1, 4, 9]
        says_that_it_waits(); {wait}  # here
    """,
        "joblib.Parallel()(joblib.delayed({function})(number) for number in range({count}))",
    ),
}


def program_of(user, state):
    text, wait = PROGRAMS[user]
    if STATES[state] is None:
        function, count = "None", 0
        wait = "await asyncio.sleep(60)" if "await" in wait else "time.sleep(60)"
    else:
        function, count = STATES[state]
        wait = wait.format(function=function, count=count)
    return textwrap.dedent(FUNCTIONS) + textwrap.dedent(text.format(function=function, count=count, wait=wait))


def check_end(terminal, traces):
    """It ends as an interrupted program does, with the line that was interrupted, and nothing is left."""
    code = terminal.ends(SOON)
    said = terminal.text.partition("^C")[2].partition("ended with")[0].rstrip()
    assert code == INTERRUPTED, said
    assert said.lstrip().startswith("Traceback (most recent call last):"), said
    assert said.endswith("KeyboardInterrupt"), said
    assert "# here" in said, said
    assert "ignored in" not in said, said
    check_nothing_is_left(terminal, traces)


def check_nothing_is_left(terminal, traces):
    """No process but the shell, and no file."""
    until(lambda: [process.pid for process in traces.marked()] == [terminal.shell.pid], "its processes to end", SOON)
    assert not list(terminal.temporary.iterdir())


def _meetings():
    """Each program in each state. Always with tasks that run, and with one of the other states by turns; all: heavy."""
    others = [state for state in STATES if state != "running"]
    for number, user in enumerate(PROGRAMS):
        for state in STATES:
            if (user, state) == ("Executor at its end", "idle"):
                continue  # it waits for nothing
            is_quick = state in ("running", others[number % len(others)])
            yield pytest.param(user, state, marks=() if is_quick else pytest.mark.heavy)


@pytest.mark.parametrize(("user", "state"), list(_meetings()))
def test_one_ctrl_c_ends_a_program(terminals, traces, tmp_path, user, state):
    began = tmp_path / "began"
    terminal = terminals.run(program_of(user, state), str(began))
    terminal.says("waits\n")
    if STATES[state] is not None:
        until(began.exists, "a task to begin")
    terminal.rests()
    terminal.press_ctrl_c()
    check_end(terminal, traces)


#: Ctrl-C is heard of by another thread, as the kernel may have it, or when the main one is just going to sleep
HEARD_ELSEWHERE = """
    import os, signal, threading, time

    def hear():
        while not os.path.exists(sys.argv[1] + ".pressed"):
            time.sleep(0.01)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    threading.Thread(target=hear, daemon=True).start()
"""


@pytest.mark.parametrize(
    ("user", "state"), [*((user, "running") for user in PROGRAMS), ("run_in_executor", "idle")], ids=str
)
def test_ctrl_c_that_does_not_wake_the_main_thread_ends_a_program(terminals, traces, tmp_path, user, state):
    began, pressed = tmp_path / "began", tmp_path / "began.pressed"
    terminal = terminals.run(textwrap.dedent(FUNCTIONS + HEARD_ELSEWHERE) + program_of(user, state), str(began))
    terminal.says("waits\n")
    if STATES[state] is not None:
        until(began.exists, "a task to begin")
    pressed.touch()
    assert terminal.ends(SOON) == INTERRUPTED
    check_nothing_is_left(terminal, traces)


@pytest.mark.parametrize("user", ["asyncio.run", "run_until_complete"])
def test_ctrl_c_that_leaves_an_event_loop_ends_a_program(terminals, traces, tmp_path, user):
    """Not the main task is cancelled, as by one Ctrl-C under `asyncio.run`, but all that is left, and later."""
    terminal = terminals.run(
        FUNCTIONS
        + """
    import os, signal
    import scaler

    async def main():
        loop = asyncio.get_running_loop()
        with scaler.Executor(2) as pool:
            futures = [loop.run_in_executor(pool, sleeps, number) for number in range(300)]
            presses = asyncio.create_task(press(loop))
            await asyncio.gather(*futures)

    async def press(loop):
        while not os.path.exists(sys.argv[1]):
            await asyncio.sleep(0.01)
        loop.call_soon(press_twice)

    def press_twice():
        says_that_it_waits()
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    """
        + {
            "asyncio.run": """
    asyncio.run(main())
    """,
            "run_until_complete": """
    loop = asyncio.new_event_loop()
    task = loop.create_task(main())
    try:
        loop.run_until_complete(task)
    finally:
        task.cancel()
        loop.run_until_complete(asyncio.wait([task]))
    """,
        }[user],
        str(tmp_path / "began"),
    )
    terminal.says("waits\n")
    assert terminal.ends(SOON) == INTERRUPTED
    check_nothing_is_left(terminal, traces)


def test_ctrl_c_ends_a_program_whose_durable_job_has_no_scheduler_any_more(terminals, traces, tmp_path):
    terminal = terminals.run(
        FUNCTIONS
        + """
    import os, signal, scaler, tempfile
    with tempfile.TemporaryDirectory() as path, scaler.SchedulerClusterCombo(n_workers=2, journal=path) as cluster:
        with scaler.Executor(address=cluster.address, durable="job") as pool:
            assert pool.submit(pow, 2, 3).result() == 8
            os.kill(cluster.pid, signal.SIGKILL)
            futures = [pool.submit(sleeps, number) for number in range(2000)]
            says_that_it_waits(); futures[-1].result()  # here
    """,
        str(tmp_path / "began"),
    )
    terminal.says("waits\n")
    terminal.press_ctrl_c()
    check_end(terminal, traces)


#: calls that block a coroutine, which hears of nothing meanwhile
BLOCKING = [
    "client.submit(sleeps).result()", "client.map(sleeps, range(4))", "client.get({'a': (sleeps, 1)}, ['a'])",
    "concurrent.futures.wait([pool.submit(sleeps) for number in range(4)])", "list(pool.map(sleeps, range(4)))",
    "pool.submit(sleeps); pool.shutdown()",
]  # fmt: skip


@pytest.mark.parametrize("call", BLOCKING)
def test_one_ctrl_c_ends_a_program_whose_coroutine_blocks(terminals, traces, tmp_path, call):
    terminal = terminals.run(
        FUNCTIONS
        + f"""
    import concurrent.futures, scaler

    async def main():
        with scaler.Executor(2) as pool, scaler.Client(pool.client.address) as client:
            {call}  # here

    asyncio.run(main())
    """,
        str(tmp_path / "began"),
    )
    until((tmp_path / "began").exists, "a task to begin")
    terminal.press_ctrl_c()
    check_end(terminal, traces)


#: what Python prints when it has lost an interrupt, as one that came in the callback that forgets a module's lock
LOST_BY_PYTHON = "ignored in: <function _get_module_lock"


def test_ctrl_c_while_a_cluster_starts_is_the_programs_alone(terminals, traces):
    for _ in range(3):
        terminal = terminals.run(
            """
            import scaler
            print("starts", flush=True); cluster = scaler.SchedulerClusterCombo(n_workers=2)  # here
            """
        )
        terminal.says("starts\n")
        terminal.press_ctrl_c()
        terminal.ends(SOON)
        if LOST_BY_PYTHON not in terminal.text:
            break
        terminals.close()
    check_end(terminal, traces)


def test_ctrl_c_that_is_caught_outside_of_an_executor_has_ended_it(terminals, traces, tmp_path):
    terminal = terminals.run(
        FUNCTIONS
        + """
    import scaler
    try:
        with scaler.Executor(2) as pool:
            futures = [pool.submit(sleeps, number) for number in range(10)]
            says_that_it_waits(); time.sleep(60)
    except KeyboardInterrupt:
        print("caught", all(future.cancelled() for future in futures))
    """,
        str(tmp_path / "began"),
    )
    terminal.says("waits\n")
    until((tmp_path / "began").exists, "a task to begin")
    terminal.rests()
    terminal.press_ctrl_c()
    assert terminal.ends(SOON) == 0
    assert "caught True\n" in terminal.text


def test_an_error_that_is_no_interrupt_waits_for_what_is_under_way(terminals, tmp_path):
    terminal = terminals.run(
        """
        import pathlib, sys, time
        import scaler

        def ends(path=sys.argv[1]):
            until = time.monotonic() + 20
            while not pathlib.Path(path).exists() and time.monotonic() < until:
                time.sleep(0.01)
            return 1

        try:
            with scaler.Executor(1) as pool:
                future = pool.submit(ends)
                print("waits", flush=True)
                raise ValueError
        except ValueError:
            print("value", future.result())
        """,
        str(tmp_path / "go"),
    )
    terminal.says("waits\n")
    (tmp_path / "go").touch()
    assert terminal.ends(20) == 0
    assert "value 1\n" in terminal.text
