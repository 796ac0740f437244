"""Packages of Debian that tests need and that are not installed: fetched and unpacked elsewhere.

For programs that run before the tests: a failure ends them with the last words of what failed.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
PLACE = "http://deb.debian.org/debian bookworm main"
#: where what was fetched is kept, each kind in a directory of its own
CACHES = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def fetch(packages: Iterable[str], work: Path, source: str | None = None) -> Path:
    """Unpack packages into `work/root`; returns where all files are that were fetched, those of a source package, too.

    From the places of Debian alone: whatever else this machine's apt knows is left aside.
    """
    lists, fetched = work / "sources.list", work / "fetched"
    kinds = ["deb", "deb-src"] if source else ["deb"]
    for path in (work / "lists" / "partial", work / "cache" / "archives" / "partial", fetched):
        path.mkdir(parents=True, exist_ok=True)
    lists.write_text("".join(f"{kind} [signed-by={KEYRING}] {PLACE}\n" for kind in kinds))
    apt = [
        "apt-get", "-q", "-o", f"Dir::Etc::SourceList={lists}", "-o", "Dir::Etc::SourceParts=-",
        "-o", f"Dir::State::Lists={work / 'lists'}", "-o", f"Dir::Cache={work / 'cache'}",
        "-o", f"APT::Sandbox::User={os.environ.get('USER', 'root')}",
    ]  # fmt: skip
    run(*apt, "update", cwd=work)
    run(*apt, "download", *packages, cwd=fetched)
    if source:
        run(*apt, "source", "--download-only", source, cwd=fetched)
    for package in fetched.glob("*.deb"):
        run("dpkg", "-x", str(package), str(work / "root"), cwd=work)
    return fetched


def run(*command: str, cwd: Path, env: dict[str, str] | None = None) -> str:
    """What a command prints."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{sys.argv[0]}: {shlex.join(command)[:200]} failed:\n{(done.stderr or done.stdout)[-2000:]}")
    return done.stdout
