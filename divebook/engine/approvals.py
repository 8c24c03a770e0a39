"""What becomes of a call of a tool: it is allowed, denied, or a person is asked. The only place that decides.

Of all rules that match the strictest holds, in whatever order they stand; where none does, the mode. What a person
allowed on a card turns asking into allowing, and never denying. A call that the log has is never judged again. Rules
and modes of a definition for which no person vouches only make the verdict stricter (`Approvals.stricter`).
"""

from __future__ import annotations

import functools
import hashlib
import posixpath
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from divebook.events import catalog
from divebook.questions import Question
from divebook.questions.question import CONFIRMATION
from divebook.text.patterns import Item, Repeated, WildcardMatcher
from divebook.workflow.servers import (
    ALLOW,
    ASK,
    DESTRUCTIVE,
    IF_DESTRUCTIVE,
    IF_NOT_READ_ONLY,
    OUTCOMES,
    READ_ONLY,
    UNKNOWN,
    ApprovalRule,
    Approvals,
)
from divebook.workflow.servers import ALWAYS as APPROVALS_ALWAYS
from divebook.workflow.tools import FileSpellings, ToolHints

# Whether a value is what a rule of approvals says: read narrowly where the rule allows, widely where it does not.
#
# A value of a rule is a text, in which ``*`` stands for any characters but ``/`` and ``**`` for any; or any other
# value, which stands for itself; or ``{equals: value}``, for a text with ``*`` in it that stands for itself.


EQUALS = "equals"
LONGEST = 10_000
"""Characters of the longest text that a pattern allows."""
_FORMS: Final = frozenset("./\\:@#?%* ")
"""Characters that give texts, paths and addresses their form; what only resembles them may be read as them."""
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories of characters that nobody sees."""
_TRUE = frozenset({"true", "1", "yes", "y", "on", "t"})
_FALSE = frozenset({"false", "0", "no", "n", "off", "f"})
_MOST_LAYERS = 4
_MOST_BITS = 10_000
"""Of a whole number that can be read."""
_DOTS: Final = "\u3002"
"""What names of hosts take for a dot, beside what unicode does."""
_BY_NUMBER = re.compile(r"(?:%[0-9a-fA-F]{2})+")
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*://)(?:[^/?#]*@)?([^/?#@]*?)\.?(?::[0-9]*)?([/?#].*)?")
"""An address: how it is reached, the name of its host without user, last dot and port, and the rest."""


def exactly(value: Any) -> Any:
    """Return what a rule says where it means this value and no other.

    >>> exactly("a.txt"), exactly("*.txt")
    ('a.txt', {'equals': '*.txt'})
    """
    return {EQUALS: value} if _is_pattern(value) or _is_exact(value) else value


def _is_pattern(wanted: Any) -> bool:
    return isinstance(wanted, str) and "*" in wanted


def _is_exact(wanted: Any) -> bool:
    return isinstance(wanted, Mapping) and set(wanted) == {EQUALS}


def is_allowed_by(wanted: Any, value: Any) -> bool:
    """Return whether a rule that allows names this value: type, capitals and unicode form count.

    A text that could be read in two ways matches no pattern: one with ``..`` in it, with characters that nobody sees,
    with a backslash, with a space at an end, or not in its composed unicode form.
    """
    if _is_exact(wanted):
        return is_same(wanted[EQUALS], value)
    if not _is_pattern(wanted):
        return is_same(wanted, value)
    if not isinstance(value, str) or (seen := _plainly(value)) is None:
        return False
    fits = _matcher(wanted).matches
    return fits(value) and (seen == value or fits(seen))


def is_same(wanted: Any, value: Any) -> bool:
    """Return whether two values are equal, and of the same types all through: ``1`` is neither ``True`` nor ``1.0``."""
    if isinstance(wanted, Mapping) and isinstance(value, Mapping):
        return wanted.keys() == value.keys() and all(is_same(wanted[key], value[key]) for key in wanted)
    if isinstance(wanted, list | tuple) and isinstance(value, list | tuple):
        return len(wanted) == len(value) and all(map(is_same, wanted, value))
    return type(wanted) is type(value) and bool(wanted == value)


def _plainly(text: str) -> str | None:
    """Return a text without percent signs for characters; None if it could be read in other ways as well."""
    seen = None if len(text) > LONGEST else _unquoted(text)
    if seen is None or text != text.strip() or not unicodedata.is_normalized("NFC", seen):
        return None
    if "\\" in seen or any(map(_is_doubtful, seen)):
        return None
    return None if any(part and not part.strip(". ") for part in seen.split("/")) else seen


def _unquoted(text: str) -> str | None:
    """Return a text without percent signs for characters, in however many layers; None if there is no end of them."""
    for _ in range(_MOST_LAYERS):
        found = _once_unquoted(text)
        if found == text:
            return text
        text = found
    return None


def _once_unquoted(text: str) -> str:
    return _BY_NUMBER.sub(lambda found: bytes.fromhex(found[0].replace("%", "")).decode("utf-8", "replace"), text)


def _is_doubtful(character: str) -> bool:
    """Return whether nobody sees a character, or it may be read as one that gives texts their form."""
    if character.isascii():
        return not character.isprintable()
    return _is_unseen(character) or bool(_FORMS & set(unicodedata.normalize("NFKC", character)))


def _is_any(_character: str) -> bool:
    return True


def _is_in_part(character: str) -> bool:
    return character != "/"


def _is_in_host(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character in "-.")


_ANY, _IN_PART, _IN_HOST = Repeated(_is_any), Repeated(_is_in_part), Repeated(_is_in_host)
"""Wildcards: for any characters, those of one part of a path, those of a host's name."""


