"""How a connection by tcp can fail before there is one, and what is said of it."""

from scaler.errors import ConnectionFailed, ConnectionTimeout, HandshakeRefused
from scaler.transport.address import Address
from scaler.transport.security import Security


class HandshakeCut(ConnectionFailed):
    """The other side closed the connection in the handshake: it is gone, or has another key."""


def nobody(address: Address) -> ConnectionFailed:
    """Somebody takes connections for a scheduler that is gone."""
    reason = "what listens there hangs up at once, as a proxy does while there is none behind it"
    return ConnectionFailed(f"no scheduler at {address.url}: {reason}")


def silence(address: Address) -> ConnectionTimeout:
    """Somebody takes connections and says nothing."""
    return ConnectionTimeout(f"{address.url} accepts connections but does not answer: is it a scaler scheduler?")


def refusal(address: Address, security: Security) -> HandshakeRefused:
    """Somebody is there and does not want us."""
    nobodys = "or it is no scaler scheduler"
    if security.insecure:
        return HandshakeRefused(
            f"{address.url} does not accept programs without a key, and this one has none ({security.origin}): it was "
            f"started with keys (leave out {security.origin} here, too), {nobodys}"
        )
    how = f"the key of {security.origin}"
    if security.is_ephemeral:
        how = "a key that this program has made for itself, as there is no key file and none could be written"
    if security.is_outdated:
        return HandshakeRefused(
            f"{address.url} does not accept {how}, as that was when this program started: the file has another key now "
            "(start this program again to use it)"
        )
    return HandshakeRefused(
        f"{address.url} does not accept {how}: it was started with another key (copy the key file of the user who "
        f"runs it to this host, or name it in SCALER_KEY_FILE) or with --insecure (say that here, too), {nobodys}"
    )


def openness(address: Address) -> HandshakeRefused:
    """Somebody is there who has no keys, and we have one: what is said would travel in the clear."""
    return HandshakeRefused(
        f"{address.url} has no keys, and this program has one: it was started with --insecure (say that here, too, or "
        "SCALER_INSECURE=1, or start it without), or it is no scaler scheduler"
    )
