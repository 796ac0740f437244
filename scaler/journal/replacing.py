"""A copy of a journal takes the place of another, as a whole: at each moment one of them is there, complete.

    1. the new one is written to DIR/incoming/, and synced; its history, last, says that it is complete
    2. the segments of the old one are moved to DIR/aside/replaced/
    3. DIR/incoming/ becomes DIR/arriving/: from now on the segments in DIR are those of the new one
    4. they are moved there, then the history; DIR/arriving/ is removed

Whoever finds it half done goes on where it was left (`finish`), or throws away what is not complete.
"""

from __future__ import annotations

import os
import shutil

from scaler.journal.directory import Directory, JournalError, sync_directory


def begin(directory: Directory) -> Directory:
    """Where the segments and then the history of a new copy are written; what was replaced before goes for good.

    `directory` is locked. Blocks. Raises OSError.
    """
    path = directory.path / "incoming"
    shutil.rmtree(path, ignore_errors=True)
    shutil.rmtree(directory.path / "aside" / "replaced", ignore_errors=True)
    path.mkdir(mode=0o700)
    sync_directory(directory.path)
    return Directory(path)


def finish(directory: Directory) -> bool:
    """Put a copy that is complete in its place, and throw away one that is not; whether there was a complete one.

    `directory` is locked. Blocks. Raises `JournalError`.
    """
    incoming, arriving = directory.path / "incoming", directory.path / "arriving"
    try:
        is_complete = (incoming / "history").exists()
        if is_complete:
            _move_aside(directory)
            os.rename(incoming, arriving)
            sync_directory(directory.path)
        elif incoming.exists():
            shutil.rmtree(incoming)
        if not arriving.exists():
            return False
        for name in sorted(os.listdir(arriving), key=lambda name: (not name.endswith(".log"), name)):
            os.replace(arriving / name, directory.path / name)
        sync_directory(directory.path)
        shutil.rmtree(arriving)
        sync_directory(directory.path)
    except OSError as error:
        raise JournalError(f"the journal {directory.path} can't be replaced: {error.strerror}") from None
    return True


def _move_aside(directory: Directory) -> None:
    """The segments that are there go aside."""
    numbers = directory.segments()
    if not numbers:
        return
    replaced = directory.path / "aside" / "replaced"
    replaced.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number in numbers:
        os.replace(directory.segment(number), replaced / directory.segment(number).name)
    sync_directory(replaced)
    sync_directory(directory.path)
