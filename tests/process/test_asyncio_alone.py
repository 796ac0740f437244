"""Who does without ssl, and who must not."""

import ssl
import subprocess
import sys

import pytest
from support import patience

from scaler import Client, SchedulerClusterCombo

#: does, and says whether asyncio and ssl work as usual afterwards
_BOTH = f"""
from scaler.common import asyncio_alone
asyncio_alone.load()
import sys
assert "ssl" not in sys.modules and "_ssl" not in sys.modules and "asyncio" in sys.modules
import ssl
assert ssl.OPENSSL_VERSION == {ssl.OPENSSL_VERSION!r}
import asyncio
assert asyncio.run(asyncio.sleep(0, "slept")) == "slept"
"""


def maps(pid):
    with open(f"/proc/{pid}/maps") as file:
        return file.read()


def has_tls(_):
    """Whether a task's asyncio can connect by TLS."""
    import asyncio.base_events
    import asyncio.sslproto

    return asyncio.base_events.ssl is not None and asyncio.sslproto.ssl is not None


def test_asyncio_is_there_without_ssl_and_ssl_for_who_wants_it():
    subprocess.run([sys.executable, "-c", _BOTH], check=True, timeout=60)


@pytest.mark.parametrize("first", ["asyncio", "ssl"])
def test_what_is_there_already_stays(first):
    program = (
        f"import {first}; import ssl; from scaler.common import asyncio_alone; asyncio_alone.load(); import asyncio"
    )
    check = "import sys; assert sys.modules['ssl'] is ssl and asyncio.base_events.ssl is ssl"
    subprocess.run([sys.executable, "-c", f"{program}; {check}"], check=True, timeout=60)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is that of Linux")
def test_a_scheduler_has_no_library_for_tls_and_tasks_have(daemons):
    if "libssl" not in maps("self"):
        pytest.skip("this Python has it built in")
    scheduler = daemons.start_scheduler()
    daemons.start_agent(1)
    assert daemons.client().submit(has_tls, 0).result(patience(20))
    assert "libssl" not in maps(scheduler.pid)


def test_tasks_of_a_local_cluster_have_tls():
    with SchedulerClusterCombo(n_workers=1) as cluster, Client(cluster.get_address()) as client:
        assert client.submit(has_tls, 0).result(patience(20))