@functools.lru_cache(maxsize=256)
def _matcher(pattern: str) -> WildcardMatcher:
    """Return the matcher of a pattern; in the host of an address ``*`` stands for its letters only."""
    scheme, colon, rest = pattern.partition("://")
    if not colon:
        return WildcardMatcher(_wildcards(pattern, _ANY, _IN_PART))
    host, slash, path = rest.partition("/")
    within = _wildcards(host, _IN_HOST, _IN_HOST) if slash or host.strip("*") else _wildcards(host, _ANY, _IN_HOST)
    start = [*_wildcards(scheme, _IN_HOST, _IN_HOST), *colon, *within, *slash]
    return WildcardMatcher([*start, *_wildcards(path, _ANY, _IN_PART)])


def _wildcards(pattern: str, double: Repeated, single: Repeated) -> list[Item]:
    items: list[Item] = []
    for index, piece in enumerate(pattern.split("**")):
        items += [double] if index else []
        items += [single if character == "*" else character for character in piece]
    return items


def is_met_by(wanted: Any, value: Any) -> bool:
    """Return whether a rule that asks or denies is about this value, in any way in which it could be meant.

    What stands in a list or in a mapping counts too, unless the rule says a list or a mapping itself.
    """
    plain = wanted[EQUALS] if (is_exact := _is_exact(wanted)) else wanted
    if isinstance(plain, list | tuple):
        return all(is_met_by(item, value) for item in plain)
    if isinstance(value, list | tuple):
        return any(is_met_by(wanted, item) for item in value)
    if isinstance(plain, Mapping):
        return isinstance(value, Mapping) and are_met_by(plain, value)
    if isinstance(value, Mapping):
        return any(is_met_by(wanted, item) for item in value.values())
    if plain is None or value is None:
        return plain is value
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return True  # nobody can read it, and no rule can be said not to mean it
    if isinstance(plain, bool):
        return _worded(value) in (_TRUE if plain else _FALSE)
    said = _worded(plain)
    pieces = [said] if is_exact else said.split("*")
    # A path from somewhere else may end in what is wanted.
    tail = ["", f"/{pieces[0]}", *pieces[1:]]
    may_end = not said.startswith(("/", "~", "*"))
    return any(
        _is_made_of(pieces, reading) or (may_end and reading.startswith(("/", "~")) and _is_made_of(tail, reading))
        for reading in _readings(value)
    )


def are_met_by(wanted: Mapping[str, Any], values: Mapping[Any, Any]) -> bool:
    """Return whether what stands under each name is meant; some readers take names as alike that differ in capitals."""
    read = [(_worded(name), value) for name, value in values.items()]
    names = [(_worded(name), said) for name, said in wanted.items()]
    return all(any(name == here and is_met_by(said, value) for here, value in read) for name, said in names)


