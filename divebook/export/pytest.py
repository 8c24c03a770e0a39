"""A run as a test: a pytest file with the run's log and definition beside it, which needs neither key nor network.

The test drives the definition against the log, and fails at the first thing that is done otherwise. All calls are
answered from the log, so that actions and tools are not needed; functions made with ``@workflow``, and agents made in
Python, are imported from their modules. Secrets are left out, as in every export.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, TypeAlias

import nbformat
from nbformat import v4

from divebook.agents import Agent
from divebook.agents.signatures import library_tool
from divebook.config import load, with_documents
from divebook.config.modules import add_values, import_actions
from divebook.documents import FileDocuments
from divebook.engine.lifecycle import TERMINAL
from divebook.engine.operations import AGENT_RESPONSE, AGENT_TURN, CACHED_RESPONSE
from divebook.environment.environment import Environment
from divebook.errors import NotFoundError, SetupError
from divebook.events import Event, catalog
from divebook.events.codec import event_to_dict, short_hash
from divebook.export.page import clean_log
from divebook.questions.question import CONFIRMATION
from divebook.replay.verify import Verification
from divebook.runtime.execution import Execution
from divebook.steps.actions import Action
from divebook.store import MemoryStore
from divebook.store.embedded import (
    LOG,
    METADATA,
    TEXTS,
    LineWriter,
    LogFile,
    LongTexts,
    columns_of,
    decoded,
    log_of,
    metadata_of,
    part_of,
)
from divebook.store.transfer import import_, new_file, read
from divebook.text.format import visible
from divebook.text.redaction import Redactor, cut, one_line, shared
from divebook.widgets.recording import MIME, saved_run
from divebook.workflow.definition import Definitions, Workflow
from divebook.workflow.functions import FUNCTION, WORKFLOW_FUNCTIONS
from divebook.workflow.reader import definitions_to_text, read_definitions
from divebook.workflow.tools import ToolFunction, ToolHints

# What the tests call that `divebook.export.pytest` writes: a definition driven against a log in a file.


Options: TypeAlias = Mapping[str, Mapping[str, Any]]
"""By name, what is said of actions or tools."""


def verified_log(
    log: str | Path,
    definitions: str | Path | None = None,
    modules: Sequence[str | Path] = (),
    actions: Options | None = None,
    tools: Options | None = None,
) -> Verification:
    """Drive a definition against the log in a file; nothing is called, and no key or network is needed.

    Parameters
    ----------
    log
        The file, of JSON lines.
    definitions
        A file or folder with the workflow and its agents; by default the workflow is that of the log.
    modules
        Modules, or files of Python, that hold workflow functions and agents.
    actions, tools
        By name, the options of the actions that steps call, and of the tools that agents name: for tools also what
        their models see, `description` and `schema`. They themselves are answered from the log, and not needed.

    Raises
    ------
    SetupError
        A module cannot be imported here.
    """
    held = [value for module in modules for value in vars(import_actions(str(module), "the tested module")).values()]
    named = None if definitions is None else read_from(definitions)
    return verified_against(read(log), named, held, actions or {}, tools or {})


def read_from(path: str | Path) -> Definitions:
    """Return the definitions of a file or folder, with their content in them."""
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    return with_documents(load(Path(path)), folder, FileDocuments())


def verified_against(
    log: LogFile, definitions: Definitions | None, held: Iterable[Any], actions: Options, tools: Options
) -> Verification:
    """Drive a definition against a log, with the agents and workflow functions among the things that modules hold."""
    answered = [Action(name, answered_from_the_log, **options) for name, options in actions.items()]
    seen = [_tool(name, **options) for name, options in tools.items()]
    with Environment(store=MemoryStore(), actions=answered, tools=seen) as environment:
        add_values(environment, [*held])
        if definitions is not None:
            environment.define(definitions)
        execution = environment.execution(import_(log, environment.store))
        own = {flow.name: flow for flow in environment.own_workflows}.get(execution.workflow.name)
        return environment.verify(execution.id, own, any_code=True)


def _tool(name: str, hints: Mapping[str, bool], **options: Any) -> ToolFunction:
    return ToolFunction(name, answered_from_the_log, hints=ToolHints(**hints), **options)


async def answered_from_the_log(*_: Any, **__: Any) -> NoReturn:
    """Stand for an action or a tool, which is not called where the log has its results."""
    raise AssertionError("an action or a tool was called while a log was driven again")


NOWHERE = frozenset({"__main__", "__mp_main__"})
"""Modules that a test cannot import: those of notebooks and scripts."""
_OPTIONS = ("approval", "idempotent", "timeout")
"""What an action or a tool says of itself that decides what is recorded, besides its retries."""
_OF_TOOLS = ("most", "limit", "concurrency", "confirmation")
"""What a tool says besides these."""
_USUAL = {option: field.default for option, field in ToolFunction.__dataclass_fields__.items()}
_TURNS = (AGENT_TURN, AGENT_RESPONSE, CACHED_RESPONSE)


def write_test(
    environment: Environment,
    execution: Execution,
    file: str | Path | None = None,
    *,
    definitions: str | Path | None = None,
    overwrite: bool = False,
    known_secrets: Iterable[str] = (),
) -> Path:
    """Write a run as a test, ``test_NAME.py``, with its log (``.jsonl``) and definition (``.yaml``) beside it.

    Parameters
    ----------
    environment
        Has the agents of the run.
    file
        By default ``test_`` and the name of the workflow, in the current folder.
    definitions
        The file or folder from which the test reads the definition and the agents; by default a copy is written.
    known_secrets
        What is hidden besides what `divebook.text.redaction` finds.

    Raises
    ------
    SetupError
        It has not ended, or uses what a test cannot import, or differs from its log already.
    StoreError
        There is such a file, or it cannot be written.
    """
    path = Path(f"test_{_name(execution.workflow)}.py" if file is None else file)
    if path.suffix != ".py":
        raise SetupError(
            f"{path} is no file of Python; name one that pytest finds: test_{_name(execution.workflow)}.py"
        )
    if execution.status not in TERMINAL:
        raise SetupError(
            f"execution {execution.id} has not ended ({execution.status}), and its test would have no end; answer what "
            "it asks, or cancel it, and write the test then"
        )
    modules = {*_modules_of(environment, execution)}
    redactor = shared().fresh([*known_secrets])
    log = _log_of(execution, redactor)
    actions = _actions_of(environment, execution)
    tools = {name: redactor.without_certain(said) for name, said in _tools_of(environment).items()}
    text = ""
    named = None if definitions is None else read_from(definitions)
    beside = "" if definitions is None else os.path.relpath(definitions, path.parent)
    if definitions is None:
        text = "" if execution.workflow.start.type == FUNCTION else redactor.text(_text_of(environment, execution))
        named = read_definitions(text, dialect=execution.workflow.dialect) if text else None
        beside = path.with_suffix(".yaml").name if text else ""
    held = [value for module in modules for value in vars(module).values()]
    found = verified_against(read(io.BytesIO(log)), named, held, actions, tools)
    if not found.equal:
        raise SetupError(
            f"the test, which has the log without its secrets, would fail already: {found}. Mend the definition, or "
            "write the test of a run of it as it is now"
        )
    written = {path.with_suffix(".jsonl"): log, **({path.with_suffix(".yaml"): text.encode()} if text else {})}
    found_in = sorted(_named(module, path) for module in modules)
    written[path] = _test(execution, path, beside, found_in, {"actions": actions, "tools": tools}).encode()
    for target, content in written.items():
        with new_file(target, overwrite=overwrite) as stream:
            stream.write(content)
    return path


def _name(workflow: Workflow) -> str:
    return re.sub(r"\W+", "_", workflow.name).strip("_").lower() or "run"


def _test(
    execution: Execution,
    path: Path,
    beside: str,
    modules: Sequence[str],
    stand_ins: Mapping[str, Options],
) -> str:
    given = [f"HERE / {_quoted(path.with_suffix('.jsonl').name)}"]
    given += [f"definitions=HERE / {_quoted(beside)}"] if beside else []
    given += [f"modules=[{', '.join(modules)}]"] if modules else []
    given += [f"{kind}={_literal(options)}" for kind, options in stand_ins.items() if options]
    lines = "".join(f"        {part},\n" for part in given)
    return (
        f'"""Run {execution.id} is driven again from its log, without key or network; divebook to-test wrote this."""\n'
        "\nfrom pathlib import Path\n\nfrom divebook.export.pytest import verified_log\n"
        "\nHERE = Path(__file__).parent\n\n\n"
        f"def test_{_name(execution.workflow)}_does_what_its_log_says():\n"
        f"    found = verified_log(\n{lines}    )\n"
        "    assert found.equal, str(found)\n"
    )


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _literal(value: Any) -> str:
    """Return plain data as Python has it, texts in the quotes of its style."""
    match value:
        case str():
            return _quoted(value)
        case Mapping():
            return "{" + ", ".join(f"{_quoted(name)}: {_literal(said)}" for name, said in value.items()) + "}"
        case list():
            return f"[{', '.join(map(_literal, value))}]"
    return repr(value)


# --- what the test needs ---------------------------------------------------------------------------------------------


def _log_of(execution: Execution, redactor: Redactor) -> bytes:
    events = [*execution.history()]
    plain = clean_log(events, redactor)
    lines = io.BytesIO()
    writer = LineWriter(lines)
    writer.events(_without_secrets(event, data) for event, data in zip(events, plain, strict=True))
    writer.end(execution.status)
    return lines.getvalue()


def _without_secrets(event: Event, data: dict[str, Any]) -> Event:
    """Return an event; the digest of parameters that had a secret in them is that of what the test gives a call."""
    clean: Event = decoded({**event_to_dict(event), "data": data}, f"event {event.sequence} without the secrets in it")
    before = event.data
    now = clean.data
    if not isinstance(before, catalog.OperationStarted) or not isinstance(now, catalog.OperationStarted):
        return clean
    if before.parameters != now.parameters:
        return replace(clean, data=replace(now, parameters_hash=short_hash(now.parameters, "parameters")))
    return clean


def _actions_of(environment: Environment, execution: Execution) -> dict[str, dict[str, Any]]:
    """Return what must be said of each action that is not built in, for another one to stand in its place."""
    actions = {step.name: step.action for step in execution.workflow.steps if step.action}
    raised = (event for event in execution.history() if isinstance(event.data, catalog.InterruptRaised))
    approved = {actions.get(event.step) for event in raised if event.data.to_data()["kind"] == CONFIRMATION}
    found = {}
    for name in sorted(set(actions.values())):
        action = environment.actions.get(name)
        if action is None or not action.function.__module__.startswith("divebook."):
            said = {option: getattr(action, option, None) for option in _OPTIONS}
            said["approval"] = said["approval"] or name in approved  # a shell may do without the action
            found[name] = {option: value for option, value in said.items() if value}
    return found


def _tools_of(environment: Environment) -> dict[str, dict[str, Any]]:
    """Return what must be said of each tool of declared agents that is not built in, for another one in its place."""
    found = {}
    for agent in environment.agents.values():
        for tool in environment.tools_for(agent.definition) if _is_declared(agent) else ():
            if _is_own(tool) and not _is_importable(tool):
                seen = library_tool(tool, answered_from_the_log).tool_def
                said = {option: getattr(tool, option) for option in (*_OPTIONS, *_OF_TOOLS)}
                said = {option: value for option, value in said.items() if value != _USUAL[option]}
                said |= {"description": seen.description, "schema": seen.parameters_json_schema}
                said |= {"result_schema": seen.return_schema or {}}
                found[tool.name] = {**said, "hints": tool.hints.to_dict()}
    return found


def _is_own(tool: ToolFunction) -> bool:
    """Whether it is a person's, and none that comes with divebook."""
    return not tool.function.__module__.startswith("divebook.")


