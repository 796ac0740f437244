"""The process of the dashboard: one watcher, one loop (Bokeh's own Tornado), and a page for each browser.

The watcher's thread hands over what it has seen; everything else happens in the loop. A snapshot is added up once,
however many pages are open.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from typing import Any

from bokeh.application import Application as PageApplication
from bokeh.application.handlers.function import FunctionHandler
from bokeh.document import Document
from bokeh.server.server import BaseServer
from tornado.httpserver import HTTPServer
from tornado.ioloop import IOLoop
from tornado.iostream import IOStream

from scaler.common.process_limits import allow_descriptors, most_descriptors
from scaler.config import DashboardConfig
from scaler.monitor.access import Gate, token_from
from scaler.monitor.dashboard.content import LAST_OUTPUT
from scaler.monitor.dashboard.handlers import Application
from scaler.monitor.dashboard.layout import View
from scaler.monitor.dashboard.live import LivePage, Sight
from scaler.monitor.dashboard.pages import PAGES, Page
from scaler.monitor.listening import keys_of, listener, names_of, tls_of, url_of
from scaler.monitor.metrics import Exposition
from scaler.monitor.output import place_of
from scaler.monitor.watcher import Seen, Watcher
from scaler.transport.notices import Notices

_notices = Notices(logging.getLogger("scaler.ui"))
#: seconds of silence after which a connection that asks for nothing is closed, and in which a request has to be here
_SILENCE = 5.0
#: connections at a time, at most: a few of each page that may be open, and of who reads metrics
CONNECTIONS = 500
#: begins to tell what is seen
Watch = Callable[[DashboardConfig, Callable[[Seen], None]], AbstractContextManager[object]]


class _Server(HTTPServer):
    """Takes so many connections and closes further ones at once: without a descriptor each would be a traceback."""

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        """One was accepted."""
        if len(self._connections) < min(CONNECTIONS, most_descriptors() // 2):
            super().handle_stream(stream, address)
        else:
            _notices.warn(
                "closed a connection from %s at once: there are %d already", address[0], len(self._connections)
            )
            stream.close()


class Board:
    """What is seen, and the open pages that show it. Used in the loop alone."""

    def __init__(self) -> None:
        self.sight = Sight()
        #: told which workers' pages are open, by agent and slot
        self.look_at: Callable[[set[tuple[int, int]]], object] = lambda workers: None
        self._pages: dict[int, LivePage] = {}
        #: what is seen, for Prometheus
        self._told = Exposition(lambda: self.sight.seen or Seen(None, False, 0.0, ""))
        self.metrics = self._told.text

    def see(self, seen: Seen) -> None:
        """The cluster, or that there is none."""
        self.sight.see(seen)
        self._told.note(seen)
        for page in self._pages.values():
            page.come()

    def application(self, page: Page) -> PageApplication:
        """Bokeh's application of one page."""

        def open_page(document: Document) -> None:
            context = document.session_context
            request = getattr(context, "request", None)
            arguments = request.arguments if request is not None else {}
            live = LivePage(document, page, View.of(page.path, arguments), self.sight)
            document.template_variables["live"] = live
            self._pages[id(live)] = live
            self._look()

            def close_page(_context: object) -> None:
                self._pages.pop(id(live), None)
                self._look()
                document.template_variables.pop("live", None)

            document.on_session_destroyed(close_page)

        return PageApplication(FunctionHandler(open_page))

    def _look(self) -> None:
        """Have those workers asked for their output whose pages are open."""
        places = {place_of(live.view.find) for live in self._pages.values() if LAST_OUTPUT in live.page.cards}
        self.look_at({place for place in places if place is not None})

    def __len__(self) -> int:
        """How many pages are open."""
        return len(self._pages)


def watched(config: DashboardConfig, on_change: Callable[[Seen], None]) -> AbstractContextManager[object]:
    """A watcher of what the configuration says. Raises `ConnectionFailed`."""
    security, if_refused = keys_of(config)
    return Watcher(
        config.monitor, config.interval, security=security, if_refused=if_refused, name="scaler_ui",
        on_change=on_change, waits=config.wait,
    )  # fmt: skip


def run(config: DashboardConfig, say: Callable[[str], object], watch: Watch = watched) -> int:
    """Serve the dashboard until the process is told to end; the exit code. `say` is told the address, once it serves.

    `watch` begins to tell what is seen. Raises `ScalerError` and its kinds in one line: no scheduler there, a port in
    use, a certificate that is none.
    """
    logging.getLogger("bokeh").setLevel(logging.ERROR)
    logging.getLogger("tornado").setLevel(logging.ERROR)
    logging.getLogger("bokeh.protocol").setLevel(logging.CRITICAL)  # what browsers say wrongly is said by sockets
    allow_descriptors(2 * CONNECTIONS)
    tls, token = tls_of(config), token_from(config.token_file)
    listening = listener(config.host, config.port)
    listening.setblocking(False)
    port: int = listening.getsockname()[1]
    gate = Gate(token, port, names_of(config.host), config.allow_origin, tls is not None)
    loop, board = IOLoop.current(), Board()

    def handed_over(seen: Seen) -> None:
        loop.add_callback(board.see, seen)

    pages = {f"/{page.path}": board.application(page) for page in PAGES}
    application = Application(pages, gate, config.prefix, board.metrics)
    with closing(listening), watch(config, handed_over) as watcher:
        if isinstance(watcher, Watcher):
            board.look_at = watcher.look_at
        http = _Server(
            application, ssl_options=tls, max_body_size=1 << 16, max_header_size=1 << 15,
            idle_connection_timeout=_SILENCE, body_timeout=_SILENCE,
        )  # fmt: skip
        http.add_socket(listening)
        server = BaseServer(loop, application, http)
        server.start()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: loop.add_callback_from_signal(loop.stop))
        path = "/" + (config.prefix.strip("/") + "/" if config.prefix.strip("/") else "")
        say(f"{url_of(config, port)}{path}?token={token}")
        loop.start()
        server.stop()
    return 0