def _worded(value: Any, between: str = " ") -> str:
    """Return a value as a text without regard to capitals, unicode form, what nobody sees, and spaces around it.

    `between` stands for ends of lines and tabs, which some readers take for spaces and others leave out.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", str(value)).casefold())
    there = set(folded)  # a text may be long: each character is looked at once
    table = {ord(c): between for c in there if c.isspace() and c != " "}
    table |= {ord(c): "" for c in there if ord(c) not in table and _is_unseen(c)}
    table |= dict.fromkeys(map(ord, _DOTS), ".")
    return folded.translate(table).strip()


def _is_unseen(character: str) -> bool:
    return unicodedata.category(character) in _UNSEEN


def _readings(value: Any) -> Iterator[str]:
    """Return the ways in which a value can be read: as it stands, without quotes, as a path, as an address."""
    for text in {_worded(value): None, _worded(value, ""): None}:
        yield text
        plain = _worded(_unquoted(text) or _once_unquoted(text), "").strip("'\"` ")
        yield plain
        yield from _paths(plain)
        yield from _addresses(plain)


def _paths(text: str) -> Iterator[str]:
    """Return a text as a path without detours."""
    path = posixpath.normpath("/".join(part.strip() for part in text.replace("\\", "/").split("/")))
    yield path[1:] if path.startswith("//") else path  # POSIX leaves two there, and means what one means
    if path.startswith("../"):
        yield "/" + path.replace("../", "")


def _addresses(text: str) -> Iterator[str]:
    """Return an address without the user, port and last dot of its host, which lead to the same place."""
    found = _ADDRESS.fullmatch(text.replace("\\", "/"))
    if found is None:
        return
    scheme, host, rest = found.groups("")
    path, mark, query = rest.partition("?")
    place = posixpath.normpath(path) if path else ""
    for ending in ("", "/") if place in ("", "/") else (place,):  # an address without a path has the path /
        yield f"{scheme}{host}{ending}{mark}{query}"
    if scheme == "file://":
        yield from _paths(path)


def _is_made_of(pieces: list[str], text: str) -> bool:
    """Return whether the text consists of the pieces with anything between them."""
    if len(pieces) == 1:
        return text == pieces[0]
    first, *inner, last = pieces
    if not (text.startswith(first) and text.endswith(last) and len(text) >= len(first) + len(last)):
        return False
    at = len(first)
    end = len(text) - len(last)
    for piece in inner:
        at = text.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


# A rule that a person made for calls to come, while an execution was under way.


class StandingRule(NamedTuple):
    """What a person has said of calls to come: of those that are like the one that was approved, and no others."""

    rule_id: str
    outcome: str
    tool: str
    kind: str = "tool"
    """``tool``, ``action`` or ``step``."""
    # None is a call that no agent makes, and a tool of no server.
    agent: str | None = None
    server: str | None = None
    arguments: Mapping[str, Any] | None = None
    """What the arguments must be, by name."""
    scope: str = "run"
    """``run`` or ``always``."""
    expires_us: int | None = None
    """When it holds no more, microseconds since 1970."""
    question: str | None = None
    """Id of the question whose answer made it."""
    by: str | None = None
    added_us: int = 0


TOOL = "tool"
BY_PERSON, BY_RULE = "User denied tool call", "A rule denies"
"""How what a model hears of a call begins that was denied, with the reason after it if there is one."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that is about to be made, as its tool has validated it."""

    tool: str
    arguments: Mapping[str, Any]
    agent: str = ""
    """Who calls; empty where no agent does."""
    server: str = ""
    """The MCP server of the tool, if it has one."""
    hints: ToolHints = field(default_factory=ToolHints)
    """What the tool says of itself; of a server that is not trusted only what makes it stricter."""
    asks: bool = False
    """Whether the tool itself wants a person's yes (``approval=True``)."""
    mode: str = IF_NOT_READ_ONLY
    """The mode that holds where neither a rule nor the table's own modes decide."""
    kind: str = TOOL
    """What is called: ``tool``, ``action`` or ``step``."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What arguments are where a caller says nothing of them: to have that is to be left out."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that a definition has fixed; no caller gives them."""
    rule_name: str = ""
    """The name by which rules know the tool, where a definition has renamed it."""
    files: FileSpellings | None = None
    """Which arguments name files, if any do."""
    spellings: tuple[Mapping[str, Any], ...] = ()
    """The arguments with the real paths of the files that they reach; empty where no file is named."""


class Approved(NamedTuple):
    """A call that may be made."""

    arguments: dict[str, Any]
    """Those that were asked for, or what a person made of them."""
    rule: str = ""
    """What decided; empty where the log has the call."""


class Denied(NamedTuple):
    """A call that may not be made."""

    text: str
    """What a model hears."""
    reason: str = ""
    rule: str = ""
    """What decided; empty where a person did."""


class Verdict(NamedTuple):
    """What becomes of a call."""

    outcome: str
    """``allow``, ``ask`` or ``deny``."""
    rule: str
    """What decided, for people and the log: a rule in words, a mode, or the id of a standing rule."""
    reason: str = ""
    """Why, if the rule says it."""


