"""Candidates for tab completion: names, inputs, options and ids in a ``%dive`` line, keys and values in a ``%%dive``
cell.

`complete` handles a line and `complete_cell` the body of a cell. The tables of keys in `divebook.definitions.schema`
define what a cell may contain. `Outline` finds the position of the cursor in the unfinished YAML.
`divebook.notebook.extension` imports this module at the first completion.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from IPython.core.error import UsageError

from divebook.agents.models import DEFAULT_MODELS
from divebook.agents.scripted import SCRIPTED
from divebook.definitions import schema
from divebook.definitions.dialect import DIALECT_RULES, OWN, Dialect
from divebook.definitions.resources import DURABILITIES
from divebook.definitions.schema import key_names
from divebook.definitions.step import STEP_TYPES
from divebook.definitions.table import INPUT_TYPES, Flag, Key, Many, One, Table, Text, Texts
from divebook.engine.lifecycle import INTERRUPTED, PAUSED, SHOWN_STATUSES
from divebook.errors import DivebookError, Place
from divebook.events.catalog import CANCELLED, ENQUEUED, FAILED, ORIGINS, PENDING, RUNNING, WAITING
from divebook.notebook.commands import Arguments, parse, split
from divebook.projections.summary import Overview, newest_run
from divebook.questions import bounds
from divebook.questions.question import DEFINABLE, address_of
from divebook.replay.recorded_answers import TOOLS
from divebook.text.format import quoted

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from divebook.commands.command import Parameter
    from divebook.definitions.definition import InputDefinition, Workflow
    from divebook.environments.environment import Environment
    from divebook.notebook.commands import Command
    from divebook.questions import Question
    from divebook.stores import EventStore, ExecutionRecord


@dataclass(frozen=True, slots=True)
class Candidate:
    """One completion: the text that replaces the word before the cursor, and its kind (``workflow``, ``option``,
    ...).
    """

    text: str
    type: str


@dataclass(frozen=True, slots=True)
class Completions:
    """All completions for the word before the cursor, the best first."""

    fragment: str
    """The part of the word that the completions replace."""
    candidates: tuple[Candidate, ...] = ()


NOTHING = Completions("")


def matching(fragment: str, candidates: Iterable[Candidate]) -> Completions:
    """Return those candidates that start with `fragment`, the unfinished word before the cursor, ignoring case."""
    start = fragment.casefold()
    # `lstrip`: a candidate may begin with a space, because YAML needs one after a colon (see `_values`).
    matches = tuple(entry for entry in candidates if entry.text.lstrip().casefold().startswith(start))
    return Completions(fragment, matches)


@dataclass(frozen=True, slots=True)
class CellWithCursor:
    """The text of a ``%%dive`` cell below its first line, divided at the cursor into the text before and after it."""

    above: str
    """The lines above the cursor's line."""
    head: str
    """The part of the cursor's line before the cursor."""
    tail: str
    """The part of the cursor's line after the cursor."""
    below: str
    """The lines below the cursor's line."""
    body: str = "file"
    """Name of the table of keys that the body may contain, a key of `TABLES`."""
    dialect: Dialect = OWN


# Statuses from which an execution can be resumed or cancelled.
CANCELLABLE = (PENDING, ENQUEUED, RUNNING, WAITING, PAUSED, INTERRUPTED)
RESUMABLE = (*CANCELLABLE, FAILED, CANCELLED)
TRUTH = ("true", "false")
LATEST = 50
"""Maximum number of executions that are suggested."""


def present_environment() -> Environment | None:
    """Return the environment of the session; None before the session is created."""
    import sys

    # `sys.modules` and not an import: without a session, completion must not load the engine and its libraries.
    module = sys.modules.get("divebook.notebook.session")
    return None if module is None else module.present_environment()


def _workflow(name: str | None) -> Workflow | None:
    """Return the workflow of the session with this name, or without a name the workflow that was defined last; None if
    it is not defined.
    """
    from divebook.notebook.session import current_session

    environment = present_environment()
    if environment is None:
        return None
    # Without a name, ``%dive run`` starts the workflow that was defined last, so its inputs are the right ones.
    return environment.definitions.workflows.get(name or current_session().last_workflow or "")


def _present_store() -> EventStore | None:
    """Return the store of the session. Before the session is created, return the one it would open, if that exists."""
    from divebook.notebook.recovery import existing_store

    environment = present_environment()
    return existing_store() if environment is None else environment.store


