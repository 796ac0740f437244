"""The directory of a store: made for one owner, told apart from those of dead ones, recognised by its neighbours.

/dev/shm/scaler-<uid>-<pid>-<random>/
    owner     locked (flock) for as long as the owner lives
    token     a random text: whoever can read it is on the same host, and the same user
    free/     see `segments`
    disk      a link to the directory of what is moved to disk
    wanted    see `room`
    ...       objects
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time

from scaler.common.digest import compare_digest
from scaler.common.process_limits import is_lack
from scaler.store.segments import FREE
from scaler.transport.stream import forget_in_children

#: where files are in memory, on Linux
_MEMORY = "/dev/shm"
_OWNER, TOKEN = "owner", "token"
#: a directory without an owner's file is being made, unless it is older than this, in seconds
_MAKING = 60.0


def default_root() -> str:
    """Where stores are: in memory, or where temporary files are if the platform has no such place."""
    return _MEMORY if _is_memory_writable() else temporary_root()


def _is_memory_writable() -> bool:
    return os.access(_MEMORY, os.W_OK | os.X_OK)


def temporary_root() -> str:
    """Where temporary files are; `tempfile`, which is slow to load, is asked in doubt. Raises OSError: nowhere.

    Where all but memory is read-only (`docker run --read-only`) it is that: there is just no room beyond it.
    """
    first = named_root()
    with contextlib.suppress(OSError):
        # with a slash, as a file may be a program
        if os.access(os.path.join(first, ""), os.R_OK | os.W_OK | os.X_OK) and _has_room(os.statvfs(first)):
            return first
    import tempfile

    try:
        return tempfile.gettempdir()
    except FileNotFoundError:
        if _is_memory_writable():
            return _MEMORY
        raise FileNotFoundError(
            "there is no directory for temporary files that can be written, where objects go that memory has no room "
            "for: name one by TMPDIR or as spill directory (--spill-directory, spill_directory=)"
        ) from None


def named_root() -> str:
    """Where temporary files should be, whether any can be there or not."""
    named = (os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    return os.path.abspath(next(filter(None, named), "/tmp"))


def _has_room(system: os.statvfs_result) -> bool:
    """For one more file; some file systems count none."""
    return bool(system.f_bavail and (system.f_favail or not system.f_files))


class OwnedDirectory:
    """A private directory that can be removed by others of the same user once its owner is dead."""

    def __init__(self, root: str, prefix: str) -> None:
        """Make a new one below `root`. Raises OSError."""
        uid = os.geteuid()
        name = f"{prefix}-{uid}-{os.getpid()}-{os.urandom(6).hex()}"
        #: where it is
        self.path = os.path.join(root, name)
        draft = os.path.join(root, f".{name}")
        self._lock = -1
        self._make(draft)
        forget_in_children(self)

    def _make(self, draft: str) -> None:
        """Make it under another name, and give it its own when it has an owner."""
        os.mkdir(draft, 0o700)
        try:
            os.chmod(draft, 0o700)
            self._lock = os.open(os.path.join(draft, _OWNER), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            os.fchmod(self._lock, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._furnish(draft)
            os.rename(draft, self.path)
        except BaseException:
            _remove_tree(draft)
            self.abandon()
            raise

    def _furnish(self, draft: str) -> None:
        """Put into it what it has from the beginning."""

    def mend(self) -> bool:
        """Make it again, empty, if others have removed it; whether they had. Raises OSError.

        systemd does: with what a user has in /dev/shm when that user logs out, and with what is old in /tmp.
        """
        try:
            os.stat(os.path.join(self.path, _OWNER))
            return False
        except FileNotFoundError:  # other errors don't say that: a file system may be out of reach for a moment
            _remove_tree(self.path)  # what is left of it
        self.abandon()
        root, name = os.path.split(self.path)
        self._make(os.path.join(root, f".{name}"))
        return True

    def remove(self) -> None:
        """Remove it with all that is in it; readers keep what they mapped. Can be repeated."""
        if self._lock >= 0:
            _remove_tree(self.path)
            self.abandon()

    def abandon(self) -> None:
        """In a forked child: the directory stays the parent's."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


class StoreDirectory(OwnedDirectory):
    """See the module's text. One thread."""

    def __init__(self, root: str | None = None) -> None:
        """Make a new one below `root`, in memory by default. Raises OSError."""
        #: what `is_same_host` asks for
        self.token = os.urandom(32).hex()
        super().__init__(root or default_root(), "scaler")

    def _furnish(self, draft: str) -> None:
        fd = os.open(os.path.join(draft, TOKEN), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            os.fchmod(fd, 0o600)
            file.write(self.token)
        free = os.path.join(draft, FREE)
        os.mkdir(free, 0o700)
        os.chmod(free, 0o700)


def is_same_host(path: str, token: str) -> bool:
    """True if the directory of this name here is the one that has this token.

    Raises OSError only if this process can't look for now, as it has no descriptor.
    """
    try:
        status = os.lstat(path)
        if not (os.path.isabs(path) and stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()):
            return False
        if stat.S_IMODE(status.st_mode) & 0o077:
            return False
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(os.path.join(path, TOKEN), flags), "rb") as file:
            found = file.read(256)
    except (OSError, ValueError) as error:
        if is_lack(error):
            raise
        return False
    return bool(token) and compare_digest(found, token.encode("utf-8", "replace"))


def clean_up_dead(root: str | None = None, prefix: str = "scaler") -> int:
    """Remove this user's directories below `root` whose owners are dead; how many. Never raises."""
    root = root or default_root()
    uid = os.geteuid()
    removed = 0
    try:
        names = os.listdir(root)
    except OSError:
        return 0
    for name in names:
        if not name.lstrip(".").startswith(f"{prefix}-{uid}-"):
            continue
        with contextlib.suppress(OSError):
            removed += _remove_if_dead(os.path.join(root, name), uid)
    return removed


def _remove_if_dead(path: str, uid: int) -> bool:
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != uid:
        return False
    try:
        lock = os.open(os.path.join(path, _OWNER), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        if time.time() - status.st_mtime < _MAKING:
            return False
        _remove_tree(path)
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.basename(path).startswith(".") and time.time() - status.st_mtime < _MAKING:
            return False
        _remove_tree(path)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


def _remove_tree(path: str) -> None:
    import shutil  # here, as it is slow to load

    shutil.rmtree(path, ignore_errors=True)
