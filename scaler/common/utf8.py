"""Texts that may hold what UTF-8 does not have, as those that `os.fsdecode` makes of any bytes."""


def written_out(text: str) -> str:
    r"""A text with its surrogates written out, so that different texts stay different.

    >>> print(written_out("gpu"), written_out("a\udcff"))
    gpu a\udcff
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
