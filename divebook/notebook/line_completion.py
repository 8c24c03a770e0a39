"""What can follow in a line that begins with ``%dive``: sub-commands, names, inputs, options, ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from divebook.agents.models import DEFAULT_MODELS
from divebook.agents.scripted import SCRIPTED
from divebook.engine.lifecycle import STATUSES
from divebook.errors import DivebookError, Place
from divebook.events.catalog import CANCELLED, ENQUEUED, FAILED, ORIGINS, PENDING, RUNNING, WAITING
from divebook.notebook.commands import REPEATED, Arguments, parse, split
from divebook.notebook.outline import Outline, Spot, keys_below
from divebook.projections.summary import newest_run
from divebook.questions import bounds
from divebook.questions.question import DEFINABLE, address_of
from divebook.replay.recorded_answers import TOOLS
from divebook.text.format import quoted
from divebook.workflow import schema
from divebook.workflow.dialect import DIALECT_RULES, OWN, Dialect
from divebook.workflow.resources import DURABILITIES
from divebook.workflow.schema import key_names
from divebook.workflow.step import STEP_TYPES
from divebook.workflow.table import INPUT_TYPES, Flag, Key, Many, One, Table, Text, Texts

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from divebook.environment.environment import Environment
    from divebook.notebook.commands import Command
    from divebook.questions import Question
    from divebook.store import ExecutionRecord
    from divebook.workflow.definition import InputDefinition, Workflow


# Ways to go on in a cell or line, and the cell that they are for; what all completion shares.


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to go on: what would stand in place of the word before the cursor, and what kind of thing it is."""

    text: str
    type: str


@dataclass(frozen=True, slots=True)
class Found:
    """How the word before the cursor may go on, best first."""

    fragment: str
    candidates: tuple[Candidate, ...] = ()


NOTHING = Found("")


def matching(fragment: str, candidates: Iterable[Candidate]) -> Found:
    """Keep the candidates that begin like the fragment, in any case of letters."""
    start = fragment.casefold()
    return Found(fragment, tuple(entry for entry in candidates if entry.text.lstrip().casefold().startswith(start)))


@dataclass(frozen=True, slots=True)
class CellWithCursor:
    """The body of a cell: the lines above the cursor's, that one's beginning and end, and the lines below it."""

    above: str
    head: str
    tail: str
    below: str
    body: str = "file"
    dialect: Dialect = OWN


RESUMABLE = (PENDING, ENQUEUED, RUNNING, WAITING, FAILED, CANCELLED)
CANCELLABLE = (PENDING, ENQUEUED, RUNNING, WAITING)
TRUTH = ("true", "false")
LATEST = 50
"""How many executions are offered."""


def present_environment() -> Environment | None:
    """Return the environment of the session, if there is one already."""
    import sys

    module = sys.modules.get("divebook.notebook.session")
    return None if module is None else module.present_environment()


def _workflow(name: str | None) -> Workflow | None:
    """Return the workflow of that name, or the one that was defined last."""
    from divebook.notebook.session import current_session

    environment = present_environment()
    if environment is None:
        return None
    return environment.workflows.get(name or current_session().last_workflow or "")


