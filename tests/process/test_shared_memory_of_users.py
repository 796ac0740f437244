"""`multiprocessing.shared_memory` of a program and its tasks lasts as long as somebody may need it, without noise."""

import os

import pytest
from support import Scripts, until

#: parts of a program; `pool` has two workers
PROGRAM = """
    from multiprocessing import resource_tracker
    from multiprocessing.shared_memory import ShareableList, SharedMemory
    from scaler import Executor

    def write(name, at):
        memory = SharedMemory(name=name)
        memory.buf[at] = at
        memory.close()

    def tracks(name):
        write(name, 0)
        return resource_tracker._resource_tracker._fd is not None

    def write_untracked(name, at):  # what programs do about it elsewhere
        memory = SharedMemory(name=name)
        resource_tracker.unregister(memory._name, "shared_memory")
        memory.buf[at] = 2 * at
        memory.close()

    def make_untracked(value):
        name = make(value)
        resource_tracker.unregister("/" + name, "shared_memory")
        return name

    def add(name):
        shared = ShareableList(name=name)
        shared[0] += 1
        shared.shm.close()

    def make(value):
        memory = SharedMemory(create=True, size=8)
        memory.buf[0] = value
        memory.close()
        return memory.name

    def remove(name):
        memory = SharedMemory(name=name)
        memory.close()
        memory.unlink()

    def make_and_remove():
        remove(make(7))

    def taken(name):
        memory = SharedMemory(name=name)
        value = memory.buf[0]
        memory.close()
        memory.unlink()
        return value

    {program}
"""
PROGRAMS = {
    "what the program has made": (
        """
    memory, shared = SharedMemory(create=True, size=8), ShareableList([5])
    with Executor(2, max_tasks_per_child=1) as pool:
        print(pool.submit(tracks, memory.name).result(20))
        list(pool.map(write, [memory.name] * 8, range(8)))
        pool.submit(add, shared.shm.name).result(20)
        pool.submit(write_untracked, memory.name, 7).result(20)
    print(*memory.buf[:8], shared[0])
    for each in memory, shared.shm:
        each.close()
        each.unlink()
    """,
        "False\n0 1 2 3 4 5 6 14 6",
    ),
    "what a task has made": (
        """
    with Executor(1) as pool:
        print(*[taken(name) for name in pool.map(make, range(3))])
        pool.submit(make_and_remove).result(20)
        pool.submit(remove, pool.submit(make, 1).result(20)).result(20)
        untracked = pool.submit(make_untracked, 9).result(20)
    print(taken(untracked))
    """,
        "0 1 2\n9",
    ),
}


@pytest.mark.parametrize("whose", PROGRAMS)
def test_memory_outlives_workers_that_have_only_opened_it_and_nobody_complains(scripts: Scripts, whose: str) -> None:
    program, said = PROGRAMS[whose]
    assert scripts.run(PROGRAM.format(program=program.strip())) == f"{said}\n"


def test_what_tasks_have_made_and_nobody_removes_goes_with_their_worker(scripts: Scripts) -> None:
    program = """
    with Executor(1) as pool:
        print(pool.submit(make, 1).result(20))
    """
    name = scripts.run(PROGRAM.format(program=program.strip())).split()[0]
    until(lambda: not os.path.exists(f"/dev/shm/{name}"), "it to be removed")
