"""Makes `small` (worlds shared by these tests) importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
