"""The inputs of an execution: checked against what its workflow declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from divebook.errors import InputError, did_you_mean
from divebook.events.recorded import opened
from divebook.text.names import same_name
from divebook.workflow.definition import InputDefinition, Workflow
from divebook.workflow.functions import declared_type
from divebook.workflow.kinds import INPUT_TYPES

_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})


def bind_inputs(workflow: Workflow, given: Mapping[str, Any], *, coerce_text: bool = False) -> dict[str, Any]:
    """Return the inputs an execution starts with, in the order in which they are declared.

    Parameters
    ----------
    given
        Values by name; an explicit None counts as given, and fits no declared type unless that says so.
    coerce_text
        Turn texts, as a command line gives them, into what the declaration says.

    Notes
    -----
    An input of a workflow function with an annotation, such as a date, an enum or a list of models, is made into that
    from its JSON form; a value that cannot be one is refused.

    Raises
    ------
    InputError
        They are no mapping, or one is missing, not declared, or of another type.
    """
    if not isinstance(given, Mapping):
        raise InputError(f"inputs are a mapping of names to values, not {given!r:.60}; write {{'name': value}}")
    given = _by_declared_name(workflow, given)
    declared = _declared(workflow, given)
    return {name: _bound(workflow, definition, given, coerce_text=coerce_text) for name, definition in declared.items()}


def bind_changed(workflow: Workflow, changed: Mapping[str, Any], *, coerce_text: bool = False) -> dict[str, Any]:
    """Return new values of some inputs; raises `InputError` as `bind_inputs` does, but none for those not given."""
    changed = _by_declared_name(workflow, changed)
    declared = _declared(workflow, changed)
    return {name: _bound(workflow, declared[name], changed, coerce_text=coerce_text) for name in changed}


def _by_declared_name(workflow: Workflow, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by the names that the workflow declares; raises `InputError` for two spellings of one name."""
    declared = {definition.name: definition for definition in workflow.inputs}
    named: dict[str, Any] = {}
    for name, value in given.items():
        known = same_name(name, declared)
        if known in named:
            raise InputError(f'input "{known}" is given twice, in two spellings of one name; give it once', known)
        named[name if known is None else known] = value
    return named


def _declared(workflow: Workflow, given: Mapping[str, Any]) -> dict[str, InputDefinition]:
    """Return what a workflow declares, by name, if all that is given is among it."""
    declared = {definition.name: definition for definition in workflow.inputs}
    for name in given:
        if name not in declared:
            known = did_you_mean(name, declared) or f"declared: {', '.join(declared) or 'none'}"
            raise InputError(f'unknown input "{name}" for workflow "{workflow.name}" ({known})', name)
    return declared


def _bound(workflow: Workflow, definition: InputDefinition, given: Mapping[str, Any], *, coerce_text: bool) -> Any:
    if definition.name not in given:
        if definition.has_default or definition.required is False:
            return opened(definition.default)
        raise InputError(
            f'input "{definition.name}" is required (a required input of workflow "{workflow.name}"'
            f"{f': {definition.description}' if definition.description else ''}); give it a value: "
            f"{definition.name}=... (in a shell: -v {definition.name}=...)",
            definition.name,
        )
    value = given[definition.name]
    if isinstance(value, str) and not workflow.manner.converts_inputs:
        return value
    annotated = declared_type(workflow, definition)
    if annotated is not None and not (value is None and _accepts_none(definition)):
        try:
            return annotated.convert(value, is_text=coerce_text and isinstance(value, str))
        except ValueError as error:
            message = f'input "{definition.name}" must be of type {annotated.name}, got {_short(value)}: {error}'
            raise InputError(message, definition.name) from None
    if coerce_text and isinstance(value, str):
        value = _from_text(definition, value)
    if value is None and (_accepts_none(definition) or not workflow.manner.converts_inputs):
        return value
    return _checked(definition, value)


def _accepts_none(definition: InputDefinition) -> bool:
    return definition.required is False or (definition.has_default and definition.default is None)


def _checked(definition: InputDefinition, value: Any) -> Any:
    types = INPUT_TYPES.get((definition.type or "").lower())
    if types is None:
        return value
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise InputError(
            f'input "{definition.name}" must be of type {definition.type}, got {type(value).__name__}: {_short(value)}',
            definition.name,
        )
    return list(value) if isinstance(value, tuple) else value


def _from_text(definition: InputDefinition, text: str) -> Any:
    """Return what a text means for a number or a truth value; other types keep it."""
    types = INPUT_TYPES.get((definition.type or "").lower(), (str,))
    try:
        if bool in types:
            return {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}[text.strip().lower()]
        if float in types:
            return float(text)
        return int(text) if int in types else text
    except (ValueError, KeyError):
        raise InputError(
            f'input "{definition.name}" must be of type {definition.type}, got the text {_short(text)}', definition.name
        ) from None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
