"""The progress page: memory that all workers of an agent write and it reads, also after their deaths.

Each worker has some cells of it, u64: the dispatch it is at, the row it is at + 1 (0 for none), when that began (0 as
long as what it needs is being loaded), and whether the worker has left its place to one that has more modules.
"""

PAGE_CELLS = 8
DISPATCH_CELL, ROW_CELL, BEGUN_CELL, LEFT_CELL = 0, 1, 2, 3
