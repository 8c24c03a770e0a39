"""2,000 calls near the edges of rules, judged against a plain reading of each that shares no code with ours."""

from __future__ import annotations

import json
import posixpath
import random
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from divebook.engine.approvals import StandingRule
from tests.engine.test_approvals import judged


def most_hostile(value: str) -> str:
    """Return a path as the worst of readers would take it."""
    text = unicodedata.normalize("NFKC", value)
    for _ in range(3):
        text = unquote(text)
    text = "".join(c for c in text if unicodedata.category(c) not in ("Cf", "Cc")).strip(" '\"")
    return posixpath.normpath("/".join(part.strip() for part in text.replace("\\", "/").split("/")))


def is_below(folder: str) -> Callable[[Any], bool]:
    def below(value: Any) -> bool:
        return isinstance(value, str) and value.isprintable() and most_hostile(value).startswith(folder)

    return below


def is_of_python_org(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        found = urlsplit(unicodedata.normalize("NFKC", value.replace("\\", "/")))
        host = unquote(found.hostname or "")
    except ValueError:
        return False
    return (
        found.scheme == "https" and host.endswith(".python.org") and "@" not in found.netloc and ":" not in found.netloc
    )


def is_a_text_in_out(value: Any) -> bool:
    if not is_below("out/")(value):
        return False
    return most_hostile(value).count("/") == 1 and value.endswith(".txt")


def is_just(wanted: str) -> Callable[[Any], bool]:
    return lambda value: json.dumps(value) == wanted


class Edge(NamedTuple):
    """A rule that allows, a call that it allows, and how a plain reading takes each of its arguments."""

    rule: Mapping[str, Any]
    arguments: Mapping[str, Any]
    plainly: Mapping[str, Callable[[Any], bool]]


EDGES = (
    Edge({"path": "docs/**"}, {"path": "docs/a/guide.md"}, {"path": is_below("docs/")}),
    Edge({"url": "https://*.python.org/**"}, {"url": "https://docs.python.org/3/a.html"}, {"url": is_of_python_org}),
    Edge(
        {"amount": 10, "currency": "EUR", "urgent": False, "tags": ["a", {"n": 1}]},
        {"amount": 10, "currency": "EUR", "urgent": False, "tags": ["a", {"n": 1}]},
        {
            "amount": is_just("10"),
            "currency": is_just('"EUR"'),
            "urgent": is_just("false"),
            "tags": is_just('["a", {"n": 1}]'),
        },
    ),
    Edge(
        {"path": "out/*.txt", "content": {"equals": "*"}},
        {"path": "out/résumé.txt", "content": "*"},
        {"path": is_a_text_in_out, "content": is_just('"*"')},
    ),
)
PIECES = (
    "..",
    "../",
    "/../",
    "%2e%2e/",
    "%252e%252e%252f",
    "\\",
    "..\\",
    "/",
    "//",
    "./",
    "\u200b",
    "\u00a0",
    "\u2024",
)
MORE_PIECES = (
    "\uff0e\uff0e\uff0f",
    "\n",
    "\0",
    "\r\n",
    " ",
    "'",
    '"',
    "*",
    "**",
    "@evil.com",
    "evil.com/",
    "#",
    "?",
    ":",
    ";",
)


def bent(value: Any, chance: random.Random) -> Any:
    """Return a value that is nearly the one given."""
    if not isinstance(value, str):
        near = [str(value), float(value) if isinstance(value, int) else value, bool(value), [value], None, value, -1]
        return chance.choice([*near, json.dumps(value), {"equals": value}, 0, 1, ""])
    at = chance.randrange(len(value) + 1)
    piece = chance.choice(PIECES + MORE_PIECES)
    return chance.choice(
        [
            value[:at] + piece + value[at:],
            value[:at] + piece + value[at:],
            value[:at] + value[at + 1 :],
            value + piece,
            piece + value,
            value.upper(),
            value.swapcase(),
            value.title(),
            unicodedata.normalize("NFD", value),
            "".join(chr(ord(c) + 0xFEE0) if 0x20 < ord(c) < 0x7F and chance.random() < 0.3 else c for c in value),
            quote(value, safe=""),
            quote(value),
            json.dumps(value),
            f"'{value}'",
            value.replace("/", "\\"),
            value.replace("/", piece, 1),
            value.replace(".", piece, 1),
            [value],
            {"path": value},
            None,
            value,
            value,
        ]
    )


def near_calls(edge: Edge, count: int, chance: random.Random) -> list[dict[str, Any]]:
    found = []
    for _ in range(count):
        arguments = dict(edge.arguments)
        for name in chance.sample(sorted(arguments), k=chance.choice((0, 1, 1, 1, min(2, len(arguments))))):
            for _ in range(chance.choice((1, 1, 2))):
                arguments[name] = bent(arguments[name], chance)
        if chance.random() < 0.15:
            arguments[chance.choice(["force", "Path", "path ", "", "url", "amount"])] = chance.choice(
                [True, None, "x", 1]
            )
        if chance.random() < 0.1:
            del arguments[chance.choice(sorted(arguments))]
        shuffled = list(arguments.items())
        chance.shuffle(shuffled)
        found.append(dict(shuffled))
    return found


def plainly_allowed(edge: Edge, arguments: Mapping[str, Any]) -> bool:
    return set(arguments) == set(edge.plainly) and all(reads(arguments[name]) for name, reads in edge.plainly.items())


def test_no_call_near_a_rules_edge_passes_that_a_plain_reading_refuses() -> None:
    chance = random.Random(13)
    passed = refused = 0
    for edge in EDGES:
        for arguments in near_calls(edge, 500, chance):
            rules = [{"arguments": edge.rule, "outcome": "allow"}, {"tool": "other", "outcome": "allow"}]
            chance.shuffle(rules)
            outcome = judged(*rules, arguments=arguments).outcome
            made = StandingRule("rule_1", "allow", "write_file", arguments=edge.rule)
            assert judged(made=(made,), arguments=arguments).outcome == outcome, "rules made on a card read alike"
            if outcome == "allow":
                assert plainly_allowed(edge, arguments), arguments
            passed += outcome == "allow"
            refused += outcome != "allow"
    assert (passed + refused, passed > 200, refused > 1_000) == (2_000, True, True)


DENIED = (
    ({"path": "/etc/**"}, "/etc/ssh/key", lambda value: most_hostile(value).casefold().startswith("/etc/")),
    ({"path": "secrets/*"}, "secrets/a.txt", lambda value: most_hostile(value).casefold().startswith("secrets/")),
    ({"path": "prod"}, "prod", lambda value: most_hostile(value).casefold() == "prod"),
)


def test_no_call_near_its_edge_escapes_a_rule_that_denies() -> None:
    chance = random.Random(31)
    hit = 0
    for rule, value, plainly in DENIED:
        for _ in range(700):
            near = bent(bent(value, chance), chance) if chance.random() < 0.3 else bent(value, chance)
            arguments = {"path": near, **({"more": 1} if chance.random() < 0.3 else {})}
            outcome = judged({"arguments": rule, "outcome": "deny"}, mode="never", arguments=arguments).outcome
            if isinstance(near, str) and plainly(near):
                assert outcome == "deny", near
                hit += 1
    assert hit > 500
