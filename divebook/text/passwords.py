"""URLs as they may be shown, kept and suggested: without their passwords.

A URL whose parts are not where they should be is mostly one with a password that was not written as ``%XX``. Of such a
one nothing is shown from where its password may begin, and no store opens it
(test_no_password_is_shown_however_a_url_is_mistyped).
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeAlias

# Names under which secrets are kept: of variables, keys, headers and options.


def listed(text: str) -> tuple[str, ...]:
    """Return the words of a table."""
    return tuple(text.split())


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PASSWORDS = ("password", "passwd", "passphrase", "passcode", "passwort", "pwd")
_WORDS = frozenset(
    listed(
        """
    secret secrets credential credentials creds authorization cookie cookies bearer apikey apikeys jwt mnemonic
    dsn otp totp pw passwords
        """
    )
)
_LAST = frozenset(["token", "pass", "authtoken", "cred"])
"""Words that make a name secret where they end it: ``token_count`` is a number."""
_ENDINGS = (
    *_PASSWORDS,
    *listed(
        """
    apikey accesskey secretkey privatekey sshkey signingkey authkey token secret sessionid sessid credentials
    connectionstring
        """
    ),
)
"""The same, written without anything between: ``PGPASSWORD``, ``accesstoken``."""
_PAIRS = frozenset(
    (kind, last)
    for kinds, lasts in (
        (
            "api access private secret signing encryption auth master ssh account shared storage deploy hmac license",
            "key keys",
        ),
        ("session", "id key cookie"),
        ("connection", "string"),
        ("seed recovery", "phrase"),
        ("recovery backup", "code codes"),
    )
    for kind in kinds.split()
    for last in lasts.split()
)
_HARMLESS_LAST = frozenset(
    listed(
        """
    count counts limit limits length len min max policy policies hint field fields label name names type types
    url uri path file dir folder usage reset required enabled disabled expires expiry expiration at ttl age rate
    size format method scheme version manager provider error errors status consent banner rotation strength
    template prompt message description title id
        """
    )
)
"""Words that, at the end of a name, make it say something about a secret, and hold none."""


@lru_cache(8192)
def looks_secret(name: str) -> bool:
    """Tell whether a name is one under which secrets are kept; counts of tokens are not.

    >>> names = ("api_key", "apiToken", "X-Auth-Token", "PGPASSWORD", "max_tokens", "key", "passage", "token_type")
    >>> [name for name in names if looks_secret(name)]
    ['api_key', 'apiToken', 'X-Auth-Token', 'PGPASSWORD']
    """
    words = _words(name)
    if not words:
        return False
    if words[-1] in _HARMLESS_LAST and words[-2:] not in (["session", "id"], ["key", "id"]):
        return False
    if not _WORDS.isdisjoint(words) or words[-1] in _LAST or any(word.endswith(_ENDINGS) for word in words):
        return True
    return any(pair in _PAIRS for pair in pairwise(words))


def is_password(name: str) -> bool:
    """Tell whether a name is one of passwords, which may be plain words and numbers."""
    return any(word.endswith(_PASSWORDS) or word in ("pass", "pw", "otp", "totp") for word in _words(name))


def _words(name: str) -> list[str]:
    words = [word.lower() for word in _WORD.findall(name[-200:])]
    while words and words[-1].isdigit():  # TOKEN_2
        words.pop()
    return words


# Texts that give a secret under its name: ``password: ...``, ``TOKEN="..."``, ``--api-key ...``, headers, queries.
#
# The names are those of `divebook.text.passwords`; what stands after one is hidden unless it plainly is something
# else: a placeholder, a type, a call in a program, words of a sentence.


REDACTED = "[redacted]"
_HINTS = (
    *("key", "pass", "pwd", "pw", "secret", "token", "auth", "cookie", "cred", "bearer", "jwt", "dsn", "otp", "sess"),
    *("mnemonic", "phrase", "connection", "sig", "code"),
)
_JOINTS = (":", "=", "-", " is ", " was ")
"""One of them stands between any name and its value, or before the name."""
_NAMED = re.compile(
    r"(?<![\w.-])([-.]{0,3}[A-Za-z_][\w.-]{1,80}+)(\\{0,15}+[\"'`]?\]?[ \t]{0,8}+(?:=>|:=|[:=])[ \t]{0,8}+)"
    r"|(?<![\w.-])--?([A-Za-z][\w-]{2,60}+)([ \t]{1,4}+)"
    r"|\b((?i:password|passphrase|passcode|api[ _-]key|access[ _-]key|secret(?: key)?|token))( (?:is|was)(?: now)?:? )"
)
_QUOTED = re.compile(r"(\\{0,15}+[\"'`])((?:(?!\1)[^\n]){1,2000}+)(?=\1)")
_BARE = re.compile(r"[^\s\"'`\\,;&<>(){}\[\]|]{1,2000}+")
_WIDE = re.compile(r"[^\s\"'`\\]{1,2000}+")
_QUOTES = ('"', "'", "`")
_LINE = re.compile(r"[^\n]{1,4000}+")
_INSIDE = {around: re.compile(rf"[^\n{around}]{{1,4000}}+") for around in _QUOTES}
_CREDENTIALS = re.compile(r"[^\n\"'`\\]{1,4000}+")
_SCHEME = re.compile(
    r"(?i)(?:bearer|basic|token|digest|apikey|api-key|bot|key|jwt|negotiate|ntlm|hmac|aws4-hmac-sha256)[ \t]+"
)
_CODE = re.compile(r"[A-Za-z_][\w.]*[\[(]")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\.?")
_PIECE = re.compile(r"[A-Z]?[a-z]{0,14}\d{0,4}|[A-Z]{1,15}\d{0,4}|\d{1,10}")
_APART = re.compile(r"[-_./=+ %]")
_PLACEHOLDER = re.compile(
    r"\$(?:[{(]|[A-Za-z_]+(?![\w@!#%^&*]))|%(?:\w+%|\()|[<{\[(]|[xX]{3,}"
    r"|\.{2,}|…|your[-_ ]|YOUR[-_ ]|-?$|[*•.xX-]+$|\\[nrt]"
)
_ROOTS = """
    home Users root tmp private var etc usr opt run mnt media srv data work workspace workspaces Workspace app apps proc
    dev lib bin sbin sys content kaggle nix snap scratch project projects builds Volumes Library Applications dbfs
