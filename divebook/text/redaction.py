"""Redaction of secrets in everything that is shown, logged or exported: one set of rules for all interfaces.

`Redactor` hides three kinds of text:

1. **Values under the name of a secret**, in data (``{"api_key": ...}``) and in text (``api_key=...``, ``--token ...``,
   headers). `divebook.text.passwords` classifies the names and finds the values.
2. **Known secrets**, wherever they occur: values of environment variables whose names look secret, secrets of the
   configuration, and values that a displayed log holds under such names. Each is also found in its escaped,
   percent-encoded and base64 forms (`forms_of`, `encoded_forms_of`).
3. **Credentials recognized by their form**, such as ``ghp_...`` tokens, private keys, JSON web tokens, and text after
   ``Bearer`` (`MARKED`, `SHAPED`, `_IN_CONTEXT`).

An example: the environment has ``DB_PASSWORD=correct-horse``, and a command prints
``login correct-horse, token=k8Jd0aQz71, ghp_0123456789abcdefABCD``. Rule 2 hides ``correct-horse``, rule 1 the value
of ``token``, and rule 3 the last word: ``login [redacted], token=[redacted], [redacted]``.

A path is not a secret. Plain words are hidden only under the name of a secret, so that prose, code, hashes and
identifiers stay readable. Rule 3 has some hundred patterns. One combined search for signs of a credential (`_signs`)
skips all of them for most texts.

The end of the module has functions that shorten text after redaction, and loggers that redact their records.
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
    describes_secret,
    is_password,
    is_path,
    is_plain_value,
    is_word,
    looks_secret,
    named_at,
)

LEAST_SECRET = 8
"""Least length of a known secret. Shorter values are hidden only under their name, because they occur by chance."""
_LEAST_ENCODED = 12
"""Least length of a secret whose base64 forms are searched for."""
_LEAST_LINE = 16
"""Least length of a line of a secret that is itself treated as a secret, unless it consists of plain words."""
_MOST_PARTS = 200
"""Largest number of lines and fields of one secret, such as a file of credentials, that are searched for separately."""
_FOLDERS = ("PWD", "OLDPWD")
BARE = (str, int, float, type(None))
"""Types of values without parts. Most values in a log have one of these types, and are skipped quickly."""
_NUMBERS = frozenset({int, float, bool, type(None)})
MAX_SEEN = 2_000
"""Largest number of stored forms of seen secrets (see `Redactor`). Named secrets are all stored."""
MAX_REMEMBERED = 200
"""Largest length of a text whose redacted form is cached."""
# Text of base64 as a whole, such as an image, and a piece of base64 that precedes a supposed mark.
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]++=*+")
_IN_BASE64 = re.compile(r"[A-Za-z0-9+/]{40}")


class Redactor:
    """Redactor that hides secrets in text and plain data: values under the name of a secret, known secrets, and
    credentials that are recognized by their form.

    A redactor stores two sets of known secrets. *Named* secrets come from the configuration and the environment: they
    are certainly secrets. *Seen* secrets were under the name of a secret in a run that was shown. They are hidden only
    in displayed text, never in stored text, because a later replay must not depend on what was shown before.

    Parameters
    ----------
    secrets
        Secrets to hide wherever they occur, besides those of the environment variables.

    Examples
    --------
    >>> redactor = Redactor(["correct horse"])
    >>> redactor.value({"password": "x", "prompt": "say correct horse", "max_tokens": 3})
    {'password': '[redacted]', 'prompt': 'say [redacted]', 'max_tokens': 3}
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # The two sets differ in use: `_seen` is hidden only in displayed text, `_named` also in stored text. A plain
        # word, such as the password "postgres", is only seen.
        self._seen = KnownSecrets()
        self._named = KnownSecrets()
        self._processed: set[str] = set()
        for secret in secrets:
            self._see(secret)
        for secret in secrets_of_environment():
            self._see(secret)
            # A plain word such as "postgres" occurs in many results.
            if not is_plain_value(secret) and not describes_secret(secret):
                self.know(secret)

    def fresh(self, secrets: Iterable[str] = ()) -> Redactor:
        """Create a redactor that knows the secrets from configuration and environment, but not the secrets that were
        seen in displayed runs.

        The named secrets of this redactor are copied; `secrets` are added.
        """
        # Secrets of the configuration are not in the environment, and must be copied.
        redactor = Redactor(secrets)
        redactor._named.add(self._named)
        return redactor

    def learn(self, value: Any) -> None:
        """Remember the secrets in the plain data of a run that is shown. From now on they are hidden in all displayed
        text.
        """
        for secret in secrets_in(value):
            self._see(secret)

    def know(self, secret: str) -> None:
        """Remember a string that is certainly a secret, for example from the configuration. From now on it is hidden in
        displayed text and in stored data.
        """
        if secret in self._processed:  # each call that uses a secret passes it again
            return
        # A known secret has parts that a log may contain without the rest, such as one line of a private key.
        for part in (secret.strip(), *parts_of(secret)):
            # A common word or a path as a whole secret would hide harmless text everywhere.
            if len(part) >= LEAST_SECRET and not is_word(part) and not is_path(part):
                self._named.add(forms_of(part) | encoded_forms_of(part))
        self._processed.add(secret)

    def know_all(self, value: Any) -> None:
        """Remember all secrets in the plain data of a configuration as strings that are certainly secrets; see
        `know`.
        """
        for secret in secrets_in(value):
            self.know(secret)

    def _see(self, secret: str) -> None:
        bare = secret.strip()
        # Displayed runs add secrets without end, and each one costs a search in every text. Hence the limit.
        if len(bare) >= LEAST_SECRET and not describes_secret(bare) and len(self._seen) < MAX_SEEN:
            self._seen.add(forms_of(bare))

    def text(self, text: str) -> str:
        """Replace the secrets in a text by ``[redacted]``."""
        # A text this short contains no known secret, and without these characters no assignment.
        if len(text) < LEAST_SECRET and "=" not in text and ":" not in text:
            return text
        # Named secrets first: a seen secret may be a part of a named one, and would leave the rest of it visible.
        text = self._seen.hidden(self._named.hidden(text))
        # Only short texts repeat often enough to be worth a place in the cache.
        return _remembered(text) if len(text) <= MAX_REMEMBERED else _without_forms(text)

    def document(self, text: str) -> str:
        """Replace the secrets in a text that may be a JSON document, such as the output of a step. The names in the
        document mark secrets that `text` alone does not recognize, such as short values and lists.
        """
        if not text.startswith(("{", "[")):
            return self.text(text)
        try:
            data = json.loads(text)
            clean = self.value(data)
        # A text that only begins like JSON, or data that are nested too deeply.
        except (ValueError, RecursionError):
            return self.text(text)
        if clean != data:
            separators = None if ": " in text or ", " in text else (",", ":")
            indent = 2 if "\n" in text else None
            text = json.dumps(clean, ensure_ascii=False, indent=indent, separators=separators)
        return self.text(text)

    def documents(self, value: Any) -> Any:
        """Hide secrets in plain data, as `value` does, and in the JSON documents among its strings."""
        return self.value(_everywhere(value, self.document))

    def without_named(self, value: Any) -> Any:
        """Hide in plain data only strings that are certainly secrets (from configuration and environment). Text that
        merely looks like a secret stays. Data without a secret are returned themselves.
        """
        texts = _texts_of(value)
        is_clean = texts is not None and self._named.hidden(texts) is texts
        return value if is_clean else _everywhere(value, self._named.hidden)

    def without_certain(self, value: Any) -> Any:
        """Hide in plain data that will be stored the strings that are certainly secrets, and credentials recognized by
        their form.

        Values under the name of a secret stay, such as the token of the next page. Runs that were shown have no
        influence on the result. Data without such a string are returned themselves.
        """
        texts = _texts_of(value)
        is_clean = texts is not None and self._named.hidden(texts) is texts and not _signs().search(f"\n{texts}")
        return value if is_clean else _everywhere(value, self._certain)

    def _certain(self, text: str) -> str:
        text = self._named.hidden(text)
        # Marks such as ``AKIA`` occur in base64 data by chance. Their replacement would destroy the data.
        is_data = len(text) > MAX_REMEMBERED and _BASE64.fullmatch(text) is not None  # for example an image
        return text if is_data or len(text) < LEAST_SECRET else _without_marks(text)

    def settled(self, text: str) -> int:
        """Return the number of leading characters of a growing (streamed) text that can be shown already. The rest must
        wait, because it may be the beginning of a secret.

        The last word, the beginning of a known secret, and the rest of a line after the name of a secret are held back.
        """
        # The last word may continue with the next piece of the stream.
        end = len(text) if not text or text[-1].isspace() else len(text) - len(text.rsplit(None, 1)[-1])
        # Only the last line may contain an assignment whose value is not complete.
        assignment = named_at(text, text.rfind("\n") + 1)
        end = end if assignment is None else min(end, assignment)
        end = self._seen.settled(text, self._named.settled(text, end))
        return self._named.settled(text, end)  # the new end may be within a named secret

    def settled_of_named(self, text: str) -> int:
        """Return the number of leading characters of a growing (streamed) text that can be shown already. Unlike in
        `settled`, only strings that are certainly secrets are considered, as in `without_named`.
        """
        return self._named.settled(text, len(text))

    def under(self, name: str, value: Any) -> Any:
        """Hide secrets in `value`, a part of plain data that is stored under `name`. If the name looks secret, the
        whole value is hidden.
        """
        # A boolean or a fraction is never a secret, as in ``token_required: true``.
        if value is None or isinstance(value, bool | float) or not looks_secret(name):
            return self.value(value)
        if isinstance(value, str) and is_path(value):
            return self.text(value)
        # Small integers under the name of a password are counts and flags, such as ``password: 1``. A longer one may be
        # a numeric password.
        if isinstance(value, int):
            return REDACTED if is_password(name) and value >= 1000 else value
        return REDACTED

    def value(self, value: Any) -> Any:
        """Hide secrets in plain data, at any depth, and return the new data. `named_parts` explains under which names
        values count as secrets.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, BARE):
            return value
        match value:
            case {"key": str(name), "value": inner} | {"name": str(name), "value": inner}:
                return {**{key: self.under(key, part) for key, part in value.items()}, "value": self.under(name, inner)}
            case dict():
                return {self._key(key): self.under(str(key), part) for key, part in value.items()}
            # ``["Authorization", "Bearer ..."]``: a header as a pair.
            case [str(name), str(inner)]:
                return [self.text(name), self.under(name, inner)]
            # A list of numbers has nothing to hide, and is returned without a copy.
            case list() if any(isinstance(part, str | list | dict) or hasattr(part, "inside") for part in value):
                return [self.value(part) for part in value]
            case _ if hasattr(value, "with_named_parts"):  # a recorded tuple or dataclass
                return value.with_named_parts(self.under)
        return value

    def _key(self, key: Any) -> Any:
        return self.text(key) if isinstance(key, str) and len(key) >= LEAST_SECRET else key


@cache
def shared() -> Redactor:
    """Return the redactor that all code of this process shares. It knows the secrets of all runs that were shown in the
    process.
    """
    return Redactor()


# --- known secrets --------------------------------------------------------------------------------------------------
#
# A value that a definition refers to (``env://KEY``), or that is sent to a provider, may have any form. It is searched
# for unchanged and in the forms in which programs write it: escaped, wrapped, percent-encoded, and in base64 as in the
# header of a user and password. Lines and fields of it that are secrets by themselves are searched for separately.


class KnownSecrets:
    """Set of secret strings that are hidden wherever they occur, the longest first. One thread may add strings while
    others search.
    """

    def __init__(self) -> None:
        self._texts: tuple[str, ...] = ()
        self._adding = threading.Lock()

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, texts: Iterable[str]) -> None:
        """Add strings to the set of secrets."""
        with self._adding:
            # Searches read `_texts` without the lock: an addition replaces the tuple and never changes one. The longest
            # secret comes first, so that a shorter one inside it does not leave its rest visible.
            self._texts = tuple(sorted({*self._texts, *texts}, key=len, reverse=True))

    def settled(self, text: str, end: int) -> int:
        """Return the number of leading characters of a growing (streamed) text, at most `end`, that can be shown
        already. The rest must wait, because it contains or may begin a secret of this set.

        For the secret ``hunter2`` and the text ``the key is hun`` this is 11, because the last three characters may
        become the secret.
        """
        for secret in self._texts:
            # A secret that begins earlier is complete in the text. It will be redacted, and only must not be cut in two
            # (second loop).
            place = text.find(secret[0], max(0, len(text) - len(secret) + 1))
            while 0 <= place < end:
                if secret.startswith(text[place:]):
                    end = place
                place = text.find(secret[0], place + 1)
        while True:
            # The end moves before a complete secret that it would cut in two. A search from `end - len(secret) + 1` on
            # finds only secrets that reach beyond `end`.
            places = [text.find(secret, max(0, end - len(secret) + 1)) for secret in self._texts]
            cut_secrets = [place for place in places if 0 <= place < end]
            if not cut_secrets:
                return end
            end = min(cut_secrets)

    def hidden(self, text: str) -> str:
        """Replace each secret of the set in a text by ``[redacted]``."""
        # One pattern of all texts would be slower: `re` tries its alternatives one by one at each character.
        for secret in self._texts:
            if secret in text:
                text = text.replace(secret, REDACTED)
        return text


def forms_of(secret: str) -> set[str]:
    """Return all forms in which a secret may occur in a text: unchanged, on one line, escaped in JSON or Python, and
    percent-encoded.

    >>> sorted(forms_of("p@ss word/1"))
    ['p%40ss%20word%2F1', 'p%40ss%20word/1', 'p%40ss+word%2F1', 'p@ss word/1']
    """
    bare = secret.strip()
    # JSON with and without escapes for other characters than ASCII, and `repr`, each without their quotes.
    escaped = {json.dumps(bare)[1:-1], json.dumps(bare, ensure_ascii=False)[1:-1], repr(bare)[1:-1]}
    return {bare, " ".join(bare.split()), *escaped, quote(bare, safe=""), quote(bare), quote_plus(bare)}


def encoded_forms_of(secret: str) -> set[str]:
    """Return the base64 forms in which a secret may occur inside encoded data.

    Base64 encodes groups of three bytes as four characters, so that the form depends on the position of the secret in
    its group. There are three forms. Each has only the characters that do not depend on the bytes around the secret.

    >>> b64encode(b"ann:hunter2-hunter2").decode() in "Basic YW5uOmh1bnRlcjItaHVudGVyMg=="
    True
    >>> any(form in "Basic YW5uOmh1bnRlcjItaHVudGVyMg==" for form in encoded_forms_of("hunter2-hunter2"))
    True
    """
    data = secret.strip().encode("utf-8", "surrogatepass")
    if len(data) < _LEAST_ENCODED:
        return set()
    forms = set()
    for before in range(3):  # bytes of other data before the secret in its first group
        whole = b64encode(bytes(before) + data).decode()
        # The last group of four characters is incomplete, unless the bytes fill it. Its characters then depend on the
        # bytes that follow.
        end = len(whole) - (0 if (before + len(data)) % 3 == 0 else 4)
        # The first characters contain bits of the bytes before: of one byte the first 2 characters, of two bytes the
        # first 3.
        middle = whole[(0, 2, 3)[before] : end]
        # The second form is the alphabet of base64 for URLs.
        forms |= {middle, middle.replace("+", "-").replace("/", "_")}
    return forms


def parts_of(secret: str) -> Iterator[str]:
    """Yield those parts of a secret that are secrets on their own: lines of a key, or fields of a file of credentials.

    >>> list(parts_of('{"user": "ann", "private_key": "k7d0-99-a1b2"}'))
    ['k7d0-99-a1b2']
    """
    # A secret that is a JSON document, such as the key file of a service account.
    try:
        data = json.loads(secret) if secret.lstrip()[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        data = None
    parts = [*secrets_in(data)] if data is not None else []
    # Lines of a wrapped key. The fields of a JSON document are searched as well, since they may contain a key.
    for text in [secret, *parts]:
        lines = text.splitlines()
        # A single line is the secret itself.
        if len(lines) > 1:
            parts += [line.strip() for line in lines if len(line.strip()) >= _LEAST_LINE]
    secrets = [part for part in parts if len(part) >= LEAST_SECRET and not is_plain_value(part.strip("-"))]
    yield from secrets[:_MOST_PARTS]


def secrets_in(value: Any) -> Iterator[str]:
    """Yield all strings in plain data that are stored, at any depth, under a name that is typical for secrets."""
    for name, inner in named_parts(value):
        if name and looks_secret(name):
            yield from _texts_in(inner)
        elif not isinstance(inner, BARE):
            yield from secrets_in(inner)


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        return
    plain = value.inside() if hasattr(value, "inside") else value
    # Everything below the name of a secret counts as a secret, whatever its own name. Two texts are no pair here.
    parts = plain if isinstance(plain, list | tuple) else [inner for _, inner in named_parts(plain)]
    for part in parts:
        yield from _texts_in(part)


def named_parts(value: Any) -> Iterable[tuple[str, Any]]:
    """Return the parts of a mapping or list as pairs of name and value. The name of a list item is empty.

    Pairs such as ``{"name": "token", "value": "x"}`` and ``["token", "x"]`` count as the part ``x`` with the name
    ``token``: lists of headers and of environment variables have this form.
    """
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
        # The recorded form of a tuple or dataclass (`divebook.events.recorded`), a layer above this one.
        case _ if hasattr(value, "inside"):
            return named_parts(value.inside())
    return []


def secrets_of_environment() -> Iterator[str]:
    """Yield the values of environment variables whose names look secret, except paths that exist on this machine.

    PWD, which every shell sets, counts as a password by its name. As a secret it would hide the folder in each path
    (test_places_on_the_disk_that_the_environment_names_are_no_secrets).
    """
    for name, value in os.environ.items():
        # A path that exists names the file of a secret. A path that does not exist may be a secret with a slash in
        # front.
        if looks_secret(name) and name not in _FOLDERS and not (value.startswith(os.sep) and os.access(value, os.F_OK)):
            yield value


# --- tables of credentials by their form ----------------------------------------------------------------------------
#
# The tables follow the forms that issuers publish. Texts may be long and hostile. After its mark a pattern has one run
# of characters with a possessive quantifier (``++``), which never backtracks, so that no text is read twice.
# `tests/text/test_redaction.py` has hostile texts. `tests/text/test_corpus.py` counts missed secrets and false alarms.


_URL = r"[A-Za-z0-9_-]"
"""Characters that need no escape in a URL."""
_MORE = r"[A-Za-z0-9_.=+/%-]"
"""Characters of all variants of base64, and the dot."""
_HEX = "[A-Fa-f0-9]"

ESCAPED = r"(?<=\\[bfnrt])"
"""Pattern for the position after an escape sequence: in ``'a\nghp_...'``, as `repr` and JSON write it, ``ghp_`` begins
a line.
"""

MARKED: tuple[tuple[str, str, int], ...] = (
    # Columns: marks, the characters that follow them, and the least number of these characters.
    # --- clouds and hosts
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
    # --- models
    ("sk- sk_ pk- pk_ rk- rk_ sess- sk.", r"[\w.-]", 16),
    (
        "gsk_ xai- pplx- nvapi- r8_ fw_ hf_ api_org_ pa- csk- tvly- fc- e2b_ rpa_ jina_ pcsk_ lsv2_ ls__ bce-v3/",
        _MORE,
        16,
    ),
    ("key- KEY-", _HEX, 32),
    ("sdk- mob- api-", "[a-f0-9-]", 36),
    # --- code and packages
    ("ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", r"\w", 20),
    ("glpat- gldt- glrt- glrtr- glcbt- glptt- glsoat- glimt- glagent- gloas- glffct- GR1348941", _MORE, 16),
    ("ATATT3 ATCTT3 ATBB BBDC-", _MORE, 20),
    ("npm_ rubygems_ cio oy2 dckr_pat_ dckr_oat_ CLOJARS_ pypi- AKCp cmVmdGtu", _URL, 24),
    ("bkua_ bkct_ CCIPAT_ CCIPRJ_ squ_ sqp_ sqa_ sntrys_ sntryu_ phx_ phc_ sgp_ slk_", _MORE, 20),
    ("PMAK- PMAT- tfp_ rdme_ lin_api_ lin_oauth_ figd_ ntn_ secret_ pat-na1- pat-na2- pat-eu1-", _URL, 20),
    ("CFPAT- duffel_ fio-u- pnu_ pnb_ aio_ ico- tk-us- shippo_live_ shippo_test_", _URL, 24),
    ("glc_ glsa_ eyJrIjoi NRAK- NRJS- NRII- NRBR- NRAA-", _MORE, 18),
    # --- messages and money
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
"""Credentials that begin with a mark such as ``ghp_``. No letter or digit may precede it, and the rest must not be
plain words.
"""

SHAPED: tuple[tuple[tuple[str, ...], str, str], ...] = (
    # Columns: hints, sign, pattern. The pattern is tried only if the text in lower case contains a hint, and if the
    # sign matches where no letter or digit precedes it. The match of the pattern is hidden.
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
"""Credentials with a special form, such as private keys."""


# --- credentials by their form ---------------------------------------------------------------------------------------


def _everywhere(value: Any, change: Callable[[str], str]) -> Any:
    """Apply a function to each string in plain data, including the keys of mappings. Return the new data."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {_everywhere(name, change): _everywhere(part, change) for name, part in value.items()}
    if hasattr(value, "with_named_parts"):  # a recorded tuple or dataclass
        return value.with_named_parts(lambda _name, part: _everywhere(part, change))
    return [_everywhere(part, change) for part in value] if isinstance(value, list) else value