class KnownNames:
    """Names that can be completed, from the session, its store and the shell. Each method reads the current names."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    def workflows(self) -> Iterable[str]:
        """Return the names of the defined workflows."""
        environment = present_environment()
        return () if environment is None else tuple(environment.definitions.workflows)

    def agents(self) -> Iterable[str]:
        """Return the names of the defined agents."""
        environment = present_environment()
        return () if environment is None else tuple(environment.definitions.agents)

    def inputs(self, workflow: str | None) -> Iterable[InputDefinition]:
        """Return the inputs that a workflow declares. Without a name, use the workflow that was defined last."""
        definition = _workflow(workflow)
        return () if definition is None else definition.inputs

    def asking_steps(self, workflow: str | None) -> Iterable[str]:
        """Return the names of the steps of a workflow that ask a person a question. Without a name, use the workflow
        that was defined last.
        """
        definition = _workflow(workflow)
        return () if definition is None else (step.name for step in definition.steps if step.ask)

    def steps(self, run: str | None) -> Iterable[str]:
        """Return the names of the steps in the workflow of a run; without an id, of the newest run."""
        environment = present_environment()
        if environment is None:
            return ()
        try:
            name = run or getattr(newest_run(environment.store), "execution_id", None)
            return () if name is None else [step.name for step in environment.run_of(name).workflow.steps]
        except DivebookError:  # an unfinished or unknown id
            return ()

    def executions(self) -> Sequence[ExecutionRecord]:
        """Return the records of the latest executions, the newest first."""
        store = _present_store()
        return () if store is None else store.records(limit=LATEST)

    def statuses(self) -> Mapping[str, str]:
        """Return the statuses that people see of the latest executions, by id, the newest first."""
        store = _present_store()
        return {} if store is None else Overview(store).statuses(store.records(limit=LATEST))

    def questions(self) -> Iterable[tuple[str, Question]]:
        """Return the open questions, each with the id of its execution."""
        environment = present_environment()
        return () if environment is None else environment.inbox()

    def classes(self) -> Iterable[str]:
        """Return the names of the user's classes that can be declared as the type of an agent's answer."""
        from divebook.events.classes import kind_of

        # A class counts if a model's answer can have it: a pydantic model or a dataclass.
        variables = {name: self._shell.user_ns[name] for name in self.variables()}
        return (name for name, value in variables.items() if isinstance(value, type) and kind_of(value) is not None)

    def variables(self) -> Iterable[str]:
        """Return the names of the user's variables."""
        from divebook.notebook.shell_state import user_variables

        return user_variables(self._shell)


def complete(before: str, commands: Mapping[str, Command], names: KnownNames) -> Completions:
    """Return the completions for a ``%dive`` line; `before` is the text between ``%dive`` and the cursor."""
    # Only the words before the fragment are parsed, since the fragment may be an unclosed quote or half an option.
    fragment = _fragment(before)
    try:
        words = split(before[: len(before) - len(fragment)])
        if not words:
            return matching(fragment, _commands(commands))
        command = commands.get(words[0])
        return NOTHING if command is None else _after_command(command, words, fragment, commands, names)
    except UsageError:
        return NOTHING  # a quote is open, or an earlier part of the line has a mistake


def _fragment(before: str) -> str:
    return re.split(r"\s", before)[-1]


def _after_command(
    command: Command, words: list[str], fragment: str, commands: Mapping[str, Command], names: KnownNames
) -> Completions:
    """Return the completions at the end of a ``%dive`` line that already contains its sub-command.

    The cursor is, in this order of precedence, at the value of an option, the name of an option, the value of an input,
    or a word of the sub-command. If the sub-command takes no more words, its options are suggested.
    """
    # First the option whose value is being typed is taken out. `parse` would otherwise refuse it, because its value is
    # missing.
    option, rest = _option(command, words[1:], fragment)
    arguments = parse(rest, command.flags, command.valued, inputs=command.inputs)
    if option:
        # "--tag=ba" -> "ba"   "--tag ba" -> "ba"
        value = fragment.partition("=")[2] if fragment.startswith("--") else fragment
        parameter = next(entry for entry in command.options if entry.long_name == option)
        return matching(value, _values_of(parameter, command, arguments, names, commands))
    if fragment.startswith("-"):
        return matching(fragment, _options(command, arguments))
    if "=" in fragment and command.inputs:
        name, _, value = fragment.partition("=")
        return matching(value, _input_values(name, arguments, names))
    candidates = list(_words_of(command, arguments, names, commands))
    # An empty list would hide that the sub-command has options.
    if not candidates and not fragment:
        candidates = list(_options(command, arguments))
    return matching(fragment, candidates)


def _option(command: Command, words: list[str], fragment: str) -> tuple[str, list[str]]:
    """Find the option whose value a person is typing at the end of a ``%dive`` line. Return its long name (empty if an
    option's value is not being typed), and the words before it.
    """
    # ["run", "--tag"], "ba": the value follows after a space.
    if words and words[-1] in command.valued:
        return command.valued[words[-1]], words[:-1]
    # ["run"], "--tag=ba": the value follows after the equals sign.
    spelled, equals, _ = fragment.partition("=")
    return (command.valued.get(spelled, "") if equals else ""), words


def _commands(commands: Mapping[str, Command]) -> Iterator[Candidate]:
    return (Candidate(name, "command") for name in commands)