"""
_AT_HOME = re.compile(rf"/(?:{'|'.join(_ROOTS.split())})(?:/|$)|~[\w.-]*[/\\]|[A-Za-z]:[\\/][\w. $-]|\\\\[\w.-]+\\\w")
"""How paths begin that are none of anything else."""
_LOCAL = re.compile(r"(?:\.{1,2})?/[\w.@+-]")
"""How paths begin that base64 may begin as well."""
_FILE = re.compile(r"^(?:FILE|file|DIR):(?://)?(?=/|~)")
_LONGEST_PATH = 1_000
_TELLING = frozenset(
    listed(
        """
    none null nil true false yes no str int float bool bytes string number integer boolean object array list
    dict map any optional required unknown undefined missing empty default disabled enabled valid invalid
    expired redacted hidden masked example placeholder not the a an is are was of in for to and or if as with
    must may can should text file password passwords username user secret secrets token tokens authorization
    credentials password1
        """
    )
)
_QUERY = frozenset(
    listed(
        """
    sig signature key code auth hmac x-amz-signature x-amz-credential x-amz-security-token x-goog-signature
    x-goog-credential awsaccesskeyid
        """
    )
)
"""Parameters of addresses that carry credentials, where what they hold is not words."""


@lru_cache(4096)
def is_plain_value(text: str) -> bool:
    """Tell whether a text is made of words and small numbers only, as names and prose are.

    >>> [text for text in ('learn-contrib-2', 'getToken', 'k8Jd0aQz71', 'abcdefghijklmnopqrst') if is_plain_value(text)]
    ['learn-contrib-2', 'getToken']
    """
    pieces = re.sub(r"(?<=[a-z])(?=[A-Z][a-z]{2})", "_", text) if len(text) < 400 else text
    return all(_PIECE.fullmatch(piece) for piece in _APART.split(pieces))


@lru_cache(4096)
def is_telling(value: str) -> bool:
    """Tell whether a value says that there is a secret, of what type or where, and is none itself."""
    bare = value.strip(" .,;:!?")
    is_said = bare.lower() in _TELLING or _PLACEHOLDER.match(bare) is not None or REDACTED in value
    return is_said or is_path(value)


def is_path(value: str) -> bool:
    r"""Tell whether a value is the path of a file or folder, or several: where something is, and no secret.

    >>> paths = ["/home/ann/key7.json", "~/.aws/x", "/srv/a:/srv/b", "C:\\Users\\ann", "./token.txt", "/nb/a.csv"]
    >>> all(map(is_path, paths)), is_path("/9j4AAQSkZJRgABAQ"), is_path("/wJalr7U/K7MDENG/bPxRfi")
    (True, False, False)
    """
    bare = _FILE.sub("", value.strip().rstrip(".,;:!?)'\""))
    if _AT_HOME.match(bare):
        return len(bare) < _LONGEST_PATH and (is_plain_value(bare) or not re.search(r"\s", bare))
    return _LOCAL.match(bare) is not None and bare.count("/") + bare.count(".") > 1 and is_plain_value(bare)


def is_word(value: str) -> bool:
    """Tell whether a value is one of the words that say something about secrets, and could hide no text but itself."""
    return value.lower() in _TELLING


_Value: TypeAlias = tuple[int, int, bool]
"""Where a value begins and ends, and whether it is a secret; what is none is not looked at again."""


class _Found(NamedTuple):
    """A name in a text, with what joins it to a value."""

    name: str
    joint: str
    before: str
    """What its line has before it."""
    end: int
    is_option: bool
    is_prose: bool


def assigned(text: str) -> str:
    """Return a text without the values that it gives under secret names."""
    if not any(joint in text for joint in _JOINTS):
        return text
    lower = text.lower()
    if not any(hint in lower for hint in _HINTS):
        return text
    parts = []
    done = 0
    for match in _NAMED.finditer(text):
        if match.start() < done:
            continue
        kind = (match.lastindex or 2) // 2
        if looks_secret(match[2 * kind - 1]):
            place = _value_of(text, _found(text, match, kind))
        else:
            place = _in_query(text, match)
        if place is None:
            continue
        start, end, is_secret = place
        parts += [text[done:start], REDACTED if is_secret else text[start:end]]
        done = end
    return "".join([*parts, text[done:]]) if parts else text


def named_at(text: str, start: int) -> int | None:
    """Return where after `start` the name of a secret stands with what joins it to a value, or None."""
    matches = _NAMED.finditer(text, start)
    return next(
        (match.start() for match in matches if looks_secret(match[2 * ((match.lastindex or 2) // 2) - 1])), None
    )


def _found(text: str, match: re.Match[str], kind: int) -> _Found:
    name = match[2 * kind - 1]
    joint = match[2 * kind]
    before = text[
        max(text.rfind("\n", max(0, match.start() - 80), match.start()) + 1, match.start() - 80) : match.start()
    ]
    return _Found(name, joint, before, match.end(), kind == 2, kind == 3)


def _value_of(text: str, found: _Found) -> _Value | None:
    """Return the value under a secret name, or None if nothing stands there."""
    header = found.name.lower()
    if header.endswith(("authorization", "cookie")) and ":" in found.joint:
        return _in_cookie(text, found) if header.endswith("cookie") else _in_header(text, found.end)
    quoted = _QUOTED.match(text, found.end)
    if quoted is not None:
        return quoted.start(2), quoted.end(2), _is_secret_text(quoted[2], found)
    starts_line = found.before.strip(" \t-") in ("", "export", "set", "env", "ENV", "ARG")
    value = (_WIDE if starts_line else _BARE).match(text, found.end)
    if value is None:
        return None
    bare = value[0].rstrip(",;)}]") if starts_line else value[0]
    end = found.end + len(bare)
    is_secret = _is_secret_word(bare, text[end : end + 80], found, starts_line=starts_line)
    return found.end, end, is_secret


def _in_query(text: str, match: re.Match[str]) -> _Value | None:
    """Return a credential that an address gives as one of its parameters."""
    if text[match.start() - 1 : match.start()] not in ("?", "&", ";") or match[2] != "=":
        return None
    value = _BARE.match(text, match.end()) if match[1].lower() in _QUERY else None
    return (*value.span(), True) if value and len(value[0]) >= 12 and not is_plain_value(value[0]) else None


def _in_cookie(text: str, found: _Found) -> _Value | None:
    """Return what a header says of cookies: all of its line, or of the quotes around it."""
    opening = text[found.end : found.end + 1]
    begin, around = (found.end + 1, opening) if opening in _QUOTES else (found.end, found.before[-1:])
    if text.find("=", begin, begin + 4000) < 0:
        return None
    line = (_INSIDE[around] if around in _QUOTES else _LINE).match(text, begin)
    return (*line.span(), True) if line is not None and "=" in line[0] else None


def _in_header(text: str, start: int) -> _Value | None:
    """Return what stands in a header after the scheme: all of its line, without a scheme one word."""
    begin = start + (text[start : start + 1] in _QUOTES)
    scheme = _SCHEME.match(text, begin)
    value = _CREDENTIALS.match(text, scheme.end()) if scheme else _BARE.match(text, begin)
    if value is None or is_telling(value[0]):
        return None
    return (*value.span(), scheme is not None or not is_plain_value(value[0]))


def _is_secret_text(value: str, found: _Found) -> bool:
    """Tell whether a value in quotes is a secret: sentences are, only under the name of a password."""
    if len(value) < 4 or is_telling(value) or looks_secret(value):
        return False
    if found.is_prose:
        return not is_plain_value(value)
    return is_password(found.name) or value.count(" ") < 2 or not is_plain_value(value)


def _is_secret_word(value: str, after: str, found: _Found, *, starts_line: bool) -> bool:
    """Tell whether a value without quotes is a secret, and no part of a program or sentence."""
    if len(value) < 4 or value == found.name or is_telling(value) or _CODE.match(value) or after[:1] in ("(", "["):
        return False
    if found.is_prose or found.is_option:
        strong = found.is_option and is_password(found.name)
        return not value.startswith("-") and (strong or len(value) >= 6) and (strong or not is_plain_value(value))
    if len(value) >= 6 and any(map(str.isdigit, value)) and (is_password(found.name) or not value.isdigit()):
        return True
    if not is_plain_value(value) and not (_DOTTED.fullmatch(value) and all(map(is_plain_value, value.split(".")))):
        return True
    if looks_secret(value) or "." in value.rstrip("."):
        return False
    if found.joint.endswith("=") and found.joint.strip("\\\"'`]") == "=":
        return len(value) >= 6
    ends_line = after.strip(" \t,;}\"'")[:1] in ("", "\n", "#")
    return ends_line and is_password(found.name) and (starts_line or len(value) >= 6)


HIDDEN = "***"
_HOST = r"(?:\[[\w.:%]*\]|[\w.%~-]*)(?::\d{1,5})?"
_PLAIN = re.compile(
    rf"[a-z][a-z0-9+.-]*://(?:[^/?#@\s]*@)?{_HOST}(?:,{_HOST})*(?:/[^/?#@\s]*)?(?:\?(?:[\w.-]+=[^&#@\s]*(?:&|$))*)?",
    re.IGNORECASE,
)
_BEGINNING = re.compile(r"[a-z][a-z0-9+.-]*://[^:/?#@\s]*", re.IGNORECASE)
_SECRET = r"(?:\w*password|oauth_client_secret|scram_\w+_key)="  # noqa: S105 - names of libpq's settings
_SETTING = (
    r"(?:application_name|channel_binding|client_encoding|connect_timeout|dbname|fallback_application_name|gss\w+|host"
    r"|hostaddr|keepalives\w*|krb\w+|load_balance_hosts|m(?:ax|in)_protocol_version|oauth_\w+|options|passfile|port"
    r"|replication|require\w+|schema|scram_\w+|service\w*|ssl\w+|target_session_attrs|tcp_user_timeout|user)="
)
"""Names of settings, libpq's and ours: what follows a password there as another one is a part of it."""
_POSTGRES = re.compile(r"postgres(?:ql)?://", re.IGNORECASE)


