"""Export of a run as a pytest file with its log, or as a notebook. The test replays the run, and needs neither an API
key nor the network.

The test drives the definition against the log, and fails at the first operation that differs. All calls are answered
from the log, so that actions and tools are not needed. Functions with ``@workflow``, and agents defined in Python, are
imported from their modules. Secrets are left out, as in every export.

The last part of the file exports a run as a notebook.
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
from divebook.config.loader import add_values, import_actions
from divebook.definitions.definition import Definitions, Workflow
from divebook.definitions.functions import FUNCTION, WORKFLOW_FUNCTIONS
from divebook.definitions.reader import definitions_to_text, read_definitions
from divebook.definitions.tools import ToolFunction, ToolHints
from divebook.documents import FileDocuments
from divebook.engine.lifecycle import TERMINAL
from divebook.engine.operations import AGENT_RESPONSE, AGENT_TURN, CACHED_RESPONSE
from divebook.environments.environment import Environment
from divebook.errors import NotFoundError, SetupError
from divebook.events import Event, catalog
from divebook.events.codec import event_to_dict, short_hash
from divebook.export.page import clean_log
from divebook.questions.question import CONFIRMATION
from divebook.replay.verify import Verification
from divebook.runtime.run import Run
from divebook.steps.actions import Action
from divebook.stores import MemoryStore
from divebook.stores.embedded import (
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
from divebook.stores.transfer import import_, new_file, read
from divebook.text.format import visible
from divebook.text.redaction import Redactor, cut, one_line, shared
from divebook.widgets.recording import MIME, saved_run

# --- called by exported tests: a definition driven against a log in a file ---


Options: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Options of actions or tools (such as ``timeout``) by name of the action or tool."""


def verified_log(
    log: str | Path,
    definitions: str | Path | None = None,
    modules: Sequence[str | Path] = (),
    actions: Options | None = None,
    tools: Options | None = None,
) -> Verification:
    """Replay a workflow definition against the log in a file, and return whether both agree. No model, tool or action
    is called, so that no API key or network is needed.

    Parameters
    ----------
    log
        File with JSON lines.
    definitions
        File or folder with the workflow and its agents; by default the workflow is that of the log.
    modules
        Modules, or Python files, with workflow functions and agents.
    actions, tools
        Options of the actions that steps call, and of the tools that agents name, by name. Those of tools include
        `description` and `schema`, which models see. The actions and tools themselves are not needed, since the log has
        their results.

    Raises
    ------
    SetupError
        A module cannot be imported.
    """
    # All global values of the modules: `add_values` picks the workflow functions and agents.
    values = [value for module in modules for value in vars(import_actions(str(module), "the tested module")).values()]
    definitions_read = None if definitions is None else read_from(definitions)
    return verified_against(read(log), definitions_read, values, actions or {}, tools or {})


def read_from(path: str | Path) -> Definitions:
    """Read the definitions in a file or folder, and the contents of the files to which the definitions refer."""
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    return with_documents(load(Path(path)), folder, FileDocuments())


def verified_against(
    log: LogFile, definitions: Definitions | None, values: Iterable[Any], actions: Options, tools: Options
) -> Verification:
    """Replay a workflow definition against a log, and return whether both agree. Agents and workflow functions in
    Python are taken from `values`, the values of the variables of modules. Stand-ins replace actions and tools.
    """
    stand_in_actions = [Action(name, answered_from_the_log, **options) for name, options in actions.items()]
    stand_in_tools = [_tool(name, **options) for name, options in tools.items()]
    with Environment(store=MemoryStore(), actions=stand_in_actions, tools=stand_in_tools) as environment:
        add_values(environment, [*values])
        if definitions is not None:
            environment.define(definitions)
        execution = environment.run_of(import_(log, environment.store))
        workflow = environment.internals.registry.registered_workflows.get(execution.workflow.name)
        # The stand-ins have other code than the functions of the run, so code is not compared.
        return execution.verify(workflow, any_code=True)


def _tool(name: str, hints: Mapping[str, bool], **options: Any) -> ToolFunction:
    return ToolFunction(name, answered_from_the_log, hints=ToolHints(**hints), **options)


async def answered_from_the_log(*_: Any, **__: Any) -> NoReturn:
    """Raise AssertionError. The replay takes the results of actions and tools from the log. This function replaces
    theirs, so that the test fails if the replay calls one.
    """
    raise AssertionError("an action or a tool was called during a replay")