def _texts_of(value: Any) -> str | None:
    """Return all strings in plain data, one a line, so that a single search shows whether any of them has a secret.
    Return None for data with parts that are not plain.
    """
    texts: list[str] = []
    return "\n".join(texts) if _add_texts([value], texts) else None


def _add_texts(parts: Iterable[Any], texts: list[str]) -> bool:
    """Add the strings in parts of plain data to a list. Return False if a part is not plain."""
    # Strings are added without a call for each of them, which would take most of the time.
    for part in parts:
        kind = type(part)
        if kind is str:
            texts.append(part)
        elif kind is list or kind is dict:
            if not _add_texts(part if kind is list else (*part, *part.values()), texts):
                return False
        elif kind not in _NUMBERS:
            return False
    return True


def _without_forms(text: str) -> str:
    """Hide in a text the credentials that are recognized by their form, such as ``ghp_...``, and the values that are
    assigned to names of secrets.
    """
    return assigned(_without_marks(text))


def _without_marks(text: str) -> str:
    """Hide in a text the credentials that are recognized by their form alone, such as ``ghp_...``."""
    # Most texts have no sign of a credential. One search for all signs saves them some hundred patterns
    # (test_no_rule_that_is_tried_meets_where_no_sign_does, test_most_texts_are_searched_once).
    # The added line feed stands for the character that each sign requires before it.
    if _signs().search("\n" + text):
        lower = text.lower()
        for rule in _rules():
            # The hints are in lower case, and `in` is faster than the pattern.
            if any(hint in lower for hint in rule.hints):
                text = rule.pattern.sub(rule.replacement, text)
    return text


