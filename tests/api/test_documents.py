"""The code in the documentation, run as a user would paste it: the blocks of a page are one program."""

import re
import textwrap
from pathlib import Path

import pytest
from support import ROOT, Daemons, Scripts

pytest.importorskip("dask")


def program_of(page: str) -> str:
    """The blocks of Python on a page, one after another."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
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


def test_the_page_on_jobs_shows_what_works(daemons: Daemons, scripts: Scripts, tmp_path: Path) -> None:
    daemons.start_scheduler("--journal", str(tmp_path / "journal"))
    daemons.start_agent(2)
    program = program_of("docs/jobs.md").replace("tcp://head:2345", daemons.address).replace("1_000_000", "20_000")
    scripts.run(program, within=45.0)
    assert {job.name: (job.state, job.rows) for job in daemons.client().jobs()} == {
        "night": ("done", 20_000),
        "nightly": ("done", 20_000),
    }


def test_the_page_for_those_who_come_from_distributed_shows_what_works(daemons: Daemons, scripts: Scripts) -> None:
    daemons.start_scheduler()
    daemons.start_agent(1)
    program = program_of("docs/from-distributed.md").replace("tcp://host:2345", daemons.address)
    assert scripts.run(program) == "[1, 2, 3]\n"


def test_the_page_on_running_shows_how_to_cancel_and_drain(daemons: Daemons, scripts: Scripts, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "module.py").write_text("def work(n):\n    return n\n")
    daemons.start_scheduler()
    agent = daemons.start_agent(1, "--job", "4711")
    submitting = f"""
        from package.module import work
        from scaler import Client

        client = Client({daemons.address!r})
        futures = [client.with_options(capabilities=["gpu"]).submit(work, n) for n in range(7)]
    """
    asking = program_of("docs/running.md").replace("tcp://head:2345", daemons.address)
    assert scripts.run(textwrap.dedent(submitting) + asking) == "7\n"
    assert agent.ends(20.0) == 0


def test_the_page_on_provisioning_shows_a_cluster_and_a_provider(scripts: Scripts) -> None:
    scripts.run(program_of("docs/provisioning.md"), within=45.0)
