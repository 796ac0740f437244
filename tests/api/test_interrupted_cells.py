"""A notebook's kernel is interrupted: what the cell has waited for is taken back, and the next cell is run at once."""

import pytest

#: what an interactive shell does: it shows KeyboardInterrupt, keeps its traceback, and goes on
SHELL = """
    import concurrent.futures, ctypes, os, signal, sys, threading, time
    from pathlib import Path

    signal.signal(signal.SIGINT, signal.default_int_handler)
    directory = Path(sys.argv[1])

    def runs(name, directory=directory):
        (directory / str(os.getpid())).touch()
        time.sleep(60)

    def keeps_to_itself(name, directory=directory):
        (directory / str(os.getpid())).touch()
        ctypes.PyDLL(None).sleep(60)  # with the interpreter's lock

    def until(condition):
        end = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.005)

    def is_gone(pid):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    def workers():
        "Those that have begun what the cell waits for."
        return [int(path.name) for path in directory.iterdir()]

    main_thread = threading.get_ident()
    waits = {"wait_in_steps", "_await", "_watch", "_retrieve"}  # the last is joblib's

    def is_waiting():
        "Whether the cell has come so far."
        frame = sys._current_frames()[main_thread]
        while frame is not None and frame.f_code.co_name not in waits:
            frame = frame.f_back
        return frame is not None

    def run_cell(name, cell, running=2):
        "Interrupt a cell while it waits for so many that run; then run another one."
        for path in directory.iterdir():
            path.unlink()

        def interrupt():
            until(lambda: len(workers()) == running and is_waiting())
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        try:
            cell()
        except KeyboardInterrupt as error:
            sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        else:
            print("was not interrupted")
        assert next_cell() == 8  # nobody runs or waits before it
        until(lambda: all(map(is_gone, workers())))
        print(name, flush=True)
"""

#: by what is used: the cells, each with its name
CELLS = {
    "Client": """
    import scaler
    cluster = scaler.SchedulerClusterCombo(n_workers=2)
    client = scaler.Client(cluster.address)
    next_cell = lambda: client.submit(pow, 2, 3).result(20)
    names = range(10)
    run_cell("result", lambda: client.submit(runs, 1).result(), 1)
    run_cell("exception", lambda: client.submit(runs, 1).exception(), 1)
    run_cell("polling", lambda: client.submit(runs, 1).result(50), 1)
    run_cell("C code", lambda: client.submit(keeps_to_itself, 1).result(), 1)
    run_cell("map", lambda: client.map(runs, names))
    run_cell("starmap", lambda: client.starmap(runs, [(name,) for name in names]))
    graph = {name: (runs, str(name)) for name in names}
    run_cell("get", lambda: client.get(graph, list(graph)))
    graph["all"] = (max, *names)
    run_cell("get what needs what runs", lambda: client.get(graph, ["all"]))
    submit = lambda: [client.submit(runs, name) for name in names]
    run_cell("wait", lambda: concurrent.futures.wait(submit()))
    run_cell("as_completed", lambda: list(concurrent.futures.as_completed(submit())))

    for path in directory.iterdir():
        path.unlink()
    one, other = client.submit(runs, 1), client.submit(runs, 2)
    until(lambda: len(workers()) == 2)
    def interrupt():
        until(one.is_awaited)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt).start()
    try:
        one.result()
    except KeyboardInterrupt:
        pass
    assert one.cancelled() and not other.done()
    print("what was not waited for goes on")
    """,
    "Executor": """
    import scaler
    pool = scaler.Executor(2)
    next_cell = lambda: pool.submit(pow, 2, 3).result(20)
    run_cell("result", lambda: pool.submit(runs, 1).result(), 1)
    run_cell("map", lambda: list(pool.map(runs, range(10))))
    run_cell("map in chunks", lambda: list(pool.map(runs, range(10), chunksize=2)))
    run_cell("map with a buffer", lambda: list(pool.map(runs, range(10), buffersize=2)))
    submit = lambda: [pool.submit(runs, name) for name in range(10)]
    run_cell("as_completed", lambda: list(concurrent.futures.as_completed(submit())))
    pool.shutdown()
    """,
    "scaler_get": """
    import dask
    from scaler_dask import scaler_get
    dask.config.set({"scheduler": scaler_get, "scaler.n-workers": 2})
    next_cell = lambda: dask.delayed(pow)(2, 3).compute()
    tasks = [dask.delayed(runs)(name) for name in range(10)]
    run_cell("compute", lambda: dask.compute(*tasks))
    run_cell("compute what needs what runs", lambda: dask.delayed(max)(tasks).compute())
    """,
    "joblib": """
    import joblib, scaler.joblib
    from joblib import Parallel, delayed
    with joblib.parallel_backend("scaler", n_jobs=2):
        next_cell = lambda: Parallel()(delayed(pow)(2, number) for number in range(4))[-1]
        run_cell("Parallel", lambda: Parallel()(delayed(runs)(name) for name in range(10)))
    """,
    "scaler_dask.Client": """
    import dask
    import scaler_dask
    client = scaler_dask.Client(n_workers=2)
    next_cell = lambda: client.submit(pow, 2, 3, pure=False).result(20)
    submit = lambda: client.map(runs, range(10))
    run_cell("result", lambda: client.submit(runs, 1).result(), 1)
    run_cell("gather", lambda: client.gather(submit()))
    run_cell("wait", lambda: scaler_dask.wait(submit()))
    run_cell("as_completed", lambda: list(scaler_dask.as_completed(submit())))
    tasks = [dask.delayed(runs)(name) for name in range(10)]
    run_cell("compute", lambda: dask.compute(*tasks))
    run_cell("compute of the client", lambda: client.compute(tasks, sync=True))
    client.close()
    """,
}


