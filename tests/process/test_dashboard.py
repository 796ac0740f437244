"""The dashboard's process under a real scheduler: who is let in, what is refused, and how it begins and ends."""

import base64
import contextlib
import functools
import http.client
import json
import os
import re
import resource
import select
import signal
import socket
import sys
import zlib
from urllib.parse import urlsplit

import pytest
from support import until

from scaler.cli import metrics, ui
from scaler.cli.command import call
from scaler.config import DashboardConfig, settings


class Dashboard:
    """A running dashboard, as a browser or somebody else sees it."""

    def __init__(self, running, url: str) -> None:
        parts = urlsplit(url)
        self.program, self.port, self.prefix = running, parts.port, parts.path.rstrip("/")
        self.token = parts.query.removeprefix("token=")
        self.cookie = f"scaler_ui_{self.port}={self.token}"

    def ask(self, path: str = "/", *, method: str = "GET", cookie: bool = True, **headers: str):
        """Status, headers and text of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if cookie:
            named["Cookie"] = self.cookie
        try:
            connection.request(method, self.prefix + path, headers=named)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    @functools.cached_property
    def session(self) -> str:
        """What opens the session of a page."""
        page = self.ask("/clients")[2]
        return json.loads(page.partition('id="page">')[2].partition("</script>")[0])["token"]

    def upgrade(self, **headers: str) -> int:
        """The status of an attempt to open a page's websocket."""
        key = base64.b64encode(os.urandom(16)).decode()
        wanted = {
            "Host": f"127.0.0.1:{self.port}", "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": key,
            "Sec-WebSocket-Version": "13", "Sec-WebSocket-Protocol": f"bokeh, {self.session}",
            "Origin": f"http://127.0.0.1:{self.port}", "Cookie": self.cookie,
        } | headers  # fmt: skip
        lines = [f"{name}: {value}" for name, value in wanted.items() if value]
        with socket.create_connection(("127.0.0.1", self.port), 30) as made:
            made.sendall("\r\n".join([f"GET {self.prefix}/clients/ws HTTP/1.1", *lines, "", ""]).encode())
            return int(made.recv(100).split()[1])

    def garbage(self, protocol: str) -> bytes:
        """What is said to somebody whose websocket has such a token, and who goes on talking, until it is closed."""
        lines = [
            f"GET {self.prefix}/clients/ws HTTP/1.1", f"Host: 127.0.0.1:{self.port}", "Connection: Upgrade",
            "Upgrade: websocket", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {'A' * 22}==",
            f"Sec-WebSocket-Protocol: {protocol}", f"Origin: http://127.0.0.1:{self.port}", f"Cookie: {self.cookie}",
        ]  # fmt: skip
        with socket.create_connection(("127.0.0.1", self.port), 30) as made:
            made.sendall("\r\n".join([*lines, "", ""]).encode())
            said = b""
            while b"\x88" not in said and (more := made.recv(1000)):
                said += more
                with contextlib.suppress(OSError):
                    made.sendall(b"\x81\x84\0\0\0\0what")
            return said


@pytest.fixture
def start(start_cluster, daemons):
    """Starts a dashboard of a local cluster."""

    def start(*options: str) -> Dashboard:
        cluster = start_cluster(1)
        running = daemons.run("scaler_ui", "ui", cluster.monitor_address, "--port", "0", *options)
        return Dashboard(running, running.says(r"Dashboard: open (\S+)")[1])

    return start