_remembered = lru_cache(8192)(_without_forms)


class _Rule(NamedTuple):
    hints: tuple[str, ...]
    """Lower-case strings. The pattern is tried only if the text in lower case contains one of them."""
    signs: tuple[str, ...]
    """Short patterns. Wherever `pattern` matches, one of these matches after a character that is not an ASCII letter or
    digit.
    """
    pattern: re.Pattern[str]
    replacement: Callable[[re.Match[str]], str] | str


@cache
def _rules() -> tuple[_Rule, ...]:
    """Return the redaction rules for credentials that are recognized by their form, in the order in which the rules are
    tried.

    The patterns are compiled when text is first redacted.
    """
    return tuple(_table())


@cache
def _signs() -> re.Pattern[str]:
    """Return one regular expression that finds all parts of a text at which a redaction rule may match. In most texts
    it finds nothing, so that the single rules need not be tried.

    The signs are grouped by their first character: ``ghp_``, ``glpat-`` and ``sk-`` become ``g(?:hp_|lpat-)|s(?:k-)``.
    `re` then rejects a whole group at its first character.
    """
    groups: dict[str, list[str]] = {}
    for rule in _rules():
        # "ghp_..." -> group "g". A sign that begins with another character, such as a set, is in the group "".
        for sign in rule.signs:
            first = re.match(r"\w", sign)
            groups.setdefault(first[0] if first else "", []).append(sign[1:] if first else sign)
    branches = [f"{first}(?:{'|'.join(rest)})" for first, rest in groups.items()]
    # The character before a sign, or an escape sequence, whose letter would otherwise count as part of a word.
    return re.compile(r"(?:[^A-Za-z0-9]|\\[bfnrt])(?:" + "|".join(branches) + ")")