def _options(command: Command, arguments: Arguments) -> Iterator[Candidate]:
    spellings = {**command.flags, **command.valued, "--help": "help"}
    return (
        Candidate(spelled, "option")
        for spelled, name in spellings.items()
        # An option that is already in the line is offered again only if it may be repeated.
        if spelled.startswith("--") and (name in command.repeated or not arguments.has(name))
    )


def _input_values(name: str, arguments: Arguments, names: KnownNames) -> Iterator[Candidate]:
    declared = next((entry for entry in _inputs(arguments, names) if entry.name == name), None)
    # ``true`` and ``false`` are the only YAML values of a bool. A variable can hold a value of any type.
    if declared is not None and (declared.type or "").lower() in ("bool", "boolean"):
        yield from (Candidate(value, "value") for value in TRUTH)
    yield from (Candidate(f"${variable}", "variable") for variable in names.variables())


def _inputs(arguments: Arguments, names: KnownNames) -> Iterable[InputDefinition]:
    return names.inputs(arguments.words[0] if arguments.words else None)


# --- values of words and options, by the kind that a command declares ------------------------------------------------


def _words_of(
    command: Command, arguments: Arguments, names: KnownNames, commands: Mapping[str, Command]
) -> Iterator[Candidate]:
    """Yield the completions for the next word of a sub-command, and the inputs that it takes."""
    position = len(arguments.words)
    words = command.words
    # A repeated word takes all further words.
    if words and words[-1].is_repeated:
        position = min(position, len(words) - 1)
    # A line that starts with an input runs the workflow that was defined last.
    if position < len(words) and not arguments.inputs:
        yield from _values_of(words[position], command, arguments, names, commands)
    if command.inputs:
        for entry in _inputs(arguments, names):
            # An input that has a value in the line already is left out.
            if not {entry.name, f"{entry.name}:"} & arguments.inputs.keys():
                yield Candidate(f"{entry.name}=", entry.type or "input")


def _values_of(
    parameter: Parameter,
    command: Command,
    arguments: Arguments,
    names: KnownNames,
    commands: Mapping[str, Command],
) -> Iterator[Candidate]:
    """Yield the values that complete a word or an option, by the kind that its declaration names."""
    kind = parameter.completes
    # Functions, so that only the names of the needed kind are read from store and session.
    sources: Mapping[str, Callable[[], Iterable[str]]] = {
        "status": lambda: SHOWN_STATUSES,
        "origin": lambda: ORIGINS,
        "durability": lambda: DURABILITIES,
        "tools": lambda: TOOLS,
        "workflow": lambda: map(quoted, names.workflows()),
        "agent": lambda: map(quoted, names.agents()),
        "step": lambda: map(quoted, names.steps(None)),
        "class": names.classes,
        "part": lambda: schema.TABLES,
        "tag": lambda: dict.fromkeys(tag for record in names.executions() for tag in record.tags),
        # The completion ends with ``=``, behind which the person types the answer.
        "answer": lambda: (f"{step}=" for step in names.asking_steps(arguments.words[0] if arguments.words else None)),
    }
    if kind in sources:
        # An option's values are shown with the name of the option.
        shown_kind = kind if parameter.is_word else parameter.long_name
        yield from (Candidate(value, shown_kind) for value in sources[kind]())
    elif kind == "run":
        yield from _runs(_STATUSES_FOR.get(command.name, SHOWN_STATUSES), arguments, names)
    elif kind == "interrupted run":
        yield from _runs(CANCELLABLE, arguments, names)
    elif kind == "question":
        yield from (Candidate(address_of(name, question), question.kind) for name, question in names.questions())
    elif kind == "choice":
        yield from _choices(arguments, names)
    elif kind == "text":
        # A variable can hold the prompt of an agent.
        yield from (Candidate(f"${variable}", "variable") for variable in names.variables())
    elif kind == "command":
        yield from _commands(commands)
        yield from (Candidate(quoted(name), "key") for name in key_names())
    else:
        # Other words and options take free text, or one of a few words.
        yield from (Candidate(choice, parameter.long_name) for choice in parameter.choices)


_STATUSES_FOR: Mapping[str, Collection[str]] = {"resume": RESUMABLE, "cancel": CANCELLABLE}
"""Statuses of the runs that a sub-command accepts; other sub-commands accept all runs."""


def _runs(statuses: Collection[str], arguments: Arguments, names: KnownNames) -> Iterator[Candidate]:
    """Yield the ids of the latest runs that have one of the given statuses and are not in the line yet."""
    for name, status in names.statuses().items():
        if status in statuses and name not in arguments.words:
            yield Candidate(name, status)


def _choices(arguments: Arguments, names: KnownNames) -> Iterator[Candidate]:
    """Yield the choices of the question that the line names."""
    # The question's id may be followed by the id of its execution: ``question@execution``.
    question_id = arguments.words[0].partition("@")[0]
    for _, question in names.questions():
        if question.id == question_id:
            choices = (question.data or {}).get("choices") or ()
            yield from (Candidate(quoted(choice), "answer") for choice in choices if isinstance(choice, str))
            return


