"""How many threads libraries may use in a worker."""

import os
import sys
from types import SimpleNamespace

import pytest

from scaler import config
from scaler.agent.lending import environment
from scaler.config import AgentConfig
from scaler.worker.native_threads import OPENMP, OTHERS, VARIABLES, raised

ADDRESS = "tcp://head:2345"


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch):
    monkeypatch.setattr(config, "granted_cores", lambda: 8)


@pytest.mark.parametrize(("workers", "threads"), [(None, 1), (8, 1), (4, 2), (3, 2), (1, 8), (100, 1)])
def test_workers_share_the_cores(workers, threads):
    made = environment(AgentConfig(ADDRESS, workers=workers), {"HOME": "/h"})
    assert made == {"HOME": "/h", **dict.fromkeys(VARIABLES, str(threads))}


def test_what_the_user_set_stays():
    made = environment(AgentConfig(ADDRESS, workers=4), {"NUMBA_NUM_THREADS": "5", "MKL_NUM_THREADS": "6"})
    assert (made["NUMBA_NUM_THREADS"], made["MKL_NUM_THREADS"]) == ("5", "6")
    assert {made[name] for name in VARIABLES if name not in ("NUMBA_NUM_THREADS", "MKL_NUM_THREADS")} == {"2"}


def test_what_the_user_set_for_openmp_holds_for_those_that_follow_it():
    made = environment(AgentConfig(ADDRESS, workers=4), {OPENMP: "5"})
    assert made == {OPENMP: "5", **dict.fromkeys(OTHERS, "2")}


def test_the_option_goes_before_the_environment():
    made = environment(AgentConfig(ADDRESS, workers=4, worker_threads=3), {OPENMP: "5", "MKL_NUM_THREADS": "6"})
    assert made == dict.fromkeys(VARIABLES, "3")


# ---- rows that take several slots ------------------------------------------------------------------------------------
class Library:
    """A module that says how many threads it uses."""

    def __init__(self) -> None:
        self.threads = 2
        self._is_initialized = True

    def get_num_threads(self):
        return self.threads

    def set_num_threads(self, threads):
        if threads > 6:
            raise ValueError("more than it began with")
        self.threads = threads


@pytest.fixture
def share_of_two(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name in ("cv2", "numba", "numba.np.ufunc.parallel", "torch"):  # what other tests have loaded
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setenv(OPENMP, "2")
    monkeypatch.setenv("NUMBA_NUM_THREADS", "2")
    monkeypatch.setenv("MKL_NUM_THREADS", "4,2")


def test_a_row_gets_several_shares_while_it_runs(share_of_two, monkeypatch):
    library = Library()
    monkeypatch.setitem(sys.modules, "torch", library)
    before = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    with raised(3):
        assert library.threads == 6
        changed = {name: os.environ[name] for name in before if os.environ[name] != before[name]}
        assert changed == {OPENMP: "6", "NUMBA_NUM_THREADS": "6"}, "what is a list is left alone"
    assert library.threads == 2
    assert {name: os.environ[name] for name in VARIABLES if name in os.environ} == before


def test_opencv_has_calls_of_its_own_for_that(share_of_two, monkeypatch):
    told = [2]
    library = SimpleNamespace(getNumThreads=lambda: told[-1], setNumThreads=told.append)
    monkeypatch.setitem(sys.modules, "cv2", library)
    with raised(3):
        assert told == [2, 6]
    assert told == [2, 6, 2]


def test_a_row_that_raises_leaves_things_as_they_were(share_of_two, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", library := Library())
    with pytest.raises(LookupError), raised(2):
        raise LookupError
    assert (library.threads, os.environ[OPENMP]) == (2, "2")


def test_a_library_that_refuses_fails_no_row(share_of_two, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", library := Library())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with raised(4):
        assert library.threads == 2


def test_what_a_row_loads_has_a_share_afterwards(share_of_two, monkeypatch):
    with raised(3):
        monkeypatch.setitem(sys.modules, "torch", library := Library())
        library.threads = 6
    assert library.threads == 2


def test_numba_is_asked_when_it_has_threads_and_its_variable_stays_as_it_was_loaded(share_of_two, monkeypatch):
    library = Library()
    library._is_initialized = False
    monkeypatch.setitem(sys.modules, "numba.np.ufunc.parallel", library)
    with raised(3):
        assert library.threads == 2
        monkeypatch.setitem(sys.modules, "numba", library)
        library.threads, library._is_initialized = 6, True
    assert library.threads == 2
    assert os.environ["NUMBA_NUM_THREADS"] == "6"
    with raised(2):
        assert library.threads == 4
        assert os.environ["NUMBA_NUM_THREADS"] == "6"
