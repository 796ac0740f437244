"""Programs that `gevent` has patched: what works says how to get there, before anything is started."""

import sys
from types import SimpleNamespace

import pytest

import scaler
from scaler.provisioning.cluster import Cluster


@pytest.mark.parametrize("patched", ["threading", "select"])
@pytest.mark.parametrize(
    "make", [lambda: scaler.Client("tcp://127.0.0.1:1"), scaler.SchedulerClusterCombo, scaler.Executor, Cluster]
)
def test_what_needs_threads_says_what_to_do_where_gevent_has_replaced_them(monkeypatch, patched, make):
    monkeypatch.setitem(sys.modules, "gevent.monkey", SimpleNamespace(is_module_patched=patched.__eq__))
    words = r"gevent .* call gevent.monkey.patch_all\(thread=False, select=False\)$"
    with pytest.raises(scaler.ScalerError, match=words):
        make()


def test_gevent_may_replace_what_else_it_can(monkeypatch):
    monkeypatch.setitem(sys.modules, "gevent.monkey", SimpleNamespace(is_module_patched="socket".__eq__))
    with scaler.Executor(1) as pool:
        assert pool.submit(abs, -1).result(20) == 1
