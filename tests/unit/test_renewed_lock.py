"""Locks of a whole process in forked children; and that all are such locks."""

import importlib
import os
import pkgutil
import threading

from scaler.common.renewed_lock import RenewedLock

LOCKS = type(threading.Lock()), type(threading.RLock())


def is_free(lock: RenewedLock) -> bool:
    return lock.lock.acquire(timeout=0)


def test_a_child_finds_it_free_whoever_held_it() -> None:
    lock, is_held, is_over = RenewedLock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock.lock:
            is_held.set()
            is_over.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait(20)
    assert not is_free(lock)
    child = os.fork()
    if not child:
        os._exit(not is_free(lock))
    is_over.set()
    thread.join(20)
    assert os.waitpid(child, 0)[1] == 0


def test_a_thread_that_forks_while_it_holds_it_goes_on_in_the_child() -> None:
    lock = RenewedLock()
    child = -1
    try:
        with lock.lock:
            child = os.fork()
        ended = is_free(lock)
    except BaseException:
        ended = False
    if not child:
        os._exit(not ended)
    assert os.waitpid(child, 0)[1] == 0


def test_the_client_and_what_it_stands_on_have_no_other_locks_of_a_whole_process() -> None:
    found = []
    for package in ("client", "cluster", "common", "executor", "extension", "graph", "serialize", "store", "transport"):
        inside = importlib.import_module(f"scaler.{package}")
        for each in pkgutil.walk_packages(inside.__path__, f"{inside.__name__}."):
            module = importlib.import_module(each.name)
            found += [f"{each.name}.{name}" for name, value in vars(module).items() if isinstance(value, LOCKS)]
    assert not found
