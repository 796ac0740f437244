"""`python -m bench`: this engine beside others on the same work, in one run on one machine, as one table.

    __main__    the command line
    runner      the plan: round by round, engine by engine, each measurement in a process of its own
    containment ends whatever such a process started, also when it failed or hung
    measure     that process: one case on one engine; appends samples to a file
    cases       what is measured and how; `engines` and `work` are what it is measured on
    report      samples → medians → tables, Markdown, JSON lines
    targets     what is promised, and whether this run kept it

Nothing of one engine is in memory, or runs, while another one is measured. The engines take turns in each round and the
rounds follow each other, so that a machine that slows down slows all of them down. Medians are quoted.
"""