def _hidden(given: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return what finds passwords, and what finds them with what names them; `given` is one in a query."""
    return (
        re.compile(rf"(://[^/?#:@]*:)[^/?#@]*(?=@)|([?&]{_SECRET}){given}", re.IGNORECASE),
        re.compile(rf"(://[^/?#:@]*):[^/?#@]*(?=@)|([?&]){_SECRET}{given}&?", re.IGNORECASE),
    )


_OF_ANY = _hidden(r"[^&#]*")
_OF_POSTGRES = _hidden(rf"(?:(?!&{_SETTING}|&\w*password=)[^#])*")
_HIDING = rf"(?:{re.escape(HIDDEN)}|{re.escape(REDACTED)})"
_UNKNOWN = re.compile(rf":{_HIDING}@|={_HIDING}(?=&|$)")
_KEYS = r"(?:host|hostaddr|port|dbname|user|password|passfile|service|sslmode|connect_timeout|options)"
_OF_LIBPQ = re.compile(
    rf"(?:^|\s)(?:ssl)?password\s*=|^\s*{_KEYS}\s*=\s*\S+\s+{_KEYS}\s*=|^\s*dbname\s*=|^\s*postgres(?:ql)?:(?!//)",
    re.IGNORECASE,
)


def is_plain(url: str) -> bool:
    """Return whether each part of a URL is where it should be, so that its password is where it seems to be."""
    return _PLAIN.fullmatch(url) is not None


def without_password(url: str) -> str:
    """Return a URL as it may be shown and kept.

    Examples
    --------
    >>> without_password("postgresql://ann:secret@host/db")
    'postgresql://ann:***@host/db'
    >>> without_password("postgresql://ann:se/cret@host/db")
    'postgresql://ann:***'
    """
    if is_plain(url):
        return _passwords(url)[0].sub(lambda found: f"{found[1] or found[2]}{HIDDEN}", url)
    return cut_short(url) if "://" in url or names_database(url) else url


def cut_short(url: str) -> str:
    """Return of a URL that is none what cannot be a part of its password."""
    beginning = _BEGINNING.match(url)
    return f"{beginning[0]}:{HIDDEN}" if beginning else HIDDEN


def for_command(location: str) -> str:
    """Return a store's location as a command can be given it, which finds the password where it is kept.

    Examples
    --------
    >>> for_command("postgresql://ann:***@host/db?schema=runs")
    'postgresql://ann@host/db?schema=runs'
    """
    if not is_plain(location):
        return location
    return _passwords(location)[1].sub(lambda found: found[1] or found[2], location).rstrip("?&")


def _passwords(url: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    return _OF_POSTGRES if _POSTGRES.match(url) else _OF_ANY


def is_hidden(url: str) -> bool:
    """Return whether a URL was copied from where its password is not shown."""
    return _UNKNOWN.search(url) is not None


def names_database(location: str) -> bool:
    """Return whether a location, by its form the path of a file, means a database: ``host=h password=p``, say."""
    return _OF_LIBPQ.search(location) is not None
