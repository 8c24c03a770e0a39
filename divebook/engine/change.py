"""What a fork may do otherwise than its source: plain data, checked when it is made, kept in the fork's log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from divebook.errors import SetupError, did_you_mean
from divebook.events.catalog import ExecutionForked
from divebook.events.codec import storable
from divebook.text.names import normal_name
from divebook.workflow.definition import Workflow

_BY_KEY = {
    "variables": "names of variables",
    "inputs": "names of inputs",
    "results": "ids of operations (op_...)",
    "answers": "ids of questions (ask_...)",
    "prompts": "names of steps",
    "skipped": "ids of paths",
}
"""The parts that are mappings, and what leads to their values."""
_APART = ("definition", "model")
"""The parts that the event holds in fields of their own."""


@dataclass(frozen=True, slots=True)
class Change:
    """What is otherwise from the point on at which an execution is forked; everything may be left out.

    Raises
    ------
    SetupError
        A part is not what it should be.
    UnstorableValueError
        No event can hold a value.

    Examples
    --------
    >>> Change(variables={"city": "Bonn"}).to_data()
    {'variables': {'city': 'Bonn'}}
    >>> Change.of({"model": "scripted"}).named
    ('model',)
    """

    variables: Mapping[str, Any] = field(default_factory=dict)
    """New values of variables."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """New values of inputs."""
    results: Mapping[str, Any] = field(default_factory=dict)
    """By operation: what it has returned."""
    answers: Mapping[str, Any] = field(default_factory=dict)
    """By question: its answer, in full form (`divebook.questions.answer`)."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """By step: its prompt."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """By path whose step has failed: what counts as the output of that step. It sets no variable."""
    model: str | None = None
    """The model of all agents, in place of theirs."""
    definition: Mapping[str, Any] | None = None
    """The workflow as plain data (`Workflow.to_dict`); a `Workflow` itself is taken too."""

    def __post_init__(self) -> None:
        for name, keys in _BY_KEY.items():
            object.__setattr__(self, name, _checked(name, keys, getattr(self, name)))
        for step, text in self.prompts.items():
            if not isinstance(text, str):
                raise SetupError(f"the prompt of step {step!r} must be a text, not {type(text).__name__}")
        for path, text in self.skipped.items():
            if not isinstance(text, str):
                raise SetupError(f"what counts for the step of path {path!r} is a text, not {type(text).__name__}")
        model: Any = self.model  # whatever a caller has
        if model is not None and (not isinstance(model, str) or not model):
            raise SetupError(f"model must be the name of a model (provider:model), not {model!r}")
        definition: Any = self.definition
        if isinstance(definition, Workflow):
            object.__setattr__(self, "definition", definition.to_dict())
        elif definition is not None and not isinstance(definition, Mapping):
            kind = type(definition).__name__
            raise SetupError(f"definition must be a workflow or its plain data, not {kind}; write workflow.to_dict()")

    @classmethod
    def of(cls, given: Change | Mapping[str, Any] | None) -> Change:
        """Return a change that is given in either form; None changes nothing."""
        if isinstance(given, Change):
            return given
        if not isinstance(given, Mapping | None):
            raise SetupError(f"a change is a mapping such as {{'variables': {{'x': 1}}}}, not {type(given).__name__}")
        known = [entry.name for entry in fields(cls)]
        for name in given or {}:
            if name not in known:
                advice = did_you_mean(str(name), known) or f"there are {', '.join(known)}"
                raise SetupError(f"a fork cannot change {name!r} ({advice})")
        return cls(**(given or {}))

    @classmethod
    def recorded(cls, data: ExecutionForked) -> Change:
        """Return the change that an event tells of."""
        return cls(**(data.change or {}), model=data.model, definition=data.definition)

    @property
    def named(self) -> tuple[str, ...]:
        """The parts that say something; none if nothing is changed."""
        told = ((entry.name, getattr(self, entry.name)) for entry in fields(self))
        return tuple(name for name, value in told if value not in (None, {}))

    def to_data(self) -> dict[str, Any]:
        """Return what an event holds of it in its field ``change``."""
        return {name: getattr(self, name) for name in self.named if name not in _APART}

    def workflow(self, source: Workflow) -> Workflow:
        """Return the workflow of a fork whose source has another; it itself if that stays as it is.

        Raises
        ------
        SetupError
            A prompt is to be changed where there is none, or the definition is none.
        DefinitionError
            The definition makes no sense.
        """
        if self.definition is not None and not _is_shaped(self.definition):
            raise SetupError(
                "definition must have a name and a list of steps, each plain data; write workflow.to_dict()"
            )
        changed = source if self.definition is None else replace(Workflow.from_dict(self.definition))
        if not self.prompts:
            return changed
        steps = {step.name: step for step in changed.steps}
        for name, text in self.prompts.items():
            if name not in steps or steps[name].prompt is None:
                with_prompt = [step.name for step in changed.steps if step.prompt is not None]
                advice = did_you_mean(name, with_prompt) or f"those that do: {', '.join(with_prompt) or 'none'}"
                raise SetupError(f"workflow {changed.name!r} has no step {name!r} with a prompt ({advice})")
            steps[name] = replace(steps[name], prompt=text)
        return replace(changed, steps=tuple(steps.values()))


def _is_shaped(definition: Mapping[str, Any]) -> bool:
    """Whether it can be read as a workflow at all; its rules are checked where it is read."""
    name, steps = definition.get("name"), definition.get("steps")
    return isinstance(name, str) and isinstance(steps, Sequence) and all(isinstance(step, Mapping) for step in steps)


def _checked(name: str, keys: str, given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise SetupError(f"{name} of a change must map {keys} to what is new, not {type(given).__name__}")
    for key in given:
        if not isinstance(key, str) or not key:
            raise SetupError(f"{name} of a change must map {keys} to what is new; {key!r} is no such name")
    return {normal_name(key): storable(value, f"{name}.{key}") for key, value in given.items()}
