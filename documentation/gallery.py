"""Gallery of the documentation: six runs as HTML files, written when mkdocs builds the site. A hook of mkdocs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import divebook
from divebook import Environment, Run
from divebook.definitions import read_definitions

FOLDER = "gallery"

LABELS = """
Agents:
- {Name: clerk, Script: ["billing", "delivery", "delivery", "other", "billing", "delivery"]}
Workflows:
- Name: label-tickets
  Inputs: [{Name: tickets}]
  Steps:
  - Name: label
    Each: {Items: $(inputs.tickets), As: ticket, Parallel: 3}
    Agent: clerk
    Prompt: "Label: ${ticket}"
    Store: labels
  - {Name: count, Script: "{label: state.labels.count(label) for label in sorted(set(state.labels))}", Store: counts}
"""
TICKETS = ["Charged twice", "Where is my parcel?", "Parcel damaged", "Great shop", "Send an invoice", "Wrong address"]

ASK = """
Agents:
- Name: researcher
  Tools: [find]
  Script:
  - {say: I search for it., call: {find: {word: tea}}}
  - "Sencha is the most popular tea in the catalogue."
Workflows:
- Name: ask-the-catalogue
  Steps: [{Name: ask, Agent: researcher, Prompt: Which tea is popular?, Store: answer}]
"""

APPROVE = """
Agents:
- Name: buyer
  Tools: [order]
  Script:
  - {say: The order needs approval., call: {order: {item: sencha, pieces: 3}}}
  - Ordered.
Workflows:
- Name: order-tea
  Steps: [{Name: buy, Agent: buyer, Prompt: Order tea for the week., Store: answer}]
"""

FAIL = """
Workflows:
- Name: add-invoices
  Inputs: [{Name: amounts}]
  Steps:
  - {Name: read, Each: {Items: $(inputs.amounts), As: amount}, Script: float(amount), Store: numbers}
  - {Name: add, Script: sum(state.numbers), Store: total}
"""

REVIEW = """
Agents:
- {Name: writer, Script: ['{"text": "A long draft."}', '{"text": "A draft."}']}
- {Name: critic, Script: ['{"verdict": "loop_back", "feedback": "Too long."}', '{"verdict": "proceed"}']}
Pipelines:
- Name: review
  Stages:
  - {Name: draft, Agent: writer, Next: check}
  - Name: check
    Agent: critic
    Routes: [{Condition: verdict, Value: loop_back, Target: draft}]
"""


@divebook.tool(read_only=True)
def find(word: str) -> list[str]:
    """Find products whose name contains a word."""
    return [f"{name} {word}" for name in ("green", "black", "sencha")]


@divebook.tool(destructive=True)
def order(item: str, pieces: int) -> str:
    """Order a product."""
    return f"{pieces} x {item}"


def run_of(text: str, inputs: dict[str, object] | None = None) -> Run:
    """Return an ended or waiting run of the only workflow in a definition."""
    environment = Environment(store="memory:")
    environment.define(read_definitions(text))
    (name,) = environment.definitions.workflows
    return environment.start(name, inputs or {}).wait()


def what_if() -> Run:
    """Return a what-if with other labels. Calls whose results are not in the log are blocked."""
    return run_of(LABELS, {"tickets": TICKETS}).what_if({"variables": {"labels": ["other"] * 6}}).run


RUNS: dict[str, Callable[[], Run]] = {
    "label-tickets": lambda: run_of(LABELS, {"tickets": TICKETS}),
    "ask-the-catalogue": lambda: run_of(ASK),
    "order-tea": lambda: run_of(APPROVE),
    "add-invoices": lambda: run_of(FAIL, {"amounts": ["40.50", "77.50", "1.204,50", "12.00"]}),
    "review": lambda: run_of(REVIEW, {"request": "Write it"}),
    "what-if": what_if,
}
"""Runs of the gallery by the name of their file."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the runs to the files of the site."""
    with tempfile.TemporaryDirectory() as folder:
        for name, make in RUNS.items():
            page = Path(make().to_html(Path(folder, f"{name}.html"))).read_text(encoding="utf-8")
            files.append(File.generated(config, f"{FOLDER}/{name}.html", content=page))
    return files
