"""Hosts that come and go with the work: a pure policy, and providers of hosts."""
