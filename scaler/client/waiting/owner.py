"""What a client's futures and references hold of it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from scaler.client.future import Future
from scaler.client.io.driver import SessionDriver
from scaler.client.io.watching import Watcher
from scaler.client.liveness import Liveness
from scaler.client.values.value_codec import ValueCodec
from scaler.client.waiting.cancellations import Cancellations
from scaler.client.waiting.nesting import NestedWaits
from scaler.errors import ForkedClient, SerializationError
from scaler.graph import RemoteValue
from scaler.serialize.outofband import joined
from scaler.transport import Address

#: what is said to whoever waits for what was submitted before a fork
FORKED = (
    "this future belongs to the parent of this forked process: only there can it be waited for. "
    "Make a new Client, or Executor, here and submit to that"
)


class ClientOwner:
    """Of one client and all its views: a `FutureOwner`, a waiters' `Owner` and an `ObjectOwner`. Any thread."""

    def __init__(
        self,
        address: Address,
        driver: SessionDriver,
        liveness: Liveness,
        codec: ValueCodec,
        cancellations: Cancellations,
        nested_waits: NestedWaits,
        watcher: Watcher,
    ) -> None:
        self._address = address
        self._driver = driver
        self._liveness = liveness
        self._codec = codec
        self._cancellations = cancellations
        self._nested_waits = nested_waits
        self._watcher = watcher
        #: an object is not needed; called by the garbage collector, and takes no lock
        self.release = driver.release
        #: a task is going to wait for a future's Condition
        self.prepare_to_block = nested_waits.prepare_to_block
        #: a future was asked whether it is done
        self.note_poll = nested_waits.note_poll

    def task_name(self, future: Future) -> str:
        """What the scheduler calls the task of a future, which is sent if it was not. Raises ValueError without one."""
        if not future.id:
            self._driver.flush()
        if not future.id:
            raise ValueError(f"{future!r} stands for no task of the cluster")
        return f"{self._driver.welcome.number}:{future.id}"

    def check_own(self, value: RemoteValue) -> None:
        """Raise ValueError for what belongs to another client."""
        if value.owner is not self:
            raise ValueError(f"{value!r} belongs to another client ({value.owner!r}); only that one's tasks can use it")

    # ---- for futures -----------------------------------------------------------------------------------------------
    def wait(self, future: Future, timeout: float | None) -> None:
        """Wait until the future is done, at most so many seconds. Ctrl-C takes its task back. Raises `ForkedClient`."""
        self.check_process()
        try:
            self._wait(future, timeout)
        except BaseException as error:  # whatever a signal's handler raises
            self._watcher.recover()
            if isinstance(error, KeyboardInterrupt):
                self.abandon([future])
            raise

    def _wait(self, future: Future, timeout: float | None) -> None:
        """Inside a task run the awaited one itself, elsewhere watch the connection; then wait for who ends it."""
        deadline = None if timeout is None else time.monotonic() + timeout
        timeout = self._nested_waits.wait(future, future.has_ended, timeout)
        if future.has_ended():
            return
        take_back_slot = self._nested_waits.lend_slot()
        try:
            self._watcher.watch_while_waiting(future.has_ended, timeout)
            if not future.has_ended():
                future.wait_at_gate(None if deadline is None else deadline - time.monotonic())
        finally:
            take_back_slot()

    def check_process(self) -> None:
        """Raise `ForkedClient` in a child of the process that made the client: there no future of it ends any more."""
        if self._liveness.is_forked:
            raise ForkedClient(FORKED)

    def copy(self, value: Any, body: bytes | None) -> Any:
        """A value in an object that nobody else has: from its bytes as they came, else as they would have come.

        A value that can't be pickled is given back itself.
        """
        if body is not None:
            return self._codec.load(body)
        try:
            return self._codec.load(joined(self._codec.pack(value), value))
        except SerializationError:
            return value

    def cancel(self, futures: Iterable[Future], force: bool) -> int:
        """Take tasks back; how many of these are cancelled. Blocks until the scheduler has answered, for seconds.

        Raises ValueError for what belongs to another client, and what `Liveness.check` raises.
        """
        futures = list(futures)
        waiting = [future for future in futures if not future.done()]
        if waiting:
            self._liveness.check()
            for future in waiting:  # each client numbers its own rows
                self.check_own(future)
            self._nested_waits.step_aside()
            self._cancellations.cancel(waiting, force, self._watcher.tell)
        return sum(future.cancelled() for future in futures)

    def abandon(self, futures: Iterable[Future], waiter: object = None) -> None:
        """The thread that waited for these, by this waiter, was interrupted: take their tasks back, also what runs.

        Not those that another thread waits for, too. Blocks for a moment, and raises nothing.
        """
        unwanted = [future for future in futures if not (future.done() or future.is_awaited(waiter))]
        if unwanted and not self._liveness.is_lost:
            self._nested_waits.step_aside()
            self._cancellations.abandon(unwanted)

    def __repr__(self) -> str:
        state = "closed" if self._liveness.is_closed else f"{self._driver.session.workers} workers"
        return f"<Client {self._address.url}, {state}>"