NOWHERE = frozenset({"__main__", "__mp_main__"})
"""Names of modules that a test cannot import: those of notebooks and scripts."""
_OPTIONS = ("approval", "idempotent", "timeout")
"""Options of actions and tools that change which operations are recorded. Retries are not part of this list."""
_OF_TOOLS = ("most", "limit", "concurrency", "confirmation")
"""Further options that only tools have."""
_USUAL = {option: field.default for option, field in ToolFunction.__dataclass_fields__.items()}
_TURNS = (AGENT_TURN, AGENT_RESPONSE, CACHED_RESPONSE)


def write_test(
    environment: Environment,
    execution: Run,
    file: str | Path | None = None,
    *,
    definitions: str | Path | None = None,
    overwrite: bool = False,
    known_secrets: Iterable[str] = (),
) -> Path:
    """Write a run as a test ``test_NAME.py``, with its log (``.jsonl``) and its definition (``.yaml``) in the same
    folder.

    Parameters
    ----------
    environment
        Environment with the agents of the run.
    file
        By default ``test_`` and the name of the workflow, in the current folder.
    definitions
        File or folder from which the test reads the definition and the agents; by default a copy is written.
    known_secrets
        Secrets to hide in addition to those that `divebook.text.redaction` detects.

    Raises
    ------
    SetupError
        The run has not ended, uses something that a test cannot import, or already differs from its log.
    StoreError
        A file exists, or cannot be written.
    """
    path = Path(f"test_{_name(execution.workflow)}.py" if file is None else file)
    if path.suffix != ".py":
        raise SetupError(
            f"{path} is not a Python file; choose a name that pytest finds: test_{_name(execution.workflow)}.py"
        )
    if execution.status not in TERMINAL:
        raise SetupError(
            f"execution {execution.id} has not ended ({execution.status}), so its test could not end. Answer its "
            "questions or cancel it, then write the test"
        )
    # Collect everything that the test needs. This fails early if a part cannot be imported.
    modules = {*_modules_of(environment, execution)}
    redactor = shared().fresh([*known_secrets])
    log = _log_of(execution, redactor)
    actions = _actions_of(environment, execution)
    tools = {name: redactor.without_certain(options) for name, options in _tools_of(environment).items()}
    text = ""
    definitions_read = None if definitions is None else read_from(definitions)
    definitions_file = "" if definitions is None else os.path.relpath(definitions, path.parent)
    # A workflow function is imported, so only other workflows are written as YAML.
    if definitions is None:
        text = "" if execution.workflow.first_step.type == FUNCTION else redactor.text(_text_of(environment, execution))
        definitions_read = read_definitions(text, dialect=execution.workflow.dialect) if text else None
        definitions_file = path.with_suffix(".yaml").name if text else ""
    values = [value for module in modules for value in vars(module).values()]
    # Run the test once before writing it: removed secrets, for example, can change what the definition requests.
    verification = verified_against(read(io.BytesIO(log)), definitions_read, values, actions, tools)
    if not verification.equal:
        raise SetupError(
            f"the test was not written, because it would fail: {verification}. The log of a test contains no secrets. "
            "Fix the definition, or write the test from a run of the current definition"
        )
    files = {path.with_suffix(".jsonl"): log, **({path.with_suffix(".yaml"): text.encode()} if text else {})}
    module_names = sorted(_module_reference(module, path) for module in modules)
    files[path] = _test(execution, path, definitions_file, module_names, {"actions": actions, "tools": tools}).encode()
    # The test file is the last one, so that a failure does not leave a test without its log.
    for target, content in files.items():
        with new_file(target, overwrite=overwrite) as stream:
            stream.write(content)
    return path


def _name(workflow: Workflow) -> str:
    return re.sub(r"\W+", "_", workflow.name).strip("_").lower() or "run"


