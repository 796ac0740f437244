"""Where web pages and metrics are served: a socket at an address, its names, and TLS."""

from __future__ import annotations

import os
import socket
import ssl

from scaler.config import DashboardConfig, MetricsConfig, is_loopback
from scaler.errors import ScalerError
from scaler.monitor.access import ANYWHERE, LOOPBACK

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
