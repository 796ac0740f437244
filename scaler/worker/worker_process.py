"""What a freshly forked worker does: becomes a process fit for user code, and runs rows until told to quit.

main thread       waits for the task socket, runs rows
control thread    waits for the control socket, so that rows come back, and values that stayed here become files, while
                  user code runs; ends the process when the agent is gone
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` makes enums of what this returns, which takes 4 us a call
import atexit
import contextlib
import faulthandler
import math
import multiprocessing
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import NoReturn, TextIO

from scaler.common.collector import resume_collector
from scaler.common.later_modules import load_all
from scaler.worker import context, fitness, heap, leftovers, opened_memory, preloading
from scaler.worker.last_lines import LastLines
from scaler.worker.output import OutputStream
from scaler.worker.promised_modules import PromisedModules
from scaler.worker.row_runner import Read, RowRunner
from scaler.worker_protocol.encoding import read_by_worker
from scaler.worker_protocol.messages import (
    Drop,
    Flush,
    Leaving,
    Publish,
    Ready,
    Recall,
    TailRequest,
    TailResponse,
    ToWorker,
    Unfit,
    Yield,
)
from scaler.worker_protocol.progress import LEFT_CELL, NO_THREAD
from scaler.worker_protocol.socketpair import BlockingSender, Receiver

#: Python ignores the first two in every program; nobody can change the others.
_LEFT_ALONE = {signal.SIGPIPE, signal.SIGXFSZ, signal.SIGKILL, signal.SIGSTOP}
#: seconds that one which is to end has for threads that its tasks have left and for their atexit functions
END_SECONDS = 10.0
#: what workers start without, and may need later
LATER = ("scaler.results.files", "scaler.worker.task_fork")


def serve(
    slot: int, task: socket.socket, control: socket.socket, page: memoryview, promised: frozenset[str] = frozenset()
) -> NoReturn:
    """Be worker number `slot` until the process ends; `page` is its part of the progress page.

    Packages that are `promised` a warm process has or will have; see `promised_modules`.
    """
    code = 1
    try:
        _become_a_usual_process(f"ScalerWorker-{slot}")
        sender = BlockingSender(task)
        runner = RowRunner(sender.send, _reader(task), page)
        last_lines = LastLines()
        outputs = _replace_outputs(sender, last_lines)
        context.install(runner.task, runner.root, sender.send, runner.give_back, runner.note_claimed)

        def flush_outputs() -> None:
            for output in outputs:
                if output.dirty:
                    with contextlib.suppress(Exception):  # whoever read it is gone; that is no task's fault
                        output.flush()

        runner.before_flush = flush_outputs
        os.register_at_fork(after_in_child=lambda: _leave(runner, outputs, task, control))
        runner.in_pause = partial(load_all, LATER)
        opened_memory.watch()
        if promised:
            runner.after_first = PromisedModules(promised, lambda: _make_room(runner, sender, page)).revoke
        tell_tail = partial(_tell_tail, sender, last_lines)
        obey = threading.Thread(target=_obey, args=(control, runner, tell_tail), name="scaler-control", daemon=True)
        try:
            obey.start()
        except RuntimeError:  # it can have no more threads
            os._exit(NO_THREAD)
        poll = select.poll()
        poll.register(task, select.POLLIN)
        runner.await_surroundings(poll.poll)
        if preloading.run(sender.send):
            sender.send(Ready(os.getpid()))
            runner.tidy_up = _tidier(sender)  # while the agent hears of it
            heap.learn(context.live_limit())
            runner.run(poll.poll)
            code = 0
            _end_as_a_usual_process()
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def _tidier(sender: BlockingSender) -> Callable[[bool], None]:
    """How this process is now is how each row finds it: what puts that back, see `RowRunner.tidy_up`."""
    left, fit = leftovers.watch(), fitness.watch(lambda why: sender.send(Unfit(why)))

    def tidy_up(has_failed: bool) -> None:
        left.undo()
        fit.attend(has_failed)

    return tidy_up


def _make_room(runner: RowRunner, sender: BlockingSender, page: memoryview) -> None:
    """End for the benefit of a worker that has loaded more, unless this one has run something."""
    if runner.is_fresh:
        page[LEFT_CELL] = 1
        sender.send(Leaving())
        os._exit(0)


def _reader(task: socket.socket) -> Read:
    receiver = Receiver(task, read_by_worker)

    def read() -> list[ToWorker]:
        try:
            return receiver.read()
        except EOFError:
            os._exit(0)

    return read


def _obey(control: socket.socket, runner: RowRunner, tell_tail: Callable[[TailRequest], None]) -> None:
    """Do what the agent says on the control socket."""
    try:
        receiver = Receiver(control, read_by_worker)
        poll = select.poll()
        poll.register(control, select.POLLIN)
        while True:
            poll.poll()
            for message in receiver.read():
                if isinstance(message, Recall):
                    runner.recall(message)
                elif isinstance(message, Flush):
                    runner.flush()
                elif isinstance(message, Yield):
                    context.note_yield(message.is_wanted)
                elif isinstance(message, Publish):
                    runner.publish(message.keys)
                elif isinstance(message, Drop):
                    runner.drop(message)
                elif isinstance(message, TailRequest):
                    tell_tail(message)
    except EOFError:
        os._exit(0)
    except OSError as error:
        sys.stderr.write(f"a worker hears nothing of its agent any more: {error}; has a task closed its descriptors?\n")
        os._exit(1)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _tell_tail(sender: BlockingSender, last_lines: LastLines, message: TailRequest) -> None:
    sender.send(TailResponse(message.number, last_lines.told()))


def _become_a_usual_process(name: str) -> None:
    """Undo what the zygote has that a program of the user would not have."""
    signal.set_wakeup_fd(-1)
    for number in leftovers.SIGNALS:
        if number not in _LEFT_ALONE and _signal.getsignal(number) not in (signal.SIG_DFL, None):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _draw_other_numbers()
    multiprocessing.current_process().name = name
    resume_collector()


def _draw_other_numbers() -> None:
    """Other workers, forked off the same process, shall not draw the same random numbers; Python's own they don't."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def _end_as_a_usual_process() -> None:
    """Do what the interpreter does at the end of a program: wait for threads, call atexit functions; not for ever."""
    try:
        threading.Thread(target=_end_in_time, name="scaler-end", daemon=True).start()
    except RuntimeError:  # it can have no more threads
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(math.ceil(END_SECONDS))
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()