class KnownNames:
    """What there is to name; looked up only when it is needed."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    def workflows(self) -> Iterable[str]:
        """Return the names of the workflows."""
        environment = present_environment()
        return () if environment is None else tuple(environment.workflows)

    def agents(self) -> Iterable[str]:
        """Return the names of the agents."""
        environment = present_environment()
        return () if environment is None else tuple(environment.agents)

    def inputs(self, workflow: str | None) -> Iterable[InputDefinition]:
        """Return the inputs of a workflow, or of the one that was defined last."""
        found = _workflow(workflow)
        return () if found is None else found.inputs

    def asking(self, workflow: str | None) -> Iterable[str]:
        """Return the steps of a workflow, or of the one that was defined last, that may ask something."""
        found = _workflow(workflow)
        return () if found is None else (step.name for step in found.steps if step.ask)

    def steps(self, run: str | None) -> Iterable[str]:
        """Return the steps of the workflow of a run, or of the newest one."""
        environment = present_environment()
        if environment is None:
            return ()
        try:
            name = run or getattr(newest_run(environment.store), "execution_id", None)
            return () if name is None else [step.name for step in environment.execution(name).workflow.steps]
        except DivebookError:  # an id that is not written to its end, or names none
            return ()

    def executions(self) -> Iterable[ExecutionRecord]:
        """Return the latest executions, newest first."""
        from divebook.notebook.recovery import existing_store

        environment = present_environment()
        store = existing_store() if environment is None else environment.store
        return () if store is None else store.records(limit=LATEST)

    def questions(self) -> Iterable[tuple[str, Question]]:
        """Return the questions that wait for an answer, with the ids of their executions."""
        environment = present_environment()
        return () if environment is None else environment.interrupts()

    def classes(self) -> Iterable[str]:
        """Return the names of the user's classes that an answer may be of."""
        from divebook.events.classes import kind_of

        variables = {name: self._shell.user_ns[name] for name in self.variables()}
        return (name for name, value in variables.items() if isinstance(value, type) and kind_of(value) is not None)

    def variables(self) -> Iterable[str]:
        """Return the names of the user's variables."""
        from divebook.notebook.commands import own_variables

        return own_variables(self._shell)


def complete(before: str, commands: Mapping[str, Command], names: KnownNames) -> Found:
    """Return how the line may go on; `before` is what stands between ``%dive`` and the cursor."""
    fragment = _fragment(before)
    try:
        words = split(before[: len(before) - len(fragment)])
        if not words:
            return matching(fragment, _commands(commands))
        command = commands.get(words[0])
        return NOTHING if command is None else _behind(command, words, fragment, commands, names)
    except UsageError:
        return NOTHING  # a quote is open, or there is a mistake earlier in the line


def _fragment(before: str) -> str:
    """Return the word that the cursor ends."""
    return re.split(r"\s", before)[-1]


def _behind(
    command: Command, words: list[str], fragment: str, commands: Mapping[str, Command], names: KnownNames
) -> Found:
    option, rest = _option(command, words[1:], fragment)
    arguments = parse(rest, command.flags, command.valued, inputs=command.inputs)
    if option:
        value = fragment.partition("=")[2] if fragment.startswith("--") else fragment
        return matching(value, _option_values(option, arguments, names))
    if fragment.startswith("-"):
        return matching(fragment, _options(command, arguments))
    if "=" in fragment and command.inputs:
        name, _, value = fragment.partition("=")
        return matching(value, _input_values(name, arguments, names))
    offered = [*_WORDS.get(words[0], _no_words)(arguments, names)]
    if words[0] == "help" and not arguments.words:
        offered = [*_commands(commands), *(Candidate(quoted(name), "key") for name in key_names())]
    return matching(fragment, offered or (_options(command, arguments) if not fragment else ()))


def _option(command: Command, words: list[str], fragment: str) -> tuple[str, list[str]]:
    """Return the option that waits for its value, and the words without it."""
    if words and words[-1] in command.valued:
        return command.valued[words[-1]], words[:-1]
    spelled, equals, _ = fragment.partition("=")
    return (command.valued.get(spelled, "") if equals else ""), words


def _commands(commands: Mapping[str, Command]) -> Iterator[Candidate]:
    return (Candidate(name, "command") for name in commands)


def _options(command: Command, arguments: Arguments) -> Iterator[Candidate]:
    spellings = {**command.flags, **command.valued, "--help": "help"}
    return (
        Candidate(spelled, "option")
        for spelled, name in spellings.items()
        if spelled.startswith("--") and (name in REPEATED or not arguments.has(name))
    )


def _option_values(option: str, arguments: Arguments, names: KnownNames) -> Iterator[Candidate]:
    known: Mapping[str, Callable[[], Iterable[str]]] = {
        "status": lambda: STATUSES,
        "origin": lambda: ORIGINS,
        "durability": lambda: DURABILITIES,
        "workflow": names.workflows,
        "output": names.classes,
        "from": lambda: (record.execution_id for record in names.executions()),
        "tools": lambda: TOOLS,
        "answer": lambda: (f"{step}=" for step in names.asking(arguments.words[0] if arguments.words else None)),
    }
    return (Candidate(value, option) for value in (known[option]() if option in known else ()))


