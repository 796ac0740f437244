"""The directory for large results: a thread reads, lists and removes files as jobs decide, since that may block.

DIRECTORY/IDENTITY/...   files of one journal; the identity is in the journal's directory, and in its jobs

While something there hangs, the log has it in one line, and those who ask for slices are told. The rest waits: rows
that need a value would fail for good, and a file that is not removed would stay.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections import deque
from pathlib import Path

from scaler.common.patience import PATIENCE, SLOWEST
from scaler.common.process_limits import words_of
from scaler.common.side_thread import SideThread
from scaler.errors import ScalerError
from scaler.journal.directory import refusal, sync_directory, write_synced
from scaler.protocol.codes import MAX_PATH
from scaler.results import files
from scaler.results.reference import IDENTITY_DIGITS, is_identity, path_of, prefix_of
from scaler.scheduler.jobs import events as ev

logger = logging.getLogger("scaler.scheduler")

#: names of files that are looked at in one step
NAMES = 10_000
#: files that are removed a second, at least
REMOVED = 100
#: the file in a journal's directory that has its identity
IDENTITY = "results.id"

Work = ev.ReadFile | ev.RemoveFiles | ev.ListFiles


class ResultsError(ScalerError):
    """A directory for large results that can't be used; the text names it, says what is the matter and what to do."""


class _Ended:
    """The thread has done what was the next, or it could not be done."""


