"""Secrets, and how they are kept out of what is shown and saved: one set of rules for terminal, notebook and pages.

Hidden is, in this order: what stands under a name that looks secret (`looks_secret`), in data as well as in texts
(``api_key=...``, ``"password": "..."``, ``--token ...``, headers); every known secret wherever it occurs; and what
looks like a credential by its form (`divebook.text.redaction`, tokens after ``Bearer``, passwords in addresses).
Known are the values of environment variables whose names look secret, what a configuration sends under such names, and
whatever the same log holds under them.

A path is no secret: it says where something is. Plain words are not taken for secrets unless a name says that they
are, so that prose, code, hashes and identifiers stay as they are.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

from divebook.text.format import visible
from divebook.text.passwords import (
    REDACTED,
    assigned,
    is_password,
    is_path,
    is_plain_value,
    is_telling,
    is_word,
    looks_secret,
    named_at,
)

# Secrets that are known by their value: where they are found in data, and the forms in which they turn up in texts.
#
# A value that a definition names (``env://KEY``), or that is sent to a provider, may be anything. So it is looked for
# as it is and as programs write it: escaped, wrapped, in an address, in base64 as in the header of a name and password,
# and by those of its lines and fields that would do alone.


LEAST_SECRET = 8
"""Characters below which a value is hidden only where it stands under its name: it would occur by chance."""
_LEAST_ENCODED = 12
"""Characters from which a value is looked for in base64 as well."""
_LEAST_LINE = 16
"""Characters from which a line of a value is a secret by itself, if it is not words."""
_MOST_PARTS = 200
"""Lines and fields of one value, such as a file of credentials, that are looked for by themselves."""
_FOLDERS = ("PWD", "OLDPWD")
BARE = (str, int, float, type(None))
"""Values without parts, of which a log has more than of all others: they are passed over quickly."""


class KnownSecrets:
    """Texts that are found wherever they occur, the longest first; threads may add some while others look."""

    def __init__(self) -> None:
        self._texts: tuple[str, ...] = ()
        self._adding = threading.Lock()

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, texts: Iterable[str]) -> None:
        """Take more of them."""
        with self._adding:
            self._texts = tuple(sorted({*self._texts, *texts}, key=len, reverse=True))

    def settled(self, text: str, end: int) -> int:
        """Return how much of a text that still grows, up to an end, holds no part of one that goes on behind it."""
        for secret in self._texts:
            place = text.find(secret[0], max(0, len(text) - len(secret) + 1))
            while 0 <= place < end:
                if secret.startswith(text[place:]):
                    end = place
                place = text.find(secret[0], place + 1)
        while cut := [
            place for each in self._texts if 0 <= (place := text.find(each, max(0, end - len(each) + 1))) < end
        ]:
            end = min(cut)  # nor does it end within a whole one
        return end

    def hidden(self, text: str) -> str:
        """Return a text without them."""
        for secret in self._texts:  # one pattern of all would be tried branch by branch at each character
            if secret in text:
                text = text.replace(secret, REDACTED)
        return text


def forms_of(secret: str) -> set[str]:
    """Return a secret as it is, on one line, inside JSON, and inside an address.

    >>> sorted(forms_of("p@ss word/1"))
    ['p%40ss%20word%2F1', 'p%40ss%20word/1', 'p%40ss+word%2F1', 'p@ss word/1']
    """
    bare = secret.strip()
    escaped = {json.dumps(bare)[1:-1], json.dumps(bare, ensure_ascii=False)[1:-1], repr(bare)[1:-1]}
    return {bare, " ".join(bare.split()), *escaped, quote(bare, safe=""), quote(bare), quote_plus(bare)}


def encoded_forms_of(secret: str) -> set[str]:
    """Return what a secret becomes inside base64, whatever stands before and after it.

    >>> b64encode(b"ann:hunter2-hunter2").decode() in "Basic YW5uOmh1bnRlcjItaHVudGVyMg=="
    True
    >>> any(form in "Basic YW5uOmh1bnRlcjItaHVudGVyMg==" for form in encoded_forms_of("hunter2-hunter2"))
    True
    """
    data = secret.strip().encode("utf-8", "surrogatepass")
    if len(data) < _LEAST_ENCODED:
        return set()
    found = set()
    for before in range(3):  # characters that stand for bytes of the secret alone, for each place in a group of three
        whole = b64encode(bytes(before) + data).decode()
        end = len(whole) - (0 if (before + len(data)) % 3 == 0 else 4)
        middle = whole[(0, 2, 3)[before] : end]
        found |= {middle, middle.replace("+", "-").replace("/", "_")}
    return found


def parts_of(secret: str) -> Iterator[str]:
    """Yield what would do alone of a value of several lines or fields: lines of a key, fields of a file of credentials.

    >>> list(parts_of('{"user": "ann", "private_key": "k7d0-99-a1b2"}'))
    ['k7d0-99-a1b2']
    """
    try:
        held = json.loads(secret) if secret.lstrip()[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        held = None
    found = [*secrets_in(held)] if held is not None else []
    for text in [secret, *found]:
        lines = text.splitlines()
        found += [line.strip() for line in lines if len(lines) > 1 and len(line.strip()) >= _LEAST_LINE]
    yield from [part for part in found if len(part) >= LEAST_SECRET and not is_plain_value(part.strip("-"))][
        :_MOST_PARTS
    ]


def secrets_in(value: Any) -> Iterator[str]:
    """Yield the texts in plain data that stand under the name of a secret."""
    for name, inner in named_parts(value):
        if name and looks_secret(name):
            yield from _texts_in(inner)
        elif not isinstance(inner, BARE):
            yield from secrets_in(inner)


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for _, inner in named_parts(value):
        yield from _texts_in(inner)


def named_parts(value: Any) -> Iterable[tuple[str, Any]]:
    """Return the parts of plain data, each with the name it stands under, or an empty one."""
    match value:
        case {"key": str(name), "value": inner} | {"name": str(name), "value": inner}:
            rest = [(str(key), part) for key, part in value.items() if key != "value"]
            return [(name, inner), *rest]
        case Mapping():
            return [(str(key), part) for key, part in value.items()]
        case [str(name), str(inner)]:
            return [(name, inner)]
        case list() | tuple():
            return [("", part) for part in value]
        case _ if hasattr(
            value, "inside"
        ):  # the recorded form of a tuple or dataclass, which is defined above this layer
            return named_parts(value.inside())
    return []


def secrets_of_environment() -> Iterator[str]:
    """Yield what the environment variables say under names of secrets, but for the names of places on this disk.

    PWD, which every shell sets, would hide the folder in each path that is shown
    (test_places_on_the_disk_that_the_environment_names_are_no_secrets).
    """
    for name, value in os.environ.items():
        if looks_secret(name) and name not in _FOLDERS and not (value.startswith(os.sep) and os.access(value, os.F_OK)):
            yield value


# What credentials look like that carry a mark of their issuer: tables of `divebook.text.redaction`.
#
# Written from the forms that issuers publish. Texts may be long and hostile: after its mark a pattern has one run of
# characters, taken whole and never given back, so that no text is read twice (`tests/text/test_redaction.py` has the
# hostile ones, `tests/text/test_corpus.py` counts what is missed and what is hidden without need).


_URL = r"[A-Za-z0-9_-]"
"""What an address may hold without escapes."""
_MORE = r"[A-Za-z0-9_.=+/%-]"
"""Base64 in all its forms, with dots."""
_HEX = "[A-Fa-f0-9]"

ESCAPED = r"(?<=\\[bfnrt])"
"""Behind the last letter of an escape: in ``'a\\nghp_...'``, as `repr` and JSON write it, the mark begins a line."""

MARKED: tuple[tuple[str, str, int], ...] = (
    # marks, the characters that follow them, and how many of those at least
    # clouds and hosts
    ("AKIA ASIA ABIA ACCA AROA AIDA", "[A-Z0-9]", 16),
    ("ABSK bedrock-api-key-", _MORE, 40),
    ("AIza", _URL, 30),
    ("ya29. GOCSPX- 1//0", _MORE, 20),
    ("LTAI AKID", "[A-Za-z0-9]", 16),
    ("AQVN t1. y0_Ag", _MORE, 30),
    ("dop_v1_ doo_v1_ dor_v1_", _HEX, 40),
    ("HRKU- rnd_ nfp_ nfc_ nfo_ vcp_ vci_ vca_ vcr_ vck_", _URL, 20),
    ("fo1_ fm1r_ fm1a_ fm1_ fm2_", _MORE, 30),
    ("sbp_ sb_secret_ napi_ npg_", _URL, 12),
    ("pscale_tkn_ pscale_pw_ pscale_oauth_", _MORE, 20),
    ("dapi dkea dose", "[a-f0-9]", 32),
    ("tskey-", _URL, 16),
    ("v1.0-", _HEX, 24),
    ("hvs. hvb. hvr. dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit. atlasv1.", _MORE, 20),
    ("pul- dt0c01. dt0s01. dt0s16.", _MORE, 24),
    ("ops_eyJ A3- AGE-SECRET-KEY-1 AGE-PLUGIN-", _MORE, 26),
    ("s. b. r.", "[A-Za-z0-9]", 24),
    # models
    ("sk- sk_ pk- pk_ rk- rk_ sess- sk.", r"[\w.-]", 16),
    (
        "gsk_ xai- pplx- nvapi- r8_ fw_ hf_ api_org_ pa- csk- tvly- fc- e2b_ rpa_ jina_ pcsk_ lsv2_ ls__ bce-v3/",
        _MORE,
        16,
    ),
    ("key- KEY-", _HEX, 32),
    ("sdk- mob- api-", "[a-f0-9-]", 36),
    # code and packages
    ("ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", r"\w", 20),
    ("glpat- gldt- glrt- glrtr- glcbt- glptt- glsoat- glimt- glagent- gloas- glffct- GR1348941", _MORE, 16),
    ("ATATT3 ATCTT3 ATBB BBDC-", _MORE, 20),
    ("npm_ rubygems_ cio oy2 dckr_pat_ dckr_oat_ CLOJARS_ pypi- AKCp cmVmdGtu", _URL, 24),
    ("bkua_ bkct_ CCIPAT_ CCIPRJ_ squ_ sqp_ sqa_ sntrys_ sntryu_ phx_ phc_ sgp_ slk_", _MORE, 20),
    ("PMAK- PMAT- tfp_ rdme_ lin_api_ lin_oauth_ figd_ ntn_ secret_ pat-na1- pat-na2- pat-eu1-", _URL, 20),
    ("CFPAT- duffel_ fio-u- pnu_ pnb_ aio_ ico- tk-us- shippo_live_ shippo_test_", _URL, 24),
    ("glc_ glsa_ eyJrIjoi NRAK- NRJS- NRII- NRBR- NRAA-", _MORE, 18),
    # messages and money
    ("xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xoxc- xoxd- xoxe. xapp-", _MORE, 10),
    ("SG.", _MORE, 40),
    ("xkeysib- xsmtpsib- re_ whsec_ mlsn. MT_ tok_", _MORE, 20),
    ("shpat_ shpca_ shppa_ shpss_ shptka_", _HEX, 32),
    ("sq0atp- sq0csp- sq0idp- EAAA EAAl", _MORE, 22),
    ("access_token$production$ access_token$sandbox$", r"[\w$]", 20),
    ("rzp_live_ rzp_test_ FLWSECK_TEST- FLWSECK- FLWPUBK- EZAK EZTK", _URL, 14),
    ("live_ test_", "[a-f0-9]", 32),
    ("access-sandbox- access-production- access-development-", "[a-f0-9-]", 30),
    ("SK AC", "[a-f0-9]", 32),
    ("AAAAAAAAAAAAAAAAAAAAA", r"[\w%]", 40),
    ("EAA IGQV", "[A-Za-z0-9]", 60),
    ("sl.", _MORE, 60),
    ("AAPK", _MORE, 40),
)
"""Credentials that begin with a mark, where no letter or digit stands before it and what follows is not plain words."""

SHAPED: tuple[tuple[tuple[str, ...], str, str], ...] = (
    # one of these, in lower case, is in the text, and this after no letter or digit; or the pattern is not
    # tried; what the pattern meets is hidden
    (("eyj",), r"eyJ[\w-]{8}", rf"(?:(?<![\w-])|{ESCAPED})eyJ[\w-]{{8,}}+\.[\w-]{{8,}}+(?:\.[\w-]*+){{1,3}}"),
    (
        ("private key",),
        "-BEGIN ",
        r"(?s)-----BEGIN [A-Z0-9 ]{0,40}+(?:(?<=PRIVATE KEY)|(?<=KEY BLOCK))-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)",
    ),
    (("private-lines",), "Lines: ", r"(?<=Private-Lines: )\d{1,3}(?:(?:\\r|\r)?(?:\\n|\n)[\w+/=]++){1,99}"),
    (("q~",), r"[\w~.-]{3}[78]Q~", rf"(?:(?<![\w~.-])|{ESCAPED})[\w~.-]{{3}}[78]Q~[\w~.-]{{30,}}+"),
    (
        ("hooks.slack.com",),
        r"slack\.com/",
        r"(?<=hooks\.slack\.com/)(?:services|workflows|triggers)/[\w/+-]{10,}+",
    ),
    (("/webhooks/",), r"webhooks/\d", r"(?<=/webhooks/)\d{10,25}/[\w-]{30,}+"),
    (("webhook.office.com",), r"office\.com/", r"(?<=webhook\.office\.com/)[\w@/-]{30,}+"),
    (("hooks.zapier.com",), r"zapier\.com/", r"(?<=hooks\.zapier\.com/)[\w/-]{10,}+"),
    ((":aa",), "(?<=:)AA", r"(?<!\d)\d{8,11}:AA[\w-]{30,}+"),
    (("-us",), "[a-f0-9]{32}-us", rf"(?:(?<!\w)|{ESCAPED})[a-f0-9]{{32}}-us\d{{1,2}}(?!\w)"),
    (("pat",), r"pat[A-Za-z0-9]{14}\.", rf"(?:(?<!\w)|{ESCAPED})pat[A-Za-z0-9]{{14}}\.[a-f0-9]{{60,}}+"),
    (
        (".",),
        r"[MNO][A-Za-z\d_-]{22,27}\.",
        rf"(?:(?<![\w.-])|{ESCAPED})[MNO][A-Za-z\d_-]{{22,27}}\.[\w-]{{6}}\.[\w-]{{27,}}+",
    ),
    (("$",), r"(?<=\$)[a-z0-9]{1,8}\$", r"\$(?:2[aby]|apr1|1|5|6|y|argon2(?:id|i|d))\$[\w$./,=+]{20,}+"),
)
"""Credentials with a shape of their own."""


MAX_SEEN = 2_000
"""Forms of secrets that are kept of runs which were shown; those that are named are all kept."""
MAX_REMEMBERED = 200
"""Characters up to which a text that comes again is not looked at again."""
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]++=*+")
_IN_BASE64 = re.compile(r"[A-Za-z0-9+/]{40}")


class Redactor:
    """Hides secrets in plain data.

    Parameters
    ----------
    known
        Secrets to hide wherever they occur, besides those of the environment variables.

    Examples
    --------
    >>> redactor = Redactor(["correct horse"])
    >>> redactor.value({"password": "x", "prompt": "say correct horse", "max_tokens": 3})
    {'password': '[redacted]', 'prompt': 'say [redacted]', 'max_tokens': 3}
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._seen, self._named = KnownSecrets(), KnownSecrets()
        self._said: set[str] = set()
        for secret in known:
            self._see(secret)
        for secret in secrets_of_environment():
            self._see(secret)
            if not is_plain_value(secret) and not is_telling(secret):  # a word such as "postgres" is in many a result
                self.know(secret)

    def fresh(self, known: Iterable[str] = ()) -> Redactor:
        """Return one that has learned from no run; what was named it knows."""
        made = Redactor(known)
        made._named.add(self._named)
        return made

    def learn(self, value: Any) -> None:
        """Take note of the secrets in plain data: they are hidden from then on wherever something is shown."""
        for secret in secrets_in(value):
            self._see(secret)

    def know(self, secret: str) -> None:
        """Take note of one secret, whatever it looks like: from then on nothing shows it, and no agent's log has it."""
        if secret in self._said:  # each call that uses it says so again
            return
        for part in (secret.strip(), *parts_of(secret)):
            if len(part) >= LEAST_SECRET and not is_word(part) and not is_path(part):
                self._named.add(forms_of(part) | encoded_forms_of(part))
        self._said.add(secret)

    def know_all(self, value: Any) -> None:
        """Take note of the secrets that a configuration holds under their names, as `know` does of one."""
        for secret in secrets_in(value):
            self.know(secret)

    def _see(self, secret: str) -> None:
        bare = secret.strip()
        if len(bare) >= LEAST_SECRET and not is_telling(bare) and len(self._seen) < MAX_SEEN:
            self._seen.add(forms_of(bare))

    def text(self, text: str) -> str:
        """Return a text without the secrets in it."""
        if len(text) < LEAST_SECRET and "=" not in text and ":" not in text:
            return text
        text = self._seen.hidden(self._named.hidden(text))
        return _remembered(text) if len(text) <= MAX_REMEMBERED else _without_forms(text)

    def without_named(self, value: Any) -> Any:
        """Return plain data without the secrets that are named or sent to providers; what only looks like one stays."""
        return _everywhere(value, self._named.hidden)

    def without_certain(self, value: Any) -> Any:
        """Return plain data without the secrets that are named, and without what is a credential by its own form.

        For what is stored, and not only shown: what stands under the name of a secret stays, such as the token of the
        next page, and no run that was shown meanwhile changes anything.
        """
        return _everywhere(value, self._certain)

    def _certain(self, text: str) -> str:
        text = self._named.hidden(text)
        is_data = len(text) > MAX_REMEMBERED and _BASE64.fullmatch(text) is not None  # of an image, say
        return text if is_data or len(text) < LEAST_SECRET else _without_marks(text)

    def settled(self, text: str) -> int:
        """Return how much of a text that still grows may be shown: its end may be half of a secret.

        Held back are its last word, the beginning of any secret that is known, and a line from a secret's name on.
        """
        end = len(text) if not text or text[-1].isspace() else len(text) - len(text.rsplit(None, 1)[-1])
        named = named_at(text, text.rfind("\n") + 1)
        end = end if named is None else min(end, named)
        end = self._seen.settled(text, self._named.settled(text, end))
        return self._named.settled(text, end)  # which may be within one of these now

    def settled_of_named(self, text: str) -> int:
        """Return how much of a text that still grows may be shown after `without_named`."""
        return self._named.settled(text, len(text))

    def under(self, name: str, value: Any) -> Any:
        """Return plain data that stands under a name, without the secrets in it."""
        if value is None or isinstance(value, bool | float) or not looks_secret(name):
            return self.value(value)
        if isinstance(value, str) and is_path(value):
            return self.text(value)
        if isinstance(value, int):
            return REDACTED if is_password(name) and value >= 1000 else value
        return REDACTED

    def value(self, value: Any) -> Any:
        """Return plain data without the secrets in it."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, BARE):
            return value
        match value:
            case {"key": str(name), "value": inner} | {"name": str(name), "value": inner}:
                return {**{key: self.under(key, part) for key, part in value.items()}, "value": self.under(name, inner)}
            case dict():
                return {self._key(key): self.under(str(key), part) for key, part in value.items()}
            case [str(name), str(inner)]:
                return [self.text(name), self.under(name, inner)]
            case list() if any(isinstance(part, str | list | dict) or hasattr(part, "inside") for part in value):
                return [self.value(part) for part in value]
            case _ if hasattr(value, "inside") and value.inside() is not None:  # a recorded tuple or dataclass
                return value.parts(self.value)
        return value

    def _key(self, key: Any) -> Any:
        return self.text(key) if isinstance(key, str) and len(key) >= LEAST_SECRET else key


@cache
def shared() -> Redactor:
    """Return the redactor of this process, which knows the secrets of all runs that were shown in it."""
    return Redactor()


# --- credentials by their form ---------------------------------------------------------------------------------------


def _everywhere(value: Any, change: Callable[[str], str]) -> Any:
    """Return plain data in which each text, also of a name, is changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {_everywhere(name, change): _everywhere(part, change) for name, part in value.items()}
    return [_everywhere(part, change) for part in value] if isinstance(value, list) else value


