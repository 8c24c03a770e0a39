"""``python -m benchmarks.interrupting [SEEDS]``: 500 Ctrl-C at random moments of starts, answers and the like."""

from __future__ import annotations

import sys

from tests.runtime.interrupting import main

if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 500))
