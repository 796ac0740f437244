"""What a worker's malloc keeps of the memory that tasks free.

glibc gives the end of its heap back to the kernel when more than 128 KiB are free there, and takes it anew for the next
array, page by page, each filled with zeros first: a sixth of the time of a join of data frames. It learns: when a block
is freed that had a mapping of its own, later ones of that size come from the heap, and twice as much is kept at its
end. So each worker learned something else, from the largest array that its tasks happened to free, and some were a
tenth faster than others for ever. Now all begin with what glibc learns at most: blocks of up to 32 MB, of which 64 MB
are kept; where memory is short no more than a worker may keep of values. What is free goes back in a pause.

Who has set thresholds, by GLIBC_TUNABLES or mallopt, has told glibc not to learn: they stay. So it is in other C
libraries.
"""

from __future__ import annotations

import contextlib

from scaler.common.long_lived import trim_heap

#: bytes of the largest block that glibc learns from: DEFAULT_MMAP_THRESHOLD_MAX of its malloc.c, less what is around it
LARGEST = (32 << 20) - (64 << 10)


def learn(keep: int) -> None:
    """Keep up to so many bytes that are free, 64 MB at most, as if tasks had freed a block of half of that.

    Costs 20 us: nothing of the block is touched but its beginning.
    """
    with contextlib.suppress(MemoryError):  # there is a limit to this process's address space
        bytes(max(0, min(LARGEST, keep // 2)))


def give_back() -> None:
    """Let the kernel have what is free, also in the middle of the heap. Takes a millisecond for each 4 MB or so."""
    trim_heap()
