"""Who else is on the host, or on the way to it: another Unix user, and somebody who reads the wire."""

import http.client
import json
import os
import shutil
import ssl
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support.programs import environment

#: run as root: loads all that a monitor needs, then becomes nobody, and says what it is told
NOBODY = """
import http.client, json, os, sys
from scaler.monitor import Watcher
monitor, port, files = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
def tried(call):
    try:
        return str(call())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
def page(path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path)
    return connection.getresponse().status
def watched():
    with Watcher(monitor) as watcher:
        return watcher.wait(0, 10) is not None
said = {"as root": tried(watched)}
page("/")  # loads what requests need
os.setgroups([]); os.setgid(65534); os.setuid(65534)
said["watch"] = tried(watched)
said["pages"] = [page(path) for path in ("/", "/?token=guess", "/metrics", "/assets/tables.js")]
said["files"] = [tried(lambda: open(file).read()) for file in files]
print(json.dumps(said))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_of_the_host_sees_nothing(start_cluster, daemons, tmp_path):
    cluster, file = start_cluster(1), tmp_path / "token"
    running = daemons.run("scaler_ui", "ui", cluster.monitor_address, "--port", "0", "--token-file", str(file))
    url = urlsplit(running.says(r"Dashboard: open (\S+)")[1])
    socket, token = Path(cluster.monitor_address.removeprefix("ipc://")), file.read_text().strip()

    def nobody() -> dict:
        command = [sys.executable, "-c", NOBODY, cluster.monitor_address, str(url.port), str(file)]
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=60, env=environment(), cwd="/", check=False
        )
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    said = nobody()
    assert said["as root"] == "True"
    assert said["watch"].startswith("ConnectionFailed: ")
    assert "\n" not in said["watch"]
    assert said["pages"] == [403] * 4
    assert said["files"][0].startswith("PermissionError")
    assert not file.stat().st_mode & 0o077
    socket.chmod(0o666)  # as if somebody had opened it: the scheduler looks at who has connected, too
    said = nobody()
    assert said["as root"] == "True"
    assert said["watch"].startswith(("ConnectionFailed: ", "HandshakeRefused: "))
    assert token not in Path(f"/proc/{running.pid}/cmdline").read_text()  # which everybody may read


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_pages_and_metrics_by_https(start_cluster, daemons, tmp_path):
    certificate, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=scaler",
         "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    monitor = start_cluster(1).monitor_address
    tls = ("--certificate", certificate, "--key", key)
    pages = daemons.run("scaler_ui", "ui", monitor, "--port", "0", "--host", "0.0.0.0", *tls)
    metrics = daemons.run("scaler", "main", "metrics", monitor, "--port", "0", *tls)
    page = urlsplit(pages.says(r"Dashboard: open (\S+)")[1])
    found = metrics.says(r"Metrics: at (\S+), with the bearer token (\S+)")
    trusted = ssl.create_default_context(cafile=certificate)

    def ask(port: int, path: str, **headers: str) -> tuple[int, http.client.HTTPMessage, str]:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=trusted)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, answer.headers, text

    assert page.scheme == urlsplit(found[1]).scheme == "https"
    status, headers, _ = ask(page.port, f"/?{page.query}")
    cookie = headers["Set-Cookie"]
    assert status == 302
    assert "Secure" in cookie
    assert ask(page.port, "/")[0] == 403
    assert ask(page.port, "/", Cookie=cookie.partition(";")[0])[0] == 200
    assert ask(urlsplit(found[1]).port, "/metrics", Authorization=f"Bearer {found[2]}")[2].startswith("#")
    for port in (page.port, urlsplit(found[1]).port):  # nothing is said in the clear
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/")
        with pytest.raises((http.client.HTTPException, OSError)):
            connection.getresponse()
        connection.close()
