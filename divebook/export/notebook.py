"""A run as a notebook that tells of it in sections, and carries its log: run again, its cells show the same.

What its cells show comes from the log that it carries, opened as a reader opens it, so that nothing is in an output
that is not in the log, and secrets are in neither. The first one has the recording that JupyterLab replays.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import nbformat
from nbformat import v4

from divebook.environment import Environment
from divebook.execution.execution import Execution
from divebook.export.clean import clean_log
from divebook.store import MemoryStore
from divebook.store.carried import LOG, METADATA, TEXTS, columns_of, log_of, metadata_of, part_of
from divebook.store.jsonl import import_, new_file
from divebook.store.long_texts import LongTexts
from divebook.text.cuts import cut, one_line
from divebook.text.redaction import Redactor, shared
from divebook.text.shown import visible
from divebook.widgets.saved import MIME, saved_run
from divebook.workflow.definition import Definitions
from divebook.workflow.writer import definitions_to_text

MAX_TEXT = 20_000
"""Characters of one text in the notebook; the log has all of them."""
MAX_FAILURES = 20


def write_notebook(
    execution: Execution, file: str | Path, *, overwrite: bool = False, known_secrets: Iterable[str] = ()
) -> Path:
    """Write an execution as a notebook; return its path.

    Parameters
    ----------
    known_secrets
        What is hidden besides what `divebook.text.redaction` finds.

    Raises
    ------
    StoreError
        There is such a file, or it cannot be written; or the log cannot be read.
    """
    path, secrets = Path(file), [*known_secrets]
    events, redactor = execution.history(), shared().fresh(secrets)
    held = clean_log(events, redactor)
    texts = LongTexts(held)
    parts = {TEXTS: part_of(texts.listed), LOG: part_of(columns_of(events, held, execution.status, {}, texts))}
    carried = metadata_of(parts)
    told = Environment(store=MemoryStore())
    run = told.execution(import_(log_of(str(path), carried), told.store))
    first = {MIME: saved_run(execution, events, secrets), "text/plain": repr(run)}
    notebook = v4.new_notebook(cells=[*_numbered(_sections(run, path.name, first, redactor))])
    notebook.metadata.update({METADATA: carried, "language_info": {"name": "python"}})
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.validate(notebook)
    with new_file(path, overwrite=overwrite) as stream:
        stream.write(nbformat.writes(notebook).encode())
    return path


def _numbered(cells: Iterable[tuple[str, Any]]) -> Iterator[Any]:
    """Yield cells with ids that are the same each time, and those of code with the numbers that running all gives."""
    numbers = count(1)
    for place, (source, shown) in enumerate(cells, 1):
        if shown is None:
            yield v4.new_markdown_cell(source, id=f"told-{place}")
            continue
        number = next(numbers)
        output = v4.new_output("execute_result", data=shown, execution_count=number)
        yield v4.new_code_cell(source, id=f"told-{place}", execution_count=number, outputs=[output])


def _sections(run: Execution, name: str, first: dict[str, Any], redactor: Redactor) -> Iterator[tuple[str, Any]]:
    """Yield the cells: what stands in them, and of those with code what they show."""
    yield (
        f"# {_plain(run.workflow.name)}\n\nRun `{run.id}`. This notebook carries its log: its cells can be run again.",
        None,
    )
    yield f"%load_ext divebook\nrun = %dive open {name}\nrun", first
    yield "## What it was asked", None
    yield "run.inputs", _value(run.inputs)
    yield "## Definition", None
    yield _fenced(redactor.text(definitions_to_text(Definitions(workflows=(run.workflow,)))), "yaml"), None
    yield "## Steps", None
    yield "run.steps", _frame(run.steps)
    yield from _framed(run, "Items", "items")
    yield from _framed(run, "Requests to models", "model_calls")
    yield from _framed(run, "Calls of tools", "tool_calls")
    yield from _framed(run, "Questions and answers", "questions")
    if failures := run.failures:
        yield "## Failures", None
        told = "\n\n".join(failure.told() for failure in failures[:MAX_FAILURES])
        yield 'print(*(failure.told() for failure in run.failures), sep="\\n\\n")', {"text/plain": _cut(told)}
    yield "## Cost", None
    yield 'run.costs("model")', _frame(run.costs("model"))
    yield "## Outputs" if run.outputs else "## Variables", None
    yield ("run.outputs", _value(run.outputs)) if run.outputs else ("run.variables", _value(run.variables))


def _framed(run: Execution, title: str, kind: str) -> Iterator[tuple[str, Any]]:
    frame = getattr(run, kind)
    if len(frame):
        yield f"## {title}", None
        yield f"run.{kind}", _frame(frame)


def _frame(frame: Any) -> dict[str, Any]:
    return {"text/plain": visible(repr(frame)), "text/html": visible(frame._repr_html_())}


def _value(value: Any) -> dict[str, Any]:
    return {"text/plain": _cut(json.dumps(value, indent=2, ensure_ascii=False, default=repr))}


def _cut(text: str) -> str:
    return cut(visible(text), MAX_TEXT)


def _plain(text: str) -> str:
    """Return a name on one line that Markdown shows as it is."""
    return "".join(f"\\{sign}" if sign in r"\`*_{}[]<>()#+!|" else sign for sign in one_line(text, 120))


def _fenced(text: str, language: str) -> str:
    fence = "`" * max(3, 1 + max((len(run) for run in text.split() if set(run) == {"`"}), default=0))
    return f"{fence}{language}\n{_cut(text).rstrip()}\n{fence}"