def _without_forms(text: str) -> str:
    """Return a text without what its form, or a name in it, gives away."""
    return assigned(_without_marks(text))


def _without_marks(text: str) -> str:
    """Return a text without what has the form of a credential."""
    # Most texts hold no sign of a credential: one search spares them some hundred patterns
    # (test_no_rule_that_is_tried_meets_where_no_sign_does, test_most_texts_are_searched_once).
    if _signs().search("\n" + text):
        lower = text.lower()
        for rule in _rules():
            if any(hint in lower for hint in rule.hints):
                text = rule.pattern.sub(rule.replacement, text)
    return text


_remembered = lru_cache(8192)(_without_forms)


class _Rule(NamedTuple):
    hints: tuple[str, ...]
    """In lower case; where none of them is in a text, the pattern is not tried."""
    signs: tuple[str, ...]
    """Patterns: where the rule's own meets, one of them does, where no letter or digit of ASCII comes before."""
    pattern: re.Pattern[str]
    replacement: Callable[[re.Match[str]], str] | str


@cache
def _rules() -> tuple[_Rule, ...]:
    """Return the rules in the order in which they are tried; compiled when something is first shown."""
    return tuple(_table())


@cache
def _signs() -> re.Pattern[str]:
    """Return one pattern that meets wherever any rule does, so that most texts are looked at once and no more.

    What begins alike stands together: a branch is left at its first character.
    """
    alike: dict[str, list[str]] = {}
    for sign in (sign for rule in _rules() for sign in rule.signs):
        first = re.match(r"\w", sign)
        alike.setdefault(first[0] if first else "", []).append(sign[1:] if first else sign)
    return re.compile(
        r"(?:[^A-Za-z0-9]|\\[bfnrt])(?:"
        + "|".join(f"{first}(?:{'|'.join(rest)})" for first, rest in alike.items())
        + ")"
    )


