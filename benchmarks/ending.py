"""``python -m benchmarks.ending``: how long after a run of 20,000 items its cell ends, in a real JupyterLab.

The clock of the run's last event, that of the kernel's answer and that of the page are the same machine's. It says as
well when what a saved notebook shows was in its place, and what that is. ``--items`` makes it shorter.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from benchmarks.browser import front_end
from benchmarks.figure import Figure

ITEMS = 20_000
MIME = "application/vnd.divebook.run+json"

DEFINED = """\
%load_ext divebook
import divebook

@divebook.action("Tiny", idempotent=True)
def tiny(i: int) -> dict:
    if i == {failing}:
        raise ValueError(f"row {{i}} is broken")
    return {{"row": i, "label": "kept"}}
"""
WORKFLOW = """\
%%dive workflow big
Steps:
  - Name: rows
    Each: {Items: "$(list(range(ITEMS)))", As: i, Parallel: 8}
    Action: Tiny
    Parameters: {i: "$(i)"}
    Store: out
"""
RUN = "r = %dive run big --durability relaxed --no-check"
TOLD = "print(r.ended_at.timestamp(), (r.ended_at - r.started_at).total_seconds())"
SAVED = f"""
(index) => inLab.outputs(index).some((one) => ((one.data ?? {{}})["{MIME}"] ?? {{}}).recording)
"""


def measure(lab: Any, name: str) -> Iterator[Figure]:
    """Run the cell, and compare the end of the run with that of the cell, and with when the data was there."""
    for cell in (0, 1):
        lab.run_through(cell)
    lab.run_through(2)
    ended = lab.page.evaluate("Date.now()") / 1000
    lab.page.wait_for_function(SAVED, arg=2)
    saved = lab.page.evaluate("Date.now()") / 1000
    lab.run_through(3)
    over, took = map(float, lab.outputs(3)[0]["text"].split())
    details = {"run, s": round(took, 1)}
    yield Figure(f"the cell ends after the run, {name}", "", round(ended - over, 2), "s", 2, details=details)
    yield Figure(f"the data is in the notebook, {name}", "", round(saved - over, 2), "s")


def main() -> None:
    """Print each figure with its target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=ITEMS)
    items = parser.parse_args().items
    with front_end(extended=True) as opened:
        for name, failing in (("completed", -1), ("failed", items - 200)):
            cells = (DEFINED.format(failing=failing), WORKFLOW.replace("ITEMS", str(items)), RUN, TOLD)
            lab = opened(name, cells)
            for figure in measure(lab, f"{items:,} items, {name}"):
                print(" | ".join(figure.cells), flush=True)
            lab.page.close()


if __name__ == "__main__":
    main()
