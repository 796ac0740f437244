"""Who may look: each request to a page, a socket or the metrics is judged here, before anything else is done with it.

Loopback is no boundary on a host that several people use, and a browser sends what any page asks it to. So all of
these have to hold: `Host` names this server (a name that was rebound to this address does not), `Origin`, if there is
one, is a page of this server, and the request has the token, as a cookie or, for the metrics, as a bearer. Nothing is
changed by a request: only GET and HEAD are answered.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from scaler.errors import ScalerError

#: bytes of chance in a token
_TOKEN_BYTES = 32
#: names under which programs of this host reach its loopback addresses
LOOPBACK = ("127.0.0.1", "localhost", "::1")
#: where a server listens that is reached at each address of its host
ANYWHERE = ("0.0.0.0", "::")


@dataclass(frozen=True)
class Asked:
    """What a request says of itself; empty where it says nothing."""

    method: str = "GET"
    host: str = ""
    origin: str = ""
    #: `token=` of the address, value of our cookie, and what stands behind "Bearer"
    token: str = ""
    cookie: str = ""
    bearer: str = ""
    is_websocket: bool = False
    is_metrics: bool = False


@dataclass(frozen=True)
class Verdict:
    """What becomes of a request: 200 it is answered, 302 the token becomes a cookie, else it is refused."""

    status: int
    reason: str = ""


_GRANTED = Verdict(200)
_NO_TOKEN = "open the address with the token that the program printed when it started"
_NO_BEARER = "the token goes with each request, as 'Authorization: Bearer TOKEN'"


class Gate:
    """The rules of one server."""

    def __init__(
        self,
        token: str,
        port: int,
        names: Iterable[str] = LOOPBACK,
        origins: Iterable[str] = (),
        is_secure: bool = False,
    ) -> None:
        """`names`: of this server's host; `origins`: of proxies in front of it, as https://host[:port].

        Who listens `ANYWHERE` may be called by any address: only names can be rebound.
        """
        self._token = token.encode()
        names = tuple(names)
        self._is_anywhere = not set(names).isdisjoint(ANYWHERE)
        #: browsers keep cookies for a host, not for a port
        self.cookie_name = f"scaler_ui_{port}"
        self.is_secure = is_secure
        self._port, self._scheme = port, "https" if is_secure else "http"
        scheme = self._scheme
        others = [_origin(text) for text in origins]
        hosts = {_host(name, port, scheme) for name in names}
        self._hosts = frozenset(hosts | {urlsplit(origin).netloc for origin in others})
        self._origins = frozenset({f"{scheme}://{host}" for host in hosts} | set(others))

    def judge(self, asked: Asked) -> Verdict:
        """What becomes of this request."""
        if not self._is_ours(asked.host.lower()):
            advice = "--host says how it is" if asked.is_metrics else "--allow-origin names a proxy in front of it"
            return Verdict(403, f"this server is not called {asked.host!r} ({advice})")
        if asked.origin and not self._is_of_ours(asked.origin.lower()):
            return Verdict(403, f"pages of {asked.origin!r} have no business here (--allow-origin names a proxy's)")
        if asked.is_websocket and not asked.origin:
            return Verdict(403, "a websocket is opened by a page, which has an origin")
        if asked.method not in ("GET", "HEAD"):
            return Verdict(405, "there is nothing to be changed here")
        if asked.is_metrics and asked.bearer:
            return _GRANTED if self._is_token(asked.bearer) else Verdict(403, _NO_BEARER)
        if asked.token and not asked.is_websocket and not asked.is_metrics:
            return Verdict(302) if self._is_token(asked.token) else Verdict(403, _NO_TOKEN)
        if self._is_token(asked.cookie):
            return _GRANTED
        return Verdict(403, _NO_BEARER if asked.is_metrics else _NO_TOKEN)

    def _is_ours(self, host: str) -> bool:
        return host in self._hosts or (self._is_anywhere and _is_address(host, self._port, self._scheme))

    def _is_of_ours(self, origin: str) -> bool:
        scheme, _, host = origin.partition("://")
        return origin in self._origins or (
            self._is_anywhere and scheme == self._scheme and _is_address(host, self._port, scheme)
        )

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(errors="replace"), self._token)


def bearer_of(authorization: str) -> str:
    """What stands behind "Bearer" in a header.

    >>> bearer_of("Bearer abc"), bearer_of("Basic abc")
    ('abc', '')
    """
    scheme, _, value = authorization.partition(" ")
    return value.strip() if scheme.lower() == "bearer" else ""


def token_from(path: str | None) -> str:
    """The token in a file, which is made with a new one if it is not there; a new one without a file.

    Raises `ScalerError` when others than its owner may read the file, or it can't be read or made.
    """
    if path is None:
        return secrets.token_urlsafe(_TOKEN_BYTES)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read_token(Path(path))
    except OSError as error:
        raise ScalerError(f"cannot make the token file {path}: {error.strerror}") from None
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(token + "\n")
    return token


def _read_token(path: Path) -> str:
    try:
        if not path.is_file():
            raise ScalerError(f"cannot read the token file {path}: it is no file")
        if path.stat().st_mode & 0o077:
            raise ScalerError(f"others than you may read the token file {path}: chmod 600 {path}")
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ScalerError(f"cannot read the token file {path}: {error}") from None
    if len(token) < 16 or not token.isprintable() or " " in token:
        raise ScalerError(f"the token file {path} has no token of at least 16 characters: remove it, and one is made")
    return token


def _host(name: str, port: int, scheme: str) -> str:
    """What browsers say as `Host`."""
    shown = f"[{name}]" if ":" in name else name.lower()
    return shown if port == {"http": 80, "https": 443}[scheme] else f"{shown}:{port}"


def _is_address(host: str, port: int, scheme: str) -> bool:
    """This `Host` is an address with this port.

    >>> _is_address("10.0.0.5:8081", 8081, "http"), _is_address("[fd00::5]", 443, "https")
    (True, True)
    >>> _is_address("10.0.0.5:80", 8081, "http"), _is_address("rebound:8081", 8081, "http")
    (False, False)
    """
    name = host.removesuffix(f":{port}").removeprefix("[").removesuffix("]")
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return host == _host(name, port, scheme)


def _origin(text: str) -> str:
    """An origin as browsers write it. Raises `ScalerError`."""
    wrong = ScalerError(f"{text!r} is no origin: write it as https://host or https://host:port")
    try:
        parts = urlsplit(text.strip().lower())
        has_host = bool(parts.hostname) and parts.port != 0  # which raises for a port that is none
    except ValueError:
        raise wrong from None
    rest = (parts.path.removeprefix("/"), parts.query, parts.fragment, parts.username)
    if parts.scheme not in ("http", "https") or not has_host or any(rest):
        raise wrong
    default = ":443" if parts.scheme == "https" else ":80"
    return f"{parts.scheme}://{parts.netloc.removesuffix(default)}"
