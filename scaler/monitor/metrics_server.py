"""`/metrics` by itself, on the standard library alone: for hosts where there is no dashboard."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from scaler.config import MetricsConfig
from scaler.monitor.access import Asked, Gate, bearer_of, token_from
from scaler.monitor.listening import listener, names_of, tls_of, url_of
from scaler.monitor.metrics import CONTENT_TYPE

#: seconds that a request may take to be said
_TIMEOUT = 5
#: connections at once; whoever comes then has the one closed that has been there for longest
_MOST = 16


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, listening: socket.socket, gate: Gate, text: Callable[[], str]) -> None:
        super().__init__(listening.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket, self.gate, self.text = listening, gate, text
        self._lock = threading.Lock()
        #: in the order in which they came
        self._open: dict[socket.socket, None] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; those who say nothing, or little at a time, keep nobody out."""
        with self._lock:
            self._open[request] = None
            if len(self._open) > _MOST:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(oldest, socket.SHUT_RDWR)  # its thread reads the end, and closes it
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """It is over."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who hangs up, or speaks no TLS, is no news; a defect is."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _TIMEOUT

    def do_GET(self) -> None:
        """Answer, or refuse; HEAD as GET, without the text."""
        header = self.headers.get
        verdict = self.server.gate.judge(
            Asked(
                self.command, header("Host", ""), header("Origin", ""), "", "", bearer_of(header("Authorization", "")),
                is_metrics=True,
            )
        )  # fmt: skip
        if verdict.status != 200:
            self._answer(verdict.status, verdict.reason + "\n")
        elif _path_of(self.path) != "/metrics":
            self._answer(404, "only /metrics is here\n")
        else:
            self._answer(200, self.server.text(), CONTENT_TYPE)

    do_HEAD = do_GET

    def _answer(self, status: int, text: str, kind: str = "text/plain; charset=utf-8") -> None:
        content = text.encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


def _path_of(target: str) -> str:
    """What a request asks for; empty for what is no address."""
    try:
        return urlsplit(target).path
    except ValueError:
        return ""


def serve(config: MetricsConfig, text: Callable[[], str], say: Callable[[str], object]) -> int:
    """Answer until the process is told to end; the exit code. Raises `ScalerError`."""
    assert config.port is not None
    tls, token = tls_of(config), token_from(config.token_file)
    listening = listener(config.host, config.port)
    port = listening.getsockname()[1]
    with _Server(listening, Gate(token, port, names_of(config.host), (), tls is not None), text) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)

        def end(*_: object) -> None:
            threading.Thread(target=server.shutdown, daemon=True).start()

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, end)
        where = f"in {Path(config.token_file).absolute()}" if config.token_file is not None else token
        say(f"Metrics: at {url_of(config, port)}/metrics, with the bearer token {where}")
        server.serve_forever(0.2)
    return 0