@pytest.mark.parametrize("user", CELLS)
def test_an_interrupted_cell_is_taken_back_and_the_next_one_runs(scripts, tmp_path, user):
    directory = tmp_path / "running"
    directory.mkdir()
    text = scripts.run(SHELL + CELLS[user], str(directory))
    names = [line.split('"')[1] for line in CELLS[user].splitlines() if line.lstrip().startswith(("run_cell", "print"))]
    assert text.splitlines() == names


#: interrupts come at any point of what it does, the next one soon after; in the end all is as it was
STORM = """
    import os, random, signal, sys, threading, time
    import scaler

    def in_a_deed(number, frame):  # not between two: what this script itself does is not what is tried
        while frame is not None and frame.f_code.co_name != "<lambda>":
            frame = frame.f_back
        if frame is not None:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, in_a_deed)
    seed = random.randrange(1 << 32)
    draw = random.Random(seed)
    interrupts, caught = 150, 0

    def interrupt():
        global interrupts
        while interrupts:
            time.sleep(draw.random() / 50)
            interrupts -= 1
            os.kill(os.getpid(), signal.SIGINT)

    with scaler.SchedulerClusterCombo(n_workers=2) as cluster, scaler.Client(cluster.address) as client:
        deeds = [
            lambda: client.submit(pow, 2, 3).result(),
            lambda: [future.result() for future in [client.submit(pow, 2, number) for number in range(50)]],
            lambda: client.map(abs, range(1000)),
            lambda: client.get({"a": (pow, 2, 3), "b": (abs, "a")}, ["b"]),
            lambda: [future.cancel() for future in [client.submit(time.sleep, 0.001) for _ in range(20)]],
        ]
        thread = threading.Thread(target=interrupt)
        thread.start()
        while thread.is_alive():
            try:
                draw.choice(deeds)()
            except KeyboardInterrupt:
                caught += 1
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print(f"seed {seed}: {caught} interrupts caught", file=sys.stderr)
        assert caught > 30
        assert [client.submit(pow, 2, 3).result(20) for _ in range(20)] == [8] * 20
    print("works on")
"""


def test_interrupts_at_any_point_leave_the_client_whole(scripts):
    assert scripts.run(STORM).endswith("works on\n")
