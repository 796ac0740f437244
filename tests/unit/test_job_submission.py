"""A durable job that does not get there whole is taken back."""

import pytest

from scaler.client.jobs.packing import Part
from scaler.client.jobs.submission import Submission
from scaler.errors import ConnectionFailed, JobError
from scaler.protocol.messages import JobAnswer


class Session:
    """Takes parts until one is refused."""

    def __init__(self, *refusals: BaseException | None) -> None:
        self._refusals = list(refusals)
        self.asked: list[tuple[str, str, int]] = []

    def submit_all(self, parts):
        if refusal := self._refusals.pop(0):
            raise refusal
        return [JobAnswer(1) for _ in parts]

    def ask(self, kind: str, name: str, token: int) -> None:
        self.asked.append((kind, name, token))


@pytest.mark.parametrize("parts", [0, 1, 2])
def test_a_job_whose_end_is_refused_is_taken_back(parts: int) -> None:
    session = Session(*[None] * parts, JobError("the disk is full"))
    submission = Submission(session, "night")  # type: ignore[arg-type]

    def submit() -> None:
        with submission.whole():
            for _ in range(parts):
                submission.add(Part([], 0))

    with pytest.raises(JobError):
        submit()
    assert session.asked == [("delete", "night", submission.token)]


def test_a_job_of_which_nothing_was_said_is_not_taken_back() -> None:
    session = Session()
    with pytest.raises(KeyboardInterrupt), Submission(session, "night").whole():  # type: ignore[arg-type]
        raise KeyboardInterrupt
    assert session.asked == []


def test_a_job_whose_scheduler_is_gone_is_left_as_nobody_knows_what_is_there() -> None:
    session = Session(ConnectionFailed("gone"))
    with pytest.raises(ConnectionFailed), Submission(session, "night").whole():  # type: ignore[arg-type]
        pass
    assert session.asked == []
