"""What a worker's malloc keeps of the memory that tasks free.

glibc gives the end of a heap back to the kernel when more than 128 KiB are free there, and takes it anew for the next
array, page by page, each filled with zeros first: a tenth of the time of a join of data frames. It learns: when a block
is freed that had a mapping of its own, later ones of that size come from the heap, and twice as much is kept at its
end. So each worker learned something else, from the largest array that its tasks happened to free, and some were a
tenth faster than others for ever. Now all begin as if tasks had freed the largest block that it learns from, of 32 MB,
so that 64 MB are kept. With less, tasks that hold three arrays of 8 MB now and then, and let go of all of them, have
each of their next ones filled with zeros first: a sixth of their time.

That holds for each heap, and threads have their own: where memory is short, it is less. Who has set thresholds, by
GLIBC_TUNABLES or mallopt, has told glibc not to learn: they stay. So it is in other C libraries.
"""

from __future__ import annotations

import contextlib

#: bytes that a heap keeps free at its end, about: twice those of the largest block that glibc learns from, which are
#: DEFAULT_MMAP_THRESHOLD_MAX of its malloc.c less what is around it
KEEP_BYTES = 2 * ((32 << 20) - (64 << 10))
#: heaps that a worker may have as large as that: its limits have room for them
HEAPS = 8


def learn(room: int) -> None:
    """Have each heap keep up to `KEEP_BYTES`, less if `HEAPS` such heaps take more than `room`, bytes.

    Costs 20 us: nothing of the block is touched but its beginning.
    """
    with contextlib.suppress(MemoryError):  # there is a limit to this process's address space
        bytes(min(KEEP_BYTES, room // HEAPS) // 2)
