"""A daemon that a defect ends says why in its log: it is all that is left of many."""

import re
import sys
from pathlib import Path

import pytest
from support.ports import fresh_address
from support.programs import Program

#: what makes the step of a loop fail, as a module does that is not there any more
_PROGRAM = """
import sys
from scaler.{package}.{module} import {name}
def fail(self):
    raise ImportError("cannot import name 'relaying'")
{name}._step = fail
sys.argv[0] = {program!r}
from scaler.cli.{command} import main
main()
"""
_DAEMONS = {
    "scheduler": {"package": "scheduler", "module": "server", "name": "Server", "command": "scheduler"},
    "agent": {"package": "agent", "module": "daemon", "name": "Daemon", "command": "cluster"},
}


@pytest.mark.parametrize("is_logged_to_file", [True, False], ids=["file", "output"])
@pytest.mark.parametrize("daemon", _DAEMONS)
def test_the_last_line_of_a_log_says_why_a_daemon_has_ended(
    tmp_path: Path, daemon: str, is_logged_to_file: bool
) -> None:
    names = _DAEMONS[daemon]
    code = _PROGRAM.format(**names, program=f"scaler_{names['command']}")
    path = tmp_path / "log"
    options = ["--log-path", str(path)] if is_logged_to_file else []
    ended = Program([sys.executable, "-c", code, *options, fresh_address()], tmp_path / "output")
    try:
        assert ended.ends(30) == 1
    finally:
        ended.stop()
    log = path.read_text() if is_logged_to_file else ended.text
    why = "it ends by a defect: ImportError: cannot import name 'relaying'"
    assert len(re.findall(rf"^\[ERROR\]\S+ \S+ \w+: {why}$", log, re.MULTILINE)) == 1
    assert log.count("Traceback (most recent call last)") == 1
    assert log.rstrip().endswith("ImportError: cannot import name 'relaying'")
    if is_logged_to_file:
        assert f"{why}; its log says more\n" in ended.text
        assert "Traceback" not in ended.text
