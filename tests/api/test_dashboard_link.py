"""A cluster's dashboard as programs and notebooks have it."""

import http.client
import os
import subprocess
import sys
from urllib.parse import urlsplit

import pytest
from support import until
from support.programs import environment

from scaler import Client, SchedulerClusterCombo
from scaler.common import dashboards
from scaler.errors import ScalerError


def status(link: str) -> int:
    parts = urlsplit(link)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    connection.request("GET", f"/?{parts.query}")
    answer = connection.getresponse().status
    connection.close()
    return answer


def test_a_local_cluster_brings_its_dashboard_along(start_cluster, connect, monkeypatch):
    cluster = start_cluster(1, dashboard=True)
    link = cluster.dashboard_link
    assert status(link) == 302
    client = connect(cluster)
    assert client.dashboard_link == link
    assert f'href="{link}"' in cluster._repr_html_()
    assert f'href="{link}"' in client._repr_html_()
    pid = cluster._dashboard._process.pid
    cluster.shutdown()
    until(lambda: not os.path.exists(f"/proc/{pid}"), "the dashboard to end")
    assert cluster.dashboard_link is None
    assert "ended" in cluster._repr_html_()
    monkeypatch.setenv(dashboards.LINK_VARIABLE, "http://head:8081/")
    assert client.dashboard_link == "http://head:8081/"


def test_futures_show_themselves_in_notebooks(cluster, client):
    assert client.dashboard_link is None
    fine, broken = client.submit(abs, -1), client.submit(int, "<b>")
    assert fine.result() == 1
    assert isinstance(broken.exception(), ValueError)
    assert "<td>finished</td>" in fine._repr_html_()
    assert "<td>failed</td>" in broken._repr_html_()
    assert "<td>ValueError</td>" in broken._repr_html_()
    waiting = client.with_options(capabilities=["nowhere"]).submit(abs, -1)
    assert "<td>pending</td>" in waiting._repr_html_()
    waiting.cancel()
    assert "<td>cancelled</td>" in waiting._repr_html_()


def test_clients_show_themselves_in_notebooks(cluster, connect):
    client = connect(cluster)
    assert f"<th>workers</th><td>{client.n_workers}</td>" in client._repr_html_()
    client.disconnect()
    assert "<th>state</th><td>disconnected</td>" in client._repr_html_()


def test_only_web_addresses_become_links():
    shown = dashboards.as_html("<i>", {"<b>": "<u>"}, "javascript:alert(1)")
    assert "javascript" not in shown
    assert "<b>" not in shown
    assert "<u>" not in shown


def test_without_bokeh_it_is_said_in_one_line_and_nothing_is_left(traces, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ScalerError, match=r"^dashboard=True needs Bokeh: pip install scaler\[dashboard\]$"):
        SchedulerClusterCombo(n_workers=1, dashboard=True)


def test_nobody_loads_bokeh_who_has_not_asked_for_it():
    text = (
        "import sys, scaler, scaler_dask, scaler.cli.main, scaler.monitor; "
        "print({'bokeh', 'tornado'} & set(sys.modules))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, env=environment(), check=True
    )
    assert ended.stdout == "set()\n"


def test_a_client_of_the_cluster_is_pickled_without_its_link(cluster):
    with Client(cluster.address) as client:
        assert client.submit(lambda inner: inner.dashboard_link, client).result() is None
