"""What the process of a local cluster loads before its first row: nothing that only some programs use."""

import subprocess
import sys

import pytest

#: whose modules belong to what is not used by a program that computes
UNUSED = (
    "dask", "numpy", "pandas", "zmq", "uvloop", "scaler_dask", "scaler.cli", "scaler.client", "scaler.compatibility",
    "scaler.executor", "scaler.graph", "scaler.joblib", "scaler.journal", "scaler.monitor", "scaler.provisioning",
    "scaler.results", "scaler.symphony", "scaler.scheduler.jobs", "scaler.scheduler.supervisor",
    "scaler.scheduler.validating",
    "scaler.scheduler.state.validate", "scaler.agent.validating", "scaler.agent.preemption",
    "scaler.agent.core.output_tails",
    "scaler.scheduler.core.answering", "scaler.scheduler.core.commanding", "scaler.scheduler.core.explaining",
    "scaler.scheduler.core.relaying", "scaler.scheduler.views.cluster_view", "scaler.scheduler.views.snapshot",
    "scaler.scheduler.views.task_pages",
)  # fmt: skip


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    program = "import sys, scaler.cluster.process; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True)
    return set(ran.stdout.split())


@pytest.mark.parametrize("name", UNUSED)
def test_a_local_cluster_begins_without(loaded: set[str], name: str) -> None:
    assert "scaler.agent.shell" in loaded
    assert not [module for module in loaded if module == name or module.startswith(f"{name}.")]


@pytest.mark.parametrize("name", UNUSED)
def test_there_is_such_a_module(name: str) -> None:
    """A name that was changed would be loaded unseen."""
    if name.startswith("scaler"):
        __import__(name)