# --- names in the code of a ``%%dive`` cell, as inside ``${...}``: variables, inputs, the item of a loop -------------


_OPEN_EXPRESSION = re.compile(r"\$[{(][^{}]*$")
"""Pattern of a ``${...}`` expression that is not closed before the cursor."""
_NAME = re.compile(r"(?:[A-Za-z_][\w.]*)?$")
_CODE_KEYS = frozenset({"Script", "Condition", "Dynamic"})
"""Keys whose value is code."""


def names_at(document: CellWithCursor) -> Completions | None:
    """Return the variable names that complete the word before the cursor in the code of a workflow; None if the cursor
    is not in code.
    """
    place = _place(document)
    # Variables belong to a workflow, so that only values below ``Steps`` are completed.
    if place is None or "Steps" not in place:
        return None
    if place[-1] not in _CODE_KEYS and not _OPEN_EXPRESSION.search(document.head):
        return None
    name = _NAME.search(document.head)
    # The text after the cursor also defines names, so the whole cell is read, including the rest of the cursor's line.
    outline = Outline("\n".join((document.above, document.head + document.tail, document.below)))
    return matching(name[0] if name else "", _names(outline, place))


def _place(document: CellWithCursor) -> Place | None:
    """Return the position of the YAML value that contains the cursor: the keys and list indexes that lead to it, such
    as ``("Steps", 1, "Prompt")``. Return None if the cursor is not in a value.
    """
    outline = Outline(document.above)
    block = outline.block_text(document.head)
    # A block text, such as a script of several lines, can itself be the code.
    if block is not None:
        return block
    spot = outline.spot(document.head)
    return spot.place if spot is not None and spot.after_key else None


def _names(outline: Outline, place: Place) -> Iterator[Candidate]:
    # ("Workflows", 0, "Steps", 1, "Prompt") -> workflow ("Workflows", 0), step ("Workflows", 0, "Steps", 1)
    workflow = place[: place.index("Steps")]
    step = place[: len(workflow) + 2]
    for where, text in outline.values.items():
        # Variables of another workflow in the same cell do not exist in this one.
        if where[: len(workflow)] != workflow:
            continue
        # A variable is stored by any step. The item of ``Each`` exists only in its own step. Inputs belong to the
        # workflow.
        match where[len(workflow) :]:
            case ("Steps", int(), *_, "Store"):
                yield Candidate(f"state.{text}", "variable")
            case ("Steps", int(), "Each", "As") if where[: len(step)] == step:
                yield Candidate(text, "item")
            case ("Inputs", int(), "Name"):
                yield Candidate(f"inputs.{text}", "input")


# --- keys and values at a place in a ``%%dive`` cell -----------------------------------------------------------------


TABLES = {"file": schema.DEFINITIONS, "workflow": schema.WORKFLOW, "agent": schema.AGENT, "step": schema.STEP}
_REST = re.compile(r"\w*")
"""Pattern of the part of a word after the cursor."""
SERVER_TYPES = ("stdio", "http")


@dataclass(frozen=True, slots=True)
class DefinedNames:
    """Names of agents, actions and workflows that are defined outside the cell and can be completed in it."""

    agents: Collection[str] = ()
    actions: Collection[str] = ()
    workflows: Collection[str] = ()


def complete_cell(document: CellWithCursor, defined: DefinedNames) -> Completions:
    """Return the completions in the body of a ``%%dive`` cell: variables in code, keys, list items, or values."""
    # Inside ``${...}`` the names of variables come first, although the value around them may also have fixed choices.
    names = names_at(document)
    if names is not None:
        return names
    spot = Outline(document.above).spot(document.head)
    if spot is None:
        return NOTHING
    resolved = _resolved(TABLES[document.body], spot.place)
    if resolved is None:
        return NOTHING
    holder, key = resolved
    # The cursor is in a mapping (complete its keys), in a list (begin an item), or at the value of a key.
    if key is None:
        return NOTHING if spot.after_key else matching(spot.fragment, _keys(holder.keys, spot, document))
    if isinstance(key.kind, Many):
        return NOTHING if spot.after_key else matching(spot.fragment, _first_keys(key.kind, document))
    # ``Bounds`` is a mapping whose keys are not in the tables; `divebook.questions.bounds` defines them.
    if key.name == "Bounds" and not spot.after_key:
        return matching(spot.fragment, _colons(bounds.KEYS, spot, document))
    return _values(holder, key, spot, document, defined)


