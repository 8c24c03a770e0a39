"""Forged notebooks: saved runs changed at random, beside sound ones. ``python -m benchmarks.forged --count 1500``.

A forged output is refused with a sentence, or shown as what it says; the sound run beside it opens in any case.
Anything else that is raised is a finding; seeds are printed, and one seed makes one notebook.
"""

from __future__ import annotations

import argparse
import base64
import copy
import json
import random
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from divebook import Each, Environment, Step, Workflow
from divebook.definitions.step import Ask
from divebook.errors import DivebookError
from divebook.notebook.saved_notebook import SavedNotebook, SavedRun, open_notebook
from divebook.widgets.recording import MIME, saved_run

ODD: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**53, 2**64, 10**400, 1.5, -0.0, 1e308),
    *("", "x", "\x00", "\ud800", "\u202e", "<script>", "a" * 10_000, "memory:", "completed", "$" * 50),
    *([], {}, [[]], [None], [0], {"": None}, {"type": "x"}, ["a", "b"], [[["a"]]], {"$t": "datetime", "v": "x"}),
]


def sound() -> dict[str, Any]:
    """Return the data of a run with a question, an item list and variables."""
    steps = [
        Step("ask", type="interrupt", ask=Ask("Which?"), store="said"),
        Step("each", script="it * 2", each=Each([1, 2, 3], as_="it"), store="twice"),
        Step("say", script="{'a': [1, {'b': state.twice}]}", store="deep"),
    ]
    environment = Environment(store="memory:")
    execution = environment.start(Workflow("w", steps)).wait()
    (asked,) = execution.open_questions
    execution.answer(asked.id, "this")
    return dict(saved_run(execution.wait(), execution.history()))


def forged(good: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return the data of a run with a few parts changed."""
    chance = random.Random(seed)  # noqa: S311 - a forger needs no good chance
    made = copy.deepcopy(good)
    inside = json.loads(zlib.decompress(base64.b64decode(made["recording"])))
    if chance.random() < 0.15:
        _change(made, chance)
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        _change(inside, chance)
    if isinstance(made.get("recording"), str) and made["recording"] == good["recording"]:
        made["recording"] = base64.b64encode(zlib.compress(json.dumps(inside).encode())).decode()
    if made.get("execution_id") == good["execution_id"]:
        made["execution_id"] = f"exec_forged_{seed}"
    return made


def _change(data: Any, chance: random.Random) -> None:
    """Change one part of plain data, at any depth, in place."""
    places = list(_places(data))
    holder, key = chance.choice(places)
    match chance.randrange(5):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[chance.choice(["x", "", "__class__", "names"])] = chance.choice(ODD)
        case 2:
            other, place = chance.choice(places)
            holder[key] = copy.deepcopy(other[place])
        case 3 if isinstance(holder, list):
            holder.insert(key, chance.choice(ODD))
        case _:
            holder[key] = chance.choice(ODD)


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    for key, part in list(data.items() if isinstance(data, dict) else enumerate(data)):
        yield data, key
        if isinstance(part, dict | list):
            yield from _places(part)


def finding(good: dict[str, Any], seed: int, folder: Path) -> str | None:
    """Return what goes wrong with one forged notebook, or None."""
    path = folder / "forged.ipynb"
    outputs = [{"data": {MIME: data}} for data in (good, forged(good, seed))]
    path.write_text(json.dumps({"cells": [{"outputs": outputs}]}), encoding="utf-8")
    try:
        opened = open_notebook(path)
        opened[good["execution_id"]]
        _look_at(opened)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        return f"seed {seed}: {type(error).__name__}: {str(error)[:200]}"
    return None


def _look_at(opened: SavedNotebook) -> None:
    """Look at all that a notebook shows; what is refused with an error of divebook is fine."""
    repr(opened)
    for run in opened:
        for look in (
            repr,
            str,
            lambda run: run._repr_mimebundle_(),
            lambda run: (run.events, run.steps, run.operations),
        ):
            try:
                look(run)
            except DivebookError:
                continue
        for sequence in range(-1, 40):
            try:
                run.state_at(sequence)
            except IndexError:
                continue


def _frames(run: SavedRun) -> None:
    assert run.events is not run.steps is not run.operations


def main() -> None:
    """Try many, and say what was found."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--count", type=int, default=1500)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    good, found = sound(), 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(given.seed, given.seed + given.count):
            told = finding(good, seed, Path(folder))
            if told is not None:
                found += 1
                print(told)
    print(f"{given.count} forged notebooks from seed {given.seed}: {found} findings")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
