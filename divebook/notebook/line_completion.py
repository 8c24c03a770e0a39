"""What can follow in a line that begins with ``%dive``: sub-commands, names, inputs, options, ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from divebook.engine.lifecycle import STATUSES
from divebook.errors import DivebookError
from divebook.events.catalog import CANCELLED, ENQUEUED, FAILED, ORIGINS, PENDING, RUNNING, WAITING
from divebook.execution.overview import newest_run
from divebook.notebook.arguments import REPEATED, Arguments, parse, split
from divebook.notebook.candidates import NOTHING, Candidate, Found, matching
from divebook.questions.wording import address_of
from divebook.replay.recorded_answers import TOOLS
from divebook.text.commands import quoted
from divebook.workflow.key_help import key_names
from divebook.workflow.resources import DURABILITIES

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from divebook.environment import Environment
    from divebook.notebook.commands import Command
    from divebook.questions import Question
    from divebook.store import ExecutionRecord
    from divebook.workflow.definition import InputDefinition, Workflow

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
        from divebook.notebook.variables import own_variables

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