def verdict_of(table: Approvals, standing: Iterable[StandingRule], call: ToolCall, now_us: int) -> Verdict:
    """Return what becomes of a call now."""
    found = _strictest(table, call, now_us)
    if found.outcome != ASK:
        return found
    allowing = (rule for rule in standing if _holds(rule.expires_us, now_us) and _is_covered(rule, call))
    rule = next(allowing, None)
    return found if rule is None else Verdict(ALLOW, rule.rule_id)


def _strictest(table: Approvals, call: ToolCall, now_us: int) -> Verdict:
    stricter = table.stricter or Approvals()
    rules = (*table.rules, *(rule for rule in stricter.rules if rule.outcome != ALLOW))
    matching = (rule for rule in rules if _holds(rule.expires_us, now_us) and _matches(rule, call))
    found = [Verdict(rule.outcome, rule.in_words, rule.reason) for rule in matching]
    if call.asks:
        found.append(Verdict(ASK, ""))
    if found:
        return max(found, key=lambda verdict: OUTCOMES.index(verdict.outcome))
    mode = table.mode_for(call.server) or call.mode
    beside = stricter.mode_for(call.server)
    if beside and asks(beside, call.hints):
        return Verdict(ASK, beside)
    return Verdict(ASK if asks(mode, call.hints) else ALLOW, mode)


def asks(mode: str, hints: ToolHints | None) -> bool:
    """Return whether a mode asks about a tool with these hints; where no tool is known, only ``always`` does."""
    if mode == APPROVALS_ALWAYS or hints is None:
        return mode == APPROVALS_ALWAYS
    if mode == IF_NOT_READ_ONLY:
        return hints.read_only is not True or hints.destructive is True
    return mode == IF_DESTRUCTIVE and hints.destructive is True


def _holds(expires_us: int | None, now_us: int) -> bool:
    return expires_us is None or now_us < expires_us


def _matches(rule: ApprovalRule, call: ToolCall) -> bool:
    """Return whether a rule is about a call: one that allows must name it, of any other it is enough that it could."""
    fits = is_allowed_by if rule.outcome == ALLOW else is_met_by
    tools = _names_of(call, rule)
    if call.rule_name:  # what is allowed for a name is not allowed for a tool that a definition gives that name
        tools = [call.rule_name] if rule.outcome == ALLOW else [*tools, call.rule_name]
    named = ((rule.agent, call.agent), (rule.server, call.server))
    if not any(fits(rule.tool, tool) for tool in tools):
        return False
    if not all(pattern is None or (name and fits(pattern, name)) for pattern, name in named):
        return False
    return _has_effect(rule, call.hints) and _takes(rule, call)


_NO_SLASH = "\N{DIVISION SLASH}"


def _names_of(call: ToolCall, rule: ApprovalRule) -> list[str]:
    """Return the names by which a rule may mean the tool of a call.

    Servers name their tools, also with ``/``. A rule that allows ``files/read`` means the tool ``read`` of the server
    ``files``, and not one that another server calls so: there the ``/`` of a tool's own name stands for nothing.
    """
    if not call.server:
        return [call.tool]
    names = [call.tool.replace("/", _NO_SLASH), f"{call.server}/{call.tool}"]
    return names if rule.outcome == ALLOW else [*names, call.tool]


def _has_effect(rule: ApprovalRule, hints: ToolHints) -> bool:
    said = {
        None: True,
        READ_ONLY: hints.read_only is True and (rule.outcome != ALLOW or hints.destructive is not True),
        DESTRUCTIVE: hints.destructive is True,
        UNKNOWN: hints.read_only is not True and hints.destructive is not True,
    }
    return said[rule.when]


def _takes(rule: ApprovalRule, call: ToolCall) -> bool:
    if rule.arguments is None:
        return True
    if rule.outcome == ALLOW:
        return _are_exactly(rule.arguments, call)
    return any(are_met_by(rule.arguments, {**call.fixed, **given}) for given in (call.arguments, *call.spellings))


def _are_exactly(wanted: Mapping[str, Any], call: ToolCall) -> bool:
    """Return whether the arguments are those that are wanted, and no more; files are judged by their real paths."""
    return any(_is_exactly(wanted, given, call.defaults) for given in call.spellings or (call.arguments,))


def _is_exactly(wanted: Mapping[str, Any], given: Mapping[str, Any], defaults: Mapping[str, Any]) -> bool:
    more = [name for name in given if name not in wanted]
    return all(name in given and is_allowed_by(wanted[name], given[name]) for name in wanted) and all(
        name in defaults and is_same(defaults[name], given[name]) for name in more
    )


