"""A stage of a pipeline as plain data: who works there, what must come out, and where a request goes next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

from divebook.errors import Problem, did_you_mean
from divebook.pipeline.envelope.contents import END
from divebook.questions.kinds import CLARIFICATION, CONFIRMATION
from divebook.workflow.numbers import is_amount
from divebook.workflow.stored_form import Definition, as_definition, json_value

ASKING = (CLARIFICATION, CONFIRMATION)
"""Targets that ask a person with what the output holds as its question or message."""
RESERVED = (END, *ASKING)

_COUNTS = ("timeout_seconds", "max_visits", "max_retries")


@dataclass(frozen=True, slots=True)
class RoutingRule(Definition):
    """Go to `target` if the output holds `value` under the key `condition`, of the same type."""

    condition: str
    value: Any
    target: str

    def __post_init__(self) -> None:
        self._put(value=json_value(self.value, "value"))

    def fires(self, output: Mapping[str, Any]) -> bool:
        """Whether the rule applies to an output; 1 and 1.0 are equal, True and 1 are not."""
        return self.condition in output and _is_same(output[self.condition], self.value)


@dataclass(frozen=True, slots=True)
class EdgeLimit(Definition):
    """How often a request may pass from one stage to another; 0 stands for no limit."""

    source: str
    target: str
    max_count: int = 0

    @classmethod
    def of(cls, value: Any) -> Self:
        """Return what a person wrote as a limit; its ends may also be written as ``from`` and ``to``."""
        named = {"from": "source", "to": "target"}
        is_mapping = isinstance(value, Mapping)
        return as_definition(cls, {named.get(key, key): item for key, item in value.items()} if is_mapping else value)


@dataclass(frozen=True, slots=True)
class AgentStage(Definition):
    """One stage of a pipeline: who works there, what must come out, and where the request goes next."""

    name: str
    stage_order: int = 0
    """Position; stages of equal order keep the order in which they are listed."""
    requires: tuple[str, ...] = ()
    """In parallel runs: stages that must be completed before."""
    after: tuple[str, ...] = ()
    """In parallel runs: stages that must have ended before, well or not."""
    join_strategy: Literal["all", "any"] = "all"
    """Whether all required stages must be completed, or one is enough."""
    has_llm: bool = False
    """A model works here: the agent that `model_role` names, unless the pipeline has a function for the stage."""
    has_tools: bool = False
    """The steps of the output ``plan`` are carried out with the environment's actions."""
    has_policies: bool = False
    """For readers of the definition; it has no effect."""
    tool_access: Literal["none", "read", "write", "all"] = "none"
    """``none`` denies every tool, ``all`` allows every one, else `allowed_tools` decides."""
    allowed_tools: tuple[str, ...] = ()
    """Without any, every tool is allowed."""
    model_role: str = ""
    """Name of the agent."""
    prompt_key: str = ""
    """Which of the pipeline's prompts; by default the request's text and the outputs so far."""
    temperature: float | None = None
    max_tokens: int | None = None
    output_key: str = ""
    """Output slot; by default the stage's name."""
    required_output_fields: tuple[str, ...] = ()
    routing_rules: Sequence[RoutingRule] = ()
    """In order; the first that fires decides."""
    default_next: str = ""
    """Where to go if no rule fires; by default ``end``."""
    error_next: str = ""
    """Where to go if the stage fails; without it the request is terminated."""
    timeout_seconds: float = 0
    """Of each attempt; by default the pipeline's."""
    max_visits: int = 0
    """How often a request may be here, all its runs together; the next entry ends it. 0 for as often as it likes."""
    max_retries: int = 0
    """How often a failed stage is tried again. One that may be retried is also repeated where its process died."""

    def __post_init__(self) -> None:
        lists = ("requires", "after", "allowed_tools", "required_output_fields")
        self._put(**{name: tuple(getattr(self, name)) for name in lists})
        self._put(routing_rules=tuple(map(RoutingRule.of, self.routing_rules)), output_key=self.output_key or self.name)

    def next_stage(self, output: Mapping[str, Any]) -> str:
        """Return where a request goes after an output."""
        fired = (rule.target for rule in self.routing_rules if rule.fires(output))
        return next(fired, self.default_next or END)

    def allows(self, tool: str) -> bool:
        """Whether the stage may call a tool."""
        if self.tool_access == "none":
            return False
        return self.tool_access == "all" or not self.allowed_tools or tool in self.allowed_tools

    def problems(self, names: Sequence[str]) -> Iterator[Problem]:
        """Return everything that is wrong with the stage, in a pipeline of stages with these names."""
        of = f"stage {self.name!r}"
        if self.has_llm and not self.model_role:
            yield Problem(f"{of} has a model and no model_role", key="model_role", hint="name the agent that answers")
        yield from chosen(self, of)
        yield from counted(self, _COUNTS, of)
        targets = [("routing rule", rule.target) for rule in self.routing_rules]
        targets += [(key, getattr(self, key)) for key in ("default_next", "error_next") if getattr(self, key)]
        for key, target in targets:
            if target not in names and target not in RESERVED:
                yield unknown(f"{of}: {key} leads to unknown target", target, (*names, *RESERVED))
        for key in ("requires", "after"):
            for name in getattr(self, key):
                if name == self.name:
                    yield Problem(f"{of}: {key} itself", key=key)
                elif name not in names:
                    yield unknown(f"{of}: {key} unknown stage", name, names)


# --- what pipelines and their parts are checked and read by ----------------------------------------------------------


def unknown(message: str, name: str, known: Sequence[str]) -> Problem:
    """Return the problem that a name is not among those that are known."""
    return Problem(f"{message} {name!r}", hint=did_you_mean(name, known))


def chosen(record: object, of: str) -> Iterator[Problem]:
    """Return the fields whose value is not one of the choices that their types name."""
    for key, hint in get_type_hints(type(record)).items():
        value = getattr(record, key, None)
        if get_origin(hint) is Literal and value not in get_args(hint):
            yield Problem(f"{key} of {of} cannot be {value!r}", key=key, hint=f"one of {', '.join(get_args(hint))}")


def counted(record: object, keys: tuple[str, ...], of: str) -> Iterator[Problem]:
    """Return the fields whose value is not a number of at least 0."""
    for key in keys:
        value = getattr(record, key)
        if not is_amount(value):
            yield Problem(f"{key} of {of} must be a number of at least 0, not {value!r}", key=key)


def _is_same(left: Any, right: Any) -> bool:
    """Whether two plain values are equal and of the same types; whole numbers and fractions are of one type."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(_is_same(value, right[key]) for key, value in left.items())
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_is_same, left, right))
    numbers = [isinstance(value, int | float) and not isinstance(value, bool) for value in (left, right)]
    return bool(left == right) and (all(numbers) or type(left) is type(right))
