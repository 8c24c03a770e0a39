"""What it costs to show a run: its text, its HTML and the data that a notebook saves of it."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.figure import Figure
from benchmarks.values import best
from divebook import Agent, Each, Environment, ScriptedModel, Step, Workflow
from divebook.text.redaction import Redactor

ITEMS = 2_000
TARGET = 0.5
PROSE = "Row {}: what the committee said on 21 November 2026 about item A-17, in words (and more words) of its own."


def shown() -> Iterator[Figure]:
    """Show a run of 2,000 items with and without its data, and take the secrets out of texts never seen before."""
    step = Step(
        "p", agent="a", prompt="Label ${state.i}", each=Each(list(range(ITEMS)), as_="i", parallel=16), store="t"
    )
    environment = Environment(
        store="memory:", agents=[Agent("a", model=ScriptedModel(["x"]))], workflows=[Workflow("w", [step])]
    )
    run = environment.start("w").wait(check=True)
    yield Figure(
        f"showing a run of {ITEMS:,} items",
        "memory",
        round(best(run.internals.static_bundle) / 1e3, 2),
        "s",
        target=TARGET,
    )
    without = round(best(run._repr_html_) / 1e3, 2)
    yield Figure("the same without data", "memory", without, "s", target=TARGET)
    yield Figure("taking secrets out of a text of 100 characters", "", microseconds_a_text(), "us")


def microseconds_a_text() -> float:
    """Return what one text costs that was not seen before."""
    redactor, texts = Redactor(), [PROSE.format(number) for number in range(5_000)]
    redactor.text(PROSE)  # the rules are compiled at first use
    started = time.perf_counter()
    for text in texts:
        redactor.text(text)
    return round((time.perf_counter() - started) / len(texts) * 1e6, 1)
