"""Which peers can work together: all speak one version of the protocol, and what one pickles another can unpickle.

Only peers whose payloads are pickles have to run the same Python and the same packages: those that are there when
another one comes. A scheduler has no say in it, nor has a store: they never look into payloads. All that are there have
the same, so who is refused is told how many that are: a single client that was left open, or the cluster.
"""

from scaler.protocol.codes import Encoding, Role
from scaler.protocol.messages import Hello
from scaler.version import __version__

#: whose versions have to be the same where pickles travel: what one of them writes the other reads
PACKAGES = ("cloudpickle", "scaler")


class Compatibility:
    """Says whom a scheduler can take, from those that it has."""

    def __init__(self, protocol: int) -> None:
        self._protocol = protocol
        #: the peers that are there and whose payloads are pickles, by number, in the order they came
        self._pickling: dict[int, Hello] = {}

    def refusal(self, hello: Hello) -> str | None:
        """In one line, what keeps a peer from working with the others; None if nothing does."""
        who = f"this {hello.role}"
        if hello.protocol != self._protocol:
            theirs = f"{who}{_scaler(versions_of(hello.packages).get('scaler'))} speaks protocol {hello.protocol}"
            ours = f"the scheduler{_scaler(__version__)} protocol {self._protocol}"
            return f"{theirs}, {ours}: install the same scaler on both"
        if Encoding.PICKLE not in hello.encodings:
            return None
        versions = versions_of(hello.packages)
        for package in PACKAGES:
            if package not in versions:
                return f"{who} has pickles to send, and does not say by which {package}: update it"
        if not self._pickling:
            return None
        there = list(self._pickling.values())
        agents = [each for each in there if each.role == Role.AGENT]
        difference = _difference(who, hello, (agents or there)[0])
        if difference is None:
            return None
        counts = f"{_count(len(agents), 'agent')} and {_count(len(there) - len(agents), 'client')}"
        return f"{difference}; {counts} are here with that, and when they have gone others may come"

    def admit(self, number: int, hello: Hello) -> None:
        """A peer is there."""
        if Encoding.PICKLE in hello.encodings:
            self._pickling[number] = hello

    def forget(self, number: int) -> None:
        """A peer is gone."""
        self._pickling.pop(number, None)


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def _scaler(version: str | None) -> str:
    return f" (scaler {version})" if version else ""


def versions_of(packages: str) -> dict[str, str]:
    """What "name=version name=version" says; whatever else it holds is skipped, since anybody can send it.

    >>> versions_of("scaler=0.1.0 gibberish cloudpickle=3.1")
    {'scaler': '0.1.0', 'cloudpickle': '3.1'}
    """
    pairs = (item.partition("=") for item in packages.split())
    return {name: version for name, _, version in pairs if version}


def _difference(who: str, hello: Hello, other: Hello) -> str | None:
    known = f"{other.role} {' '.join(other.name.split())}"
    if hello.python != other.python:
        different = f"{who} runs Python {hello.python}, {known} Python {other.python}"
        return f"{different}: functions can't travel between them"
    theirs, ours = versions_of(hello.packages), versions_of(other.packages)
    for package in PACKAGES:
        if theirs[package] != ours[package]:
            different = f"{who} has {package} {theirs[package]}, {known} {package} {ours[package]}"
            return f"{different}: install the same on both"
    return None
