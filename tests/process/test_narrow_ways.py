"""Over a narrow way a large message takes longer than a silent peer is waited for; nobody is given up for that."""

import os
import re

from support import patience
from support.proxy import Proxy

from scaler import Client

#: seconds
TIMEOUT = 2.0


def test_results_that_take_longer_than_the_time_outs_come_at_the_first_attempt(daemons, tmp_path):
    timeout = patience(TIMEOUT)
    quick = ("--heartbeat-interval", "0.2", "--agent-timeout", str(timeout), "--client-timeout", str(timeout))
    scheduler = daemons.start_scheduler(*quick, "--journal", str(tmp_path / "journal"))
    between = Proxy(daemons.address, 0)
    between.limits, between.pace = [None], 150_000.0
    size = int(1.6 * timeout * between.pace)
    try:
        agent = daemons.run("scaler_cluster", "cluster", "-n", "1", "--drain-grace", "0", between.url)
        agent.says(r"Worker\[0\] started")
        with Client(between.url) as client:
            job = client.submit_job(os.urandom, [size], name="large")
            (value,) = job.results()
            assert len(value) == size
            client.submit(len, b"abc").result(60)
            assert not re.search("silent for|its connection closed", scheduler.text), scheduler.text
            assert "is lost" not in agent.text
    finally:
        between.close()
