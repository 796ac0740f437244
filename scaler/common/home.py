"""Where a user's own files are: keys, configuration."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping


def config_directory(environ: Mapping[str, str] = os.environ) -> str | None:
    """$XDG_CONFIG_HOME, else ~/.config; None for a user without a home: no $HOME, and nobody knows the user's number.

    >>> config_directory({"HOME": "/home/ada"})
    '/home/ada/.config'
    """
    said = environ.get("XDG_CONFIG_HOME")
    if said:
        return said
    home = environ.get("HOME") or _home_of_user()
    return os.path.join(home, ".config") if home else None


def _home_of_user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""
