"""Comparison of a new event payload (a fact) with a recorded one. All fields must be equal, except for those in
`FREE`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from divebook.engine.bounds import Exhausted, asked_about
from divebook.engine.operations import ENCLOSING, SCRIPT_EXECUTION, TOOL_CALL, operation_kind
from divebook.events import catalog
from divebook.events.catalog import Payload
from divebook.events.codec import canonical_hash
from divebook.events.values import normalize
from divebook.projections.compare import SCRIPT, as_text
from divebook.questions.wording import bound_of_agent_exceeded
from divebook.runtime.operations import in_short, operation_text
from divebook.text.format import NOTHING, marked, parts
from divebook.text.passwords import REDACTED as HIDDEN
from divebook.text.redaction import one_line, shared

# --- texts about budgets in the wording of older versions -------------------------------------------------------------
#
# The log holds the text of a question about a budget, and of the error that a budget ends a run with. divebook writes
# these texts, and no definition determines their wording. So a log from before a change of the wording is compared in
# the present one: the amounts are read from the old text, and the text is written again with them.
#
# Example: ``max_llm_calls is reached: 1 model calls spent, at most 1 allowed`` is compared as
# ``Budget reached: 1 of 1 model calls made. Raise `max_llm_calls`.``


_MARK = " is reached: "
_UNITS = {
    "max_iterations": "passes through loops",
    "max_llm_calls": "model calls",
    "max_agent_hops": "agent steps",
    "max_tokens": "tokens",
    "max_cost": "US dollars",
    "max_seconds": "seconds",
    "edges": "passages",
    "max_repeats": "repetitions",
}
"""Units of each bound, in the wording of older versions."""
# Names were quoted by `repr`, which uses double quotes for a name that contains a single one.
_QUOTED = r"'[^'\n]*'|\"[^\"\n]*\""
_REACHED = re.compile(
    rf"(?:agent (?P<agent>{_QUOTED}): )?"
    r"(?:the bound of the edge (?P<edge>[^\n]+?)|(?P<bound>max_[a-z_]+)) is reached: "
    rf"(?P<used>\S+) (?P<unit>{'|'.join(_UNITS.values())}) spent"
    r"(?:, (?P<reserved>\S+) reserved by calls under way, (?P<needed>\S+) for the next one \(MaxTokens lowers it\))?"
    r", at most (?P<limit>\S+) allowed"
    r"(?:(?P<question>\. Raise the bound and go on, or stop\?)"
    rf"|; to go on, raise (?:its Bounds|the Bounds of agent (?P<owner>{_QUOTED})) and resume)?"
)


_FORMER_TEXTS = (
    ("; not rolled back, since nobody knows whether it", "; not rolled back, because it is unknown whether it"),
    (". Resume it, to have that undone", ". Resume the run to roll that back"),
    (". Mend that, then resume it", ". Fix that, then resume the run"),
    ("cannot go on as a new one, since ", "cannot continue as a new one, because its parent "),
    ("; let the workflow that is started from outside do so", "; do that in a workflow that is not a child"),
    (
        "cannot go on as a new one while other paths are on their way",
        "cannot continue as a new one while other paths are running",
    ),
    ("goes on as exec_", "continues as exec_"),
    ("seconds; raise that, or add a Retry", "seconds; raise the Timeout, or add a Retry"),
    ("seconds; raise its timeout_seconds, or retry", "seconds; raise its timeout_seconds, or resume to try again"),
    ("; if so many are meant, raise the bound and resume", ". If you need that many, raise the bound and resume"),
    (" is reached, and a person said stop", " reached, and a person chose to stop"),
    (
        "its outcome is unknown, and a person called it failed",
        "its outcome is unknown, and a person marked it as failed",
    ),
    ("cannot be filled in, so that it would not be undone: ", "cannot be filled in, so the call could not be undone: "),
    ("(give it a Default, or more time)", "(add a Default, or raise ExpiresIn)"),
    (
        "mend it and resume; what should be told to the model, raise as pydantic_ai.ModelRetry",
        "fix it and resume; to report an error to the model instead, raise pydantic_ai.ModelRetry",
    ),
    (
        " are not as the run left them. What is to be done?",
        " are not as the run left them. How should the run continue?",
    ),
    (" to go on with what it began with, or ", " to continue with the original agent, or "),
    (
        " to begin the turn again: its calls of tools are then made again as well",
        " to start the turn again, which also repeats its tool calls",
    ),
    (" is not what it was when this turn began (", " changed since this turn began ("),
    (": put back what the run had; ", ": restore the files of the run; "),
    (": go on with these.", ": continue with the files that are there."),
    ("Which of these files are to be taken over?", "Which of these files should be applied to the folder?"),
    (
        "its call began, and a person said that it is not to be made again",
        "its call started, and a person chose not to repeat it",
    ),
)
"""Parts of texts of errors and questions in the wording of older versions, and in that of the current one."""
_FORMER_BOUND = re.compile(
    r"(\S+) is reached: (\S+) used, at most (\S+) allowed\. Raise the bound and go on, or stop\?"
)
"""Question about a bound of an envelope in the wording of older versions."""
_FORMER_OUTPUT = re.compile(r"(stage (?:'[^'\n]*'|\"[^\"\n]*\")) returned no ([^\n]*?), which it must\b")
"""Error about missing outputs of a stage in the wording of older versions."""


def in_present_wording(value: Any) -> Any:
    """Return plain data in which texts about budgets, and some other texts of questions and errors, are rewritten to
    the wording of the current version, so that logs of older versions can be compared.

    The value itself is returned if it contains no such text.
    """
    match value:
        case str():
            for former, present in _FORMER_TEXTS:
                if former in value:
                    value = value.replace(former, present)
            if ", which it must" in value:
                value = _FORMER_OUTPUT.sub(r"\1 must return \2, but did not", value)
            if _MARK not in value:
                return value
            value = _FORMER_BOUND.sub(r"\1 reached: \2 of \3 used. Raise the bound and continue, or stop?", value)
            return _REACHED.sub(_reworded, value)
        case list():
            return [in_present_wording(part) for part in value]
        case dict():
            return {name: in_present_wording(part) for name, part in value.items()}
    return value


def _reworded(match: re.Match[str]) -> str:
    """Return a recorded text about a budget in the wording of the current version. If no version of divebook can have
    written the text, return it unchanged.
    """
    bound = match["bound"] or "edges"
    # The unit is determined by the bound, so a text with another unit was written by a user.
    if _UNITS.get(bound) != match["unit"]:
        return match[0]
    amounts = (match["limit"], match["used"], match["edge"], match["reserved"], match["needed"])
    try:
        exhausted = Exhausted(bound, *amounts)
        if match["question"]:
            return asked_about(exhausted).question
        if match["agent"] is None:
            return str(exhausted)
        return bound_of_agent_exceeded(exhausted.summary, exhausted.name, match["agent"], match["owner"])
    except ArithmeticError:  # the amounts are not numbers
        return match[0]


_SPENT = frozenset({"duration", "usage", "held", "served", "trace", "raised"})
FREE: Mapping[str, frozenset[str]] = {
    "operation_started": frozenset({"reserved", "undone"}),
    "operation_completed": _SPENT,
    "operation_failed": _SPENT | {"final"},
    "interrupt_raised": frozenset({"expires_at"}),
    "step_retried": frozenset({"delay"}),
    "step_failed": frozenset({"operations", "trace", "place"}),
    "iteration_failed": frozenset({"trace", "place"}),
    "iteration_started": frozenset({"total"}),
    "rollback_added": frozenset({"function"}),
    "version_decision": frozenset({"min_version", "max_version"}),
}
"""Fields of each event type that are not compared: they come from a clock, a price list or randomness outside
operations, or contain places in code or the user who acted.