def _test(
    execution: Run,
    path: Path,
    definitions_file: str,
    modules: Sequence[str],
    stand_ins: Mapping[str, Options],
) -> str:
    """Return the source code of the test file for a run."""
    arguments = [f"HERE / {_quoted(path.with_suffix('.jsonl').name)}"]
    arguments += [f"definitions=HERE / {_quoted(definitions_file)}"] if definitions_file else []
    arguments += [f"modules=[{', '.join(modules)}]"] if modules else []
    arguments += [f"{kind}={_literal(options)}" for kind, options in stand_ins.items() if options]
    lines = "".join(f"        {part},\n" for part in arguments)
    return (
        f'"""Replay run {execution.id} from its log, without API keys or network. Written by divebook to-test."""\n'
        "\nfrom pathlib import Path\n\nfrom divebook.export.pytest import verified_log\n"
        "\nHERE = Path(__file__).parent\n\n\n"
        f"def test_{_name(execution.workflow)}_does_what_its_log_says():\n"
        f"    found = verified_log(\n{lines}    )\n"
        "    assert found.equal, str(found)\n"
    )


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _literal(value: Any) -> str:
    """Return plain data as Python source code, in which strings have double quotes."""
    match value:
        case str():
            return _quoted(value)
        case Mapping():
            return "{" + ", ".join(f"{_quoted(name)}: {_literal(entry)}" for name, entry in value.items()) + "}"
        case list():
            return f"[{', '.join(map(_literal, value))}]"
    return repr(value)


# --- parts of the test -----------------------------------------------------------------------------------------------


def _log_of(execution: Run, redactor: Redactor) -> bytes:
    events = [*execution.history()]
    plain = clean_log(events, redactor)
    lines = io.BytesIO()
    writer = LineWriter(lines)
    writer.events(_without_secrets(event, data) for event, data in zip(events, plain, strict=True))
    writer.end(execution.status)
    return lines.getvalue()


def _without_secrets(event: Event, data: dict[str, Any]) -> Event:
    """Return a copy of an event with another payload. It is built from `data`, the event's plain data from which
    secrets were removed.

    If secrets were removed from the parameters of an operation, the hash of the parameters is computed again.
    """
    clean: Event = decoded({**event_to_dict(event), "data": data}, f"event {event.sequence} without its secrets")
    before = event.data
    now = clean.data
    if not isinstance(before, catalog.OperationStarted) or not isinstance(now, catalog.OperationStarted):
        return clean
    # The replay computes the hash from the parameters that it finds, which lack the secrets.
    if before.parameters != now.parameters:
        return replace(clean, data=replace(now, parameters_hash=short_hash(now.parameters, "parameters")))
    return clean


def _actions_of(environment: Environment, execution: Run) -> dict[str, dict[str, Any]]:
    """Return the options of each user-defined action that the steps of a run call, by name. The test creates stand-ins
    with these options.
    """
    actions = {step.name: step.action for step in execution.workflow.steps if step.action}
    questions = (event for event in execution.history() if isinstance(event.data, catalog.InterruptRaised))
    # Actions that were approved in this run. The stand-in must ask as well, or the replay would differ.
    approved = {actions.get(event.step) for event in questions if event.data.to_data()["kind"] == CONFIRMATION}
    options_by_action = {}
    for name in sorted(set(actions.values())):
        action = environment.definitions.actions.get(name)
        if action is None or not action.function.__module__.startswith("divebook."):
            options = {option: getattr(action, option, None) for option in _OPTIONS}
            options["approval"] = options["approval"] or name in approved  # a command line may run without the action
            options_by_action[name] = {option: value for option, value in options.items() if value}
    return options_by_action


def _tools_of(environment: Environment) -> dict[str, dict[str, Any]]:
    """Return the options of each user-defined tool of agents that are defined without Python code, by name. The test
    creates stand-ins with these options.
    """
    options_by_tool = {}
    for agent in environment.definitions.agents.values():
        for tool in environment.internals.registry.tools_for(agent.definition) if _is_declared(agent) else ():
            if _is_own(tool) and not _is_importable(tool):
                library_definition = library_tool(tool, answered_from_the_log).tool_def
                options = {option: getattr(tool, option) for option in (*_OPTIONS, *_OF_TOOLS)}
                # Usual values are left out, so that the test file stays short.
                options = {option: value for option, value in options.items() if value != _USUAL[option]}
                options |= {
                    "description": library_definition.description,
                    "schema": library_definition.parameters_json_schema,
                }
                options |= {"result_schema": library_definition.return_schema or {}}
                options_by_tool[tool.name] = {**options, "hints": tool.hints.to_dict()}
    return options_by_tool


