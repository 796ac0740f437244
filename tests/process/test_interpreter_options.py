"""The interpreters of a local cluster are like the program's, whatever lies in the directory it was started in."""

import subprocess
import sys

import pytest
from support.programs import environment

PROGRAM = """
import sys
{more}
import scaler

def settings():
    import sys

    return sys.flags[:], sys.warnoptions, sys._xoptions, sys.argv

if __name__ == "__main__":
    with scaler.SchedulerClusterCombo(n_workers=1) as cluster, scaler.Client(cluster.address) as client:
        theirs = client.submit(settings).result(20)
        print(49 if theirs == settings() else f"{{theirs}}, not {{settings()}}")  # no assertion, for the sake of -O
"""


@pytest.fixture
def run(tmp_path, traces):
    """Runs the program, with options of the interpreter and a directory to start it in, and returns what it prints."""

    def run(*options, cwd=None, more=""):
        script = tmp_path / "program.py"
        script.write_text(PROGRAM.format(more=more))
        done = subprocess.run(
            [sys.executable, *options, str(script)], cwd=cwd or tmp_path, env=environment(), timeout=60,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        return done.stdout

    return run


@pytest.mark.parametrize(
    "options", [[], ["-O"], ["-W", "error"], ["-X", "dev"], ["-P"], ["-s"], ["-X", "utf8"]], ids=str
)
def test_workers_have_the_options_of_the_interpreter_that_runs_the_program(run, options):
    assert run(*options) == "49\n"


def test_workers_have_the_arguments_of_the_program_as_they_are_when_its_cluster_starts(run):
    assert run(more="sys.argv[1:] = ['--verbose', 'Nürnberg', '\\udcff']") == "49\n"


@pytest.mark.parametrize("options", [[], ["-P"]], ids=str)
def test_what_the_working_directory_has_is_not_taken_for_the_standard_library(run, tmp_path, options):
    directory = tmp_path / "elsewhere"
    directory.mkdir()
    for name in ("signal", "types", "enum", "functools", "socket", "subprocess"):
        (directory / f"{name}.py").write_text("raise RuntimeError('a file of somebody')\n")
    assert run(*options, cwd=directory) == "49\n"


def test_entries_of_the_path_that_imports_pass_over_are_passed_over(run):
    assert run(more="import pathlib; sys.path.append(pathlib.Path('/nowhere'))") == "49\n"
