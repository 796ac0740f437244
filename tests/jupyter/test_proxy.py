"""The dashboard behind a real Jupyter with `jupyter-server-proxy`, in a real Chromium. Run by `make test-browser`."""

import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support import until
from support.browser import browser, complaints, shows, why_not
from support.programs import Program, environment

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]

TOKEN = "of-jupyter"


@pytest.fixture
def jupyter(tmp_path):
    """Give where a Jupyter of this test's own listens: no file of the user's is read or written."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        str(Path(sys.executable).with_name("jupyter")), "server", "--no-browser", "--allow-root", "--ip=127.0.0.1",
        f"--port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}",
        f"--ServerApp.root_dir={tmp_path}",
    ]  # fmt: skip
    running = Program(command, tmp_path / "jupyter.log", env=environment(HOME=str(tmp_path)))
    try:
        running.says("is running at")
        yield f"http://127.0.0.1:{port}"
    finally:
        running.stop()


def test_pages_are_followed_behind_a_proxy_of_jupyter(daemons, jupyter):
    """What docs/dashboard.md says: one option, and the address of the proxy. Jupyter lets in whoever has its cookie."""
    daemons.start_scheduler()
    daemons.start_agent()
    monitor = daemons.scheduler.says(r"monitor address is (ipc://\S+)")[1]
    running = daemons.run("scaler_ui", "ui", monitor, "--port", "0", "--interval", "0.5", "--allow-origin", jupyter)
    address = urlsplit(running.says(r"Dashboard: open (\S+)")[1])
    with browser() as driver:
        driver.get(f"{jupyter}/api/status?token={TOKEN}")
        driver.get(f"{jupyter}/proxy/{address.port}/?{address.query}")
        number = shows(driver)
        until(lambda: shows(driver) > number + 1, "more snapshots")
        assert driver.current_url == f"{jupyter}/proxy/{address.port}/"  # the token has left the address
        driver.execute_script("document.querySelector('a[href*=functions]').click()")
        until(lambda: driver.current_url.partition("?")[0].endswith("/functions"), "the link to be followed")
        number = shows(driver)
        until(lambda: shows(driver) > number, "the next snapshot")
        assert driver.current_url.startswith(f"{jupyter}/proxy/{address.port}/functions")
        assert complaints(driver) == []
