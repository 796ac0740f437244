"""What the engine itself says of rows that have no value: each text is here, as a function of the facts.

Scheduler, agents, workers and clients make their error records by these functions; what a user's function raises is not
among them. Errors name the task, what happened to it, and what can be done about it where that is not plain.
"""

import re
from math import ceil

from scaler.common.exits import describe_exit
from scaler.protocol.error_record import ErrorKind, ErrorRecord

#: what is said of an attribute of the script that the worker's own `__main__` has not got
_NOT_IN_MAIN = re.compile(r"attribute ('[^']+') on <module '__main__'|module '__main__' has no attribute ('[^']+')")


def task_words(name: str, row_id: int) -> str:
    """What a row is called in messages.

    >>> task_words("f", 12)
    'task f (12)'
    """
    return f"task {name} ({row_id})"


# ---- WorkerLost ------------------------------------------------------------------------------------------------------
#: of a row that was lost with its worker while another one ran in its stack
_IN_ITS_OWN = "while it ran a task that this one waited for"


def worker_ended(pid: int, status: int, in_its_own: bool = False) -> str:
    """How a worker ended, for a row that is reported as lost; `status` is a wait status.

    >>> worker_ended(7, 9)
    'its worker (pid 7) was killed by SIGKILL'
    >>> worker_ended(7, 256, True)
    'its worker (pid 7) ended with exit code 1 while it ran a task that this one waited for'
    """
    how = f"its worker (pid {pid}) {describe_exit(status)}"
    return f"{how} {_IN_ITS_OWN}" if in_its_own else how


def worker_crowded(pid: int, much: str) -> str:
    """Why a worker was ended for its memory while another row ran in the stack of the one that is lost.

    >>> worker_crowded(7, memory_taken(2_000_000, 1_000_000)).partition(" took ")[2]
    '2 MB, and a worker may take 1 MB (worker_memory_limit), while it ran a task that this one waited for'
    """
    return f"its worker (pid {pid}) took {much}, {_IN_ITS_OWN}"


def worker_rejected(pid: int, what: str) -> str:
    """Why a worker was ended that can't be believed or used, for the row that it ran; `what` says what it did.

    >>> worker_rejected(7, "sent what is no message")
    'its worker (pid 7) was ended: it sent what is no message'
    """
    return f"its worker (pid {pid}) was ended: it {what}"


def results_unreadable(agent: str, problem: str) -> str:
    """Why rows count as lost whose results are none.

    >>> results_unreadable("node 1", "a list that is none")
    'its agent, node 1, sent a list that is none'
    """
    return f"its agent, {agent}, sent {problem}"


def worker_lost(name: str, row_id: int, how: str, attempts: int) -> ErrorRecord:
    """A row was lost with each worker that it was given to; `how` says what became of the last one."""
    words = f"{task_words(name, row_id)}: {how}; attempt {attempts} of {attempts}, given up"
    return ErrorRecord(ErrorKind.LOST, words, name)


# ---- TaskTimeout, WorkerMemoryExceeded -------------------------------------------------------------------------------
def task_timeout(name: str, row_id: int, seconds: float) -> ErrorRecord:
    """A row ran longer than it may."""
    words = f"{task_words(name, row_id)} ran longer than its timeout of {seconds:g} s"
    return ErrorRecord(ErrorKind.TIMEOUT, words, name)


def memory_taken(taken: int, limit: int) -> str:
    """How much a worker took and may take, bytes.

    >>> memory_taken(2_000_000, 1_000_000)
    '2 MB, and a worker may take 1 MB (worker_memory_limit)'
    >>> memory_taken(2_000_000, 70_000)
    '2 MB, and a worker may take 70,000 bytes (worker_memory_limit)'
    >>> memory_taken(200_300_000, 200_000_000)
    '201 MB, and a worker may take 200 MB (worker_memory_limit)'
    """
    return f"{_size(taken, is_rounded_up=True)}, and a worker may take {_size(limit)} (worker_memory_limit)"