def _input_values(name: str, arguments: Arguments, names: KnownNames) -> Iterator[Candidate]:
    declared = next((entry for entry in _inputs(arguments, names) if entry.name == name), None)
    if declared is not None and (declared.type or "").lower() in ("bool", "boolean"):
        yield from (Candidate(value, "value") for value in TRUTH)
    yield from (Candidate(f"${variable}", "variable") for variable in names.variables())


def _inputs(arguments: Arguments, names: KnownNames) -> Iterable[InputDefinition]:
    return names.inputs(arguments.words[0] if arguments.words else None)


# --- the words of each sub-command ---------------------------------------------------------------------------------


def _no_words(_arguments: Arguments, _names: KnownNames) -> Iterator[Candidate]:
    return iter(())


def _run(arguments: Arguments, names: KnownNames) -> Iterator[Candidate]:
    if not (arguments.words or arguments.inputs):
        yield from (Candidate(quoted(name), "workflow") for name in names.workflows())
    for entry in _inputs(arguments, names):
        if entry.name not in arguments.inputs:
            yield Candidate(f"{entry.name}=", entry.type or "input")


def _ask(arguments: Arguments, names: KnownNames) -> Iterator[Candidate]:
    if not arguments.words:
        yield from (Candidate(quoted(name), "agent") for name in names.agents())
    elif len(arguments.words) == 1:
        yield from (Candidate(f"${variable}", "variable") for variable in names.variables())


def _try(arguments: Arguments, names: KnownNames) -> Iterator[Candidate]:
    if not arguments.words:
        yield from (Candidate(quoted(name), "step") for name in names.steps(arguments.options.get("from")))


def _executions(*statuses: str) -> Callable[[Arguments, KnownNames], Iterator[Candidate]]:
    def offered(arguments: Arguments, names: KnownNames) -> Iterator[Candidate]:
        found = () if arguments.words else names.executions()
        return (Candidate(record.execution_id, record.status) for record in found if record.status in statuses)

    return offered


def _answer(arguments: Arguments, names: KnownNames) -> Iterator[Candidate]:
    if not arguments.words:
        yield from (Candidate(address_of(asking, question), question.kind) for asking, question in names.questions())
    elif len(arguments.words) == 1:
        named = arguments.words[0].partition("@")[0]
        asked = next((question for _, question in names.questions() if question.id == named), None)
        choices = (asked.data or {}).get("choices") or () if asked is not None else ()
        yield from (Candidate(quoted(choice), "answer") for choice in choices if isinstance(choice, str))


_WORDS: Mapping[str, Callable[[Arguments, KnownNames], Iterator[Candidate]]] = {
    "run": _run,
    "ask": _ask,
    "show": _executions(*STATUSES),
    "resume": _executions(*RESUMABLE),
    "fork": _executions(*STATUSES),
    "what-if": _executions(*STATUSES),
    "recover": _executions(*CANCELLABLE),
    "annotate": _executions(*STATUSES),
    "cancel": _executions(*CANCELLABLE),
    "answer": _answer,
    "try": _try,
}


# What can be written in the code of a ``%%dive`` cell, as inside ``${...}``: variables, inputs, the item of a loop.


_OPENED = re.compile(r"\$[{(][^{}]*$")
"""An expression that is not closed before the cursor."""
_NAME = re.compile(r"(?:[A-Za-z_][\w.]*)?$")
_CODE = frozenset({"Script", "Condition", "Dynamic"})
"""Keys whose texts are code as a whole."""


def names_at(document: CellWithCursor) -> Found | None:
    """Return how the name before the cursor may go on; None where the cursor is in no code of a workflow."""
    place = _place(document)
    if place is None or "Steps" not in place or not (place[-1] in _CODE or _OPENED.search(document.head)):
        return None
    name = _NAME.search(document.head)
    outline = Outline("\n".join((document.above, document.head + document.tail, document.below)))
    return matching(name[0] if name else "", _names(outline, place))


