"""The process that has the Symphony session, as `scaler_symphony_cluster` starts it; see `scaler.symphony.process`."""

from __future__ import annotations

from scaler.cli.logs import direct
from scaler.symphony.process import main

if __name__ == "__main__":
    main(direct)
