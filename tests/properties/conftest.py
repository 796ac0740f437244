"""For all tests here: the scripted cores of tests/sim can be imported."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "sim"))
