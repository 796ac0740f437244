"""Makes the modules beside this file importable by the tests, and gives them a Kubernetes."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import install
import pytest
from lab import Lab
from support.namespaces import why_not
from support.traces import MARK, Traces


@pytest.fixture(scope="session")
def everything(tmp_path_factory):
    """One Kubernetes for all tests, in a network of its own, in which the tests are as well."""
    reason = why_not() or install.missing()
    if reason is not None:
        pytest.skip(reason)
    traces = Traces()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARK, traces.mark)
        made = Lab(tmp_path_factory.mktemp("kubernetes"))
    try:
        yield made
    finally:
        made.close()
        traces.check()


@pytest.fixture
def lab(everything, monkeypatch):
    """Kubernetes with nothing in it; what a test leaves there is a mistake."""
    monkeypatch.setenv("KUBECONFIG", str(everything.kubeconfig))
    yield everything
    everything.check()
