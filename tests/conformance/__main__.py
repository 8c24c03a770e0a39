"""``python -m tests.conformance FILE [--group G ...]``: exit 0 if all cases pass, 1 if not, 2 if they cannot be run."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.cases import Case, UnusableFileError, left_out, load
from tests.conformance.report import check, describe, not_run, summary


def passes(case: Case) -> bool:
    """Run one case and print what differs; what breaks off is a difference as well."""
    try:
        differences = check(case)
    except Exception:  # noqa: BLE001 - one broken case must not hide the others
        print(f"{case.group}/{case.name}\n{traceback.format_exc()}")
        return False
    if differences:
        print(describe(case, differences))
    return not differences


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases of one file."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("file", type=Path, help="a file of cases")
    parser.add_argument("--group", action="append", default=[], help="run this group only; may be given several times")
    options = parser.parse_args(arguments)
    try:
        cases = load(options.file, options.group)
    except UnusableFileError as error:
        print(error, file=sys.stderr)
        return 2
    failed = sum(not passes(case) for case in cases)
    for line in not_run(left_out(options.file, options.group)):
        print(line)
    print(summary(cases, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
