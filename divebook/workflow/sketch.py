"""What a log tells of a workflow whose definition it does not hold, as logs of other systems do not."""

from __future__ import annotations

from collections.abc import Iterable

from divebook.workflow.definition import Workflow


class Sketch(Workflow):
    """The names and types of the steps that were entered: enough to show a log, not to carry it on."""


def sketch_of(name: str, steps: Iterable[tuple[str, str]]) -> Sketch:
    """Return a workflow of which no more is known than its name and what it entered, in that order."""
    known = dict(steps)
    return Sketch.from_dict({"name": name, "steps": [{"name": step, "type": kind} for step, kind in known.items()]})
