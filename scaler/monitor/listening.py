"""Where web pages and metrics are served: a socket, its names, TLS, and the keys to watch with."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable
from functools import partial

from scaler.config import DashboardConfig, MetricsConfig, is_loopback
from scaler.errors import ScalerError
from scaler.monitor.access import ANYWHERE, LOOPBACK
from scaler.transport import Security, joining_security, known_security

#: connections that may wait to be accepted
_BACKLOG = 64


def listener(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises `ScalerError` in one line that says what to do."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )[0]
        made = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise ScalerError(f"cannot listen at {host}: {error.strerror or error}") from None
    except UnicodeError:  # before anybody is asked
        raise ScalerError(f"cannot listen at {host}: no host can be called so") from None
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        why = os.strerror(error.errno) if error.errno else str(error)
        raise ScalerError(
            f"cannot listen at {host}, port {port} ({why}): choose another port with --port, or a free one by --port 0"
        ) from None
    return made


def names_of(host: str) -> list[str]:
    """How a server at this address is called by those who may reach it."""
    if is_loopback(host):
        return sorted({*LOOPBACK, host})
    if host in ANYWHERE:
        return sorted({*LOOPBACK, *ANYWHERE, socket.gethostname(), socket.getfqdn()})
    return [host]


def url_of(config: DashboardConfig | MetricsConfig, port: int) -> str:
    """The address at which it is found, without a path: of one that listens everywhere by its host's name."""
    host = socket.gethostname() if config.host in ANYWHERE else config.host
    scheme = "http" if config.certificate is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def plainness(config: DashboardConfig | MetricsConfig) -> str | None:
    """What it means to listen there without TLS, in one line; None with TLS, or where no other host gets to."""
    if config.certificate is not None or is_loopback(config.host):
        return None
    return (
        f"insecure: token and pages travel in the clear to whoever opens them at {config.host}, and others on the way "
        "can read both; --certificate and --key are for TLS"
    )


def keys_of(config: DashboardConfig | MetricsConfig) -> tuple[Security | None, Callable[[], Security] | None]:
    """The keys to watch a cluster with, and where others are to be had if those are refused.

    With `--insecure`, which is about pages as well, there are none at first, then those of a cluster that has keys.
    Raises `KeyFileError`.
    """
    security = known_security(config.key_file, config.insecure)
    return security, partial(joining_security, config.key_file) if config.insecure else None


def tls_of(config: DashboardConfig | MetricsConfig) -> ssl.SSLContext | None:
    """What the configuration says of TLS; None without a certificate. Raises `ScalerError`."""
    if config.certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(config.certificate, config.certificate_key)
    except ssl.SSLError:
        why = "it is no certificate in PEM with its private key behind it; --key names the key if that is another file"
        if config.certificate_key is not None:
            why = f"it and the key {config.certificate_key} have to be PEM, and belong together"
        raise ScalerError(f"cannot use the certificate {config.certificate}: {why}") from None
    except OSError as error:
        raise ScalerError(f"cannot use the certificate {config.certificate}: {error.strerror or error}") from None
    return context
