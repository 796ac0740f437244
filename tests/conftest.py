"""Fixtures for tests with real processes. Whatever they start is gone afterwards, and they check that it is."""

import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the package `support`

from support import Daemons, Scripts, Terminals, Traces
from support.fake_slurm import FakeSlurm
from support.namespaces import Network, why_not
from support.serializers import Prefixed
from support.traces import MARK

from scaler import Client, SchedulerClusterCombo

# Tests start a thousand programs, and each would compile the engine anew. Programs that they start inherit this.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# How long an example takes says nothing about the code: the machine may be busy. `make sim` runs many.
for profile, examples in (("few", 50), ("many", 1000)):
    hypothesis.settings.register_profile(
        profile, max_examples=examples, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
hypothesis.settings.load_profile("few")


@pytest.fixture(scope="session", autouse=True)
def _no_settings_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keys and configuration are the tests' own, and so is what SCALER_... variables say."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("SCALER_")]:
            patch.delenv(name)
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _what_the_tests_have_loaded_is_nothing_that_tasks_need() -> Iterator[None]:
    """The clusters of programs that tests start have workers that load what is theirs, as a user's do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scaler.cluster.loaded_modules.needed_by_tasks", list)
        yield


def _watched() -> Iterator[Traces]:
    traces = Traces()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARK, traces.mark)
        yield traces
    traces.check()


@pytest.fixture
def traces() -> Iterator[Traces]:
    """Everything that the test starts is marked, and gone when it ends."""
    yield from _watched()


@pytest.fixture
def start_cluster(traces: Traces) -> Iterator[Callable[..., SchedulerClusterCombo]]:
    """Starts local clusters for one test."""
    clusters: list[SchedulerClusterCombo] = []

    def start(n_workers: int = 2, **options: Any) -> SchedulerClusterCombo:
        clusters.append(SchedulerClusterCombo(n_workers=n_workers, **options))
        return clusters[-1]

    yield start
    for cluster in clusters:
        cluster.shutdown()


#: The directories of tests in the order in which `make test` hands out their files: what computes for minutes in one
#: file, what starts programs and waits for them, and in the end the many short files: all processes end together.
ORDER = ("sim", "process", "api", "properties", "unit")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bring the tests into that order. Within a directory they stay as they are, those of any other come first."""
    here = Path(__file__).parent

    def place(item: pytest.Item) -> int:
        directory = item.path.relative_to(here).parts[0]
        return ORDER.index(directory) if directory in ORDER else -1

    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Modules and tests stay to the end: whoever collects garbage does not go through a million objects for it."""
    threshold, *_ = gc.get_threshold()
    gc.set_threshold(0)  # `gc.disable()` would be what modules take for the rule that are imported here
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(threshold)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of modules that say `WITH_SERIALIZERS = True` with each serializer, if they use one."""
    if "serializer" in metafunc.fixturenames and getattr(metafunc.module, "WITH_SERIALIZERS", False):
        metafunc.parametrize("serializer", [None, Prefixed], indirect=True, ids=["pickled", "prefixed"])


@pytest.fixture
def serializer(request: pytest.FixtureRequest) -> Any:
    """What clients of this test are given."""
    return getattr(request, "param", None)


@pytest.fixture
def connect(start_cluster: Callable[..., SchedulerClusterCombo], serializer: Any) -> Iterator[Callable[..., Client]]:
    """Makes clients that are disconnected before the test's clusters end."""
    clients: list[Client] = []

    def make(cluster: SchedulerClusterCombo, **options: Any) -> Client:
        clients.append(Client(cluster.address, **{"serializer": serializer, **options}))
        return clients[-1]

    yield make
    for client in clients:
        client.disconnect()


@pytest.fixture
def fake_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSlurm]:
    """Slurm's commands are small scripts that run jobs on this host."""
    made = FakeSlurm(tmp_path)
    monkeypatch.setenv("PATH", made.path)
    yield made
    made.close()


@pytest.fixture
def daemons(traces: Traces, tmp_path: Path) -> Iterator[Daemons]:
    """Scheduler and agents apart."""
    made = Daemons(tmp_path)
    yield made
    made.close()


@pytest.fixture
def scripts(traces: Traces, tmp_path: Path) -> Iterator[Scripts]:
    """Programs as a user writes them."""
    made = Scripts(tmp_path)
    yield made
    made.close()


@pytest.fixture
def terminals(traces: Traces, tmp_path: Path) -> Iterator[Terminals]:
    """Programs as a user runs them."""
    made = Terminals(tmp_path)
    yield made
    made.close()


@pytest.fixture
def network(traces: Traces, tmp_path: Path) -> Iterator[Network]:
    """Hosts that are apart; the test is skipped where they can't be had."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    made = Network(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def lasting_traces() -> Iterator[Traces]:
    """Everything that is started for the tests of a module is marked, and gone when the last of them has ended."""
    yield from _watched()


@pytest.fixture(scope="module")
def lasting_daemons(lasting_traces: Traces, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """Scheduler and agents apart that the tests of a module share."""
    made = Daemons(tmp_path_factory.mktemp("daemons"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def cluster(lasting_traces: Traces) -> Iterator[SchedulerClusterCombo]:
    """A local cluster of two workers that the tests of a module share."""
    with SchedulerClusterCombo(n_workers=2) as running:
        yield running


@pytest.fixture
def client(cluster: SchedulerClusterCombo, serializer: Any) -> Iterator[Client]:
    """A client of the shared cluster."""
    with Client(cluster.address, serializer=serializer) as client:
        yield client