def _is_covered(rule: StandingRule, call: ToolCall) -> bool:
    names = (rule.kind, rule.tool, rule.agent or "", rule.server or "")
    if rule.outcome != ALLOW or rule.arguments is None or names != (call.kind, call.tool, call.agent, call.server):
        return False
    return _are_exactly(rule.arguments, call)


# What a person is shown of a call that waits for a yes, what may be answered, and the rule that an answer makes.


RUN, ALWAYS = "run", "always"
"""Where a rule holds: in the execution that made it, or in all of its store."""
DAY = 24 * 60 * 60
LASTS, LONGEST_RULE_SECONDS = DAY, 90 * DAY
"""Seconds for which a rule for every execution holds: where nothing is said, and at most."""
OFFERS = "offers"
_MICROSECONDS = 1_000_000
_NOT_OURS: Final = frozenset({"$schema", "$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"})
_RULE: Final = {
    "type": "object",
    "properties": {
        "scope": {"enum": [RUN, ALWAYS]},
        "expires_in": {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_RULE_SECONDS},
        "arguments": {"type": "object"},
    },
    "required": ["scope"],
    "additionalProperties": False,
}


def shown_on_card(call: ToolCall, rule: str) -> dict[str, Any]:
    """Return what a card shows of a call; `rule` is what wants the question."""
    about = {"agent": call.agent, "server": call.server, "hints": call.hints.to_dict(), "rule": rule}
    offers = {"scopes": [RUN, ALWAYS], "expires_in": LASTS}
    return {
        call.kind: call.tool,
        "parameters": dict(call.arguments),
        **{name: value for name, value in about.items() if value},
        OFFERS: offers,
    }


def schema_of_answer(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the JSON schema of what may come with a yes: other arguments, and a rule for calls to come.

    Parameters
    ----------
    arguments
        JSON schema of the arguments, perhaps of a server's making: what it refers to elsewhere is never looked up
        (test_a_schema_that_refers_to_an_address_is_not_looked_up).
    """
    within = embedded({"type": "object"} if arguments is None else arguments, "#/properties/parameters")
    properties = {"parameters": within, "rule": _RULE}
    return {"type": "object", "properties": properties, "minProperties": 1, "additionalProperties": False}


def embedded(schema: Any, place: str) -> Any:
    """Return a schema as it must stand within another one, at a JSON pointer such as ``#/anyOf/0``."""
    if isinstance(schema, list | tuple):
        return [embedded(item, place) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    left_out = {key for key, value in schema.items() if key in _NOT_OURS and isinstance(value, str)}
    kept = {key: embedded(value, place) for key, value in schema.items() if key not in left_out}
    reference = kept.get("$ref")
    if isinstance(reference, str):
        del kept["$ref"]
        if reference == "#" or reference.startswith("#/"):
            kept["$ref"] = f"{place}{reference[1:]}"
    return kept


def rule_id_of(execution_id: str, question_id: str) -> str:
    """Return the name of the rule that the answer to a question makes.

    It names the execution: questions of a copy have the ids of the original's, and its rules are not the copy's.
    """
    return f"rule_{hashlib.sha256(f'{execution_id}/{question_id}'.encode()).hexdigest()[:16]}"


def rule_made(
    execution_id: str, question: Question, response: Mapping[str, Any], by: str | None, at_us: int
) -> catalog.ApprovalRuleAdded | None:
    """Return the rule that an answer makes, if it makes one: nobody makes rules but by approving what a card shows."""
    data = question.data or {}
    told = response.get("data") or {}
    wanted = told.get("rule") if isinstance(told, Mapping) else None
    if question.kind != CONFIRMATION or OFFERS not in data or response.get("approved") is not True or not wanted:
        return None
    kind = next(kind for kind in (TOOL, "action", "step") if kind in data)
    approved = told.get("parameters", data["parameters"])
    lasts = wanted.get("expires_in", LASTS if wanted["scope"] == ALWAYS else None)
    return catalog.ApprovalRuleAdded(
        rule_id_of(execution_id, question.id),
        "allow",
        data[kind],
        None if kind == TOOL else kind,
        data.get("agent"),
        data.get("server"),
        wanted.get("arguments", {name: exactly(value) for name, value in approved.items()}),
        wanted["scope"],
        None if lasts is None else at_us + int(lasts * _MICROSECONDS),
        question.id,
        by,
    )


def rules_of_run(execution_id: str, rules: Iterable[StandingRule]) -> list[StandingRule]:
    """Return the rules that were made in this execution, and not in the one that it is a copy of."""
    return [rule for rule in rules if rule.rule_id == rule_id_of(execution_id, rule.question or "")]