def _table() -> Iterator[_Rule]:
    """Yield the redaction rules for credentials that are recognized by their form, one for each entry of the tables
    `SHAPED`, `MARKED` and `_IN_CONTEXT`.
    """
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
    """Return the replacement for a credential that begins with a mark such as ``ghp_``.

    Plain words (``sk-learn-contrib``) and characters inside base64 data are not replaced.
    """
    # A mark inside a long run of base64 characters occurs by chance.
    start = match.start()
    inside = start >= 40 and _IN_BASE64.fullmatch(match.string, start - 40, start)
    return match[0] if inside or is_plain_value(match[2]) else REDACTED


def _scheme(match: re.Match[str]) -> str:
    """Return the replacement for a header such as ``Bearer TOKEN`` or ``Basic TOKEN``, with the token hidden. If the
    token is a plain word, the header is unchanged, because it is not a credential.
    """
    return match[0] if is_plain_value(match[3]) else f"{match[1]}{match[2]}{REDACTED}"


def _user(match: re.Match[str]) -> str:
    """Return the replacement for a URL with a user name, ``https://ghp_...@host``. The user name is hidden if it is a
    token and not a plain word.
    """
    return match[0] if is_plain_value(match[2]) else f"{match[1]}{REDACTED}"


def _element(match: re.Match[str]) -> str:
    """Return the replacement for an XML element. Its text is hidden if the name of the element looks secret; otherwise
    the element is unchanged.
    """
    return f"{match[1]}{REDACTED}" if looks_secret(match[2]) and not describes_secret(match[3]) else match[0]


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
"""Hints, sign, pattern and replacement for credentials that only the text around them identifies."""


