"""The progress page: memory that an agent shares with all its workers, and reads also after their deaths.

Each worker has some cells of it, u64. It writes the dispatch it is at, the row it is at + 1 (0 for none), when that
began (0 as long as what it needs is being loaded), whether it has left its place to one that has more modules, and, of
a row that this one has claimed and that runs in its stack, in how many tasks it was submitted + 1 (0 if none does).

The agent writes the last dispatch that is revoked. A worker says which dispatch it is at, and then looks whether that
one is revoked: if so, it begins none of its rows. The agent revokes, and looks some time later where the worker is: it
does not begin what comes after that, as what either of both has written reaches the other within microseconds. What is
revoked thus has one owner, though the worker can't answer.
"""

PAGE_CELLS = 8
DISPATCH_CELL, ROW_CELL, BEGUN_CELL, LEFT_CELL, REVOKED_CELL, CLAIMED_CELL = range(6)

#: exit code of a worker that could start no thread: its agent says which limit that is
NO_THREAD = 75