def _place(document: CellWithCursor) -> Place | None:
    """Return the place of the text that the cursor is in."""
    outline = Outline(document.above)
    block = outline.block_text(document.head)
    if block is not None:
        return block
    spot = outline.spot(document.head)
    return spot.place if spot is not None and spot.after_key else None


def _names(outline: Outline, place: Place) -> Iterator[Candidate]:
    workflow = place[: place.index("Steps")]
    step = place[: len(workflow) + 2]
    for where, text in outline.values.items():
        if where[: len(workflow)] != workflow:
            continue
        match where[len(workflow) :]:
            case ("Steps", int(), *_, "Store"):
                yield Candidate(f"state.{text}", "variable")
            case ("Steps", int(), "Each", "As") if where[: len(step)] == step:
                yield Candidate(text, "item")
            case ("Inputs", int(), "Name"):
                yield Candidate(f"inputs.{text}", "input")


# What can be written at a place in a ``%%dive`` cell: the keys that the table of all keys has there, and values.


TABLES = {"file": schema.DEFINITIONS, "workflow": schema.WORKFLOW, "agent": schema.AGENT, "step": schema.STEP}
_REST = re.compile(r"\w*")
"""What is behind the cursor of the word that it stands in."""
SERVER_TYPES = ("stdio", "http")


@dataclass(frozen=True, slots=True)
class Known:
    """Names that exist outside the cell."""

    agents: Collection[str] = ()
    actions: Collection[str] = ()
    workflows: Collection[str] = ()


def complete_cell(document: CellWithCursor, known: Known) -> Found:
    """Return how the cell may go on at its cursor."""
    named = names_at(document)
    if named is not None:
        return named
    spot = Outline(document.above).spot(document.head)
    if spot is None:
        return NOTHING
    resolved = _resolved(TABLES[document.body], spot.place)
    if resolved is None:
        return NOTHING
    holder, key = resolved
    if key is None:
        return NOTHING if spot.after_key else matching(spot.fragment, _keys(holder.keys, spot, document))
    if isinstance(key.kind, Many):
        return NOTHING if spot.after_key else matching(spot.fragment, _first_keys(key.kind, document))
    if key.name == "Bounds" and not spot.after_key:
        return matching(spot.fragment, _colons(bounds.KEYS, spot, document))
    return _values(holder, key, spot, document, known)


def key_at(document: CellWithCursor) -> tuple[Table, Key] | None:
    """Return the key that the cursor is at, or that has the value it is at, with the table it belongs to."""
    rest = _REST.match(document.tail)
    spot = Outline(document.above).spot(document.head + (rest[0] if rest else ""))
    if spot is None:
        return None
    place, name = (spot.place[:-1], spot.place[-1]) if spot.after_key else (spot.place, spot.fragment)
    resolved = _resolved(TABLES[document.body], place)
    if resolved is None:
        return None
    table, key = resolved
    key = key or table.key(str(name))
    return None if key is None else (table, key)


def _resolved(table: Table, place: Place) -> tuple[Table, Key | None] | None:
    """Return the table whose keys stand at a place; or, at a value, the table of its mapping, and its key."""
    holder = table
    key = None
    for part in place:
        if key is None and isinstance(part, str):
            key = holder.key(part)
            if key is None:
                return None
            if isinstance(key.kind, One):
                holder = key.kind.table
                key = None
        elif key is not None and isinstance(part, int) and isinstance(key.kind, Many):
            holder = key.kind.table
            key = None
        elif key is None or not isinstance(part, int) or not isinstance(key.kind, Texts):
            return None
    return holder, key


# --- keys ----------------------------------------------------------------------------------------------------------


def _keys(keys: Iterable[Key], spot: Spot, document: CellWithCursor) -> Iterator[Candidate]:
    is_strict = DIALECT_RULES[document.dialect].is_strict
    names = [key.name for key in keys if is_strict or not key.extension]
    ignored = {key.name for key in keys if key.ignored}
    return _colons([name for name in names if name not in ignored], spot, document)


def _colons(names: Iterable[str], spot: Spot, document: CellWithCursor) -> Iterator[Candidate]:
    given = {*spot.given, *keys_below(document.below, len(document.head) - len(spot.fragment))}
    colon = "" if document.tail.lstrip().startswith(":") else ": "
    return (Candidate(f"{name}{colon}", "key") for name in names if name not in given)