# --- shortened text -------------------------------------------------------------------------------------------------
#
# Text is redacted before it is cut, because half of a secret is not recognized.


TEXT_BEHIND_CUT = 400
"""Number of additional characters that are redacted before a text is cut. A secret may begin before the cut and end
after it.
"""


def cut(text: str, limit: int) -> str:
    """Redact a text and cut it off after about `limit` characters. Append the number of missing characters. A shorter
    text is returned unchanged.

    >>> cut("abcdefgh", 5)
    'abcde… (3 more characters)'
    """
    missing = len(text) - limit
    if missing <= 0:
        return text
    # The tail behind the cut is redacted too, and then removed. A secret across the cut is then recognized.
    shown = shared().text(text[: limit + TEXT_BEHIND_CUT])[:limit]
    return f"{shown}… ({missing:,} more character{'s' if missing > 1 else ''})"


def head_and_tail(text: str, most: int, clean: Callable[[str], str] = str) -> str:
    r"""Reduce a text with more than `most` characters to its beginning and its end. The function `clean` redacts both
    parts before they are cut. A shorter text is returned unchanged.

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
    r"""Return a text on one line of at most `width` characters. A longer text is cut off, after secrets in it are
    redacted.

    >>> one_line("first line\nsecond", 14)
    'first line se…'
    """
    # Only as much of a large text is joined as can be shown.
    flat = " ".join(text[: width + TEXT_BEHIND_CUT].split())
    flat = flat if len(flat) <= width else shared().text(flat)
    return visible(flat if len(flat) <= width else f"{flat[: width - 1]}…")


# --- loggers: each record is redacted before any handler gets it ------------------------------------------------------


def logger(name: str) -> logging.Logger:
    """Return the logger of a module, with a filter that redacts each of its log records."""
    module_logger = logging.getLogger(name)
    module_logger.addFilter(_without_secrets)
    return module_logger


def clean_libraries(*names: str) -> None:
    """Redact the log records of libraries: add a filter to the loggers of each library in `names`. Call this after the
    libraries are loaded.
    """
    # A copy, because `logger` adds to the dictionary.
    existing = tuple(logging.root.manager.loggerDict)
    for name in names:
        # The `NullHandler` prevents output to the standard error stream if the application has not configured logging.
        logger(name).addHandler(logging.NullHandler())
        # Placeholders of loggers that do not exist yet are listed as well. `logger` creates them with the filter.
        # A filter of a logger does not apply to records of its child loggers, so that each child gets one as well.
        for child in existing:
            if child.startswith(f"{name}."):
                logger(child)


def silence(library: str) -> None:
    """Stop the log output of a library, because its log records may consist of secrets."""
    library_logger = logging.getLogger(library)
    library_logger.propagate = False
    if not library_logger.handlers:
        library_logger.addHandler(logging.NullHandler())


def hand_on(record: logging.LogRecord) -> None:
    """Log in this process a log record that another process has sent. The loggers of that process have already redacted
    the record.
    """
    local_logger = logging.getLogger(record.name)
    if local_logger.isEnabledFor(record.levelno):
        local_logger.handle(record)


def _without_secrets(record: logging.LogRecord) -> bool:
    """Redact the message and the traceback of a log record, which is changed itself. Always return True, because a
    logging filter that returns False would drop the record.
    """
    # The message is formatted here, since an argument may be a secret that only the complete message reveals.
    record.msg = shared().text(record.getMessage())
    record.args = ()
    if record.exc_info:
        # Handlers print `exc_text` if it is set, and format the traceback themselves only if it is not.
        record.exc_text = shared().text(logging.Formatter().formatException(record.exc_info))
    return True
