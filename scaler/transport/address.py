"""The addresses users write, tcp://host:port, and what they mean on this machine.

A scheduler that listens at an address can be found twice: by tcp, and by a local socket whose name is derived from the
user id and the numeric host and port it is bound to. Two listeners with one port on different hosts therefore have
different names, and a name stands for exactly what the tcp port of the same numbers stands for. A client asks for the
name of the address it wants and, when that address belongs to this machine, for the names of the listeners that are
bound to every address of it.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import field, replace

from scaler.common.records import frozen
from scaler.errors import AddressError, ConnectionFailed

_FORM = "the form is tcp://host:port, for example tcp://127.0.0.1:2345 or tcp://[::1]:2345 (port 0 picks a free one)"
#: Python refuses to make a number of thousands of them.
_PORT_DIGITS = 9
#: Hosts that mean "every address of this machine" to a listener, with the loopback address a client reaches them at.
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
#: A loopback address that nobody listens at who does not listen everywhere.
_ANOTHER_LOOPBACK = "127.94.163.17"


@frozen
class Address:
    """Where a scheduler listens; and where another one may that stands by for it.

    >>> Address.parse("tcp://localhost:2345")
    Address(host='localhost', port=2345)
    >>> Address.parse("tcp://[::1]:2345").url
    'tcp://[::1]:2345'
    """

    #: Host name or numeric address, IPv6 without brackets.
    host: str
    #: 0 to 65535; 0 only for a listener that is yet to pick one.
    port: int
    #: where else to look, in turn
    others: tuple[Address, ...] = field(default=(), repr=False)

    @staticmethod
    def parse(text: str | Address) -> Address:
        """The address that `text` names, or several of them, with commas between.

        Raises `AddressError`; does not resolve host names and does not block.
        """
        if isinstance(text, Address):
            return text
        if "," in text:
            first, *others = dict.fromkeys(Address.parse(part) for part in text.split(","))
            return replace(first, others=tuple(others))
        scheme, separator, rest = text.strip().partition("://")
        if not separator:
            raise AddressError(f"address {text!r} has no tcp:// in front: {_FORM}")
        if scheme == "ipc":
            raise AddressError(f"address {text!r} is for monitors (scaler_top, scaler_ui): {_FORM}")
        if scheme != "tcp":
            raise AddressError(f"address {text!r} begins with {scheme}://, only tcp:// is known: {_FORM}")
        host, separator, port = rest.rstrip("/").rpartition(":")
        if not separator or not port:
            raise AddressError(f"address {text!r} has no port: {_FORM}")
        if not (port.isascii() and port.isdigit()) or len(port) > _PORT_DIGITS or int(port) > 65535:
            raise AddressError(f"address {text!r} has port {port!r}, which is no number from 0 to 65535: {_FORM}")
        if host.startswith("[") and host.endswith("]"):
            host = _canonical(host[1:-1]) or ""
        elif ":" in host:
            raise AddressError(f"address {text!r}: an IPv6 host needs brackets: {_FORM}")
        elif host == "*":
            host = "0.0.0.0"
        if not host or not host.isprintable() or any(character.isspace() or character in "/@[]" for character in host):
            raise AddressError(f"address {text!r} has no usable host: {_FORM}")
        return Address(host, int(port))

    @property
    def url(self) -> str:
        """The address as users write it."""
        return ",".join(each._text for each in self.each)

    @property
    def each(self) -> tuple[Address, ...]:
        """This one and the others, each by itself."""
        return (replace(self, others=()), *self.others) if self.others else (self,)

    @property
    def _text(self) -> str:
        return f"tcp://[{self.host}]:{self.port}" if ":" in self.host else f"tcp://{self.host}:{self.port}"

    def __str__(self) -> str:
        return self.url

    @property
    def is_loopback(self) -> bool:
        """True if only programs of this machine can use the address."""
        return self.host == "localhost" or self.host == "::1" or (self.host.startswith("127.") and self.is_numeric)

    @property
    def is_numeric(self) -> bool:
        """Its host is a numeric one."""
        return _canonical(self.host) is not None

    def with_port(self, port: int) -> Address:
        """The same host with another port."""
        return replace(self, port=port)

    def for_client(self) -> Address:
        """What a client on this machine connects to: "every address" becomes loopback."""
        others = tuple(other.for_client() for other in self.others)
        return replace(self, host=_EVERYWHERE.get(self.host, self.host), others=others)

    def resolve(self) -> list[Address]:
        """The same address with numeric hosts, the preferred one first.

        Blocks for as long as the name service takes when the host is a name. Raises `ConnectionFailed` if nobody
        knows it.
        """
        numeric = _canonical(self.host)
        if numeric is not None:
            return [replace(self, host=numeric)]
        if self.host == "localhost":
            return [replace(self, host="127.0.0.1"), replace(self, host="::1")]
        try:
            # As bytes, so that Python does not load its tables of international names (several milliseconds).
            host = self.host.encode("ascii") if self.host.isascii() else self.host
            found = socket.getaddrinfo(host, self.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise ConnectionFailed(f"{self.url}: the host name {self.host!r} cannot be resolved ({error})") from None
        hosts = dict.fromkeys(str(sockaddr[0]) for _, _, _, _, sockaddr in found)
        return [replace(self, host=host) for host in sorted(hosts, key=lambda host: ":" in host)]

    def reached_from(self) -> str:
        """The host of this machine by which it reaches this address. Blocks while a name is looked up."""
        return self.way() or socket.gethostname()

    def way(self) -> str | None:
        """As `reached_from`; None if there is no way to it for now."""
        if self.is_loopback:
            return self.host
        with contextlib.suppress(ConnectionFailed):
            for address in self.resolve():
                family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
                with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
                    probe.connect((address.host, address.port or 1))  # a route look-up: nothing is sent
                    return str(probe.getsockname()[0])
        return None

    def is_of_this_machine(self) -> bool:
        """True if the numeric host is an address of this machine: the kernel would reach it from itself."""
        if self.is_loopback:
            return True
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((self.host, self.port or 1))  # a route look-up: nothing is sent
                return bool(probe.getsockname()[0] == self.host)
        except OSError:
            return False

    def is_everywhere(self) -> bool:
        """True if this loopback address is that of a listener at every address of this machine. Does not block.

        On Linux all of 127.0.0.0/8 is this machine, and who listens at one of them alone is not found at another.
        """
        if not self.is_loopback:
            return False
        try:
            with socket.create_connection((_ANOTHER_LOOPBACK, self.port), 0.5):
                return self.host != _ANOTHER_LOOPBACK
        except OSError:
            return False

    def local_name(self, uid: int) -> bytes:
        """Name of the local socket of a listener of user `uid` bound to this numeric address."""
        return b"\0scaler/%d/%s/%d" % (uid, os.fsencode(self.host), self.port)

    def local_names(self, uid: int) -> Iterator[bytes]:
        """Names under which a client of user `uid` may find the listener that this numeric address leads to."""
        yield self.local_name(uid)
        if self.is_of_this_machine():
            if ":" not in self.host:
                yield replace(self, host="0.0.0.0").local_name(uid)
            yield replace(self, host="::").local_name(uid)


def _canonical(host: str) -> str | None:
    """The one spelling of a numeric host, None if it is no numeric host."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return socket.inet_ntop(family, socket.inet_pton(family, host))
        except (OSError, ValueError, UnicodeError):
            continue
    return host if "%" in host and ":" in host else None
