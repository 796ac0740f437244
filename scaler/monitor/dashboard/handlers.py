"""What answers requests: pages, their sockets, metrics, the cookie for a token, refusals. Bokeh's, made stricter."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl, unquote, urlencode

import bokeh
from bokeh.protocol.exceptions import ProtocolError
from bokeh.protocol.message import Message
from bokeh.server.session import ServerSession
from bokeh.server.tornado import BokehTornado
from bokeh.server.views.doc_handler import DocHandler
from bokeh.server.views.ws import WSHandler
from bokeh.util.token import check_token_signature, get_session_id
from tornado.httputil import HTTPServerRequest
from tornado.web import RequestHandler, StaticFileHandler

from scaler.monitor.access import Asked, Gate, Verdict, bearer_of
from scaler.monitor.dashboard.live import LivePage
from scaler.monitor.dashboard.page import POLICY, html, refusal
from scaler.monitor.metrics import CONTENT_TYPE
from scaler.transport.notices import Notices

_notices = Notices(logging.getLogger("scaler.ui"))
#: our scripts and styles
ASSETS = Path(__file__).parent / "static"
THEME_COOKIE = "scaler_ui_theme"
#: for which a browser that showed the token is let in, if that stays the same
COOKIE_DAYS = 7
#: open pages, at most: each costs work with each snapshot
PAGES = 64
#: seconds after which the socket of a page is not opened any more: it loads itself again then
SOCKET_LIFETIME = 600
#: messages that a browser has not taken, at most; it has lost its page then, and may open it again
_BEHIND = 60
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def asked(request: HTTPServerRequest, gate: Gate, prefix: str) -> Asked:
    """What a request says of itself."""
    header = request.headers.get
    cookie = request.cookies.get(gate.cookie_name)
    tokens = [value for name, value in parse_qsl(request.query) if name == "token"]
    return Asked(
        request.method or "", request.host or "", header("Origin", "") or "", tokens[-1] if tokens else "",
        cookie.value if cookie is not None else "", bearer_of(header("Authorization", "") or ""),
        (header("Upgrade", "") or "").lower() == "websocket", request.path == f"{prefix}/metrics",
    )  # fmt: skip


class Answer(RequestHandler):
    """What the gate answers by itself."""

    def initialize(self, verdict: Verdict, gate: Gate) -> None:
        """Which answer that is."""
        self._verdict, self._gate = verdict, gate

    def set_default_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.set_header(name, value)

    def prepare(self) -> None:
        verdict, gate = self._verdict, self._gate
        self.set_status(verdict.status)
        if verdict.status != 302:
            self.finish(refusal(verdict.reason))
            return
        query = parse_qsl(self.request.query, keep_blank_values=True)
        token = next(value for name, value in reversed(query) if name == "token")
        # without a path, which is then the one that the browser sees: behind a hub others have the same origin
        self.set_cookie(
            gate.cookie_name, token, path="", httponly=True, samesite="Strict", secure=gate.is_secure,
            expires_days=COOKIE_DAYS,
        )  # fmt: skip
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        # relative, so that it holds behind a proxy that takes a prefix away
        last = self.request.path.rpartition("/")[2]
        target = f"./{last}" + (f"?{rest}" if rest else "")
        if self.request.headers.get("Sec-Fetch-Site") == "cross-site":
            # a browser that follows a redirect from another site keeps a strict cookie to itself: this page is of ours
            self.set_status(200)
            self.set_header("Refresh", f"0; url={target}")
            self.finish("<!DOCTYPE html><title>Scaler</title>\n")
        else:
            self.redirect(target, status=302)


class PageHandler(DocHandler):
    """A page: Bokeh's session under HTML of our own."""

    def set_default_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.set_header(name, value)

    async def get(self, *args: Any, **kwargs: Any) -> None:
        said = self.get_query_argument("theme", "")
        known = self.get_cookie(THEME_COOKIE, "light") or "light"
        if said in ("light", "dark"):
            self.set_cookie(THEME_COOKIE, said, path="", samesite="Strict", expires_days=365)
        # sessions have names that nobody chose: an address can't lead into another's
        arguments = {n: v for n, v in self.request.query_arguments.items() if not n.startswith("bokeh-")}
        self.request.arguments = arguments | {"theme": [(said or known).encode()]}
        self.request.headers.pop("Bokeh-Session-Id", None)
        if sum(len(list(context.sessions)) for context in self._contexts()) >= PAGES:
            self.set_status(503)
            self.finish(refusal(f"{PAGES} pages are open already: close some"))
            return
        session = await cast(Awaitable[ServerSession], self.get_session())
        live: LivePage = session.document.template_variables["live"]
        roots = [(root.name or "", root.id) for root in session.document.roots]
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.write(html(live.page, live.view, roots, session.token, bokeh.__version__, live.cells()))

    async def head(self, *args: Any, **kwargs: Any) -> None:
        """What `get` says, without its text; no session is made for it."""
        self.set_header("Content-Type", "text/html; charset=utf-8")

    def _contexts(self) -> list[Any]:
        return list(self.application.applications.values())


