"""Approval of tool calls: rules decide whether a call is allowed, is denied, or needs the answer of a person. No other
code decides this.

Of all matching rules the strictest applies, in any order; if none matches, the mode applies (for example "ask unless
the tool is read-only"). A standing rule, which a person made while answering an earlier approval question, turns "ask"
into "allow", but never "deny". A recorded call is never judged again. Rules and modes of a definition that no person
has confirmed only make the verdict stricter (`Approvals.stricter`).

Rules that allow are read narrowly, rules that ask or deny widely: ``docs/*`` in a rule that allows matches "docs/a.md"
but not "docs/../key" or "DOCS/a.md"; in a rule that denies it matches all of them.
"""

from __future__ import annotations

import functools
import posixpath
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from divebook.definitions.resources import (
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
from divebook.definitions.resources import ALWAYS as APPROVALS_ALWAYS
from divebook.definitions.tools import FileSpellings, ToolHints
from divebook.events import catalog
from divebook.events.event import MICROSECONDS, hashed_id, to_datetime
from divebook.questions import Question
from divebook.questions.question import CONFIRMATION
from divebook.text.patterns import Item, Repeated, WildcardMatcher

# --- comparing a value with a rule -----------------------------------------------------------------------------------
#
# A value in a rule is a string, in which ``*`` stands for any characters except ``/`` and ``**`` for any characters; or
# any other value, which stands for itself; or ``{equals: value}``, for a string with a literal ``*``.


EQUALS = "equals"
LONGEST = 10_000
"""Longest string, in characters, that a pattern of a rule that allows matches."""
_FORMS: Final = frozenset("./\\:@#?%* ")
"""Characters that structure paths and addresses. Similar characters may be read as these."""
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories of invisible characters."""
_TRUE = frozenset({"true", "1", "yes", "y", "on", "t"})
_FALSE = frozenset({"false", "0", "no", "n", "off", "f"})
_MOST_LAYERS = 4
_MOST_BITS = 10_000
"""Size in bits of the largest integer that is compared."""
_DOTS: Final = "\u3002"
"""Characters that count as a dot in host names, beside those that Unicode normalization converts to one."""
_BY_NUMBER = re.compile(r"(?:%[0-9a-fA-F]{2})+")
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*://)(?:[^/?#]*@)?([^/?#@]*?)\.?(?::[0-9]*)?([/?#].*)?")
"""Address: scheme, host without user, last dot and port, and the rest."""


def exactly(value: Any) -> Any:
    """Return the value to write into a rule so that the rule matches exactly `value`. A string with ``*``, which would
    be read as a pattern, is wrapped. Any other value stays unchanged.

    >>> exactly("a.txt"), exactly("*.txt")
    ('a.txt', {'equals': '*.txt'})
    """
    return {EQUALS: value} if _is_pattern(value) or _is_exact(value) else value


def _is_pattern(pattern: Any) -> bool:
    return isinstance(pattern, str) and "*" in pattern


def _is_exact(pattern: Any) -> bool:
    return isinstance(pattern, Mapping) and set(pattern) == {EQUALS}


def is_allowed_by(pattern: Any, value: Any) -> bool:
    """Return whether the value of an argument matches the value or pattern that a rule has for it, if the rule allows
    calls. Type, case and Unicode form must be the same.

    A string that can be read in two ways matches no pattern: one with ``..``, with invisible characters, with a
    backslash, with a space at an end, or not in composed Unicode form.
    """
    if _is_exact(pattern):
        return is_same(pattern[EQUALS], value)
    if not _is_pattern(pattern):
        return is_same(pattern, value)
    # A value and its decoded form must both match. "docs/a%2Fb" matches "docs/*" as it is, but a program may read it as
    # "docs/a/b", so it is not allowed. In a rule that denies, either form is enough (`is_met_by`).
    plain = _plainly(value) if isinstance(value, str) else None
    if plain is None:
        return False
    matches = _matcher(pattern).matches
    return matches(value) and (plain == value or matches(plain))


def is_same(expected: Any, value: Any) -> bool:
    """Return whether two values are equal and have the same types at all levels: ``1`` equals neither ``True`` nor
    ``1.0``.
    """
    # Containers first, since their classes may differ: a tuple in a rule equals a list of the same items in a call.
    if isinstance(expected, Mapping) and isinstance(value, Mapping):
        return expected.keys() == value.keys() and all(is_same(expected[key], value[key]) for key in expected)
    if isinstance(expected, list | tuple) and isinstance(value, list | tuple):
        return len(expected) == len(value) and all(map(is_same, expected, value))
    return type(expected) is type(value) and bool(expected == value)


def _plainly(text: str) -> str | None:
    """Return a text with percent-encoding decoded. Return None if programs could read the text in more than one way."""
    plain = None if len(text) > LONGEST else _percent_decoded(text)
    if plain is None or text != text.strip() or not unicodedata.is_normalized("NFC", plain):
        return None
    # A backslash separates folders on Windows and is part of a name elsewhere.
    if "\\" in plain or any(map(_is_doubtful, plain)):
        return None
    # Parts that consist of dots and spaces, such as "..", ". ." or "...", are parents or nothing at all, depending on
    # the system. An empty part is harmless: "a//b".
    return None if any(part and not part.strip(". ") for part in plain.split("/")) else plain


def _percent_decoded(text: str) -> str | None:
    """Return a text with all layers of percent-encoding decoded. Return None if there are `_MOST_LAYERS` layers or
    more.
    """
    # "%252e" -> "%2e" -> "." has two layers. The last round only shows that nothing is left to decode.
    for _ in range(_MOST_LAYERS):
        decoded = _percent_decoded_once(text)
        if decoded == text:
            return text
        text = decoded
    return None


def _percent_decoded_once(text: str) -> str:
    return _BY_NUMBER.sub(lambda match: bytes.fromhex(match[0].replace("%", "")).decode("utf-8", "replace"), text)


def _is_doubtful(character: str) -> bool:
    """Return whether a character is invisible, or may be read as a character that structures paths and addresses."""
    if character.isascii():
        return not character.isprintable()
    # NFKC converts look-alikes: the fullwidth "\uff0f" becomes "/", so "docs\uff0fa" could be read as a path.
    return _is_invisible(character) or bool(_FORMS & set(unicodedata.normalize("NFKC", character)))


def _is_any(_character: str) -> bool:
    return True


def _is_in_part(character: str) -> bool:
    return character != "/"


def _is_in_host(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character in "-.")


_ANY, _IN_PART, _IN_HOST = Repeated(_is_any), Repeated(_is_in_part), Repeated(_is_in_host)
"""Wildcards for any characters, for those of one part of a path, and for those of a host name."""


@functools.lru_cache(maxsize=256)
def _matcher(pattern: str) -> WildcardMatcher:
    """Return the compiled matcher for a pattern with the wildcards ``*`` and ``**``. In the host of an address, ``*``
    matches characters of host names only.
    """
    # In the host of an address, ``*`` must not reach over its end. "https://*.example.com/**" matches
    # "https://a.example.com/x", and not "https://evil.com?.example.com/x".
    scheme, colon, remainder = pattern.partition("://")
    if not colon:
        return WildcardMatcher(_wildcards(pattern, _ANY, _IN_PART))
    host, slash, path = remainder.partition("/")
    # "https://**" consists of wildcards after the scheme: it means every address, with its path.
    host_items = _wildcards(host, _IN_HOST, _IN_HOST) if slash or host.strip("*") else _wildcards(host, _ANY, _IN_HOST)
    start = [*_wildcards(scheme, _IN_HOST, _IN_HOST), *colon, *host_items, *slash]
    return WildcardMatcher([*start, *_wildcards(path, _ANY, _IN_PART)])


def _wildcards(pattern: str, double: Repeated, single: Repeated) -> list[Item]:
    items: list[Item] = []
    # "a/**/*.md" -> "a", "/", double, "/", single, ".", "m", "d".
    for index, piece in enumerate(pattern.split("**")):
        items += [double] if index else []
        items += [single if character == "*" else character for character in piece]
    return items


def is_met_by(pattern: Any, value: Any) -> bool:
    """Return whether an argument of a tool call matches the pattern of a rule that asks a person or denies the call. A
    text may have several meanings, such as a path with ``..``; one matching meaning is enough, to be on the safe side.
    Rules that allow a call use `is_allowed_by`.

    The items of a list or mapping count too, unless the rule has a list or a mapping itself.
    """
    # Containers first, because "any item that matches" is enough for a rule that asks or denies. A rule with a list or
    # a mapping is itself taken apart.
    is_exact = _is_exact(pattern)
    plain = pattern[EQUALS] if is_exact else pattern
    if isinstance(plain, list | tuple):
        return all(is_met_by(item, value) for item in plain)
    if isinstance(value, list | tuple):
        return any(is_met_by(pattern, item) for item in value)
    if isinstance(plain, Mapping):
        return isinstance(value, Mapping) and are_met_by(plain, value)
    if isinstance(value, Mapping):
        return any(is_met_by(pattern, item) for item in value.values())
    if plain is None or value is None:
        return plain is value
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return True  # too large to compare, so the rule may mean it
    # Programs read booleans from text: a rule with True also means "yes", "1" and 1.
    if isinstance(plain, bool):
        return _normalized(value) in (_TRUE if plain else _FALSE)
    text = _normalized(plain)
    pieces = [text] if is_exact else text.split("*")
    # An absolute path may end in the relative path of the rule: "docs/*" also means "/home/ada/docs/a".
    tail = ["", f"/{pieces[0]}", *pieces[1:]]
    may_end = not text.startswith(("/", "~", "*"))
    return any(
        _is_made_of(pieces, reading) or (may_end and reading.startswith(("/", "~")) and _is_made_of(tail, reading))
        for reading in _readings(value)
    )


def are_met_by(patterns: Mapping[str, Any], values: Mapping[Any, Any]) -> bool:
    """Return whether the arguments of a call match all entries of a rule that asks or denies. Names of arguments are
    compared without case.
    """
    arguments = [(_normalized(name), value) for name, value in values.items()]
    entries = [(_normalized(name), pattern) for name, pattern in patterns.items()]
    return all(
        any(name == other and is_met_by(pattern, value) for other, value in arguments) for name, pattern in entries
    )


def _normalized(value: Any, separator: str = " ") -> str:
    """Return a value as a string for comparisons that ignore case, Unicode form, invisible characters and surrounding
    spaces.

    `separator` replaces line ends and tabs, which some programs read as spaces and others ignore.
    """
    # 5.0 and 5 have the same text.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    # Folding the case can produce text that is not normalized, so the result is normalized once more.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", str(value)).casefold())
    characters = set(folded)  # a text may be long, so each character is examined once
    table = {ord(c): separator for c in characters if c.isspace() and c != " "}
    table |= {ord(c): "" for c in characters if ord(c) not in table and _is_invisible(c)}
    table |= dict.fromkeys(map(ord, _DOTS), ".")
    return folded.translate(table).strip()


def _is_invisible(character: str) -> bool:
    return unicodedata.category(character) in _INVISIBLE


def _readings(value: Any) -> Iterator[str]:
    """Yield the different strings that a program may get from the value of an argument: the value unchanged, without
    quotes, as a file path, and as an address (URL).
    """
    # A dict keeps the order and drops the second text if it equals the first. Example: "a<tab>b" is read as "a b" and
    # as "ab".
    for text in {_normalized(value): None, _normalized(value, ""): None}:
        yield text
        plain = _normalized(_percent_decoded(text) or _percent_decoded_once(text), "").strip("'\"` ")
        yield plain
        yield from _paths(plain)
        yield from _addresses(plain)


def _paths(text: str) -> Iterator[str]:
    """Yield the normalized file paths that a text can mean, and for a path that leaves its folder (``../``) the
    absolute path.
    """
    path = posixpath.normpath("/".join(part.strip() for part in text.replace("\\", "/").split("/")))
    yield path[1:] if path.startswith("//") else path  # `normpath` keeps two leading slashes, which mean one
    if path.startswith("../"):
        # "../../etc/passwd" reaches "/etc/passwd" if it leads far enough up.
        yield "/" + path.replace("../", "")


def _addresses(text: str) -> Iterator[str]:
    """Yield the forms of an address (URL) that are compared with an approval rule: without user, port and last dot of
    the host, which a rule does not have to mention. Yield nothing if the text is not an address.
    """
    # "https://ada@host.:443/a/../b?q" -> "https://host/b?q".
    match = _ADDRESS.fullmatch(text.replace("\\", "/"))
    if match is None:
        return
    scheme, host, remainder = match.groups("")
    path, mark, query = remainder.partition("?")
    place = posixpath.normpath(path) if path else ""
    for ending in ("", "/") if place in ("", "/") else (place,):  # an address without a path has the path /
        yield f"{scheme}{host}{ending}{mark}{query}"
    if scheme == "file://":
        yield from _paths(path)


def _is_made_of(pieces: list[str], text: str) -> bool:
    """Return whether a text consists of the literal pieces of a pattern, in this order, with any characters between
    them.
    """
    if len(pieces) == 1:
        return text == pieces[0]
    # Each inner piece is taken at its first position behind the piece before it. A later position would only leave less
    # text for the others, so the search needs no way back and its time is linear
    # (test_a_pattern_with_many_stars_is_quick).
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


# --- verdicts --------------------------------------------------------------------------------------------------------


class StandingRule(NamedTuple):
    """Approval rule that a person created while answering an approval question. It allows or denies later calls of the
    same tool with these arguments.
    """

    rule_id: str
    outcome: str
    tool: str
    kind: str = "tool"
    """``tool``, ``action`` or ``step``."""
    agent: str | None = None
    """Agent that makes the call; None if the call is not made by an agent."""
    server: str | None = None
    """MCP server of the tool; None if it has none."""
    arguments: Mapping[str, Any] | None = None
    """Values that the arguments must have, by name."""
    scope: str = "run"
    """``run`` or ``always``."""
    expires_us: int | None = None
    """End of its validity in microseconds since 1970."""
    question: str | None = None
    """Id of the question whose answer created it."""
    by: str | None = None
    added_us: int = 0

    @property
    def added_at(self) -> datetime:
        """Time in UTC at which the person created the rule."""
        return to_datetime(self.added_us)

    @property
    def expires_at(self) -> datetime | None:
        """End of its validity in UTC; None if the rule does not expire."""
        return None if self.expires_us is None else to_datetime(self.expires_us)


TOOL = "tool"
BY_PERSON, BY_RULE = "User denied tool call", "A rule denies"
"""Beginnings of the text that a model gets for a denied call. The reason follows, if there is one."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """Call of a tool, an action or a step that the approval rules must decide about. Its arguments are validated."""

    tool: str
    arguments: Mapping[str, Any]
    agent: str = ""
    """Agent that makes the call; empty if no agent does."""
    server: str = ""
    """MCP server of the tool, if it has one."""
    hints: ToolHints = field(default_factory=ToolHints)
    """Hints of the tool about its effects. Hints of an untrusted server count only if they are stricter."""
    asks: bool = False
    """True if the tool always requires approval (``approval=True``)."""
    mode: str = IF_NOT_READ_ONLY
    """Approval mode that applies if no rule matches and the table has no mode."""
    kind: str = TOOL
    """Kind of the callee: ``tool``, ``action`` or ``step``."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Defaults of arguments. An argument with its default counts as absent."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that a definition has fixed, so that the caller cannot set them."""
    rule_name: str = ""
    """Name of the tool in rules, if a definition has renamed it."""
    files: FileSpellings | None = None
    """Arguments that name files, if there are any."""
    spellings: tuple[Mapping[str, Any], ...] = ()
    """Arguments with the real paths of the files that they reach; empty if no argument names a file."""


class Approved(NamedTuple):
    """Decision of the approval rules, or of a person, to make a call, with its final arguments."""

    arguments: dict[str, Any]
    """Requested arguments, or those that a person edited."""
    rule: str = ""
    """Rule or mode that decided; empty if the log has the call."""


class Denied(NamedTuple):
    """Decision of the approval rules, or of a person, not to make a call, with the reasons."""

    text: str
    """Text that the model gets instead of a result."""
    reason: str = ""
    rule: str = ""
    """Rule that decided; empty if a person did."""


class Verdict(NamedTuple):
    """Decision of the approval rules about a call (allow it, ask a person, or deny it), with the rule and its
    reason.
    """

    outcome: str
    """``allow``, ``ask`` or ``deny``."""
    rule: str
    """Rule that decided, for people and the log: a rule as text, a mode, or the id of a standing rule."""
    reason: str = ""
    """Reason of the rule, if it has one."""


def verdict_of(table: Approvals, standing: Iterable[StandingRule], call: ToolCall, now_us: int) -> Verdict:
    """Return the decision about a call at the time `now_us` (microseconds since 1970). The rules of `table` decide;
    where they would ask a person, a standing rule may allow the call.
    """
    verdict = _strictest(table, call, now_us)
    if verdict.outcome != ASK:
        return verdict
    # A standing rule takes the place of the question, and never overrides a denial.
    allowing = (rule for rule in standing if _holds(rule.expires_us, now_us) and _is_covered(rule, call))
    rule = next(allowing, None)
    return verdict if rule is None else Verdict(ALLOW, rule.rule_id)


def _strictest(table: Approvals, call: ToolCall, now_us: int) -> Verdict:
    stricter = table.stricter or Approvals()
    # Rules that no person has confirmed may only make the decision stricter, so those that allow are left out.
    rules = (*table.rules, *(rule for rule in stricter.rules if rule.outcome != ALLOW))
    # All matching rules count, whatever their order. `OUTCOMES` is sorted from lenient to strict: allow, ask, deny.
    matching = (rule for rule in rules if _holds(rule.expires_us, now_us) and _matches(rule, call))
    verdicts = [Verdict(rule.outcome, rule.in_words, rule.reason) for rule in matching]
    if call.asks:
        verdicts.append(Verdict(ASK, ""))
    # A matching rule replaces the mode, also if the rule is more lenient.
    if verdicts:
        return max(verdicts, key=lambda verdict: OUTCOMES.index(verdict.outcome))
    mode = table.mode_for(call.server) or call.mode
    # Like its rules, the mode of an unconfirmed definition can only add a question.
    stricter_mode = stricter.mode_for(call.server)
    if stricter_mode and asks(stricter_mode, call.hints):
        return Verdict(ASK, stricter_mode)
    return Verdict(ASK if asks(mode, call.hints) else ALLOW, mode)


def asks(mode: str, hints: ToolHints | None) -> bool:
    """Return whether an approval mode requires that a person is asked before a tool with these hints about its effects
    is called. Without hints, only the mode ``always`` does.
    """
    if mode == APPROVALS_ALWAYS or hints is None:
        return mode == APPROVALS_ALWAYS
    # A tool that says both is taken as destructive. Unknown effects (None) are not read-only.
    if mode == IF_NOT_READ_ONLY:
        return hints.read_only is not True or hints.destructive is True
    return mode == IF_DESTRUCTIVE and hints.destructive is True


def _holds(expires_us: int | None, now_us: int) -> bool:
    return expires_us is None or now_us < expires_us


def _matches(rule: ApprovalRule, call: ToolCall) -> bool:
    """Return whether an approval rule applies to a call. For a rule that allows calls, type, case and Unicode form must
    be the same. A rule that asks or denies also applies if a program could read an argument in another way that
    matches.
    """
    matches = is_allowed_by if rule.outcome == ALLOW else is_met_by
    tools = _names_of(call, rule)
    if call.rule_name:  # a tool that a definition has renamed is not allowed under its new name
        tools = [call.rule_name] if rule.outcome == ALLOW else [*tools, call.rule_name]
    if not any(matches(rule.tool, tool) for tool in tools):
        return False
    for pattern, name in ((rule.agent, call.agent), (rule.server, call.server)):
        # A rule for agents or servers does not apply to calls without one, not even with the pattern ``*``.
        if pattern is not None and not (name and matches(pattern, name)):
            return False
    return _has_effect(rule, call.hints) and _takes(rule, call)


_NO_SLASH = "\N{DIVISION SLASH}"


def _names_of(call: ToolCall, rule: ApprovalRule) -> list[str]:
    """Return all names by which a rule may name the tool of a call, such as ``read`` and ``files/read``.

    The names of a server's tools may contain ``/``. A rule that allows ``files/read`` means the tool ``read`` of the
    server ``files``, not a tool with the name ``files/read`` of another server. A ``/`` in the name of a tool is
    therefore replaced.
    """
    if not call.server:
        return [call.tool]
    names = [call.tool.replace("/", _NO_SLASH), f"{call.server}/{call.tool}"]
    return names if rule.outcome == ALLOW else [*names, call.tool]


def _has_effect(rule: ApprovalRule, hints: ToolHints) -> bool:
    # By the effect that a rule names (`when`). A tool that says both, read-only and destructive, is not allowed as
    # read-only, and is asked about or denied as either.
    effects = {
        None: True,
        READ_ONLY: hints.read_only is True and (rule.outcome != ALLOW or hints.destructive is not True),
        DESTRUCTIVE: hints.destructive is True,
        UNKNOWN: hints.read_only is not True and hints.destructive is not True,
    }
    return effects[rule.when]


def _takes(rule: ApprovalRule, call: ToolCall) -> bool:
    if rule.arguments is None:
        return True
    if rule.outcome == ALLOW:
        return _are_exactly(rule.arguments, call)
    # One spelling of a file that matches is enough. Arguments that a definition has fixed count as well.
    return any(
        are_met_by(rule.arguments, {**call.fixed, **arguments}) for arguments in (call.arguments, *call.spellings)
    )


def _are_exactly(patterns: Mapping[str, Any], call: ToolCall) -> bool:
    """Return whether all arguments of a call match a rule that allows, and all further arguments have their defaults.
    Arguments that name files are compared by their real paths.
    """
    return any(_is_exactly(patterns, arguments, call.defaults) for arguments in call.spellings or (call.arguments,))


def _is_exactly(patterns: Mapping[str, Any], arguments: Mapping[str, Any], defaults: Mapping[str, Any]) -> bool:
    for name, pattern in patterns.items():
        if name not in arguments or not is_allowed_by(pattern, arguments[name]):
            return False
    # An argument that the rule does not name must have its default value.
    extra = [name for name in arguments if name not in patterns]
    return all(name in defaults and is_same(defaults[name], arguments[name]) for name in extra)


def _is_covered(rule: StandingRule, call: ToolCall) -> bool:
    names = (rule.kind, rule.tool, rule.agent or "", rule.server or "")
    # A person allowed one kind of call with these arguments. Without arguments the rule would allow all calls.
    if rule.outcome != ALLOW or rule.arguments is None or names != (call.kind, call.tool, call.agent, call.server):
        return False
    return _are_exactly(rule.arguments, call)


# --- the question about a call, and the rule that an answer creates --------------------------------------------------


RUN, ALWAYS = "run", "always"
"""Scopes of a rule: the execution in which it was created, or all executions of the store."""
DAY = 24 * 60 * 60
LASTS, LONGEST_RULE_SECONDS = DAY, 90 * DAY
"""Validity in seconds of a rule for all executions: the default, and the longest."""
OFFERS = "offers"
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
    """Return the data of the approval question about a call, which is shown to a person on a card. `rule` is the rule
    or mode because of which the person is asked.
    """
    details = {"agent": call.agent, "server": call.server, "hints": call.hints.to_dict(), "rule": rule}
    offers = {"scopes": [RUN, ALWAYS], "expires_in": LASTS}
    return {
        call.kind: call.tool,
        "parameters": dict(call.arguments),
        **{name: value for name, value in details.items() if value},
        OFFERS: offers,
    }


def schema_of_answer(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the JSON schema of the answer to an approval question. An answer may contain edited arguments and a rule
    for later calls.

    Parameters
    ----------
    arguments
        JSON schema of the arguments, perhaps from a server. References to other documents are never fetched
        (test_a_schema_that_refers_to_an_address_is_not_looked_up).
    """
    within = embedded({"type": "object"} if arguments is None else arguments, "#/properties/parameters")
    properties = {"parameters": within, "rule": _RULE}
    return {"type": "object", "properties": properties, "minProperties": 1, "additionalProperties": False}


def embedded(schema: Any, place: str) -> Any:
    """Return a JSON schema for use inside another schema. `place` is the JSON pointer to it there, such as
    ``#/anyOf/0``. References inside the schema get this pointer in front, so that they remain valid.
    """
    if isinstance(schema, list | tuple):
        return [embedded(item, place) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    # An embedded ``$id`` or ``$schema`` would change how the references of the whole schema are resolved.
    left_out = {key for key, value in schema.items() if key in _NOT_OURS and isinstance(value, str)}
    result = {key: embedded(value, place) for key, value in schema.items() if key not in left_out}
    reference = result.get("$ref")
    if isinstance(reference, str):
        del result["$ref"]
        # "#/$defs/x" becomes "#/properties/parameters/$defs/x". References to other documents are left out.
        if reference == "#" or reference.startswith("#/"):
            result["$ref"] = f"{place}{reference[1:]}"
    return result


def rule_id_of(execution_id: str, question_id: str) -> str:
    """Return the id of the standing rule that the answer to a question creates in an execution.

    It depends on the execution, because a copy has the same question ids but must not have the same rules.
    """
    return hashed_id("rule", execution_id, question_id)


def rule_made(
    execution_id: str, question: Question, response: Mapping[str, Any], by: str | None, at_us: int
) -> catalog.ApprovalRuleAdded | None:
    """Return the event that records the standing rule which a person's answer creates. Return None if the answer does
    not approve a call or asks for no rule.
    """
    data = question.data or {}
    answer_data = response.get("data") or {}
    rule = answer_data.get("rule") if isinstance(answer_data, Mapping) else None
    # Only questions that have offered a rule can create one, and only with an answer that approves.
    if question.kind != CONFIRMATION or OFFERS not in data or response.get("approved") is not True or not rule:
        return None
    kind = next(kind for kind in (TOOL, "action", "step") if kind in data)
    # A person may have edited the arguments. The rule then holds for the edited ones.
    approved = answer_data.get("parameters", data["parameters"])
    lasts = rule.get("expires_in", LASTS if rule["scope"] == ALWAYS else None)
    return catalog.ApprovalRuleAdded(
        rule_id_of(execution_id, question.id),
        "allow",
        data[kind],
        None if kind == TOOL else kind,
        data.get("agent"),
        data.get("server"),
        rule.get("arguments", {name: exactly(value) for name, value in approved.items()}),
        rule["scope"],
        None if lasts is None else at_us + int(lasts * MICROSECONDS),
        question.id,
        by,
    )


def rules_of_run(execution_id: str, rules: Iterable[StandingRule]) -> list[StandingRule]:
    """Return those of the standing rules that were created in this execution. If the execution is a copy of another
    one, rules that were created in the other one are left out.
    """
    return [rule for rule in rules if rule.rule_id == rule_id_of(execution_id, rule.question or "")]
