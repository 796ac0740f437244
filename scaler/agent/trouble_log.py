"""What is said of a scheduler that is not there: each trouble once, a passing one not at all."""


class TroubleLog:
    """What was said since the scheduler was there.

    >>> troubles = TroubleLog()
    >>> [troubles.is_news(trouble) for trouble in ("nobody", "nobody", "cut off", "nobody", "mute", "mute", "mute")]
    [True, False, False, False, False, True, False]
    """

    def __init__(self) -> None:
        self._said: set[str] = set()
        #: the last trouble, said or not
        self._last = ""

    def is_news(self, trouble: str) -> bool:
        """Whether to say it: it is the first one, or another than before has come twice in a row."""
        is_news = trouble not in self._said and (not self._said or trouble == self._last)
        self._last = trouble
        if is_news:
            self._said.add(trouble)
        return is_news

    def clear(self) -> None:
        """The scheduler is there."""
        self._said.clear()