def _is_importable(tool: ToolFunction) -> bool:
    """Whether a tool is there as soon as its module is imported."""
    return "<locals>" not in tool.function.__qualname__ and _has_file(sys.modules.get(tool.function.__module__))


def _text_of(environment: Environment, execution: Execution) -> str:
    """Return the workflow of the log, and the agents that were declared."""
    declared = [agent.definition for agent in environment.agents.values() if _is_declared(agent)]
    return definitions_to_text(Definitions(workflows=(execution.workflow,), agents=tuple(declared)))


def _is_declared(agent: Agent) -> bool:
    """Whether an agent is all in its definition."""
    made = agent.tools or agent.servers or agent.capabilities or agent.library or agent.deps
    return not made and agent.output == agent.definition.output


def _modules_of(environment: Environment, execution: Execution) -> Iterator[ModuleType]:
    """Yield the modules that hold the workflow function of a run, and its agents that were made in Python."""
    workflow = execution.workflow
    if workflow.start.type == FUNCTION:
        known = WORKFLOW_FUNCTIONS.get(workflow.name)
        if known is None:
            raise NotFoundError("workflow function", workflow.name, WORKFLOW_FUNCTIONS)
        yield _importable(sys.modules.get(known.function.__module__), f"workflow function {workflow.name!r}")
    started = (event.data for event in execution.history() if isinstance(event.data, catalog.OperationStarted))
    for name in dict.fromkeys(data.name for data in started if data.operation_type in _TURNS and data.name):
        agent = environment.agent(name)
        if not _is_declared(agent):
            yield _importable(_holder_of(environment, agent), f"agent {name!r}")
            continue
        own = (tool for tool in environment.tools_for(agent.definition) if _is_own(tool) and _is_importable(tool))
        yield from (sys.modules[tool.function.__module__] for tool in own)