def _is_own(tool: ToolFunction) -> bool:
    """Return whether a tool was defined by the user; False for a tool that is built into divebook."""
    return not tool.function.__module__.startswith("divebook.")


def _is_importable(tool: ToolFunction) -> bool:
    """Return whether the test can obtain a tool by importing a module. This is False for a function inside another
    function, and for a module without a file.
    """
    return "<locals>" not in tool.function.__qualname__ and _has_file(sys.modules.get(tool.function.__module__))


def _text_of(environment: Environment, execution: Run) -> str:
    """Return a YAML text with the workflow of a run and the agents that are defined without Python code."""
    declared = [agent.definition for agent in environment.definitions.agents.values() if _is_declared(agent)]
    return definitions_to_text(Definitions(workflows=(execution.workflow,), agents=tuple(declared)))


def _is_declared(agent: Agent) -> bool:
    """Return whether an agent is defined completely by its definition, so that YAML can express it; False if it has
    tools or other parts in Python.
    """
    python_parts = agent.tools or agent.servers or agent.capabilities or agent.library or agent.deps
    return not python_parts and agent.output == agent.definition.output


def _modules_of(environment: Environment, execution: Run) -> Iterator[ModuleType]:
    """Yield the modules that the test must import: those with the workflow function of the run, with agents defined in
    Python, and with tools of other agents.
    """
    workflow = execution.workflow
    if workflow.first_step.type == FUNCTION:
        function = WORKFLOW_FUNCTIONS.get(workflow.name)
        if function is None:
            raise NotFoundError("workflow function", workflow.name, WORKFLOW_FUNCTIONS)
        yield _importable(sys.modules.get(function.function.__module__), f"workflow function {workflow.name!r}")
    operations = (event.data for event in execution.history() if isinstance(event.data, catalog.OperationStarted))
    # Only agents that took part in the run, each once.
    for name in dict.fromkeys(data.name for data in operations if data.operation_type in _TURNS and data.name):
        agent = environment.internals.registry.agent(name)
        if not _is_declared(agent):
            yield _importable(_holder_of(environment, agent), f"agent {name!r}")
            continue
        tools = (
            tool
            for tool in environment.internals.registry.tools_for(agent.definition)
            if _is_own(tool) and _is_importable(tool)
        )
        yield from (sys.modules[tool.function.__module__] for tool in tools)


def _holder_of(environment: Environment, agent: Agent) -> ModuleType | None:
    """Return the module in which an agent, or the environment that contains the agent, is a global variable; None if no
    module has them.
    """
    modules = [module for name, module in sys.modules.items() if name not in NOWHERE and type(module) is ModuleType]
    # The agent itself comes first. It may also be inside an environment that is the global variable.
    for target in (agent, environment):
        for module in modules:
            if any(value is target for value in [*vars(module).values()]):
                return module
    return None


def _has_file(module: ModuleType | None) -> bool:
    return module is not None and module.__name__ not in NOWHERE and bool(getattr(module, "__file__", None))


def _importable(module: ModuleType | None, subject: str) -> ModuleType:
    if module is None or not _has_file(module):
        raise SetupError(
            f"{subject} was defined in a notebook or script, which a test cannot import. Move it into a module such as "
            "flows.py, import it from there, run it, and write the test from that run"
        )
    return module


def _module_reference(module: ModuleType, test: Path) -> str:
    """Return the Python code with which the test refers to a module: the module's name if it can be imported, otherwise
    the path of its file.
    """
    try:
        can_import = importlib.util.find_spec(module.__name__) is not None and module.__spec__ is not None
    except (ImportError, ValueError):
        can_import = False
    # Files that the CLI has loaded have made-up names, which another process cannot import.
    if can_import and not module.__name__.startswith("divebook_actions_"):
        return _quoted(module.__name__)
    return f"HERE / {_quoted(os.path.relpath(str(module.__file__), test.parent))}"


# --- export of a run as a notebook, which contains its log: its cells show the same when they are run again ---
#
# The outputs of its cells are computed from the log in it, opened as a reader opens it. So no output contains anything
# that is not in the log, and secrets are in neither. The first output has the recording that JupyterLab replays.


MAX_TEXT = 20_000
"""Maximum number of characters of one text in the notebook. The log has complete texts."""
MAX_FAILURES = 20


