"""Makes the package `simulator` of tests/sim importable: its scripted cores serve here too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "sim"))