def _size(number: int, *, is_rounded_up: bool = False) -> str:
    if number < 1e6:
        return "1 byte" if number == 1 else f"{number:,} bytes"
    return f"{ceil(number / 1e6) if is_rounded_up else round(number / 1e6):,} MB"


def worker_memory_exceeded(name: str, row_id: int, much: str) -> ErrorRecord:
    """The worker of a row was ended since it took too much; `much` is as `memory_taken` says it."""
    return ErrorRecord(ErrorKind.MEMORY, f"{task_words(name, row_id)}: its worker took {much}", name)


# ---- ObjectLost ------------------------------------------------------------------------------------------------------
#: why what a row made isn't computed again
ONLY_ONCE = "no task runs a second time (retries_on_loss=0)"


def never_sent(name: str, object_id: int) -> ErrorRecord:
    """The function or the arguments of a task are not there."""
    words = f"object {object_id} of {name} was never sent, or is released already"
    return ErrorRecord(ErrorKind.OBJECT, words)


def result_lost(name: str, row_id: int) -> ErrorRecord:
    """The value of a row is gone for good."""
    words = f"the result of {name} ({row_id}) is lost with its host and can't be computed again"
    return ErrorRecord(ErrorKind.OBJECT, words)


def runs_only_once(name: str, row_id: int) -> ErrorRecord:
    """The value of a row is gone, and rows may not run twice."""
    words = f"the result of {name} ({row_id}) is lost with its host, and {ONLY_ONCE}"
    return ErrorRecord(ErrorKind.OBJECT, words)


def sent_nowhere(object_id: int) -> ErrorRecord:
    """A client was asked for a lost object, and wrote it to a store that is gone as well, more than once."""
    return ErrorRecord(
        ErrorKind.OBJECT, f"object {object_id} is lost: its client sent it again to a store that is gone"
    )


def out_of_reach(name: str, row_id: int, host: str, beyond: str) -> ErrorRecord:
    """Agents could not fetch what a row needs: at last `host`, which can't reach those `beyond` that have it."""
    words = f"{task_words(name, row_id)} could not get objects that it needs, again and again: at last {host} could not"
    if beyond:
        words += f", which does not reach {beyond}, where they are, and they can't be made within its reach"
    return ErrorRecord(ErrorKind.OBJECT, words, name)


def given_up(name: str, defect: str) -> ErrorRecord:
    """A defect of the scheduler has put a batch in disorder."""
    words = f"{name} was given up because of a defect of the scheduler, whose log has more of it: {defect}"
    return ErrorRecord(ErrorKind.OBJECT, words, name)


def not_there(name: str, object_id: int, host: str) -> ErrorRecord:
    """A worker has not got an object that a row needs."""
    return ErrorRecord(ErrorKind.OBJECT, f"object {object_id} of {name} is not on {host}", name)


def preload_failed(call: str, error: str) -> str:
    """Why a worker did not start: what it has to call before it takes rows has failed.

    >>> preload_failed("math:sqrt(-1)", "ValueError: math domain error")
    '--preload math:sqrt(-1) failed: ValueError: math domain error'
    """
    return f"--preload {call} failed: {error}"


def no_worker_starts(name: str, row_id: int, host: str, why: str) -> ErrorRecord:
    """No host that may run a row has workers that can start; `host` is the last one that was asked."""
    words = f"{task_words(name, row_id)} can't run on {host}, where no worker can start: {why}"
    return ErrorRecord(ErrorKind.PRELOAD, words, name)


def object_lost(words: str) -> ErrorRecord:
    """A client can't send an object again, for the reason that these words give."""
    return ErrorRecord(ErrorKind.OBJECT, words)


# ---- CancelledError --------------------------------------------------------------------------------------------------
def dependency_cancelled(name: str) -> ErrorRecord:
    """A row that others depend on was cancelled."""
    return ErrorRecord(ErrorKind.CANCELLED, f"{name}, which this needs, was cancelled")