def test_garbage_is_a_line_of_the_log_and_silence_is_closed(start):
    board = start()
    silent = socket.create_connection(("127.0.0.1", board.port), 30)
    encoded = [base64.urlsafe_b64encode(each).decode().rstrip("=") for each in (b"[]", b"{}", b'{"session_id": 1}')]
    tokens = ["garbage", "\xff\xfe", "a.b.c", *encoded, *[each + ".x" for each in encoded], board.session[:-2]]
    for protocol in [*[f"bokeh, {token}" for token in tokens], "bokeh", "", f"other, {board.session}"]:
        assert b" 101 " in board.garbage(protocol)
    assert b" 101 " in board.garbage(f"bokeh, {board.session}")  # whose token is good, and who says nonsense
    assert board.ask("/clients?bokeh-session-id=garbage&bokeh-token=x")[0] == 200
    assert board.ask("/clients", Bokeh_Session_Id="garbage")[0] == 200
    assert silent.recv(100) == b""
    assert board.upgrade() == 101
    for path in ("/static/js/%00", "/assets/%00", "/%00", "/static/js/%ff", "/static/js/" + 5000 * "a"):
        assert board.ask(path)[0] in (400, 404), path
    assert "Traceback" not in board.program.text
    assert board.program.text.count("closed the socket of a page, from 127.0.0.1") <= 3
    assert len(board.program.text.splitlines()) <= 4


def test_more_connections_than_there_is_room_for_are_closed_with_one_line(start):
    board = start()
    resource.prlimit(board.program.pid, resource.RLIMIT_NOFILE, (80, 80))
    with contextlib.ExitStack() as opened:
        many = [opened.enter_context(socket.create_connection(("127.0.0.1", board.port), 30)) for _ in range(120)]
        assert until(lambda: select.select(many, [], [], 0)[0], "one to be closed")
        # those that ask for nothing go within seconds
        until(lambda: _answers(board), "room for a page", 30.0)
    assert "Traceback" not in board.program.text
    assert 1 <= board.program.text.count("closed a connection from 127.0.0.1 at once") <= 3


def _answers(board: Dashboard) -> bool:
    try:
        return board.ask("/clients")[0] == 200
    except OSError:
        return False


def frame(kind: int, data: bytes) -> bytes:
    """What a browser says over its socket, in one piece, masked with zeros; of a kind beyond 64 compressed."""
    return bytes([0x80 | kind, 0x80 | len(data), 0, 0, 0, 0]) + data


def test_what_a_browser_says_over_its_socket_leaves_no_traceback(start):
    board = start()
    said = [
        *[(frame(1, part) for part in (json.dumps({"msgid": "1", "msgtype": kind}).encode(), b"{}", b"{}"))
          for kind in ("OK", "ACK", "ERROR", "PUSH-DOC", "nothing")],
        [frame(1, b"{}")] * 3, [frame(65, b"\xff\xff\xff")], [frame(1, b"\xff\xfe")],
        [frame(9, b"x"), frame(10, b"\xff")],
    ]  # fmt: skip
    for frames in said:
        board.__dict__.pop("session", None)  # each has a page of its own
        lines = [
            "GET /clients/ws HTTP/1.1", f"Host: 127.0.0.1:{board.port}", "Connection: Upgrade", "Upgrade: websocket",
            "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {'A' * 22}==", f"Cookie: {board.cookie}",
            f"Sec-WebSocket-Protocol: bokeh, {board.session}", f"Origin: http://127.0.0.1:{board.port}",
            "Sec-WebSocket-Extensions: permessage-deflate",
        ]  # fmt: skip
        with socket.create_connection(("127.0.0.1", board.port), 30) as made:
            made.sendall("\r\n".join([*lines, "", ""]).encode())
            heard = b""
            while b"\r\n\r\n" not in heard or b"ACK" not in _plain(heard):
                heard += made.recv(4096)
            made.sendall(b"".join(frames))
            made.sendall(frame(8, b""))
            with contextlib.suppress(OSError):
                while made.recv(65536):
                    pass
    assert board.ask("/clients")[0] == 200
    assert "Traceback" not in board.program.text
    assert "ERROR" not in board.program.text


def _plain(heard: bytes) -> bytes:
    """The first message of a server, which may be compressed."""
    rest = heard.partition(b"\r\n\r\n")[2]
    if len(rest) < 2 or len(rest) < 2 + rest[1]:
        return b""
    data = rest[2 : 2 + rest[1]]
    return zlib.decompressobj(-15).decompress(data + b"\0\0\xff\xff") if rest[0] & 64 else data


