"""What fuzzing has found stays mended, and a few inputs by lot go into each target; `make fuzz` finds more."""

from pathlib import Path
from random import Random

import pytest
from fuzz.targets import TARGETS

CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus"
#: inputs by lot for each target: those of a core build a core each
FEW = {"codec": 2_000, "framing": 2_000}


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*")), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_fuzzing_found_stays_mended(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())


@pytest.mark.parametrize("target", TARGETS)
def test_bytes_by_lot_do_no_harm(target: str) -> None:
    lot = Random(7)
    for _ in range(FEW.get(target, 25)):
        TARGETS[target](lot.randbytes(lot.choice((20, 100, 400))))
