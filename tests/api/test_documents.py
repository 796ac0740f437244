"""The code in the documentation, run as a user would paste it: the blocks of a page are one program."""

import re

import pytest
from support import ROOT, Scripts

pytest.importorskip("dask")


def program_of(page: str) -> str:
    """The blocks of Python on a page, one after another."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) > 1
    return "\n".join(blocks)


def test_what_the_page_on_the_api_asserts_holds(scripts: Scripts) -> None:
    scripts.run(program_of("docs/client-api.md"), within=45.0)


def test_the_page_on_adapters_shows_what_works(scripts: Scripts) -> None:
    scripts.run(program_of("docs/writing-an-adapter.md"), within=45.0)


def test_the_readme_prints_what_its_comments_say(scripts: Scripts) -> None:
    program = program_of("README.md")
    printed = scripts.run(program, within=45.0)
    said = re.findall(r"print\(.*  # (.+)$", program, re.MULTILINE)
    assert len(said) == 3
    for line in said:
        assert line in printed
