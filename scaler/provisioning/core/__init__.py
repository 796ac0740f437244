"""How many hosts are wanted, which are asked for and which go: decisions without I/O.

events      what is seen of the cluster and of the provider, and what is to be done
limits      the figures that decide
wanted      demand -> the number of hosts, with hysteresis
jobs        each host that was asked for, from the request to its end
fleet_core  one entry point: `handle(events, now) -> effects`
"""

from scaler.provisioning.core.fleet_core import FleetCore
from scaler.provisioning.core.limits import Limits

__all__ = ["FleetCore", "Limits"]