def key_at(document: CellWithCursor) -> tuple[Table, Key] | None:
    """Return the key at the cursor, or the key whose value contains the cursor. The key's table, which lists all keys
    that are valid beside it, is returned before it. Return None if the cursor is not at a key.
    """
    # The cursor may be in the middle of a word, and help is about the whole word.
    rest = _REST.match(document.tail)
    spot = Outline(document.above).spot(document.head + (rest[0] if rest else ""))
    if spot is None:
        return None
    # Behind a key, the place ends with this key. Elsewhere the unfinished word is the key.
    if spot.after_key:
        place = spot.place[:-1]
        name = spot.place[-1]
    else:
        place = spot.place
        name = spot.fragment
    resolved = _resolved(TABLES[document.body], place)
    if resolved is None:
        return None
    table, key = resolved
    key = key or table.key(str(name))
    return None if key is None else (table, key)


def _resolved(table: Table, place: Place) -> tuple[Table, Key | None] | None:
    """Find the keys that are valid at a position in the YAML text of a cell, and return the table that lists them.

    A position is a sequence of keys and list indexes, such as ``("Workflows", 0, "Steps", 1, "Type")``. Each part leads
    from a table to a key, or from a key to the table of its value. At the value of a key, the key is returned with the
    table that contains it. None if the tables have no such position.
    """
    # `holder` is the table of the mapping that contains the position. `key` is set while the position is at the value
    # of a key and the kind of this value is not yet used up by the next part.
    holder = table
    key = None
    for part in place:
        # A key of a mapping. If its value is a single mapping, the next part is a key of that mapping.
        if key is None and isinstance(part, str):
            key = holder.key(part)
            if key is None:
                return None
            if isinstance(key.kind, One):
                holder = key.kind.table
                key = None
        # The index of a list of mappings leads to the table of its items.
        elif key is not None and isinstance(part, int) and isinstance(key.kind, Many):
            holder = key.kind.table
            key = None
        # A list of texts has indexes, but no table. Anything else does not exist in the tables.
        elif key is None or not isinstance(part, int) or not isinstance(key.kind, Texts):
            return None
    return holder, key


# --- keys ----------------------------------------------------------------------------------------------------------


def _keys(keys: Iterable[Key], spot: Spot, document: CellWithCursor) -> Iterator[Candidate]:
    # The legacy dialect does not know the keys that divebook has added.
    is_strict = DIALECT_RULES[document.dialect].is_strict
    names = [key.name for key in keys if is_strict or not key.extension]
    ignored = {key.name for key in keys if key.ignored}
    return _colons([name for name in names if name not in ignored], spot, document)


def _colons(names: Iterable[str], spot: Spot, document: CellWithCursor) -> Iterator[Candidate]:
    """Yield completions for key names that the YAML mapping at the cursor does not contain yet. Each ends with a colon,
    unless a colon already follows the cursor.
    """
    # Keys below the cursor belong to the same mapping if they start at the column at which the fragment starts.
    column = len(document.head) - len(spot.fragment)
    present = {*spot.keys, *keys_below(document.below, column)}
    # A person may complete a key in front of a colon that is already there.
    colon = "" if document.tail.lstrip().startswith(":") else ": "
    return (Candidate(f"{name}{colon}", "key") for name in names if name not in present)


def _first_keys(kind: Many, document: CellWithCursor) -> Iterator[Candidate]:
    """Yield one completion that starts a new item of a YAML list, such as ``- Name:``. It contains the first key of
    such items; after an opening bracket it starts with ``{`` instead of a dash.
    """
    # "Agents: [" -> "{Name: "   "Agents:" -> "- Name: "
    dash = "{" if document.head.rstrip().endswith("[") else "- "
    return (Candidate(f"{dash}{key.name}: ", "item") for key in kind.table.keys[:1])


# --- values --------------------------------------------------------------------------------------------------------

NameSource: TypeAlias = "Callable[[Outline, Place, DefinedNames], Iterable[str]]"
"""Function that returns the valid names at a position, from the cell itself and from the session."""


def _step_names(outline: Outline, place: Place, _defined: DefinedNames) -> Iterable[str]:
    """Return the names of the steps of the workflow that contains the cursor."""
    # ("Workflows", 0, "Steps", 1, "Next", 0, "Step") -> the names below ("Workflows", 0, "Steps")
    steps = place[: place.index("Steps") + 1]
    return [text for where, text in outline.values.items() if where[:-2] == steps and where[-1] == "Name"]


def _agent_names(outline: Outline, _place: Place, defined: DefinedNames) -> Iterable[str]:
    # `dict.fromkeys` removes duplicates: the cell may define an agent of the session again.
    return dict.fromkeys([*_names_of(outline, "Agents"), *defined.agents])


def _names_of(outline: Outline, key: str) -> list[str]:
    """Return the values of ``Name`` of all items in a top-level list of the cell: ``Agents`` or ``Workflows``."""
    return [text for where, text in outline.values.items() if where[:1] == (key,) and where[2:] == ("Name",)]


