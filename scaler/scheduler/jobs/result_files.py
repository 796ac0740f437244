"""The directory for large results: a thread reads, lists and removes files as jobs decide, since that may block.

DIRECTORY/IDENTITY/...   files of one journal; the identity is in the journal's directory, and in its jobs
"""

from __future__ import annotations

import logging
import os
import secrets
from pathlib import Path

from scaler.common.side_thread import SideThread
from scaler.errors import ScalerError
from scaler.journal.directory import refusal, sync_directory, write_synced
from scaler.protocol.codes import MAX_PATH
from scaler.results import files
from scaler.results.reference import IDENTITY_DIGITS, is_identity, prefix_of
from scaler.scheduler.jobs import events as ev

logger = logging.getLogger("scaler.scheduler")

#: names of files that are looked at in one step
NAMES = 10_000
#: the file in a journal's directory that has its identity
IDENTITY = "results.id"

Work = ev.ReadFile | ev.RemoveFiles | ev.ListFiles


class ResultsError(ScalerError):
    """A directory for large results that can't be used; the text names it, says what is the matter and what to do."""


class ResultFiles:
    """Of one scheduler. `begin` and `close` block, nothing else does."""

    def __init__(self, directory: str, journal: str) -> None:
        """The directory is made if it is not there; `journal` is that of the journal."""
        self.directory = str(Path(directory).absolute())
        self._journal = Path(journal)
        #: what the log has said last of files that can't be removed or listed
        self._complained = ""
        self._thread: SideThread[Work, ev.FileRead | ev.Listed] = SideThread("scaler-results", self._do, self._fail)

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
        except OSError as error:
            raise ResultsError(
                f"large results can't be written to {self.directory}: {error.strerror}; "
                "give a directory that this user may write, on all hosts"
            ) from None
        return identity

    def _read_identity(self) -> str:
        try:
            found = (self._journal / IDENTITY).read_text().strip()
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
        self._thread.put(work)

    def take(self) -> list[ev.FileRead | ev.Listed]:
        """What was done."""
        return self._thread.take()

    def close(self, timeout: float = 1.0) -> None:
        """Do what waits, as far as that is possible within this many seconds."""
        self._thread.close(timeout)

    # ---- the thread ------------------------------------------------------------------------------------------------
    def _do(self, work: Work) -> None:
        if isinstance(work, ev.ReadFile):
            self._thread.tell(self._read(work))
            return
        path = os.path.join(self.directory, work.identity)
        if isinstance(work, ev.RemoveFiles):
            files.remove(path, list(work.names))
        else:
            self._list(work.identity, path)
        self._complained = ""

    def _fail(self, work: Work, error: Exception) -> None:
        why = refusal(error)
        if isinstance(work, ev.ReadFile):
            self._thread.tell(ev.FileRead(work.number, b"", f"its file can't be read: {why}"))
        else:
            path = os.path.join(self.directory, work.identity)
            self._complain(f"large results in {path} can't be looked after: {why}; it is tried again")

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