def _first_keys(kind: Many, document: CellWithCursor) -> Iterator[Candidate]:
    """Offer a new item of a list."""
    dash = "{" if document.head.rstrip().endswith("[") else "- "
    return (Candidate(f"{dash}{key.name}: ", "item") for key in kind.table.keys[:1])


# --- values --------------------------------------------------------------------------------------------------------

Names = Callable[[Outline, Place, Known], Iterable[str]]


def _step_names(outline: Outline, place: Place, _known: Known) -> Iterable[str]:
    """Return the names of the steps of the workflow that the place belongs to."""
    steps = place[: place.index("Steps") + 1]
    return [text for where, text in outline.values.items() if where[:-2] == steps and where[-1] == "Name"]


def _agent_names(outline: Outline, _place: Place, known: Known) -> Iterable[str]:
    here = [text for where, text in outline.values.items() if where[:1] == ("Agents",) and where[2:] == ("Name",)]
    return dict.fromkeys([*here, *known.agents])


def _other_agents(outline: Outline, place: Place, known: Known) -> Iterable[str]:
    own = outline.values.get((*place[:2], "Name")) if place[:1] == ("Agents",) else outline.values.get(("Name",))
    return [name for name in _agent_names(outline, place, known) if name != own]


def _action_names(_outline: Outline, _place: Place, known: Known) -> Iterable[str]:
    return known.actions


def _workflow_names(outline: Outline, place: Place, known: Known) -> Iterable[str]:
    here = [text for where, text in outline.values.items() if where[:1] == ("Workflows",) and where[2:] == ("Name",)]
    own = outline.values.get((*place[:2], "Name")) if place[:1] == ("Workflows",) else None
    return [name for name in dict.fromkeys([*here, *known.workflows]) if name != own]


def _models(_outline: Outline, _place: Place, _known: Known) -> Iterable[str]:
    from divebook.agents.models import usable_models  # loads pydantic-ai: only where a model is due

    return (SCRIPTED, *usable_models())


def _words(*words: str) -> Names:
    return lambda _outline, _place, _known: words


VALUES: Mapping[tuple[str, str], tuple[str, Names]] = {
    ("step", "Type"): ("type", _words(*(name for name in STEP_TYPES if name != "function"))),
    ("step", "Agent"): ("agent", _agent_names),
    ("step", "Action"): ("action", _action_names),
    ("Next entry", "Step"): ("step", _step_names),
    ("Catch", "Step"): ("step", _step_names),
    ("Ask", "Kind"): ("kind", _words(*DEFINABLE)),
    ("input", "Type"): ("type", _words(*INPUT_TYPES)),
    ("output", "Type"): ("type", _words(*INPUT_TYPES)),
    ("step", "Workflow"): ("workflow", _workflow_names),
    ("schedule", "Workflow"): ("workflow", _workflow_names),
    ("agent", "Model"): ("model", _models),
    ("Config", "DefaultModel"): ("model", _models),
    ("agent", "Provider"): ("provider", _words(*DEFAULT_MODELS)),
    ("Config", "DefaultProvider"): ("provider", _words(*DEFAULT_MODELS)),
    ("agent", "Subordinates"): ("agent", _other_agents),
    ("MCP server", "Type"): ("type", _words(*SERVER_TYPES)),
}
"""What may follow a key of a table: what it is called, and the names."""


def _values(holder: Table, key: Key, spot: Spot, document: CellWithCursor, known: Known) -> Found:
    kind, names = VALUES.get((holder.label, key.name), ("value", _fixed(key)))
    outline = Outline("\n".join((document.above, document.head + document.tail, document.below)))
    space = " " if document.head.endswith(":") else ""
    offered = (Candidate(f"{space}{name}", kind) for name in names(outline, spot.place, known))
    return matching(spot.fragment, offered)


def _fixed(key: Key) -> Names:
    if isinstance(key.kind, Flag):
        return _words("true", "false")
    return _words(*key.kind.choices) if isinstance(key.kind, Text) else _words()