def _other_agents(outline: Outline, place: Place, defined: DefinedNames) -> Iterable[str]:
    """Return the names of all agents except the agent whose definition contains the cursor."""
    # In a cell with one agent (``%%dive agent NAME``), the name is a top-level key.
    name_place: Place = (*place[:2], "Name") if place[:1] == ("Agents",) else ("Name",)
    this_agent = outline.values.get(name_place)
    return [name for name in _agent_names(outline, place, defined) if name != this_agent]


def _action_names(_outline: Outline, _place: Place, defined: DefinedNames) -> Iterable[str]:
    return defined.actions


def _workflow_names(outline: Outline, place: Place, defined: DefinedNames) -> Iterable[str]:
    """Return the names of all workflows except the workflow whose definition contains the cursor."""
    this_workflow = outline.values.get((*place[:2], "Name")) if place[:1] == ("Workflows",) else None
    names = dict.fromkeys([*_names_of(outline, "Workflows"), *defined.workflows])
    return [name for name in names if name != this_workflow]


def _models(_outline: Outline, _place: Place, _defined: DefinedNames) -> Iterable[str]:
    from divebook.agents.models import usable_models  # loads pydantic-ai: only for the value of a model

    return (SCRIPTED, *usable_models())


def _words(*words: str) -> NameSource:
    return lambda _outline, _place, _defined: words