The failed operations of a step are not compared either: they determine what a resumption makes again, and older logs
contain only the first of several (`tests/replay/test_verify.py`)."""
_HASHES = ("parameters_hash", "setting_hash")
"""Hashes of other fields. They are not shown as differences, because people cannot read them."""
_MOST = 400
"""Maximum number of characters shown of a different field."""
_REPLACEABLE = frozenset({"model", "settings", SCRIPT})
"""Parts of an agent's setting that may be corrected while a turn waits. They are not compared."""


def is_same(recorded: Payload, data: Payload, failure: str = "") -> bool:
    """Return True if two event payloads are equal, except for the fields in `FREE`.

    Payloads are compared as JSON with sorted keys. Values that an export has hidden as secrets are not compared. Texts
    about budgets in the wording of an older version count as equal if all their amounts are equal.

    Parameters
    ----------
    failure
        Recorded error of a script in the wording of an older version: see `has_older_wording`.
    """
    if type(recorded) is not type(data):
        return False
    before = _compared(recorded)
    now = _compared(data)
    # The error class is in the texts of later events of the path too, so it is removed from both sides.
    if failure:
        before = _without_error_class(before, failure)
        now = _without_error_class(now, failure)
    if canonical_hash(before) == canonical_hash(now):
        return True
    # Only what differs is reworded, so that texts of a person's own that look like an older wording stay as they are
    # (test_texts_of_a_persons_own_are_compared_as_they_are).
    before = in_present_wording(before)
    now = in_present_wording(now)
    if canonical_hash(before) == canonical_hash(now):
        return True
    # The hashes cover the hidden values, so they differ even if all visible parts are equal. They are taken over from
    # the new value, but only if hidden values were found at all.
    uncovered = _uncovered(before, now)
    return uncovered != before and canonical_hash({**uncovered, **_hashes(now)}) == canonical_hash(now)


def _hashes(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in _HASHES if name in values}


def _uncovered(before: Any, now: Any) -> Any:
    """Return a recorded value in which the hidden secrets are replaced by the corresponding parts of a new value. An
    export hides secrets; without this, the two values could not be compared.
    """
    # A secret may be a part of a text: `key=[redacted]&n=1` fits `key=abc&n=1`, and no text with another end.
    if isinstance(before, str) and isinstance(now, str) and HIDDEN in before:
        around = ".*".join(re.escape(part) for part in before.split(HIDDEN))
        return now if re.fullmatch(around, now, re.DOTALL) else before
    if before == HIDDEN:
        return now
    if isinstance(before, dict) and isinstance(now, dict):
        return {name: _uncovered(part, now.get(name)) for name, part in before.items()}
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        return [_uncovered(part, new) for part, new in zip(before, now, strict=True)]
    return before


