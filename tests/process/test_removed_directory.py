"""Programs whose working directory was removed."""

import pytest

REMOVED = """
    import os, sys, tempfile

    directory = tempfile.mkdtemp()
    os.chdir(directory)
    os.rmdir(directory)
    here = os.stat(".")

    import scaler

    def where():
        try:
            return os.getcwd()
        except FileNotFoundError:
            return "nowhere"
"""


@pytest.mark.parametrize(
    "made", ["scaler.Executor(1)", "scaler.Client(cluster := scaler.SchedulerClusterCombo(n_workers=1))"]
)
def test_they_have_workers_that_stand_there_as_well(scripts, made):
    text = f"""
    with {made} as pool:
        assert pool.submit(where).result(40) == where() == "nowhere"
        assert os.path.samestat(os.stat("."), here)
    """
    assert scripts.run(REMOVED + text, PWD="/somewhere/that/is/gone") == ""


@pytest.mark.parametrize("name", ["/somewhere/that/is/gone", "relative", ""])
def test_a_wrong_name_of_the_directory_is_left_as_it_is_and_not_spoken_of(scripts, name):
    text = """
    import os
    import scaler.protocol.codec

    assert os.environ["PWD"] == NAME
    """
    assert scripts.run(text.replace("NAME", repr(name)), PWD=name) == ""
