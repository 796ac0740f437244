"""Who may look at the dashboard and the metrics: each rule by itself."""

import socket
from dataclasses import replace

import pytest

from scaler.config import DashboardConfig, MetricsConfig, OptionError
from scaler.errors import ScalerError
from scaler.monitor.access import Asked, Gate, token_from
from scaler.monitor.listening import listener, names_of, plainness, url_of

TOKEN = "a-token-of-sufficient-length"
GOOD = Asked(host="127.0.0.1:8081", cookie=TOKEN)


def status(asked: Asked, gate: Gate | None = None) -> int:
    return (gate or Gate(TOKEN, 8081)).judge(asked).status


def test_the_cookie_opens_a_page():
    assert status(GOOD) == 200
    assert status(replace(GOOD, host="localhost:8081")) == 200
    assert status(replace(GOOD, host="[::1]:8081")) == 200
    assert status(replace(GOOD, method="HEAD")) == 200


@pytest.mark.parametrize("cookie", ["", "wrong", TOKEN + "x", TOKEN[:-1], "\udcff", "é"])
def test_without_the_cookie_nothing_is_shown(cookie):
    assert status(replace(GOOD, cookie=cookie)) == 403


@pytest.mark.parametrize(
    "host", ["", "evil.com", "localhost.evil.com:8081", "127.0.0.1", "127.0.0.1:80", "127.0.0.1:8081.evil.com", "[::1]"]
)
def test_a_name_that_was_rebound_to_this_address_is_refused(host):
    assert status(replace(GOOD, host=host)) == 403


@pytest.mark.parametrize("anywhere", ["0.0.0.0", "::"])
def test_who_listens_anywhere_is_called_by_the_addresses_of_its_host_and_by_its_names(anywhere):
    gate = Gate(TOKEN, 8081, names_of(anywhere))
    for host in ("0.0.0.0:8081", "10.0.0.5:8081", "[fd00::5]:8081", "localhost:8081", f"{socket.gethostname()}:8081"):
        page = replace(GOOD, host=host, origin=f"http://{host}".lower(), is_websocket=True)
        assert status(page, gate) == 200
        assert status(replace(page, origin="http://evil.com:8081"), gate) == 403
        assert status(replace(page, origin=f"https://{host}"), gate) == 403
    for host in (
        "evil.com:8081",
        "10.0.0.5:80",
        "10.0.0.5",
        "10.0.0.5:8081.evil.com",
        "fd00::5:8081",
        "[10.0.0.5]:8081",
    ):
        assert status(replace(GOOD, host=host), gate) == 403
    assert status(replace(GOOD, host="10.0.0.5:8081")) == 403
    assert "--host" in gate.judge(Asked(host="alias:8081", bearer=TOKEN, is_metrics=True)).reason


@pytest.mark.parametrize(
    "origin",
    ["http://evil.com", "null", "http://127.0.0.1:8082", "https://127.0.0.1:8081", "http://localhost.evil.com:8081"],
)
def test_pages_of_others_are_refused(origin):
    assert status(replace(GOOD, origin=origin)) == 403
    assert status(replace(GOOD, origin=origin, is_websocket=True)) == 403


def test_a_websocket_needs_origin_and_cookie():
    socket = replace(GOOD, origin="http://127.0.0.1:8081", is_websocket=True)
    assert status(socket) == 200
    assert status(replace(socket, origin="")) == 403
    assert status(replace(socket, cookie="")) == 403
    assert status(replace(socket, cookie="", token=TOKEN)) == 403  # nor does a token in its address open one


def test_the_token_of_the_address_becomes_a_cookie():
    assert status(replace(GOOD, cookie="", token=TOKEN)) == 302
    assert status(replace(GOOD, token="wrong")) == 403
    assert status(replace(GOOD, cookie="", token=TOKEN, host="evil.com")) == 403


