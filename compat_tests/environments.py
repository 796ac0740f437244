"""Environments beside the project's own: another Python, or the oldest versions that are supported.

They are made when they are first needed, in `.venv-compat/`, with the versions of `constraints.txt`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: the environments are below it
HOME = ROOT / ".venv-compat"


def find_python(version: str) -> str | None:
    """A Python of this version ("3.13"): of PYTHON3_13, this one, of PATH, or of pyenv; None if there is none."""
    named = os.environ.get("PYTHON" + version.replace(".", "_"))
    # pyenv's shims are on PATH and run only what was chosen: the versions themselves are beside them
    roots = [Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))]
    roots += [Path(path).parent for path in os.environ.get("PATH", "").split(os.pathsep) if path.endswith("shims")]
    installed = [path for root in roots for path in sorted(root.glob(f"versions/{version}.*/bin/python"), reverse=True)]
    for candidate in (named, sys.executable, f"python{version}", *map(str, installed)):
        if candidate is not None and _is(candidate, version):
            return candidate
    return None


def _is(python: str, version: str) -> bool:
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        told = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False, timeout=30)
    except OSError:
        return False
    return told.returncode == 0 and told.stdout.strip() == version


def make(name: str, python: str, packages: Iterable[str], without: Iterable[str] = ()) -> str:
    """The Python of an environment with Scaler and these packages; made unless it is there. Blocks for a minute or two.

    `without` names packages whose versions are not those of `constraints.txt`. Raises CalledProcessError if the
    installer fails, which has said why.
    """
    home = HOME / name
    made = home / ".made"
    wanted = "\n".join(
        [python, *packages, (ROOT / "constraints.txt").read_text(), (ROOT / "pyproject.toml").read_text()]
    )
    if not made.exists() or made.read_text() != wanted:
        print(f"making the environment {home.relative_to(ROOT)} (once; a minute or two) ...", flush=True)
        subprocess.run([python, "-m", "venv", "--clear", str(home)], check=True)
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
            lines = (ROOT / "constraints.txt").read_text().splitlines()
            constraints.writelines(f"{line}\n" for line in lines if line.partition("==")[0] not in without)
            constraints.flush()
            install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", constraints.name]
            subprocess.run([str(home / "bin/python"), *install, *packages, "-e", str(ROOT)], check=True)
        made.write_text(wanted)
    return str(home / "bin/python")