def _table() -> Iterator[_Rule]:
    for hints, sign, pattern in SHAPED:
        yield _Rule(hints, (sign,), re.compile(pattern), REDACTED)
    for marks, follows, least in MARKED:
        starts = [re.escape(mark) for mark in marks.split()]
        pattern = rf"(?:(?<![A-Za-z0-9])|{ESCAPED})({'|'.join(starts)})({follows}{{{least},}}+)"
        signs = tuple(f"{start}{follows}{{{least}}}" for start in starts)
        yield _Rule(tuple(marks.lower().split()), signs, re.compile(pattern), _marked)
    for hints, sign, pattern, replacement in _IN_CONTEXT:
        yield _Rule(hints, (sign,), re.compile(pattern), replacement)


def _marked(match: re.Match[str]) -> str:
    """Hide what follows a mark, unless it is plain words (``sk-learn-contrib``) or the inside of encoded data."""
    start = match.start()
    inside = start >= 40 and _IN_BASE64.fullmatch(match.string, start - 40, start)
    return match[0] if inside or is_plain_value(match[2]) else REDACTED


def _scheme(match: re.Match[str]) -> str:
    return match[0] if is_plain_value(match[3]) else f"{match[1]}{match[2]}{REDACTED}"


def _user(match: re.Match[str]) -> str:
    return match[0] if is_plain_value(match[2]) else f"{match[1]}{REDACTED}"