def test_metrics_are_opened_by_the_bearer_and_nothing_in_the_address():
    metrics = Asked(host="127.0.0.1:8081", bearer=TOKEN, is_metrics=True)
    assert status(metrics) == 200
    assert status(replace(metrics, bearer="wrong")) == 403
    assert status(replace(metrics, bearer="")) == 403
    assert status(replace(metrics, bearer="", token=TOKEN)) == 403
    assert status(replace(metrics, bearer="", cookie=TOKEN)) == 200
    assert status(replace(metrics, is_metrics=False)) == 403  # and the bearer opens no page


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_there_is_nothing_to_be_changed(method):
    assert status(replace(GOOD, method=method)) == 405


def test_a_proxy_is_let_in_by_its_origin_and_no_other():
    gate = Gate(TOKEN, 8081, origins=["https://Hub.example.org"])
    page = Asked(host="hub.example.org", origin="https://hub.example.org", cookie=TOKEN)
    assert status(page, gate) == 200
    assert status(replace(page, origin="http://hub.example.org"), gate) == 403
    assert status(replace(page, host="hub.example.org.evil.com"), gate) == 403
    for wrong in (
        "hub.example.org", "https://hub/path", "ftp://hub", "", "https://[hub", "https://hub:99999", "https://hub:x",
        "https://me@hub", "https://hub#top", "https://:80",
    ):  # fmt: skip
        with pytest.raises(ScalerError, match="is no origin"):
            Gate(TOKEN, 8081, origins=[wrong])


@pytest.mark.parametrize("host", ["a..b", "a" * 70 + ".com"])
def test_a_host_that_can_not_be_called_so_is_one_line(host):
    with pytest.raises(ScalerError, match=f"^cannot listen at {host}: "):
        listener(host, 0)


def test_a_port_that_browsers_leave_out_is_left_out():
    gate = Gate(TOKEN, 443, ["head"], is_secure=True)
    assert status(Asked(host="head", origin="https://head", cookie=TOKEN), gate) == 200
    assert gate.is_secure


def test_a_token_file_is_made_and_kept_and_nobody_elses_to_read(tmp_path):
    path = str(tmp_path / "token")
    token = token_from(path)
    assert token_from(path) == token
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    (tmp_path / "token").chmod(0o640)
    with pytest.raises(ScalerError, match="chmod 600"):
        token_from(path)
    (tmp_path / "short").write_text("abc\n")
    (tmp_path / "short").chmod(0o600)
    with pytest.raises(ScalerError, match="at least 16 characters"):
        token_from(str(tmp_path / "short"))
    tmp_path.chmod(0o755)
    with pytest.raises(ScalerError, match="it is no file"):
        token_from(str(tmp_path))
    with pytest.raises(ScalerError, match="cannot make the token file"):
        token_from(str(tmp_path / "nowhere" / "token"))
    assert token_from(None) != token_from(None)


@pytest.mark.parametrize("config", [DashboardConfig, MetricsConfig])
def test_another_address_than_loopback_needs_tls_or_insecure(config):
    for host in ("0.0.0.0", "10.0.0.5", "head", "::", "localhost.evil.com"):
        with pytest.raises(OptionError, match="--certificate"):
            config("ipc:///m", host=host, port=1)
        made = config("ipc:///m", host=host, port=1, insecure=True)
        assert made.host == host
        assert "travel in the clear" in plainness(made)
        assert plainness(replace(made, certificate="c.pem")) is None
        assert config("ipc:///m", host=host, port=1, certificate="c.pem").certificate == "c.pem"
    assert config("ipc:///m", host="127.0.0.9", port=1).port == 1
    with pytest.raises(OptionError, match="belongs to a certificate"):
        config("ipc:///m", certificate_key="k.pem")
    with pytest.raises(OptionError, match="at most 65535"):
        config("ipc:///m", port=65536)
    with pytest.raises(OptionError, match=r"host nohost\.invalid can't be resolved"):
        config("ipc:///m", host="nohost.invalid", port=1)
    assert plainness(config("ipc:///m", port=1, insecure=True)) is None


def test_the_address_that_is_printed_is_one_that_others_can_open():
    made = MetricsConfig("ipc:///m", host="0.0.0.0", insecure=True)
    assert url_of(made, 8) == f"http://{socket.gethostname()}:8"
    assert url_of(replace(made, host="fd00::5", certificate="c.pem"), 8) == "https://[fd00::5]:8"