def test_who_is_let_in(start):
    dashboard = start()
    # the token becomes a cookie, and leaves the address
    status, headers, _ = dashboard.ask(f"/workers?token={dashboard.token}&find=a%20b", cookie=False)
    assert (status, headers["Location"]) == (302, "./workers?find=a+b")
    cookie = headers["Set-Cookie"]
    assert cookie.startswith(dashboard.cookie + ";")
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "expires=" in cookie, "a browser that is started again keeps it"
    status, headers, _ = dashboard.ask(f"/?token={dashboard.token}", cookie=False, Sec_Fetch_Site="cross-site")
    assert (status, headers["Refresh"]) == (200, "0; url=./")
    assert dashboard.ask("/?token=wrong", cookie=False)[0] == 403

    paths = ("/clients", "/assets/dashboard.js", "/static/js/bokeh.min.js", "/metrics", "/no/such/page")
    for path in paths:
        assert dashboard.ask(path, cookie=False)[0] == 403, path
        assert dashboard.ask(path, Host="evil.com")[0] == 403, path
        assert dashboard.ask(path, Host=f"localhost.evil.com:{dashboard.port}")[0] == 403, path
        assert dashboard.ask(path, Origin="http://evil.com")[0] == 403, path
        assert dashboard.ask(path, method="POST")[0] == 405, path
    for path in paths[:-1]:
        assert dashboard.ask(path)[0] == 200, path
    for path in ("/no/such/page", "/autoload.js", "/metadata", "/assets/../server.py", "/static/js/../../../x.py"):
        assert dashboard.ask(path)[0] in (403, 404), path
    bearer = f"Bearer {dashboard.token}"
    assert dashboard.ask("/metrics", cookie=False, Authorization=bearer)[0] == 200
    assert dashboard.ask("/metrics", method="HEAD", cookie=False, Authorization=bearer)[::2] == (200, "")
    assert dashboard.ask("/workers", method="HEAD")[::2] == (200, "")

    assert dashboard.upgrade() == 101
    assert dashboard.upgrade(Cookie="") == 403
    assert dashboard.upgrade(Origin="") == 403
    assert dashboard.upgrade(Origin="http://evil.com") == 403
    assert dashboard.upgrade(Origin=f"http://localhost.evil.com:{dashboard.port}") == 403
    assert dashboard.upgrade(Host="evil.com") == 403

    status, headers, page = dashboard.ask("/objects")
    assert "script-src 'self';" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert dashboard.token not in page
    said = base64.urlsafe_b64decode(dashboard.session.partition(".")[0] + "===").decode(errors="replace")
    assert dashboard.token not in said  # an HttpOnly cookie is not to be read from the page's session

    dashboard.program.signal(signal.SIGTERM)
    assert dashboard.program.ends(10) == 0


def test_a_page_under_a_prefix_and_a_proxys_origin(start, tmp_path):
    file = tmp_path / "token"
    dashboard = start(
        "--prefix", "/user/me/proxy/", "--allow-origin", "https://hub.example.org", "--token-file", str(file)
    )
    assert dashboard.prefix == "/user/me/proxy"
    assert dashboard.token == file.read_text().strip()
    assert dashboard.ask("/objects", Host="hub.example.org", Origin="https://hub.example.org")[0] == 200
    assert dashboard.ask("/functions", Host="hub.example.org", Origin="https://other.example.org")[0] == 403
    status, headers, _ = dashboard.ask(f"/?token={dashboard.token}", cookie=False)
    assert (status, headers["Location"]) == (302, "./")
    assert "path" not in headers["Set-Cookie"].lower()  # so it stays where the browser has got it: under the prefix
    assert dashboard.upgrade(Host="hub.example.org", Origin="https://hub.example.org") == 101
    metrics = until(lambda: (text := dashboard.ask("/metrics")[2]) and "scaler_workers{" in text and text)
    assert re.search(r'^scaler_workers\{state="\w+"\} 1$', metrics, re.MULTILINE)