def _element(match: re.Match[str]) -> str:
    return f"{match[1]}{REDACTED}" if looks_secret(match[2]) and not is_telling(match[3]) else match[0]


_IN_CONTEXT: tuple[tuple[tuple[str, ...], str, str, Callable[[re.Match[str]], str] | str], ...] = (
    (("</",), "(?<=<)/", r"(<([\w:.-]{2,60}+)(?:\s[^<>\n]{1,200}+)?>)([^<>\n]{3,400}+)(?=</)", _element),
    (
        ("bearer", "basic"),
        r"(?i:bearer|basic)[ \t]{1,4}[\w.~+/=-]{8}",
        r"(?i)\b(bearer|basic)([ \t]{1,4}+)([\w.~+/=-]{8,}+)",
        _scheme,
    ),
    (("://",), "(?<=:)//", r"(\w://[^\s/:@]{0,200}+:)(?:[^\s/?#@\[]{1,400}+@)++", rf"\1{REDACTED}@"),
    (("://",), "(?<=:)//", r"(\w://)([^\s/:@]{16,400}+)(?=@)", _user),
    (
        ("login",),
        r"(?i:login)\s",
        r"(?i)(\blogin\s{1,8}+\S{1,80}+\s{1,8}+password\s{1,8}+)\S{3,400}+",
        rf"\1{REDACTED}",
    ),
    (
        ("curl",),
        "(?<=-)u(?:ser)? ",
        r"((?:(?<=-u )|(?<=--user ))[\"']?[^\s:\"']{1,80}+:)[^\s\"']{3,400}+",
        rf"\1{REDACTED}",
    ),
    (
        ("identified by", "password '"),
        "(?i:identified by|password) '",
        r"(?i)(\b(?:identified by|password) ')[^'\n]{3,200}+",
        rf"\1{REDACTED}",
    ),
)
"""Hints, a sign, a pattern and what is put there, for what only its surroundings give away."""