# ---- SerializationError, FunctionNotFound ----------------------------------------------------------------------------
def undecodable(
    what: str, name: str, host: str, error: str, missing: bool, install: str = "", traceback: str = ""
) -> ErrorRecord:
    """A function or an argument (`what`) can't be decoded at a host, because of `error`.

    With `missing` something that it imports is not there; `install` names the package to install.
    """
    words = f"{what} {name} cannot be unpickled on {host}: {error}"
    if missing and (found := _NOT_IN_MAIN.search(error)):
        words += f" ({found[1] or found[2]} is pickled by its name in the script, which workers don't have: put it in a"
        words += " module that they can import)"
    if install:
        path = "have PYTHONPATH name the directory that has it where the agent is started"
        local = "a cluster that the program has started has the sys.path of then: add the directory before"
        words += f" (install {install} there, or {path}; {local})"
    kind = ErrorKind.FUNCTION if missing else ErrorKind.SERIALIZATION
    return ErrorRecord(kind, words, name, traceback=traceback)


def unencodable(name: str, error: str) -> ErrorRecord:
    """The result of a row can't be encoded, because of `error`."""
    return ErrorRecord(ErrorKind.SERIALIZATION, f"the result of {name}: {error}", name)


def results_damaged(problem: str) -> ErrorRecord:
    """What a worker sent as results can't be told apart by those it is for."""
    return ErrorRecord(ErrorKind.SERIALIZATION, f"a worker sent {problem}")


# ---- ObjectTooLarge, StoreFull ---------------------------------------------------------------------------------------
def result_too_large(size: int, limit: int) -> ErrorRecord:
    """A result takes more bytes than a message to the agent can have."""
    words = f"the result takes {size:,} bytes as a pickle; {limit:,} is the most a task can return (max_message_bytes)"
    return ErrorRecord(ErrorKind.SIZE, words)


def unsendable(size: int, problem: str) -> ErrorRecord:
    """What is said of a row does not fit into a message, for the reason that `problem` gives."""
    words = f"its result, or what it raised, takes {size:,} bytes and can't be sent: {problem}"
    return ErrorRecord(ErrorKind.SIZE, words)


def value_too_large(value: int, job: str, size: int) -> ErrorRecord:
    """A row needs a value that is a file of a job's results, and that no message can carry."""
    words = f"the value {value} of job {job!r} takes {size:,} bytes, more than a message may have (max_message_bytes)"
    return ErrorRecord(ErrorKind.SIZE, words)


def no_room_in_files(size: int, directory: str, reason: str) -> ErrorRecord:
    """A result that no message can carry could not be written to its file."""
    words = f"the result takes {size:,} bytes as a pickle, too many for a message, and {directory}: {reason}"
    return ErrorRecord(ErrorKind.FULL, words)


def too_much_input(needed: int, has: int) -> str:
    """Why a host never runs a row: what the row needs is more than its store can have at once, bytes.

    >>> too_much_input(2_000, 1_000)
    'its input takes 2,000 bytes of the store (/dev/shm) at once, which has 1,000'
    """
    return f"its input takes {needed:,} bytes of the store (/dev/shm) at once, which has {has:,}"


def refused(name: str, row_id: int, host: str, why: str) -> ErrorRecord:
    """No host that may run a row has enough room for it; `host` is the last one that was asked."""
    words = f"{task_words(name, row_id)} can't run on {host}: {why}; give the task less input, or a host more room"
    return ErrorRecord(ErrorKind.FULL, words, name)


def no_room(name: str, what: str, size: int, reason: str) -> ErrorRecord:
    """There is no room in the store for a result of so many bytes; `what` says what it is."""
    words = f"the result of {name}, {what}, takes {size:,} bytes and cannot be stored: {reason}"
    return ErrorRecord(ErrorKind.FULL, words, name)
