"""Who may talk to whom: one key pair per user, found by every program of that user without being told.

All programs of a user hold the same pair. A scheduler proves with it that it is the user's, and accepts only those who
prove the same. Another host takes part when it has a copy of the key file. The file is readable by its user alone, and
one that others can read is refused, because whoever reads it can run code as that user.

The pair is that of CURVE (Curve25519), written in Z85: 40 characters each.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import field

from scaler.common.home import config_directory
from scaler.common.records import frozen
from scaler.errors import KeyFileError
from scaler.transport.address import Address

#: Holds the pair itself: public and secret key, 80 characters. For the children of a program, never for a shell.
KEY_VARIABLE = "SCALER_KEY"
#: Names the key file instead of the default place.
KEY_FILE_VARIABLE = "SCALER_KEY_FILE"
#: Says that there are no keys, to programs as their option `--insecure` and to clients.
INSECURE_VARIABLE = "SCALER_INSECURE"
#: What a switch may be in the environment, as click has it.
_YES, _NO = ("1", "true", "t", "yes", "y", "on"), ("", "0", "false", "f", "no", "n", "off")

_KEY_LENGTH = 40
_Z85 = frozenset(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#")


@frozen
class Security:
    """What a connection needs to know about keys."""

    #: Z85, empty if insecure.
    public: bytes
    #: Z85, empty if insecure.
    secret: bytes = field(repr=False)
    #: True: no encryption and anybody is accepted, because the user said so.
    insecure: bool = False
    #: Where the pair comes from, for messages: a path, the name of a variable, or "memory".
    origin: str = field(default="memory", compare=False)

    @property
    def is_ephemeral(self) -> bool:
        """Nobody has it but this program, and those that it gives it to."""
        return self.origin == "memory"

    @property
    def is_outdated(self) -> bool:
        """The file that it comes from holds another pair by now. Reads it."""
        if self.insecure or self.is_ephemeral or self.origin.startswith("$"):
            return False
        try:
            return _read(self.origin) != self
        except (OSError, KeyFileError):
            return False

    @staticmethod
    def ephemeral() -> Security:
        """A pair that nobody else has: for a program and its children (see `to_env`)."""
        import zmq  # only needed by whoever makes a key, once per user

        public, secret = zmq.curve_keypair()
        return Security(public, secret)

    @staticmethod
    def none(origin: str = "--insecure") -> Security:
        """No keys: everybody who reaches the port may use it. To be asked for, by `origin`, never a default."""
        return Security(b"", b"", insecure=True, origin=origin)

    def to_env(self) -> dict[str, str]:
        """Variables that give the same security to a child process."""
        return {KEY_VARIABLE: "insecure" if self.insecure else (self.public + self.secret).decode("ascii")}

    @staticmethod
    def from_env(environ: Mapping[str, str]) -> Security | None:
        """What `to_env` of the parent said, None if it said nothing. Raises `KeyFileError`."""
        text = environ.get(KEY_VARIABLE)
        if not text:
            return None
        if text == "insecure":
            return Security.none(f"{KEY_VARIABLE}=insecure")
        return _parse(text.encode("utf-8", "replace"), f"${KEY_VARIABLE}")


def exposure(security: Security, address: Address, is_said: bool) -> str | None:
    """What it means to listen there without keys, in one line; None with keys.

    Raises `KeyFileError` where others reach it and that was not asked for by this program's own option (`is_said`).
    """
    if not security.insecure:
        return None
    if not (address.is_loopback or is_said):
        raise KeyFileError(
            f"{KEY_VARIABLE} says that there are no keys, and {address.url} is open to other hosts: "
            "whoever reaches it could run code as you. Say --insecure if that is meant"
        )
    return f"insecure: whoever reaches {address.url} can run code as this user, and everything travels in the clear"


def security_of(key_file: str | None, insecure: bool) -> Security:
    """What the options of a program ask for that begins a cluster: a key file that is not there is made.

    Raises `KeyFileError`.
    """
    return Security.none() if insecure else load_or_create(key_file, on_made=_tell)


def joining_security(
    key_file: str | None = None, insecure: bool = False, environ: Mapping[str, str] = os.environ
) -> Security:
    """What the options of a program ask for that joins a cluster: the user's own key file is made, none that is named.

    Raises `KeyFileError`, also if a file that is named, as by $SCALER_KEY_FILE, is not there: a new key is nobody's.
    """
    if insecure:
        return Security.none()
    named = key_file if key_file is not None or environ.get(KEY_VARIABLE) else environ.get(KEY_FILE_VARIABLE)
    if named:
        try:
            os.stat(named)
        except (FileNotFoundError, NotADirectoryError):
            trouble = f"there is no key file {named}: copy the cluster's key there, or name another file"
            raise KeyFileError(trouble) from None
        except OSError as error:  # as where its directory may not be entered
            raise KeyFileError(f"the key file {named} can't be read: {error.strerror}") from error
    return load_or_create(key_file, environ, on_made=_tell)


def known_security(
    key_file: str | None, insecure: bool = False, environ: Mapping[str, str] = os.environ
) -> Security | None:
    """What the options of a program that only asks say. None: what its surroundings say, when it is needed.

    Raises `KeyFileError`, as `joining_security`.
    """
    if key_file is None and not insecure and not _is_insecure(environ):
        return None
    return joining_security(key_file, insecure, environ)


def surrounding_security(environ: Mapping[str, str] = os.environ) -> Security:
    """What a program joins a cluster with that was told nothing: $SCALER_KEY, else $SCALER_INSECURE, else a key file.

    Raises `KeyFileError`.
    """
    is_insecure = not environ.get(KEY_VARIABLE) and _is_insecure(environ)
    return Security.none(f"{INSECURE_VARIABLE}=1") if is_insecure else joining_security(environ=environ)


def _is_insecure(environ: Mapping[str, str]) -> bool:
    """What the variable says that is the option `--insecure` of programs. Raises `KeyFileError` if that is nothing."""
    text = environ.get(INSECURE_VARIABLE, "").strip().lower()
    if text not in {*_YES, *_NO}:
        raise KeyFileError(f"{INSECURE_VARIABLE} must be 1 or 0, not {text!r}")
    return text in _YES


def _tell(file: str) -> None:
    import logging  # only needed by whoever makes a key, once per user

    logging.getLogger("scaler.keys").info("made a new key, %s: programs on other hosts need a copy of it", file)


def load_or_create(
    path: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] = os.environ,
    on_made: Callable[[str], object] = lambda file: None,
) -> Security:
    """The user's key pair, made if there is none.

    Without `path`: what $SCALER_KEY holds, else the file $SCALER_KEY_FILE, else the user's own,
    $XDG_CONFIG_HOME/scaler/key or ~/.config/scaler/key. Any number of programs may start at once: all get the same.

    If the default file can neither be read nor made (no home, a read-only one), an ephemeral pair is returned (`origin`
    is "memory"): a local cluster works with it, and a program that others should find ought to say so. A file asked for
    by name must work. `on_made` is told the file if it was made. Raises `KeyFileError`.
    """
    named = path or environ.get(KEY_FILE_VARIABLE)
    if path is None:
        inherited = Security.from_env(environ)
        if inherited is not None:
            return inherited
    file = os.fspath(named) if named else _default_file(environ)
    if file is None:
        return Security.ephemeral()
    try:
        try:
            return _read(file)
        except FileNotFoundError:
            made = _create(file)
    except (OSError, RuntimeError) as error:
        if named:
            raise KeyFileError(f"the key file {file} can neither be read nor made: {error}") from error
        return Security.ephemeral()
    on_made(file)
    return made


def private_directory(environ: Mapping[str, str] = os.environ) -> str | None:
    """A directory that only this user can write to; None if there is none."""
    place = environ.get("XDG_RUNTIME_DIR") or os.path.dirname(_default_file(environ) or "")
    if not place:
        return None
    try:
        os.makedirs(place, mode=0o700, exist_ok=True)
        status = os.stat(place)
    except OSError:
        return None
    return place if status.st_uid == os.geteuid() and not status.st_mode & 0o022 else None


def _default_file(environ: Mapping[str, str]) -> str | None:
    config = config_directory(environ)
    return None if config is None else os.path.join(config, "scaler", "key")


def _read(file: str) -> Security:
    with open(file, "rb") as stream:
        status = os.fstat(stream.fileno())
        content = stream.read(4096)
    if status.st_uid not in (os.geteuid(), 0):
        raise KeyFileError(f"the key file {file} belongs to another user (uid {status.st_uid}): it is not used")
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise KeyFileError(
            f"the key file {file} can be read or written by others, who could run code as you: chmod 600 {file} "
            "(and remove it to get a new key if somebody may have read it)"
        )
    return _parse(content, file)


def _create(file: str) -> Security:
    """Write a new pair beside the file, then give it the name: whoever is first wins, and nobody sees half a file."""
    made = Security.ephemeral()
    os.makedirs(os.path.dirname(os.path.abspath(file)), mode=0o700, exist_ok=True)
    draft = f"{file}.{os.getpid()}.{os.urandom(4).hex()}"
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            stream.write(made.public + made.secret + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
        try:
            os.link(draft, file)
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links
            os.rename(draft, file)
    finally:
        try:
            os.unlink(draft)
        except OSError:
            pass
    return _read(file)


def _parse(content: bytes, origin: str) -> Security:
    text = content.strip()
    if len(text) != 2 * _KEY_LENGTH or not _Z85.issuperset(text):
        raise KeyFileError(f"{origin} does not hold a key pair: remove it, and a new one is made at the next start")
    return Security(text[:_KEY_LENGTH], text[_KEY_LENGTH:], origin=origin)
