"""``python -m benchmarks [--only NAME ...] [--write]``: prints each figure with its target and whether it is met.

Figures depend on the machine; ratios come from one run and can be compared. ``--quick`` prints the ratios that a change
of the engine moves, in under a minute; ``--against CHECKOUT`` sets them beside those of another checkout.
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.comparing import compared
from benchmarks.cores import cores
from benchmarks.crowd import crowd
from benchmarks.definitions import definitions
from benchmarks.figure import HEADINGS, Figure
from benchmarks.going_on import answered, resumed
from benchmarks.imports import startup
from benchmarks.on_dask import dask
from benchmarks.provenance import provenance
from benchmarks.quick import quick
from benchmarks.readers import reading
from benchmarks.rows import rows
from benchmarks.sequence import flat, replay, sequential, size
from benchmarks.shown import shown
from benchmarks.snapshots import snapshots
from benchmarks.together import many, parallel
from benchmarks.turns import turns
from benchmarks.values import values

MEASUREMENTS: dict[str, Callable[[], Iterator[Figure]]] = {
    "sequential": sequential,
    "flat": flat,
    "size": size,
    "parallel": parallel,
    "many": many,
    "definitions": definitions,
    "resume": resumed,
    "answer": answered,
    "replay": replay,
    "cores": cores,
    "reading": reading,
    "comparing": compared,
    "startup": startup,
    "turns": turns,
    "values": values,
    "crowd": crowd,
    "shown": shown,
    "why": provenance,
    "snapshots": snapshots,
    "rows": rows,
    "dask": dask,
}
RESULTS = Path(__file__).with_name("RESULTS.md")
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"


def main() -> None:
    """Run the measurements that are asked for, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=MEASUREMENTS, help="may be given several times")
    parser.add_argument("--write", action="store_true", help=f"put the figures into {RESULTS.name}")
    parser.add_argument("--quick", action="store_true", help="what a step costs a processor, in under a minute")
    parser.add_argument("--against", type=Path, help="with --quick: another checkout to compare with")
    arguments = parser.parse_args()
    if arguments.quick:
        quick(arguments.against)
        return
    figures = []
    for name in arguments.only or MEASUREMENTS:
        for figure in MEASUREMENTS[name]():
            figures.append(figure)
            print(" | ".join(figure.cells), flush=True)
    missed = sum(figure.verdict == "missed" for figure in figures)
    print(f"{len(figures)} figures, {missed} of them miss their target")
    if arguments.write:
        write(figures, arguments.only or [])


def write(figures: Sequence[Figure], names: Sequence[str]) -> None:
    """Put these figures into the results; those of parts that were not measured stay, with what was said of them."""
    before, _, rest = RESULTS.read_text(encoding="utf-8").partition(BEGIN)
    written, _, after = rest.partition(END)
    rows = {figure.cells[:2]: line(figure.cells) for figure in figures}
    said = [machine(names)]
    if names:
        lines = written.strip().splitlines()
        said += [text for text in lines if text and not text.startswith("|")]
        rows = {cells(text)[:2]: text for text in lines if text.startswith("|")} | rows
    else:
        rows = {HEADINGS[:2]: line(HEADINGS), ("---", "---"): line(["---"] * len(HEADINGS))} | rows
    told = "\n\n".join([*said, "\n".join(rows.values())])
    RESULTS.write_text(f"{before}{BEGIN}\n{told}\n{END}{after}", encoding="utf-8")


def machine(names: Sequence[str]) -> str:
    """Return what the figures depend on."""
    what = ", ".join(names) or "everything"
    load = f"load average {os.getloadavg()[1]:.1f}"
    return f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, Python {platform.python_version()}, {load}: {what}"


def line(row: Sequence[str]) -> str:
    """Return a row of the table as Markdown."""
    return f"| {' | '.join(row)} |"


def cells(text: str) -> tuple[str, ...]:
    """Return the row of a line of Markdown."""
    return tuple(text.removeprefix("| ").removesuffix(" |").split(" | "))


if __name__ == "__main__":
    main()
