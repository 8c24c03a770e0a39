"""What a fork or a what-if is to have otherwise, as it is typed: ``x=1`` of variables, inputs, answers, results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from divebook.engine.change import Change
from divebook.errors import DefinitionError, InputError
from divebook.workflow.yaml_value import value_typed


def change_from(
    variables: Iterable[str] = (),
    inputs: Iterable[str] = (),
    answers: Iterable[str] = (),
    results: Iterable[str] = (),
    *,
    prompts: Iterable[str] = (),
    model: str | None = None,
) -> Change:
    """Return a change whose parts are written as ``NAME=VALUE``, values in YAML; prompts are texts as they stand.

    Raises
    ------
    InputError
        There is no ``=`` or no name before it, a name is given twice, or a value is no YAML.

    Examples
    --------
    >>> change_from(["city=Bonn"], ["n=3"]).to_data()
    {'variables': {'city': 'Bonn'}, 'inputs': {'n': 3}}
    """
    return Change(
        variables=pairs("--set", variables, "--set city=Bonn"),
        inputs=pairs("--input", inputs, "--input n=3"),
        answers=pairs("--answer", answers, "--answer ask_1f0c=yes"),
        results=pairs("--result", results, "--result op_5b1e=3"),
        prompts=pairs("--prompt", prompts, "--prompt draft='Shorter: ${state.text}'", str),
        model=model,
    )


def pairs(
    option: str, written: Iterable[str], example: str, read: Callable[[str], Any] = value_typed
) -> dict[str, Any]:
    """Return what an option says that is written as ``NAME=VALUE``, several times; values in YAML."""
    found: dict[str, Any] = {}
    for text in written:
        name, equals, value = text.partition("=")
        if not (equals and name):
            raise InputError(f"{option} {text!r} changes nothing; write NAME=VALUE, for instance {example}")
        if name in found:
            raise InputError(f"{option} {name}=... is given twice; keep one", name)
        try:
            found[name] = read(value)
        except DefinitionError as error:
            problem = error.problems[0].message
            raise InputError(f"{option} {name}: {problem} in {value!r}; write the value in YAML", name) from error
    return found
