"""The progress page: memory that all workers of an agent write and it reads, also after their deaths.

Each worker has some cells of it, u64: the dispatch it is at, the row it has begun last + 1 (0 for none), and when.
"""

PAGE_CELLS = 8
DISPATCH_CELL, ROW_CELL, BEGUN_CELL = 0, 1, 2
