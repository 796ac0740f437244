"""What agent and worker agree on beside the protocol: the layouts of the progress page and of a handout's flags."""

#: in the flags of a handout the priority of its rows, signed, stands above the flags of the protocol
PRIORITY_SHIFT = 8

#: u64 cells of a worker's progress in the shared page: handout number; row begun last + 1, 0 for none; when it began
PAGE_CELLS = 8
HANDOUT_CELL, ROW_CELL, BEGUN_CELL = 0, 1, 2
