"""Hosts that somebody asks a batch system for, as it tells."""

from typing import NamedTuple

from scaler.protocol.messages import Command

#: seconds for which a report is believed
BELIEVED = 60.0
#: providers that one session may tell of
PROVIDERS = 16


class FleetRecord(NamedTuple):
    """What somebody told last of the hosts that it asks for."""

    report: Command
    #: when, seconds
    told: float
