"""How a process ended, in words."""

import os
import signal

#: a process that a signal has ended is told of by this and the signal's number
BY_SIGNAL = 128


def exit_code(status: int) -> int:
    """The exit code by which shells tell of a wait status (as of os.waitpid).

    >>> exit_code(3 << 8), exit_code(9)
    (3, 137)
    """
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else BY_SIGNAL - code


def describe_exit(status: int) -> str:
    """Say in words what a wait status (as of os.waitpid) means.

    >>> describe_exit(11), describe_exit(3 << 8)
    ('was killed by SIGSEGV', 'ended with exit code 3')
    """
    return describe_code(os.waitstatus_to_exitcode(status))


def describe_code(code: int) -> str:
    """The same of an exit code, negative for a signal, as `subprocess` has it."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
