"""What state a process is in, read from /proc: whether it ends, is stopped, or has lost its main thread."""

from typing import NamedTuple

from scaler.common.process_use import stat_of

#: the kernel's flag of a thread that is about to end, from before its descriptors are closed
_EXITING = 0x4


class ProcessState(NamedTuple):
    """Of a process, and of its main thread."""

    #: as proc(5) says them: Z is a main thread that has ended, T and t are stopped
    letter: str
    parent: int
    flags: int
    #: threads, those included that have ended and not been waited for
    threads: int

    @property
    def is_stopped(self) -> bool:
        """It does nothing until it is told to go on."""
        return self.letter in ("T", "t")

    @property
    def is_halted(self) -> bool:
        """Its main thread has ended, and others go on, or are about to end, too."""
        return self.letter == "Z" and self.threads > 1

    @property
    def is_ending(self) -> bool:
        """It has ended, or is about to: so has, or is, its main thread at least."""
        return self.letter in ("Z", "X") or bool(self.flags & _EXITING)


def state_of(pid: int) -> ProcessState | None:
    """The state of a process; None if it is gone, or there is no /proc."""
    try:
        fields = stat_of(pid)
        return ProcessState(fields[0].decode(), int(fields[1]), int(fields[6]), int(fields[17]))
    except (OSError, ValueError, IndexError):
        return None
