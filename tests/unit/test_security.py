"""The user's key: made once, found by all, readable by nobody else."""

import os
import pwd
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from scaler.common.home import config_directory
from scaler.errors import KeyFileError
from scaler.transport import (
    Address,
    Security,
    joining_security,
    known_security,
    load_or_create,
    security_of,
    surrounding_security,
)
from scaler.transport.failures import openness, refusal
from scaler.transport.security import private_directory


def test_the_key_is_made_once_and_found_again(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    made = load_or_create(environ=environ)
    file = tmp_path / "config" / "scaler" / "key"
    assert made.origin == str(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert os.listdir(file.parent) == ["key"]
    assert load_or_create(environ=environ) == made
    assert load_or_create(file, environ={}) == made
    assert load_or_create(environ={"SCALER_KEY_FILE": str(file)}) == made
    assert len(made.public) == len(made.secret) == 40


def test_the_default_place_is_in_the_home_directory(tmp_path: Path) -> None:
    made = load_or_create(environ={"HOME": str(tmp_path)})
    assert made.origin == str(tmp_path / ".config" / "scaler" / "key")


def test_a_user_without_a_home_has_a_key_in_memory_and_no_directory_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(_number: int) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.delenv("HOME")
    monkeypatch.chdir(tmp_path)
    assert load_or_create(environ={}).origin == "memory"
    assert private_directory({}) is None
    assert os.listdir(tmp_path) == []


def test_who_is_refused_with_a_key_in_memory_is_told_where_it_comes_from() -> None:
    address = Address.parse("tcp://head:2345")
    told = refusal(address, Security.ephemeral())
    assert "does not accept a key that this program has made for itself, as there is no key file" in str(told)
    assert "does not accept the key of $SCALER_KEY" in str(
        refusal(address, replace(Security.ephemeral(), origin="$SCALER_KEY"))
    )


def test_who_is_refused_and_has_a_new_key_in_its_file_is_told_to_start_again(tmp_path: Path) -> None:
    file, address = tmp_path / "key", Address.parse("tcp://head:2345")
    had = load_or_create(file)
    assert "copy the key file" in str(refusal(address, had))
    file.unlink()
    assert "copy the key file" in str(refusal(address, had))
    load_or_create(file)
    assert f"the key of {file}, as that was when this program started: the file has another key now" in str(
        refusal(address, had)
    )


@pytest.mark.parametrize("environ", [{}, {"HOME": ""}])
def test_without_a_home_in_the_environment_it_is_that_of_the_list_of_users(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "")
    assert config_directory(environ) == os.path.join(pwd.getpwuid(os.getuid()).pw_dir, ".config")


def test_programs_that_start_at_once_get_the_same_key(tmp_path: Path) -> None:
    code = "import sys; from scaler.transport import load_or_create; sys.stdin.read(); print(load_or_create().secret)"
    environ = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    environ.pop("SCALER_KEY", None)
    environ.pop("SCALER_KEY_FILE", None)
    pipe_out, pipe_in = os.pipe()  # all of them wait for its end
    programs = [
        subprocess.Popen([sys.executable, "-c", code], stdin=pipe_out, stdout=subprocess.PIPE, env=environ)
        for _ in range(4)
    ]
    os.close(pipe_out)
    os.close(pipe_in)
    try:
        secrets = {program.communicate(timeout=30)[0] for program in programs}
    finally:
        for program in programs:
            program.kill()
            program.wait()
    assert len(secrets) == 1
    assert secrets != {b""}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o777])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "key"
    load_or_create(file)
    file.chmod(mode)
    with pytest.raises(KeyFileError, match=f"chmod 600 {file}"):
        load_or_create(file)


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 80, b"a" * 79, b"a" * 81, b" " * 80])
def test_a_damaged_key_is_not_replaced_silently(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "key"
    file.touch(mode=0o600)
    file.write_bytes(content)
    with pytest.raises(KeyFileError, match="does not hold a key pair"):
        load_or_create(file)
    assert file.read_bytes() == content


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of another user")
def test_a_key_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    load_or_create(file)
    os.chown(file, 12345, 12345)
    with pytest.raises(KeyFileError, match="another user"):
        load_or_create(file)


def test_without_a_writable_home_the_key_stays_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    nowhere = str(tmp_path / "file" / "below")  # cannot be made, not even by root
    made = load_or_create(environ={"HOME": nowhere})
    assert made.origin == "memory"
    assert load_or_create(environ={"HOME": nowhere}) != made
    with pytest.raises(KeyFileError, match="neither be read nor made"):
        load_or_create(environ={"SCALER_KEY_FILE": nowhere})


def test_children_get_the_key_by_the_environment() -> None:
    made = Security.ephemeral()
    assert Security.from_env(made.to_env()) == made
    assert load_or_create(environ={**made.to_env(), "HOME": "/nowhere"}) == made
    assert Security.from_env({}) is None
    nobody = Security.from_env(Security.none().to_env())
    assert nobody is not None
    assert nobody.insecure
    with pytest.raises(KeyFileError, match="SCALER_KEY"):
        Security.from_env({"SCALER_KEY": "é"})


def test_the_secret_is_not_shown() -> None:
    made = Security.ephemeral()
    assert made.secret.decode() not in repr(made)


def test_who_has_a_key_is_told_that_a_scheduler_has_none_and_not_that_it_has_another() -> None:
    told = str(openness(Address.parse("tcp://head:2345")))
    assert told.startswith("tcp://head:2345 has no keys, and this program has one: it was started with --insecure")
    assert "another key" not in told


def test_who_joins_makes_the_users_own_key_and_none_that_was_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    named = str(tmp_path / "none" / "k")
    with pytest.raises(KeyFileError, match=f"there is no key file {named}: copy the cluster's key there"):
        joining_security(named)
    for join in (joining_security, surrounding_security):
        with pytest.raises(KeyFileError, match=f"there is no key file {named}"):
            join(environ={"SCALER_KEY_FILE": named})
    assert not (tmp_path / "none").exists()
    with pytest.raises(KeyFileError, match="can't be read: File name too long"):  # there may be one, as behind a 0700
        joining_security(str(tmp_path / ("k" * 300)))
    caplog.set_level("INFO", "scaler.keys")
    own = joining_security(environ={"XDG_CONFIG_HOME": str(tmp_path)})
    assert caplog.messages == [f"made a new key, {own.origin}: programs on other hosts need a copy of it"]
    assert joining_security(environ={**own.to_env(), "SCALER_KEY_FILE": named}) == own
    assert joining_security(environ={"XDG_CONFIG_HOME": str(tmp_path)}) == own
    assert security_of(named, False).origin == named
    assert caplog.messages[1:] == [f"made a new key, {named}: programs on other hosts need a copy of it"]
    load_or_create(environ={"XDG_CONFIG_HOME": str(tmp_path / "local")})
    assert len(caplog.messages) == 2


def test_the_switch_for_clusters_without_keys_is_heeded_by_who_is_told_nothing_else(tmp_path: Path) -> None:
    environ = {"SCALER_INSECURE": "1", "XDG_CONFIG_HOME": str(tmp_path)}
    assert surrounding_security(environ) == Security.none()
    made = Security.ephemeral()
    assert surrounding_security({**environ, **made.to_env()}) == made  # that of its parent
    assert known_security(None, False, environ) == load_or_create(environ=environ)  # --no-insecure
    assert not surrounding_security({**environ, "SCALER_INSECURE": "no"}).insecure
    with pytest.raises(KeyFileError, match="SCALER_INSECURE must be 1 or 0, not 'maybe'"):
        surrounding_security({"SCALER_INSECURE": "maybe"})


def test_who_only_asks_makes_no_key_where_none_is(tmp_path: Path) -> None:
    file = tmp_path / "key"
    with pytest.raises(KeyFileError, match="there is no key file"):
        known_security(str(file))
    assert not file.exists()
    assert known_security(None) is None
    assert known_security(str(file), insecure=True) == Security.none()
    assert known_security(str(load_or_create(file, environ={}).origin)) == load_or_create(file, environ={})
