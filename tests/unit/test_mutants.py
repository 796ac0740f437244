"""Faults that are kept as patches still apply, and what runs them tells who notices."""

import importlib.util
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PATCHES = sorted((ROOT / "tests" / "mutants").glob("*.patch"))


@pytest.fixture
def runner() -> ModuleType:
    """`tests/mutants/run.py`."""
    spec = importlib.util.spec_from_file_location("run_mutants", ROOT / "tests" / "mutants" / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_a_mutant_says_what_is_broken_and_applies(patch: Path) -> None:
    assert patch.read_text().startswith("# ")
    done = subprocess.run(["git", "apply", "--check", patch], cwd=ROOT, capture_output=True, text=True, check=False)
    assert not done.returncode, f"make it anew for the code as it is now: {done.stderr}"


PATCH = """# {what}
diff --git a/sums.py b/sums.py
--- a/sums.py
+++ b/sums.py
@@ -1,2 +1,2 @@
 def add(a, b):
-    return {before}
+    return {after}
"""


@pytest.fixture
def judge(runner: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, str, bool]]:
    """Plants a fault in a small project; what is broken, who noticed, and is that as it should be."""
    tests = tmp_path / "tests" / "unit"
    tests.mkdir(parents=True)
    (tmp_path / "sums.py").write_text("def add(a, b):\n    return a + b\n")
    (tests / "test_sums.py").write_text("from sums import add\n\ndef test_it_adds():\n    assert add(2, 3) == 5\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    monkeypatch.setattr(runner, "ROOT", tmp_path)
    monkeypatch.setattr(runner, "SUITES", (["tests/unit"],))
    unused = [f"-pno:{plugin}" for plugin in ("cacheprovider", "hypothesispytest", "xdist", "pytest_cov", "anyio")]
    monkeypatch.setattr(runner, "ARGUMENTS", ["-q", "-x", *unused, "-p", "failures"])

    def made(what: str, after: str, before: str = "a + b") -> tuple[str, str, bool]:
        patch = tmp_path / "mutant.patch"
        patch.write_text(PATCH.format(what=what, before=before, after=after))
        verdict = runner.judge(patch)
        return verdict.what, verdict.caught_by, verdict.is_good

    return made


def test_a_mutant_is_caught_by_the_test_that_fails_with_it_alone(judge: Callable[..., tuple[str, str, bool]]) -> None:
    assert judge("it subtracts", "a - b") == ("it subtracts", "tests/unit/test_sums.py::test_it_adds", True)


def test_a_mutant_that_nobody_notices_survives(judge: Callable[..., tuple[str, str, bool]]) -> None:
    assert judge("the other way round", "b + a") == ("the other way round", "SURVIVED", False)


def test_a_mutant_of_other_code_can_not_be_judged(judge: Callable[..., tuple[str, str, bool]]) -> None:
    _, caught_by, is_good = judge("it subtracts", "a - b", before="sum((a, b))")
    assert "does not apply" in caught_by
    assert not is_good


def test_a_test_that_always_fails_catches_nobody(judge: Callable[..., tuple[str, str, bool]], tmp_path: Path) -> None:
    (tmp_path / "tests" / "unit" / "test_sums.py").write_text("def test_no():\n    assert False\n")
    assert judge("the other way round", "b + a") == ("the other way round", "SURVIVED", False)