def _end_in_time() -> None:
    """What comes in the place of this worker waits until it has ended."""
    time.sleep(END_SECONDS)
    names = [thread.name for thread in threading.enumerate() if not thread.daemon and thread.is_alive()]
    try:
        sys.stderr.write(f"a worker has not come to its end within {END_SECONDS:g} s, with threads {names}\n")
        sys.stderr.flush()
    finally:
        os._exit(0)


def _replace_outputs(sender: BlockingSender, last_lines: LastLines) -> list[OutputStream]:
    outputs = []
    for number, name in ((1, "stdout"), (2, "stderr")):
        plain = _plain(number, getattr(sys, name))
        setattr(sys, f"__{name}__", plain)
        output = OutputStream(plain, number, sender.send, last_lines)
        setattr(sys, name, output)
        outputs.append(output)
    faulthandler.enable(file=2)
    return outputs


def _plain(number: int, old: TextIO | None) -> TextIO:
    """Return a line-buffered stream for a file descriptor, with the encoding that the agent's had."""
    encoding = getattr(old, "encoding", None) or "utf-8"
    errors = "backslashreplace" if number == 2 else getattr(old, "errors", None)
    return open(number, "w", buffering=1, encoding=encoding, errors=errors, closefd=False)


def _leave(runner: RowRunner, outputs: list[OutputStream], task: socket.socket, control: socket.socket) -> None:
    """Stop being a worker: this is a process that a task has just forked."""
    context.uninstall()
    runner.abandon()
    fitness.leave()
    for output in outputs:
        output.detach_from_agent()
    task.close()
    control.close()