def write_notebook(
    execution: Run, file: str | Path, *, overwrite: bool = False, known_secrets: Iterable[str] = ()
) -> Path:
    """Write a run to a notebook file, and return the path of the file.

    Parameters
    ----------
    known_secrets
        Secrets to hide in addition to those that `divebook.text.redaction` detects.

    Raises
    ------
    StoreError
        The file exists, or cannot be written; or the log cannot be read.
    """
    path = Path(file)
    secrets = [*known_secrets]
    events = execution.history()
    redactor = shared().fresh(secrets)
    clean_events = clean_log(events, redactor)
    texts = LongTexts(clean_events)
    parts = {TEXTS: part_of(texts.listed), LOG: part_of(columns_of(events, clean_events, execution.status, {}, texts))}
    metadata = metadata_of(parts)
    # The outputs of the cells come from the cleaned log, not from the run itself.
    environment = Environment(store=MemoryStore())
    run = environment.run_of(import_(log_of(str(path), metadata), environment.store))
    first = {MIME: saved_run(execution, events, secrets), "text/plain": repr(run)}
    notebook = v4.new_notebook(cells=[*_numbered(_sections(run, path.name, first, redactor))])
    notebook.metadata.update({METADATA: metadata, "language_info": {"name": "python"}})
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.validate(notebook)
    with new_file(path, overwrite=overwrite) as stream:
        stream.write(nbformat.writes(notebook).encode())
    return path


def _numbered(cells: Iterable[tuple[str, Any]]) -> Iterator[Any]:
    """Yield notebook cells for pairs of source and output, with fixed ids. Code cells are numbered as if all of them
    had been executed in order.
    """
    numbers = count(1)
    for position, (source, output_data) in enumerate(cells, 1):
        if output_data is None:
            # Fixed ids: the same run gives the same file.
            yield v4.new_markdown_cell(source, id=f"told-{position}")
            continue
        number = next(numbers)
        output = v4.new_output("execute_result", data=output_data, execution_count=number)
        yield v4.new_code_cell(source, id=f"told-{position}", execution_count=number, outputs=[output])


def _sections(run: Run, name: str, first: dict[str, Any], redactor: Redactor) -> Iterator[tuple[str, Any]]:
    """Yield the source and the output of each cell of the notebook for a run. The output of a Markdown cell is None."""
    introduction = f"Run `{run.id}`. This notebook contains the log of the run, so its cells can be run again."
    yield f"# {_plain(run.workflow.name)}\n\n{introduction}", None
    yield f"%load_ext divebook\nrun = %dive open {name}\nrun", first
    yield "## Inputs", None
    yield "run.inputs", _value(run.inputs)
    yield "## Definition", None
    yield _fenced(redactor.text(definitions_to_text(Definitions(workflows=(run.workflow,)))), "yaml"), None
    yield "## Steps", None
    yield "run.steps", _frame(run.steps)
    yield from _framed(run, "Items", "items")
    yield from _framed(run, "Model calls", "model_calls")
    yield from _framed(run, "Tool calls", "tool_calls")
    yield from _framed(run, "Questions and answers", "questions")
    if failures := run.failures:
        yield "## Failures", None
        text = "\n\n".join(failure.in_words() for failure in failures[:MAX_FAILURES])
        yield 'print(*(failure.in_words() for failure in run.failures), sep="\\n\\n")', {"text/plain": _cut(text)}
    yield "## Cost", None
    yield 'run.costs("model")', _frame(run.costs("model"))
    yield "## Outputs" if run.outputs else "## Variables", None
    yield ("run.outputs", _value(run.outputs)) if run.outputs else ("run.variables", _value(run.variables))


def _framed(run: Run, title: str, kind: str) -> Iterator[tuple[str, Any]]:
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
    """Return a name on one line, with the special characters of Markdown escaped."""
    return "".join(f"\\{sign}" if sign in r"\`*_{}[]<>()#+!|" else sign for sign in one_line(text, 120))


def _fenced(text: str, language: str) -> str:
    # Longer than any run of backticks in the text, which would otherwise end the block.
    fence = "`" * max(3, 1 + max((len(run) for run in text.split() if set(run) == {"`"}), default=0))
    return f"{fence}{language}\n{_cut(text).rstrip()}\n{fence}"