def test_one_that_waits_begins_without_a_scheduler(daemons):
    with socket.create_server(("127.0.0.1", 0)) as free:
        daemons.address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    running = daemons.run("scaler_ui", "ui", daemons.address, "--port", "0", "--wait")
    dashboard = Dashboard(running, running.says(r"Dashboard: open (\S+)")[1])
    assert "scaler_up 0" in dashboard.ask("/metrics")[2]
    assert dashboard.ask("/")[0] == 200
    daemons.start_scheduler()
    until(lambda: "scaler_up 1" in dashboard.ask("/metrics")[2], "it to find the scheduler")
    running.signal(signal.SIGTERM)
    assert running.ends(10) == 0


def test_each_way_not_to_begin_is_one_line(start_cluster, tmp_path, capsys, monkeypatch):
    monitor = start_cluster(1).monitor_address

    def complaint(command, *arguments: str) -> str:
        assert call(command, "scaler_ui", arguments) in (1, 2)
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        return err

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"port {port} (Address already in use): choose another" in complaint(ui.command, monitor, "--port", port)
    free = (monitor, "--port", "0")
    assert "--certificate and --key for TLS, or say --insecure" in complaint(ui.command, *free, "--host", "0.0.0.0")
    assert "cannot use the certificate" in complaint(ui.command, *free, "--certificate", str(tmp_path / "none.pem"))
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    assert "--key names the key" in complaint(ui.command, *free, "--certificate", str(garbage))
    assert "belong together" in complaint(ui.command, *free, "--certificate", str(garbage), "--key", str(garbage))
    assert "is no origin" in complaint(ui.command, *free, "--allow-origin", "hub")
    for command in (ui.command, metrics.command):
        assert "no scheduler is there" in complaint(command, f"ipc://{tmp_path}/nothing", "--port", "0")
        assert "is no address" in complaint(command, "nonsense", "--port", "0")
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert complaint(ui.command, *free) == "scaler_ui: the output can't be written: No space left on device\n"
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert "the output can't be written" in complaint(metrics.command, *free)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert complaint(ui.command, *free) == "scaler_ui: the dashboard needs Bokeh: pip install scaler[dashboard]\n"
    assert call(metrics.command, "scaler metrics", [monitor]) == 0
    assert "scaler_up 1\n" in capsys.readouterr().out


def test_metrics_are_served_alone(daemons, start_cluster):
    running = daemons.run("scaler", "main", "metrics", start_cluster(1).monitor_address, "--port", "0")
    found = running.says(r"Metrics: at (\S+), with the bearer token (\S+)")
    url, token = urlsplit(found[1]), found[2]

    def ask(path: str, **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    good = {"Authorization": f"Bearer {token}"}
    assert "scaler_up" in ask("/metrics", **good)[1]
    assert ask("/metrics")[0] == 403
    assert ask("/metrics", Authorization="Bearer wrong")[0] == 403
    assert ask("/metrics", Host="evil.com", **good)[0] == 403
    assert ask("/metrics", Origin="http://evil.com", **good)[0] == 403
    assert ask("/other", **good)[0] == 404
    assert [ask("ftp://[", **good)[0], ask("ftp://[")[0]] == [404, 403]
    slow = [socket.create_connection((url.hostname, url.port), 30) for _ in range(50)]

    def are_few() -> bool:
        for each in slow:
            with contextlib.suppress(OSError):
                each.send(b"G")
        return len(os.listdir(f"/proc/{running.pid}/task")) < 32

    assert "scaler_up" in ask("/metrics", **good)[1]
    until(are_few)
    assert "scaler_up" in ask("/metrics", **good)[1]
    assert "Traceback" not in running.text
    running.signal(signal.SIGTERM)
    assert running.ends(10) == 0


def test_no_option_takes_the_keys_variable():
    assert "SCALER_KEY" not in {setting.env_name for setting in settings(DashboardConfig)}