# Texts that are shown in part: what is cut loses its secrets first; half of one shows no sign.


TEXT_BEHIND_CUT = 400
"""Characters after a cut that are looked at: what ends behind it may begin before it."""


def cut(text: str, limit: int) -> str:
    """Return the text, shortened to about `limit` characters with a count of what is missing.

    >>> cut("abcdefgh", 5)
    'abcde… (3 more characters)'
    """
    missing = len(text) - limit
    if missing <= 0:
        return text
    kept = shared().text(text[: limit + TEXT_BEHIND_CUT])[:limit]
    return f"{kept}… ({missing:,} more character{'s' if missing > 1 else ''})"


def head_and_tail(text: str, most: int, clean: Callable[[str], str] = str) -> str:
    r"""Return the text, of a long one its beginning and its end; `clean` takes secrets out before they are cut.

    >>> head_and_tail("a" * 50 + "z" * 50, 20)
    'aaaaaaaaaa\n... 80 characters left out; the whole is in the log ...\nzzzzzzzzzz'
    """
    if len(text) <= most:
        return text
    half = most // 2
    head = clean(text[: half + TEXT_BEHIND_CUT])[:half]
    tail = clean(text[-half - TEXT_BEHIND_CUT :])[-half:]
    return f"{head}\n... {len(text) - 2 * half:,} characters left out; the whole is in the log ...\n{tail}"


