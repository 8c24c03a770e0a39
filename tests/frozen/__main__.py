"""Write the snapshots anew: ``python -m tests.frozen [NAME...]``. A change in them is a change that users see.

``python -m tests.frozen --print NAME`` prints one instead.
"""

import argparse
import sys

from tests.frozen.snapshots_of import FOLDER, SNAPSHOTS


def main() -> None:
    """Write or print the snapshots that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SNAPSHOTS))
    parser.add_argument("--print", metavar="NAME", choices=list(SNAPSHOTS))
    arguments = parser.parse_args()
    if arguments.print:
        sys.stdout.buffer.write(SNAPSHOTS[arguments.print]().encode())
        return
    for name in arguments.names or SNAPSHOTS:
        path = FOLDER / f"{name}.txt"
        text = SNAPSHOTS[name]()
        before = path.read_text(encoding="utf-8") if path.exists() else None
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{'unchanged' if before == text else 'written'}: {path.name}\n")


if __name__ == "__main__":
    main()
