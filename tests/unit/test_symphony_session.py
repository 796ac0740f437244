"""The session of Symphony, against a module that does what a test says: who ends which session."""

import threading
from types import SimpleNamespace

from support import until

from scaler.symphony import session
from scaler.symphony.session import Session, SessionOptions


class Made:
    """A session as soamapi has it."""

    def __init__(self, send):
        self.is_closed = False
        self.tasks = []
        self._send = send

    def get_id(self):
        return 1

    def send_task_input(self, attributes):
        self._send()
        self.tasks.append(attributes)
        return SimpleNamespace(get_id=lambda: len(self.tasks))

    def close(self):
        self.is_closed = True


def module(sessions):
    """A soamapi whose connections give these sessions, one after the other."""
    left = iter(sessions)
    attributes = SimpleNamespace(
        set_session_type=str, set_session_name=str, set_session_flags=str, set_session_callback=lambda told: None
    )
    connection = SimpleNamespace(create_session=lambda attributes: next(left), close=lambda: None)
    return SimpleNamespace(
        Message=object, SessionCallback=object, SessionFlags=SimpleNamespace(PARTIAL_ASYNC=1),
        initialize=lambda: None, connect=lambda service, security: connection,
        DefaultSecurityCallback=lambda user, password: None, SessionCreationAttributes=lambda: attributes,
        TaskSubmissionAttributes=lambda: SimpleNamespace(set_task_input=lambda message: None),
    )  # fmt: skip


def test_who_could_not_send_in_the_last_session_does_not_end_the_next_one(monkeypatch):
    def refuse():
        raise OSError("the session was aborted")

    first, second = Made(refuse), Made(lambda: None)
    made = Session(module([first, second]), SessionOptions("S", "u", "p", "t", "n"))
    monkeypatch.setattr(session, "FIRST_PAUSE", 0.01)
    others = []

    def meanwhile(error):
        """Between its failure and what it makes of that others see the end, too, and another session begins."""
        if not others:
            made.ended(1, "aborted")
            others.append(threading.Thread(target=made.call, args=(b"other",), daemon=True))
            others[0].start()
            until(lambda: second.tasks)

    monkeypatch.setattr(made, "_complain", meanwhile)
    late = threading.Thread(target=made.call, args=(b"late",), daemon=True)
    late.start()
    until(lambda: len(second.tasks) == 2, "both tasks in the second session")
    assert first.is_closed
    assert not second.is_closed
    made.ended(2, "over")
    for thread in (late, *others):
        thread.join(10)
        assert not thread.is_alive()
