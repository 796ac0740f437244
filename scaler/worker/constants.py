"""Numbers that agent and worker agree on: forms, outcomes, flags, and the layout of the progress page."""

EACH, TOGETHER, GRAPH = 0, 1, 2

VALUES_LIST, VALUES_EACH, ERROR, CANCELLED = 0, 1, 2, 3

#: Fill in duration and peak memory row by row.
PROFILE = 1
#: The client wants to see what the rows print.
STREAM = 2
#: Results are needed one by one, by other rows.
KEEP = 4
#: Rows of a TOGETHER batch are called as fn(item) instead of fn(*item).
SPREAD = 8
#: The bits above these are the priority, signed.
PRIORITY_SHIFT = 8

#: u64 cells of a worker's progress in the shared page: hand-out number; row begun last + 1, 0 for none; when it began.
PAGE_CELLS = 8
HANDOUT_CELL, ROW_CELL, BEGUN_CELL = 0, 1, 2
