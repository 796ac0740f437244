"""Who has nothing to do looks for a moment before it sleeps, if what came last came within one."""

from scaler.common.spinning import INTERRUPTED, MOMENT, Spinner

FOUND = [(3, 1)]
LOOK = 1e-6


class Descriptors:
    """A poll and its clock: something is ready at the times of `arrivals`; a look takes a microsecond."""

    def __init__(self, *arrivals: float) -> None:
        self.now = 0.0
        self._arrivals = sorted(arrivals)
        #: seconds that a look takes
        self.look = LOOK
        #: seconds that were asked for
        self.asked: list[float] = []

    def clock(self) -> float:
        return self.now

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        self.asked.append(timeout)
        self.now += self.look
        end = self.now + timeout
        if self._arrivals and self._arrivals[0] <= end:
            self.now = max(self.now, self._arrivals.pop(0))
            return FOUND
        self.now = end
        return []

    @property
    def sleeps(self) -> int:
        """How often it slept since this was last asked."""
        slept = sum(timeout > 0 for timeout in self.asked)
        self.asked.clear()
        return slept


def test_after_a_quick_one_it_looks_without_sleeping() -> None:
    descriptors = Descriptors(MOMENT / 2, MOMENT)
    spinner = Spinner(clock=descriptors.clock)
    assert (spinner.poll(descriptors.poll, 1.0), descriptors.sleeps) == (FOUND, 1)  # nothing is known yet
    assert (spinner.poll(descriptors.poll, 1.0), descriptors.sleeps) == (FOUND, 0)


def test_it_looks_for_no_longer_than_a_moment_and_then_just_sleeps() -> None:
    descriptors = Descriptors(MOMENT / 2, 0.5, 0.9)
    spinner = Spinner(clock=descriptors.clock)
    assert spinner.poll(descriptors.poll, 1.0) == FOUND
    descriptors.asked.clear()
    assert spinner.poll(descriptors.poll, 1.0) == FOUND
    assert len(descriptors.asked) <= MOMENT / LOOK + 2
    assert descriptors.sleeps == 1
    assert (spinner.poll(descriptors.poll, 1.0), len(descriptors.asked)) == (FOUND, 1)  # the last one was slow


def test_the_whole_wait_takes_no_longer_than_it_may() -> None:
    descriptors = Descriptors(MOMENT / 2)
    spinner = Spinner(clock=descriptors.clock)
    assert spinner.poll(descriptors.poll, 1.0) == FOUND
    for timeout in (MOMENT / 4, 0.1):
        began = descriptors.now
        assert spinner.poll(descriptors.poll, timeout) == []
        assert timeout <= descriptors.now - began <= timeout + 4 * LOOK


def test_nothing_found_in_a_short_wait_was_not_quick() -> None:
    descriptors = Descriptors(0.5)
    spinner = Spinner(clock=descriptors.clock)
    assert spinner.poll(descriptors.poll, MOMENT / 2) == []
    descriptors.asked.clear()
    assert (spinner.poll(descriptors.poll, 1.0), len(descriptors.asked)) == (FOUND, 1)


def test_whoever_was_kept_from_looking_sleeps() -> None:
    descriptors = Descriptors(MOMENT / 2, 0.5)
    spinner = Spinner(clock=descriptors.clock)
    assert spinner.poll(descriptors.poll, 1.0) == FOUND
    descriptors.asked.clear()
    descriptors.look = 2 * INTERRUPTED
    assert spinner.poll(descriptors.poll, 1.0) == FOUND
    assert len(descriptors.asked) == 2
    assert descriptors.sleeps == 1


def test_looks_in_vain_become_rare() -> None:
    """Every second answer comes late, the others at once."""
    descriptors = Descriptors(*(0.01 * number + (MOMENT / 2 if number % 2 else 0.0) for number in range(1, 401)))
    spinner = Spinner(clock=descriptors.clock)
    in_vain = 0
    for _ in range(400):
        descriptors.asked.clear()
        assert spinner.poll(descriptors.poll, 1.0) == FOUND
        in_vain += len(descriptors.asked) > 1
    assert in_vain <= 8


def test_others_are_let_go_between_two_looks() -> None:
    descriptors, given = Descriptors(MOMENT / 2, MOMENT), []
    spinner = Spinner(clock=descriptors.clock, give_way=lambda: given.append(len(descriptors.asked)))
    spinner.poll(descriptors.poll, 1.0)
    assert not given  # it slept
    descriptors.asked.clear()
    assert spinner.poll(descriptors.poll, 1.0) == FOUND
    assert given == list(range(1, len(descriptors.asked)))  # but not behind the last, which has found something


def test_who_was_kept_from_looking_by_those_it_let_go_sleeps() -> None:
    descriptors = Descriptors(MOMENT / 2, MOMENT)

    def give_way() -> None:
        descriptors.now += 2 * INTERRUPTED

    spinner = Spinner(clock=descriptors.clock, give_way=give_way)
    spinner.poll(descriptors.poll, 1.0)
    descriptors.asked.clear()
    assert spinner.poll(descriptors.poll, 1.0) == FOUND
    assert [timeout > 0 for timeout in descriptors.asked] == [False, True]