class ResultFiles:
    """Of one scheduler. `begin` and `close` block, nothing else does."""

    def __init__(self, directory: str, journal: str) -> None:
        """The directory is made if it is not there; `journal` is that of the journal."""
        self.directory = str(Path(directory).absolute())
        self._journal = Path(journal)
        #: what the log has said last of files that can't be removed or listed
        self._complained = ""
        self._thread: SideThread[Work, ev.FileRead | ev.Listed | _Ended] = SideThread(
            "scaler-results", self._do, self._fail
        )
        #: what the thread has to do, in order; something came of the first one at this time, or it became the first
        self._waiting: deque[Work] = deque()
        self._since: float | None = None
        #: nothing comes of the first one; whoever waited for these reads was told
        self._is_hanging = False
        self._given_up: set[int] = set()

    def begin(self, known: str, is_anew: bool) -> str:
        """What the journal calls its part of the directory, which is there from now on. Blocks. Raises `ResultsError`.

        `known`: what its jobs call it, should the journal have no file that says so. With `is_anew` it gets another
        one: jobs may have been lost, and what is there of them is left alone.
        """
        identity = self._read_identity() or known
        if not self.directory.isprintable() or len(self.directory) > MAX_PATH - 64:
            raise ResultsError("large results: the path of their directory is too long, or can't be printed")
        try:
            if is_anew or not identity:
                identity = secrets.token_hex(IDENTITY_DIGITS // 2)
            self._write_identity(identity)
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
            own = os.path.join(self.directory, identity)
            if not os.path.isdir(own):
                os.mkdir(own, mode=0o700)
                sync_directory(Path(self.directory))
            if not os.access(own, os.W_OK | os.X_OK):
                raise PermissionError(0, "Permission denied")
            self._thread.begin()
        except RuntimeError as error:
            raise ResultsError(f"large results can't be looked after: {words_of(error)}") from None
        except OSError as error:
            why = "it is a file" if isinstance(error, FileExistsError) else error.strerror
            raise ResultsError(
                f"large results can't be written to {self.directory}: {why}; "
                "give a directory that this user may write, on all hosts"
            ) from None
        return identity

    def _read_identity(self) -> str:
        try:
            found = (self._journal / IDENTITY).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return ""
        return found if is_identity(found) else ""

    def _write_identity(self, identity: str) -> None:
        if self._read_identity() != identity:
            draft = self._journal / f"{IDENTITY}.part"
            write_synced(draft, f"{identity}\n".encode())
            draft.rename(self._journal / IDENTITY)
            sync_directory(self._journal)

    def fileno(self) -> int:
        """Readable when something is done."""
        return self._thread.fileno()

    def do(self, work: Work) -> None:
        """Have something done, after what was wanted before."""
        self._waiting.append(work)
        self._thread.put(work)

    def take(self) -> list[ev.FileRead | ev.Listed]:
        """What was done."""
        found = []
        for told in self._thread.take():
            self._since = None
            if isinstance(told, _Ended):
                self._ended(self._waiting.popleft())
            elif isinstance(told, ev.Listed) or told.number not in self._given_up:
                found.append(told)
        return found

    def _ended(self, work: Work) -> None:
        if isinstance(work, ev.ReadFile):
            self._given_up.discard(work.number)
        if self._is_hanging:
            self._is_hanging = False
            logger.info("large results: %s answers again", self._path_of(work))

    def give_up(self, now: float) -> list[ev.FileRead]:
        """Reads that are not waited for any more; to be asked whenever something was taken, wanted, or is due."""
        if not self._waiting:
            self._since = None
            return []
        first = self._waiting[0]
        self._since = now if self._since is None else self._since
        if not self._is_hanging and now >= self._since + _patience(first):
            self._is_hanging = True
            logger.warning(
                "large results: nothing has come of %s for %.0f s: whoever wants to read files is told, the rest waits",
                self._path_of(first), now - self._since,
            )  # fmt: skip
        if not self._is_hanging:
            return []
        found = []
        for work in self._waiting:
            if isinstance(work, ev.ReadFile) and not work.is_whole and work.number not in self._given_up:
                self._given_up.add(work.number)
                path = self._path_of(work)
                found.append(ev.FileRead(work.number, b"", f"its file {path} can't be read: the disk does not answer"))
        return found

    @property
    def wake(self) -> float | None:
        """When `give_up` has something to say though nothing happened."""
        if self._since is None or self._is_hanging or not self._waiting:
            return None
        return self._since + _patience(self._waiting[0])

    def _path_of(self, work: Work) -> str:
        if isinstance(work, ev.ReadFile):
            return path_of(prefix_of(self.directory, work.identity, work.job), work.file)
        return os.path.join(self.directory, work.identity)

    def close(self, timeout: float = 1.0) -> None:
        """Do what waits, as far as that is possible within this many seconds."""
        self._thread.close(timeout)

    # ---- the thread ------------------------------------------------------------------------------------------------
    def _do(self, work: Work) -> None:
        if isinstance(work, ev.ReadFile):
            if work.number not in self._given_up:
                self._thread.tell(self._read(work))
        else:
            path = self._path_of(work)
            if isinstance(work, ev.RemoveFiles):
                files.remove(path, list(work.names))
            else:
                self._list(work.identity, path)
            self._complained = ""
        self._thread.tell(_Ended())

    def _fail(self, work: Work, error: Exception) -> None:
        why = refusal(error)
        if isinstance(work, ev.ReadFile):
            self._thread.tell(ev.FileRead(work.number, b"", f"its file can't be read: {why}"))
        else:
            self._complain(f"large results in {self._path_of(work)} can't be looked after: {why}; it is tried again")
        self._thread.tell(_Ended())

    def _complain(self, text: str) -> None:
        if text != self._complained:
            self._complained = text
            logger.warning("%s", text)

    def _read(self, work: ev.ReadFile) -> ev.FileRead:
        prefix = prefix_of(self.directory, work.identity, work.job)
        try:
            data = files.read_slice(prefix, work.file, work.offset, work.size)
            if work.is_whole:
                files.check(prefix, work.file, data)
        except files.Unreadable as trouble:
            return ev.FileRead(work.number, b"", str(trouble))
        return ev.FileRead(work.number, data)

    def _list(self, identity: str, path: str) -> None:
        names: list[str] = []
        with os.scandir(path) as entries:
            for entry in entries:
                names.append(entry.name)
                if len(names) == NAMES:
                    self._thread.tell(ev.Listed(identity, names))
                    names = []
        self._thread.tell(ev.Listed(identity, names))


def _patience(work: Work) -> float:
    """Seconds that something may take."""
    if isinstance(work, ev.ReadFile):
        return PATIENCE + work.size / SLOWEST
    return PATIENCE + (len(work.names) / REMOVED if isinstance(work, ev.RemoveFiles) else 0.0)