VALUES: Mapping[tuple[str, str], tuple[str, NameSource]] = {
    # ``function`` is the type of Python functions, which YAML cannot define.
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
"""Sources of valid values, by table and key: the kind that the list of completions shows, and the function."""


def _values(holder: Table, key: Key, spot: Spot, document: CellWithCursor, defined: DefinedNames) -> Completions:
    # A key that is not in `VALUES` may still have fixed choices.
    kind, names = VALUES.get((holder.label, key.name), ("value", _fixed(key)))
    outline = Outline("\n".join((document.above, document.head + document.tail, document.below)))
    # YAML needs a space between the colon and the value.
    space = " " if document.head.endswith(":") else ""
    candidates = (Candidate(f"{space}{name}", kind) for name in names(outline, spot.place, defined))
    return matching(spot.fragment, candidates)


def _fixed(key: Key) -> NameSource:
    """Return a function that yields the allowed values of a key, if these are the same in all cells: ``true`` and
    ``false``, or the choices of the key. For other keys the function yields nothing.
    """
    if isinstance(key.kind, Flag):
        return _words("true", "false")
    return _words(*key.kind.choices) if isinstance(key.kind, Text) else _words()


# --- the outline of unfinished YAML -----------------------------------------------------------------------------------

# Outline of an unfinished YAML text: the keys that lead to the cursor, and the values in the text.
#
# A YAML parser rejects text that is still being written. `Outline` therefore reads the text line by line, with a stack
# of the mappings and lists that are still open. It understands the parts of YAML that definitions use: mappings and
# lists by indentation or in brackets, quoted texts, block texts and comments. For the lines ::
#
#     Steps:
#       - Name: plan
#         Type: |
#
# the stack at the cursor contains the mapping at column 0 with the key ``Steps``, the list at column 2 with the index
# 0, and the mapping at column 4 with the key ``Type``. The keys and indexes of the stack are the position of the
# cursor: ``("Steps", 0, "Type")``.


# A key in quotes, or a plain key. A plain key starts with no character that has another meaning in YAML (a dash only if
# no space follows), and ends at a colon before a space or the end of the line. "Prompt: |" -> "Prompt"
_KEY = re.compile(r"""("[^"]*"|'[^']*'|[^\s#&*!|>%@`{}\[\],"'-][^:#]*?|-[^\s:#][^:#]*?)\s*:(?=\s|$)""")
# "- Name: plan": the dash and the spaces behind it.
_DASH = re.compile(r"-(?: +|$)")
# "|", ">-", "|2  # comment": the text follows in the lines below.
_BLOCK_TEXT = re.compile(r"[|>][-+0-9]*\s*(#.*)?$")
_QUOTES = "\"'"


@dataclass(frozen=True, slots=True)
class Spot:
    """Position of the cursor in the structure of an unfinished YAML text."""

    place: Place
    """The keys and list indexes that lead from the top to the mapping, list or value at the cursor."""
    fragment: str
    """The part of the current word before the cursor."""
    after_key: bool
    """True if the cursor is behind a key, so that a value is expected."""
    keys: frozenset[str] = frozenset()
    """The keys above the cursor in the same mapping."""


@dataclass(slots=True)
class _Open:
    """A YAML mapping or list that contains the line that is being read, because it has started in a line above and has
    not ended yet.
    """

    # Column at which the keys of the mapping, or the dashes of the list, start. 0 in brackets, where columns have no
    # meaning.
    column: int
    is_list: bool = False
    is_flow: bool = False
    """True if the mapping or list is written in brackets."""
    key: str | None = None
    index: int = 0
    keys: set[str] = field(default_factory=set)

    @property
    def part(self) -> str | int | None:
        """The current key of this mapping, or the current index of this list. Together, the parts of all open mappings
        and lists lead to the line that is being read.
        """
        return self.index if self.is_list else self.key


class Outline:
    r"""Line-by-line reader of an unfinished YAML text, which finds its keys, its values and the position of the cursor.

    Examples
    --------
    >>> Outline("Steps:\n  - Name: plan\n    Type: script\n").values
    {('Steps', 0, 'Name'): 'plan', ('Steps', 0, 'Type'): 'script'}
    """

    def __init__(self, text: str) -> None:
        self.values: dict[Place, str] = {}
        """The plain values of keys, by their position (keys and list indexes from the top)."""
        self._open: list[_Open] = []
        """The open mappings and lists, outermost first."""
        self._text_below: int | None = None
        """Column of the key whose block text is being read; None outside a block text."""
        self._token = 0
        """Index at which the current word starts in a line inside brackets."""
        for line in text.splitlines():
            self._read(line)

    def _read(self, line: str) -> None:
        # An index of another line would be meaningless.
        self._token = 0
        column = _indent(line)
        # Before anything else, because an unclosed bracket would swallow all lines below it.
        self._end_forgotten_flow(line, column)
        if self._in_flow:
            self._flow(line, 0)
            return
        # Blank lines and comments are checked after the block text, which may contain both.
        if self._is_text(line, column) or not line.strip() or line.lstrip().startswith("#"):
            return
        # Dashes first: in ``- Name: plan`` the key stands in a mapping behind the dash.
        start = self._items(line, column)
        if start < len(line):
            self._entry(line, start)

    def spot(self, head: str) -> Spot | None:
        """Return the place of the cursor in the structure of the definition, such as "value of the key Each". Return
        None in a comment, and in a YAML text of several lines, where nothing is completed.

        `head` is the part of the cursor's line before the cursor.
        """
        # The outline has read the lines above. The brackets that they have opened still contain the cursor.
        if self._in_flow:
            return self._spot_in_flow(head, 0)
        column = _indent(head)
        if self._is_text(head, column) or _has_comment(head):
            return None
        start = self._items(head, column)
        key = _KEY.match(head, start)
        # Unlike `_entry`, this does not store the value, because the cursor is still in it.
        if key is not None:
            self._take_key(_unquoted(key[1]), start)
            start = key.end() + _indent(head[key.end() :])
        else:
            # The cursor may have left the mapping above it: fewer spaces close the mappings that are indented more.
            self._close_to(start)
        if head[start : start + 1] in ("{", "["):
            return self._spot_in_flow(head, start)
        return self._spot_here(head[start:], after_key=key is not None, column=start)

    def block_text(self, head: str) -> Place | None:
        """Return the position of the block text (a YAML text of several lines) that contains the cursor; None if the
        cursor is not in one.

        `head` is the part of the cursor's line before the cursor.
        """
        return self._place if not self._in_flow and self._is_text(head, _indent(head)) else None

    # --- by indentation --------------------------------------------------------------------------------------------

    def _is_text(self, line: str, column: int) -> bool:
        """Return whether a line belongs to the block text (a YAML text of several lines) that is being read; False if
        none is being read.

        A line that is not indented more than the key of the text ends the text.
        """
        if self._text_below is None:
            return False
        # A line of spaces only belongs to the text while it is indented more than the key. An empty line always does.
        if column > self._text_below or not line.strip():
            return column > self._text_below or not line
        self._text_below = None
        return False

    def _items(self, line: str, start: int) -> int:
        """Add a list item to the open lists for each dash at the start of a YAML line. Return the column after the last
        dash.
        """
        while dash := _DASH.match(line, start):
            # A dash ends everything that is indented more than the dash itself.
            while self._open and self._open[-1].column > start:
                self._open.pop()
            # Another dash at the same column is the next item of the same list.
            if self._open and self._open[-1].is_list and self._open[-1].column == start:
                self._open[-1].index += 1
            else:
                # A list may start at the column of the key above it, so the mapping around it stays open.
                self._open.append(_Open(start, is_list=True))
            start = dash.end()
        return start

    def _entry(self, line: str, start: int) -> None:
        key = _KEY.match(line, start)
        if key is not None:
            self._take_key(_unquoted(key[1]), start)
            column = start
            start = key.end() + _indent(line[key.end() :])
        # A line that continues a plain value, or a scalar list item. It belongs to the mapping or list around it.
        else:
            column = self._open[-1].column if self._open else 0
        rest = line[start:]
        if rest[:1] in ("{", "["):
            self._flow(line, start)
        elif _BLOCK_TEXT.match(rest):
            self._text_below = column
        else:
            # Behind " #" a comment starts. A value that contains it must be quoted in YAML too.
            self._note(rest.split(" #")[0])

    def _take_key(self, key: str, column: int) -> None:
        self._close_to(column)
        # A key that is indented more than the open mapping, or that follows a dash, begins a new mapping.
        if not self._open or self._open[-1].is_list or self._open[-1].column < column:
            self._open.append(_Open(column))
        self._open[-1].key = key
        self._open[-1].keys.add(key)

    def _close_to(self, column: int) -> None:
        """Remove the open mappings and lists that a key at this column ends: those that are indented more than the key,
        and a list at the same column.
        """
        while self._open and (
            self._open[-1].column > column or (self._open[-1].is_list and self._open[-1].column == column)
        ):
            self._open.pop()

    def _spot_here(self, fragment: str, *, after_key: bool, column: int) -> Spot:
        top = self._open[-1] if self._open else None
        in_mapping = top is not None and not top.is_list and top.column == column
        # A cursor behind a key, or at the start of a new item, has no sibling keys.
        if after_key or top is None or not in_mapping:
            return Spot(self._place, fragment.lstrip(_QUOTES), after_key)
        return Spot(self._place[:-1], fragment.lstrip(_QUOTES), after_key=False, keys=frozenset(top.keys))

    # --- in brackets -----------------------------------------------------------------------------------------------

    def _end_forgotten_flow(self, line: str, column: int) -> None:
        """Close the YAML lists and mappings in brackets above this line whose closing bracket a person has forgotten.

        Such brackets exist if the line is not indented more than the mapping around the brackets.
        """
        # The brackets stand in a mapping or list that is written by indentation.
        outside = next((frame for frame in reversed(self._open) if not frame.is_flow), None)
        # A line that only closes brackets, or that is blank, may be indented like the text around the brackets.
        if outside is None or column > outside.column or line.strip()[:1] in ("", "}", "]", "#"):
            return
        while self._in_flow:
            self._open.pop()

    @property
    def _in_flow(self) -> bool:
        return bool(self._open) and self._open[-1].is_flow

    def _flow(self, line: str, start: int) -> None:
        self._token = start
        position = start
        while position < len(line):
            character = line[position]
            # A quote counts only at the start of a word. Brackets inside a quoted text have no meaning.
            if character in _QUOTES and not line[self._token : position].strip():
                end = line.find(character, position + 1)
                # An unclosed quote reaches to the end of the line.
                position = len(line) if end < 0 else end + 1
                continue
            # A hash in a word, such as ``a#b``, does not start a comment.
            if character == "#" and line[position - 1 : position] in ("", " "):
                return
            self._flow_character(line, position)
            position += 1
            # The outermost bracket is closed. The rest of the line does not matter.
            if not self._in_flow:
                return

    def _flow_character(self, line: str, position: int) -> None:
        # Only characters that end a token move its start (the last line); the others are part of the token.
        character = line[position]
        top = self._open[-1] if self._open else None
        if character in "{[":
            self._open.append(_Open(0, is_list=character == "[", is_flow=True))
        # A closing bracket without an opening one is a mistake that needs no reaction here.
        elif top is None:
            return
        elif character in "}],":
            self._note(line[self._token : position])
            if character != ",":
                self._open.pop()
            # A comma starts the next item of a list, or the next key of a mapping.
            elif top.is_list:
                top.index += 1
            else:
                top.key = None
        # The first colon of an entry ends its key. `top.part` is None for a mapping whose entry has no key yet, and
        # never for a list.
        elif character == ":" and line[position + 1 : position + 2] in ("", " ") and top.part is None:
            top.key = _unquoted(line[self._token : position].strip())
            top.keys.add(top.key)
        else:
            return
        self._token = position + 1

    def _spot_in_flow(self, head: str, start: int) -> Spot | None:
        # The brackets up to the cursor become open. The outline is used for one cursor only, so it may change.
        self._flow(head, start)
        if not self._in_flow or _has_comment(head[self._token :]):
            return None
        top = self._open[-1]
        fragment = head[self._token :].lstrip().lstrip(_QUOTES)
        return Spot(self._place, fragment, top.key is not None, frozenset(top.keys))

    # --- values --------------------------------------------------------------------------------------------

    @property
    def _place(self) -> Place:
        # An open mapping without a key has no part: the cursor is where a key is expected.
        return tuple(part for part in (frame.part for frame in self._open) if part is not None)

    def _note(self, text: str) -> None:
        if text.strip() and self._open and self._open[-1].part is not None:
            self.values[self._place] = _unquoted(text.strip())


def keys_below(tail: str, column: int) -> Iterator[str]:
    """Yield the keys below the cursor that are in the same YAML mapping, whose keys start at `column`."""
    for line in tail.splitlines():
        indent = _indent(line)
        # Lines that are indented more belong to values of the mapping.
        if not line.strip() or indent > column:
            continue
        key = _KEY.match(line, indent)
        # Less indentation, or another thing than a key, ends the mapping.
        if indent < column or key is None:
            return
        yield _unquoted(key[1])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _has_comment(head: str) -> bool:
    return head.lstrip().startswith("#") or " #" in head


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] in _QUOTES and text[-1] == text[0] else text
