"""``python -m benchmarks [--only NAME ...]``: prints one JSON line per measurement.

Figures depend on the machine; ratios come from one run and can be compared.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.imports import startup
from benchmarks.steps import flat, parallel, sequential
from benchmarks.values import values

MEASUREMENTS: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
    "sequential": sequential,
    "flat": flat,
    "parallel": parallel,
    "startup": startup,
    "values": values,
}


def main() -> None:
    """Run the measurements that are asked for, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=MEASUREMENTS, help="may be given several times")
    for name in parser.parse_args().only or MEASUREMENTS:
        for result in MEASUREMENTS[name]():
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
