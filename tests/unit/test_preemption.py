"""A metadata service that announces the end of a host, or says other things."""

import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from scaler.agent.preemption import announces, watch_for_notice
from scaler.common.loop import make_loop
from scaler.config import AgentConfig, OptionError


class Service(HTTPServer):
    """Answers everything in one way, which may change."""

    answer = (404, b"")


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Service)
        code, body = self.server.answer
        self.send_response(code)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def url(service: Service) -> str:
    return f"http://127.0.0.1:{service.server_port}/spot"


@pytest.mark.parametrize(
    ("answer", "is_noticed", "words"),
    [
        ((404, b""), False, ""),
        ((200, b'{"action": "terminate"}'), True, ""),
        ((200, b"TRUE"), True, ""),
        ((200, b"FALSE\n"), False, ""),
        ((401, b""), False, "answered 401"),
        ((500, b""), False, "answered 500"),
    ],
)
def test_what_is_a_notice(service: Service, answer: tuple[int, bytes], is_noticed: bool, words: str) -> None:
    service.answer = answer
    said, trouble = announces(url(service))
    assert said is is_noticed
    assert trouble.startswith(words)
    assert bool(trouble) is bool(words)


def test_a_service_that_speaks_something_else_is_no_notice() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"220 welcome to mail\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        is_noticed, words = announces(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        thread.join()
    assert not is_noticed
    assert "answers what is no HTTP (BadStatusLine: 220 welcome" in words


def test_nobody_there_is_no_notice() -> None:
    said, trouble = announces("http://127.0.0.1:9/")
    assert not said
    assert "does not answer" in trouble


def test_the_loop_is_told_once(service: Service) -> None:
    told: list[int] = []
    loop = make_loop("builtin", lambda: None)

    def tell() -> None:
        told.append(threading.get_ident())
        loop.stop()

    watch_for_notice(url(service), loop, tell, interval=0.01)
    threading.Timer(0.05, lambda: setattr(service, "answer", (200, b"soon"))).start()
    loop.wake_at(time.monotonic() + 30)
    loop.run()
    assert told == [threading.get_ident()]


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(OptionError, match="http"):
        AgentConfig("tcp://head:2345", preemption_url="file:///etc/passwd")
