"""Every exception the engine raises on purpose, as one tree.

    ScalerError                      anything below
    ├── ConnectionFailed             no way to the scheduler: is it running at this address? (also ConnectionError)
    │   ├── ConnectionTimeout        it did not answer in time (also TimeoutError)
    │   └── HandshakeRefused         it answered "no": other keys, another version, a name already taken
    │       └── SchedulerStandsBy    it stands by for another one: give both addresses, with a comma between
    ├── ProtocolError                bytes that are no message: a peer of another version, or a bug (also ValueError)
    ├── ClientClosed                 the client was disconnected: make a new one (also RuntimeError)
    │   └── ForkedClient             the client belongs to the parent of this forked process: make a new one here
    ├── AddressError                 an address that cannot be read; says the form it wants (also ValueError)
    ├── AddressInUse                 something listens there already: choose another port (also OSError)
    ├── KeyFileError                 a key file that others can read, is damaged or is not there; says what to do
    ├── TaskFailed                   one task has no result, for a reason that is not an exception of the user's code
    │   ├── TaskError                it raised something that cannot travel; the text of it is here
    │   ├── WorkerLost               its worker died (signal, exit code) more often than retries_on_loss allows
    │   ├── TaskTimeout              it ran longer than the `timeout` it was given (also TimeoutError)
    │   ├── SerializationError       a function, argument or result cannot be pickled (also pickle.PicklingError)
    │   ├── WorkerMemoryExceeded     its worker took more memory than it may: give it more, or the task less
    │   ├── FunctionNotFound         its function's module is missing on the worker: install it there
    │   ├── StoreFull                no room for its result or argument: /dev/shm or disk are full
    │   └── ObjectLost               an object it needs is gone with every host that held it: send it again
    ├── UnknownTask                  a question about a task that the scheduler knows no more, or a name that names none
    ├── CycleError                   a graph that depends on itself; names the cycle (also graphlib.CycleError)
    ├── ObjectTooLarge               a value over max_message_bytes (also ValueError)
    ├── JobError                 a durable job that is not there, or can't be changed; or a scheduler without a journal
    └── ShutdownRefused              the scheduler is protected: start it with --no-protected to allow a shutdown (also
                                     ValueError)

    RemoteTraceback                  not an error: the `__cause__` of a user's exception, showing where it was raised

What a user's function raises comes back as its own type. Every class here pickles.
"""

from __future__ import annotations

import graphlib
import pickle


class ScalerError(Exception):
    """Anything the engine raises on purpose."""


class ConnectionFailed(ScalerError, ConnectionError):
    """There is no way to the scheduler."""


class ConnectionTimeout(ConnectionFailed, TimeoutError):
    """The scheduler did not answer in time."""


class HandshakeRefused(ConnectionFailed):
    """The scheduler answered and does not want us: other keys, another version."""


class SchedulerStandsBy(HandshakeRefused):
    """The scheduler answered, and another one leads, or may soon: give the addresses of both, with a comma between."""


class ProtocolError(ScalerError, ValueError):
    """Bytes that are not a message of this protocol."""


class ClientClosed(ScalerError, RuntimeError):
    """The client was disconnected."""


class ForkedClient(ClientClosed):
    """The client was made by the parent of this forked process."""


class AddressError(ScalerError, ValueError):
    """An address that cannot be read."""


class AddressInUse(ScalerError, OSError):
    """Something listens at this address already."""


class KeyFileError(ScalerError):
    """A key that cannot be used: readable by others, damaged, not where it was said to be, or not to be made there."""


class UnknownTask(ScalerError):
    """The scheduler knows no task of this name: it has ended, or there never was one."""


class TaskFailed(ScalerError):
    """One task has no result."""


class TaskError(TaskFailed):
    """A task raised an exception that cannot travel; its text is the message.

    `type_name` is the qualified name of the original type, `traceback` the text of the remote traceback.
    """

    def __init__(self, message: str = "", *, type_name: str = "", traceback: str = "") -> None:
        super().__init__(message)
        self.type_name = type_name
        self.traceback = traceback


class WorkerLost(TaskFailed):
    """The worker that ran the task died; the message names task, function and signal or exit code."""


class TaskTimeout(TaskFailed, TimeoutError):
    """The task ran longer than it was allowed to."""


class WorkerMemoryExceeded(TaskFailed):
    """The task's worker took more memory than it may and was ended; the message names the peak and the limit."""


class StoreFull(TaskFailed, OSError):
    """There is no room for an object; the message names the place, what it needs, what is free, and what to do."""


class SerializationError(TaskFailed, pickle.PicklingError):
    """A function, argument or result cannot be pickled or unpickled; the message names which."""


class FunctionNotFound(TaskFailed):
    """The task's function cannot be imported on the worker; the message names module and host."""


class ObjectLost(TaskFailed):
    """An object that the task needs is gone with every host that held it."""


class CycleError(ScalerError, graphlib.CycleError):
    """A graph that depends on itself; the message names the cycle, and `args[1]` is the list of its keys."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ObjectTooLarge(ScalerError, ValueError):
    """A value is larger than `max_message_bytes`."""


class ShutdownRefused(ScalerError, ValueError):
    """The scheduler is protected and may not be shut down by a client."""


class JobError(ScalerError):
    """A durable job: there is none of this name, one already, or the scheduler keeps none; the text says which."""


class RemoteTraceback(Exception):
    """The traceback of the worker as text, shown as the cause of a user's exception."""

    #: whether the exception was raised `from None`, which its cause hides
    is_from_none = False

    def __init__(self, text: str = "") -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text.rstrip()}\n"