def _holder_of(environment: Environment, agent: Agent) -> ModuleType | None:
    """Return the module in which an agent, or the environment that has it, is a variable."""
    modules = [module for name, module in sys.modules.items() if name not in NOWHERE and type(module) is ModuleType]
    for wanted in (agent, environment):
        for module in modules:
            if any(value is wanted for value in [*vars(module).values()]):
                return module
    return None


def _has_file(module: ModuleType | None) -> bool:
    return module is not None and module.__name__ not in NOWHERE and bool(getattr(module, "__file__", None))


def _importable(module: ModuleType | None, what: str) -> ModuleType:
    if module is None or not _has_file(module):
        raise SetupError(
            f"{what} was made in a notebook or script, and a test cannot import that; move it into a module, such as "
            "flows.py, import it from there, and write the test of a run of that"
        )
    return module


def _named(module: ModuleType, test: Path) -> str:
    """Return how the test names a module: one that can be imported by its name, and others by their file."""
    try:
        is_known = importlib.util.find_spec(module.__name__) is not None and module.__spec__ is not None
    except (ImportError, ValueError):
        is_known = False
    if is_known and not module.__name__.startswith("divebook_actions_"):
        return _quoted(module.__name__)
    return f"HERE / {_quoted(os.path.relpath(str(module.__file__), test.parent))}"


# A run as a notebook that tells of it in sections, and carries its log: run again, its cells show the same.
#
# What its cells show comes from the log that it carries, opened as a reader opens it, so that nothing is in an output
# that is not in the log, and secrets are in neither. The first one has the recording that JupyterLab replays.


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
    path = Path(file)
    secrets = [*known_secrets]
    events = execution.history()
    redactor = shared().fresh(secrets)
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