def one_line(text: str, width: int) -> str:
    r"""Return the text on one line, at most `width` characters of it.

    >>> one_line("first line\nsecond", 14)
    'first line se…'
    """
    flat = " ".join(text[: width + TEXT_BEHIND_CUT].split())
    flat = flat if len(flat) <= width else shared().text(flat)
    return visible(flat if len(flat) <= width else f"{flat[: width - 1]}…")


# The project's loggers: each record is cleaned of secrets before any handler gets it.


def logger(name: str) -> logging.Logger:
    """Return the logger of a module."""
    found = logging.getLogger(name)
    found.addFilter(_without_secrets)
    return found


def clean_libraries(*names: str) -> None:
    """Have the loggers of libraries leave secrets out, once these are loaded, and print nothing where nobody listens.

    A filter holds for what its own logger is told and not for those below it, so that each gets one.
    """
    known = tuple(logging.root.manager.loggerDict)
    for name in names:
        logger(name).addHandler(logging.NullHandler())
        for below in known:
            if below.startswith(f"{name}."):
                logger(below)


def silence(library: str) -> None:
    """Have a library log nothing that anybody hears: what it names is secret as a whole."""
    found = logging.getLogger(library)
    found.propagate = False
    if not found.handlers:
        found.addHandler(logging.NullHandler())


def hand_on(record: logging.LogRecord) -> None:
    """Log here what a logger of another process was told; it was cleaned there if it is one of ours."""
    found = logging.getLogger(record.name)
    if found.isEnabledFor(record.levelno):
        found.handle(record)


def _without_secrets(record: logging.LogRecord) -> bool:
    """Clean a record in place: its message, and the text of its traceback, which formatters take as it is."""
    record.msg = shared().text(record.getMessage())
    record.args = ()
    if record.exc_info:
        record.exc_text = shared().text(logging.Formatter().formatException(record.exc_info))
    return True