def has_older_wording(recorded: Payload, data: Payload) -> bool:
    """Return True if the failure of a script differs from a recorded one only because an older version of divebook did
    not record the class of the error.

    Older versions recorded only the error classes of divebook, not the class of the script's own error.
    """
    if not isinstance(recorded, catalog.OperationFailed) or not isinstance(data, catalog.OperationFailed):
        return False
    # Only scripts have classes of their own errors; the failures of other operations have always had theirs.
    if data.operation_type != SCRIPT_EXECUTION or not recorded.error:
        return False
    # The first name is the class of the script's own error, such as `KeyError`; the rest are classes of divebook.
    older_names = list(data.error_names or ())[1:]
    return list(recorded.error_names or ()) == older_names and is_same(recorded, replace(data, error_names=older_names))


def _without_error_class(value: Any, failure: str) -> Any:
    """Return a copy of a value in which error texts have the wording of an older version, so that it can be compared
    with an old log. A text that ends with `failure`, the older error text, is replaced by `failure`.

    The class of the error beside such a text is removed: older versions did not record it.
    """
    match value:
        case str():
            return failure if value.endswith(failure) else value
        case list():
            return [_without_error_class(part, failure) for part in value]
        # A caught error as the workflow sees it: `{"type": "KeyError", "message": "'x'"}`.
        case {"type": _, "message": str(message)} if message.endswith(failure):
            return _without_error_class({name: part for name, part in value.items() if name != "type"}, failure)
        case dict():
            return {name: _without_error_class(part, failure) for name, part in value.items()}
    return value


def _compared(data: Payload) -> Any:
    free = FREE.get(data.event_type, frozenset())
    values = {name: value for name, value in data.to_data().items() if name not in free}
    if isinstance(data, catalog.OperationStarted) and data.operation_type == TOOL_CALL:
        for name in ("setting", "setting_hash"):  # which rule allowed it, where rules are not asked again
            values.pop(name, None)
    elif isinstance(data, catalog.OperationStarted) and data.setting is not None:
        values["setting"] = {name: value for name, value in data.setting.items() if name not in _REPLACEABLE}
        if data.operation_type in ENCLOSING:  # its digest covers these too, and nothing that `setting` does not tell
            values.pop("setting_hash")
    # Fields of payloads are tuples in memory and lists in the log.
    return normalize({name: list(value) if isinstance(value, tuple) else value for name, value in values.items()})


def differing(recorded: Payload, data: Payload) -> Iterator[str]:
    """Yield the fields in which two event payloads of the same type differ, each as a text with both values: ``n:
    [-1-]{+3+}``. Yield nothing for different types.
    """
    if type(recorded) is not type(data):
        return
    # `None` for both hashes makes them equal, so that `parts` does not report them.
    before, now = map(_in_parts, (recorded, data))
    clean = shared().text
    for difference in parts(before, now):
        both = marked(clean(as_text(difference.before)), clean(as_text(difference.after)))
        place = difference.place.removeprefix("step_").removeprefix("parameters.").removeprefix("params.")
        yield f"{place}: {one_line(both, _MOST)}"


def _in_parts(data: Payload) -> Mapping[str, Any]:
    # Changes of variables are compared by name. `NOTHING` stands for a deleted variable, since None is a possible
    # value.
    if isinstance(data, catalog.StateMutated):
        return {change.key: change.value if change.type == "set" else NOTHING for change in data.mutations}
    return {**_compared(data), **dict.fromkeys(_HASHES)}


def fact_text(data: Payload, step: str) -> str:
    """Describe the payload of an event in a few words: ``action 'pay' with {"amount":5} in step 'pay'``."""
    where = f" in step {step!r}" if step else ""
    return f"{_fact_text(data)}{where}"


def _fact_text(data: Payload) -> str:
    # Calls, questions and changed variables have a short form; all other events are shown by their compared fields.
    match data:
        case catalog.OperationStarted():
            return operation_text(data.operation_type, data.parameters or {})
        case catalog.OperationCompleted():
            return f"{_kind_of(data)} returned {in_short(data.result)}"
        case catalog.OperationFailed():
            return f"{_kind_of(data)} failed: {in_short(data.error)}"
        case catalog.InterruptRaised():
            return f"the {data.kind} {in_short(data.question)}"
        case catalog.StateMutated():
            return ", ".join(
                f"{change.key} = {in_short(change.value)}" if change.type == "set" else f"{change.key} deleted"
                for change in data.mutations
            )
    values = {name: value for name, value in _compared(data).items() if name != "form"}
    return f"{data.event_type} {in_short(values)}"


def _kind_of(data: catalog.OperationCompleted | catalog.OperationFailed) -> str:
    return operation_kind(data.operation_type)
