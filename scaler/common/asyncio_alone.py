"""asyncio without ssl, for a process that runs no code of users and leaves both alone.

pycapnp imports asyncio, which imports ssl if it can: 4 MB, most of it libcrypto, and a fifth of the time that asyncio
takes to load. Nothing of ours uses either, so a scheduler begins with asyncio as it is where Python was built without
ssl. Who imports ssl afterwards has it. A process that workers are forked from must not do this: their tasks would have
an asyncio that can't connect by TLS.
"""

from __future__ import annotations

import sys


def load() -> None:
    """Import asyncio without ssl, unless one of them is there already."""
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    sys.modules["ssl"] = None  # type: ignore[assignment]  # so an import finds that there is none
    try:
        import asyncio  # noqa: F401
    finally:
        del sys.modules["ssl"]
