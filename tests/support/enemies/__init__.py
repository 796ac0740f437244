"""Lives of parts of the product among peers that say anything: what properties draw by lot, and fuzzing by bytes.

Each is a class that is given what makes the choices (`Lot`); `step` has one thing happen, and `end` looks whether those
who mean no harm get what they want when the others are gone.

    scheduler.py   a scheduler's core; clients, agents and monitors that know what is there
    hosts.py       a scheduler and two agents with their cores; a client and workers
    jobs.py        a scheduler with durable jobs, which is killed now and then; all who may talk to it
    records.py     the same, with a journal whose records were changed
    pair.py        a scheduler that may be one of two; one that claims to be the other
    journals.py    one end of a journal that is sent along, with real files; the other end
"""
