"""The dashboard of a local cluster: a process of its own, which ends with the program that wanted it."""

from __future__ import annotations

import importlib.util
import json

from scaler.cluster.spawning import await_end, spawn
from scaler.errors import ConnectionFailed, ScalerError

#: seconds that it may take to start, and to end before it is killed
START_TIMEOUT, STOP_TIMEOUT = 30.0, 3.0


class LocalDashboard:
    """Runs until it is closed."""

    def __init__(self, monitor: str) -> None:
        """Start it; blocks until it serves, a second or two. Raises `ScalerError`, also where Bokeh is missing."""
        if importlib.util.find_spec("bokeh") is None:
            raise ScalerError("dashboard=True needs Bokeh: pip install scaler[dashboard]")
        self._socket, self._process = spawn("scaler.cluster.dashboard_process")
        self._socket.settimeout(START_TIMEOUT)
        try:
            self._socket.sendall(json.dumps({"monitor": monitor}).encode() + b"\n")
            line = self._socket.makefile("rb").readline()
        except OSError:
            line = b""
        answer = json.loads(line or b"{}")
        #: what to open in a browser
        self.link: str = answer.get("link", "")
        if not self.link:
            self.close()
            raise ConnectionFailed(
                f"the dashboard's process did not start: {answer.get('error', 'see standard error')}"
            )

    def close(self) -> None:
        """End it; a second call does nothing."""
        self._socket.close()
        await_end(self._process, STOP_TIMEOUT)
