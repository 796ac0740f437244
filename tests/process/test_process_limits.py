"""Programs whose processes may have little, and what they are told; and what the interpreter warns of."""

import re
import subprocess

import pytest
from support.programs import program


def test_a_value_larger_than_a_file_may_be_names_the_limit_and_the_executor_works_on(scripts):
    scripts.run(
        r"""
        import re, resource
        import scaler

        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        limit = r"no file of more than 100,000 \(`ulimit -f`\)"
        with scaler.Executor(1) as pool:
            try:
                pool.submit(len, bytes(2_000_000))
            except scaler.StoreFull as error:
                assert re.search("argument 0 of builtins.len takes 2,00.* bytes: .*" + limit, str(error)), error
            error = pool.submit(bytes, 2_000_000).exception(40)
            assert isinstance(error, scaler.StoreFull), error
            assert re.search("the result of builtins.bytes.*" + limit, str(error)), error
            assert pool.submit(abs, -1).result(40) == 1
        """
    )


@pytest.mark.parametrize("workers", [1, 8, 16])
def test_too_few_descriptors_for_a_cluster_are_said_with_their_limit_and_just_enough_are_enough(scripts, workers):
    def run(limit):
        program = """
        import resource, sys
        import scaler, scaler.executor.executor

        limit, workers = map(int, sys.argv[1:])
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        try:
            with scaler.Executor(workers) as pool:
                print(pool.submit(abs, -1).result(40))
        except scaler.ScalerError as error:
            print(error)
        """
        return scripts.run(program, str(limit), str(workers))

    def needed(limit):
        said = rf"{workers} workers? needs? (\d+) descriptors, .* may have {limit} open here \(RLIMIT_NOFILE\)"
        return int(re.match(said, run(limit))[1])

    enough = needed(20)
    assert needed(30) == needed(enough - 1) == enough
    assert run(enough) == "1\n"


@pytest.mark.parametrize("is_known", [False, True], ids=["store unknown", "store known"])
def test_a_client_without_descriptors_has_large_results_as_soon_as_it_has_some_again(scripts, is_known):
    scripts.run(
        r"""
        import concurrent.futures, os, re, resource, sys
        import scaler

        with scaler.Executor(1) as pool:
            if sys.argv[1] == "True":
                assert len(pool.submit(bytes, 2_000_000).result(40)) == 2_000_000
            large = pool.submit(bytes, 3_000_000)
            concurrent.futures.wait([large], 40)
            resource.setrlimit(resource.RLIMIT_NOFILE, (100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            taken = []
            try:
                while True:
                    taken.append(os.dup(0))
            except OSError:
                pass
            for _ in range(2):
                try:
                    large.result(40)
                except OSError as error:
                    said = str(error)
                assert re.search(r"the result of .*bytes.* can't be read for now: .*may have 100 open here", said), said
            for each in taken:
                os.close(each)
            assert len(large.result(40)) == 3_000_000
        """,
        str(is_known),
    )


def test_a_scheduler_to_which_nobody_could_connect_says_so_and_ends(tmp_path):
    log = tmp_path / "log"
    command = [*program("scaler_scheduler", "scheduler"), "tcp://127.0.0.1:0"]
    with log.open("w") as file:
        limited = ["sh", "-c", 'ulimit -n 20; exec "$@"', "sh", *command]
        ended = subprocess.run(limited, stdout=file, stderr=file, timeout=60)
    assert ended.returncode == 1
    (said,) = (line for line in log.read_text().splitlines() if "ERROR" in line)
    words = r"nobody could connect: a process may have 20 descriptors open here \(RLIMIT_NOFILE\).*needs (\d+) at least"
    assert int(re.search(words, said)[1]) > 20
    assert "listens at" not in log.read_text()


def test_an_agent_has_the_sockets_of_its_workers_or_says_in_a_line_that_it_may_not(tmp_path):
    """40 workers have 80 sockets; a limit that it may raise itself is no obstacle."""
    log = tmp_path / "log"
    agent = [*program("scaler_cluster", "cluster"), "-n", "40", "--insecure", "--death-timeout", "0.1"]
    for limit, last in (
        ("-Sn", "nobody came within 0.1 s"),
        ("-n", "40 workers need 112 descriptors.*may have 64 open"),
    ):
        command = ["sh", "-c", f'ulimit {limit} 64; exec "$@"', "sh", *agent, "tcp://127.0.0.1:1"]
        with log.open("w") as file:
            ended = subprocess.run(command, stdout=file, stderr=file, timeout=120)
        assert ended.returncode == 1
        assert re.search(last, log.read_text().splitlines()[-1]), log.read_text()
        assert "Too many open files" not in log.read_text()


@pytest.mark.parametrize(
    "program",
    [
        "with scaler.Executor(1) as pool: assert pool.submit(abs, -1).result(40) == 1",
        "with scaler.Cluster('local', minimum=0, maximum=1, workers=1): pass",
        "import scaler_dask, dask; assert dask.delayed(abs)(-1).compute(scheduler=scaler_dask.scaler_get) == 1",
    ],
)
def test_the_interpreter_has_nothing_to_warn_of_in_what_a_program_starts(scripts, program):
    said = scripts.run(f"import scaler\n{program}", PYTHONWARNINGS="always", PYTHONWARNDEFAULTENCODING="1")
    assert "ResourceWarning" not in said
    assert not re.search(r"scaler\S*:\d+: EncodingWarning", said)  # dask has some
