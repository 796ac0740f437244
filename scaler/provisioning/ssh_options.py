"""What the provider "ssh" can be told, and the command line of ssh that follows from it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

from scaler.config import LAST_PORT, LONGEST_LOOK, MOST_HOSTS, OptionError
from scaler.provisioning.registry import Known, take

#: options of ssh, before those of the user, of which the first one counts
DEFAULTS = ("BatchMode=yes", "ServerAliveInterval=15", "ServerAliveCountMax=3")

OPTIONS: dict[str, Known] = {
    "hosts": (list, []), "hosts_file": (str, ""), "user": (str, ""), "identity": (str, ""),
    "port": (int, 0, 0, LAST_PORT), "parallel": (int, 32, 1, MOST_HOSTS), "connect_timeout": (int, 10, 1, LONGEST_LOOK),
    "grace": (float, 5.0, 0.0, LONGEST_LOOK), "python": (str, "python3"), "ssh_options": (list, []), "log": (str, ""),
    "ssh": (str, "ssh"),
}  # fmt: skip


def checked(options: dict[str, Any]) -> dict[str, Any]:
    """All options, with the defaults of those that are not there. Raises `OptionError`."""
    found = take(options, OPTIONS, "ssh")
    try:
        open(found["log"] or os.devnull, "ab").close()
    except OSError as error:
        raise OptionError("log", f"cannot be written: {error}") from error
    return found


def hosts_of(options: dict[str, Any]) -> list[str]:
    """The hosts that the options name, each once. Raises `OptionError`."""
    hosts = list(options["hosts"])
    if options["hosts_file"]:
        try:
            hosts += hosts_in(Path(options["hosts_file"]).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise OptionError("hosts_file", f"cannot be read: {error}") from error
    if not hosts:
        raise OptionError("hosts", "has to name hosts, or hosts_file a file with one on each line")
    for host in hosts:
        if host.startswith("-"):
            raise OptionError("hosts", f"has {host!r}, which ssh would take for an option")
        if not host:
            raise OptionError("hosts", "has an empty name")
    return list(dict.fromkeys(hosts))


def hosts_in(text: str) -> list[str]:
    """The hosts that a file names, one a line; what is behind `#`, or behind the name, does not count.

    >>> hosts_in("# the lab\\nalpha\\nbeta slots=4  # the old one\\n")
    ['alpha', 'beta']
    """
    lines = [line.partition("#")[0].split() for line in text.splitlines()]
    return [words[0] for words in lines if words]


def command_line(options: dict[str, Any], host: str) -> list[str]:
    """What runs the far side on a host."""
    said = [*options["ssh_options"], *DEFAULTS, f"ConnectTimeout={options['connect_timeout']}"]
    command = [options["ssh"], "-T"]
    for option in said:
        command += ["-o", option]
    if options["user"]:
        command += ["-l", options["user"]]
    if options["port"]:
        command += ["-p", str(options["port"])]
    if options["identity"]:
        command += ["-i", options["identity"]]
    far = f"exec {shlex.quote(options['python'])} -SEuc 'import sys;exec(eval(sys.stdin.readline()));main()'"
    return [*command, host, far]