class PageSocket(WSHandler):
    """The socket of a page. What browsers change in their copy (ranges, sizes) stays there: pages are read-only."""

    _behind = 0

    def check_origin(self, origin: str) -> bool:
        """The gate has looked at it before."""
        return True

    def open(self, *args: str, **kwargs: str) -> None:
        """Go on with the session of a page, or close the socket: whatever its token is, that is no defect."""
        if not _is_signed(self._token, cast(Any, self.application).secret_key):
            self._turn_away("it names no page that was asked for here")
            return
        try:
            super().open()
        except ProtocolError as error:
            is_late = "expired" in str(error)
            late = f"its page was loaded more than {SOCKET_LIFETIME // 60} minutes before; it loads itself again"
            self._turn_away(late if is_late else str(error))

    async def on_message(self, fragment: str | bytes) -> None:
        """What is said before the session is there is not heard: browsers wait for that."""
        if cast(Any, self.receiver) is not None:
            await super().on_message(fragment)

    async def _receive(self, fragment: str | bytes) -> Message[Any] | None:
        try:
            return cast("Message[Any] | None", await cast(Any, self.receiver).consume(fragment))
        except Exception:  # of all kinds: whatever the bytes make of Bokeh's decoding
            self._turn_away("what it says is no message of Bokeh's")
            return None

    def _turn_away(self, why: str) -> None:
        _notices.warn("closed the socket of a page, from %s: %s", self.request.remote_ip, why)
        self.close(1008, "this page is not here: load it again")

    async def _handle(self, message: Message[Any]) -> Any:
        if message.msgtype == "PATCH-DOC" and self.connection is not None:
            return self.connection.ok(message)
        if message.msgtype in ("PULL-DOC-REQ", "SERVER-INFO-REQ"):
            return await super()._handle(message)
        if message.msgtype not in ("OK", "ACK", "ERROR"):  # answers, to which there is nothing to say
            self.close(1008, "pages are read-only")
        return None

    def log_exception(self, kind: Any, value: Any, trace: Any) -> None:
        """What a browser compresses may be garbage, too."""
        if isinstance(value, zlib.error):
            self._turn_away("what it says can't be decompressed")
        else:
            super().log_exception(kind, value, trace)

    async def _async_open(self, token: str) -> None:
        """Join the session of the page, unless its browser has gone meanwhile."""
        await super()._async_open(token)
        if cast(Any, self.ws_connection) is None:
            self.on_close()

    def on_close(self) -> None:
        """Nobody comes back to the session of a page that was left: it goes at once, with its document."""
        token = cast("str | None", self._token)
        if self.connection is None or token is None:
            return
        cast(Any, self.application).client_lost(self.connection)  # as it may be already, by a ping that failed
        with contextlib.suppress(ProtocolError):  # the session may have gone since
            session = self.application_context.get_session(get_session_id(token))
            if not session.connection_count:
                session.request_expiration()

    async def send_message(self, message: Message[Any]) -> None:
        if self._behind >= _BEHIND:
            self.close(1013, "too slow")
            return
        self._behind += 1
        try:
            await super().send_message(message)
        finally:
            self._behind -= 1


def _is_signed(token: str | None, key: bytes | None) -> bool:
    """A token is one of ours; anything else may be whatever bytes there are."""
    try:
        return token is not None and check_token_signature(token, secret_key=key, signed=True)
    except Exception:  # of all kinds: whatever the bytes make of Bokeh's decoding
        return False


class MetricsHandler(RequestHandler):
    """The cluster as Prometheus reads it."""

    def initialize(self, text: Callable[[], str]) -> None:
        """`text` is asked for with each request."""
        self._text = text

    def set_default_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.set_header(name, value)

    async def get(self) -> None:
        self.set_header("Content-Type", CONTENT_TYPE)
        self.finish(self._text())

    head = get


class Application(BokehTornado):
    """Bokeh's application behind a gate that every request passes before it is known what it asks for."""

    def __init__(self, pages: dict[str, Any], gate: Gate, prefix: str, metrics: Callable[[], str]) -> None:
        self._gate = gate
        self._path_prefix = "/" + prefix.strip("/") if prefix.strip("/") else ""
        super().__init__(
            pages,
            prefix=prefix,
            use_index=False,
            # a page has its session's token in it: no header and no cookie has to be known from it
            include_headers=[],
            include_cookies=[],
            extra_patterns=[
                ("/metrics", MetricsHandler, {"text": metrics}),
                ("/assets/(.*)", StaticFileHandler, {"path": os.fspath(ASSETS)}),
            ],
            check_unused_sessions_milliseconds=500,
            # for a browser that has its page and takes long for the scripts
            unused_session_lifetime_milliseconds=15_000,
            websocket_max_message_size_bytes=1 << 20,
            websocket_compression_level=6,
            websocket_compression_mem_level=5,
            # sessions are those of pages that were answered, and no others
            sign_sessions=True,
            secret_key=secrets.token_bytes(32),
            session_token_expiration=SOCKET_LIFETIME,
            log_function=lambda handler: None,
        )

    def find_handler(self, request: HTTPServerRequest, **kwargs: Any) -> Any:
        """Who answers a request."""
        verdict = self._gate.judge(asked(request, self._gate, self._path_prefix))
        if verdict.status != 200:
            return self._answer(request, verdict)
        if "\0" in unquote(request.path):  # no file is called so, and looking for it raises
            return self._answer(request, Verdict(404, "there is no such page"))
        delegate = super().find_handler(request, **kwargs)
        replaced: dict[Any, Any] = {DocHandler: PageHandler, WSHandler: PageSocket}
        if delegate.handler_class in replaced:
            delegate.handler_class = replaced[delegate.handler_class]
        elif delegate.handler_class.__module__.startswith("bokeh.server.views") and "/static/" not in request.path:
            return self._answer(request, Verdict(404, "there is no such page"))
        return delegate

    def _answer(self, request: HTTPServerRequest, verdict: Verdict) -> Any:
        return self.get_handler_delegate(request, Answer, {"verdict": verdict, "gate": self._gate})
