"""Texts that give a secret under its name: ``password: ...``, ``TOKEN="..."``, ``--api-key ...``, headers, queries.

The names are those of `divebook.text.secret_names`; what stands after one is hidden unless it plainly is something
else: a placeholder, a type, a call in a program, words of a sentence.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from divebook.text.secret_names import is_password, listed, looks_secret

HIDDEN = "[redacted]"
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
def is_plain(text: str) -> bool:
    """Tell whether a text is made of words and small numbers only, as names and prose are.

    >>> [text for text in ("learn-contrib-2", "getToken", "k8Jd0aQz71", "abcdefghijklmnopqrstu") if is_plain(text)]
    ['learn-contrib-2', 'getToken']
    """
    pieces = re.sub(r"(?<=[a-z])(?=[A-Z][a-z]{2})", "_", text) if len(text) < 400 else text
    return all(_PIECE.fullmatch(piece) for piece in _APART.split(pieces))


@lru_cache(4096)
def is_telling(value: str) -> bool:
    """Tell whether a value says that there is a secret, of what type or where, and is none itself."""
    bare = value.strip(" .,;:!?")
    is_said = bare.lower() in _TELLING or _PLACEHOLDER.match(bare) is not None or HIDDEN in value
    return is_said or is_path(value)


def is_path(value: str) -> bool:
    r"""Tell whether a value is the path of a file or folder, or several: where something is, and no secret.

    >>> paths = ["/home/ann/key7.json", "~/.aws/x", "/srv/a:/srv/b", "C:\\Users\\ann", "./token.txt", "/nb/a.csv"]
    >>> all(map(is_path, paths)), is_path("/9j4AAQSkZJRgABAQ"), is_path("/wJalr7U/K7MDENG/bPxRfi")
    (True, False, False)
    """
    bare = _FILE.sub("", value.strip().rstrip(".,;:!?)'\""))
    if _AT_HOME.match(bare):
        return len(bare) < _LONGEST_PATH and (is_plain(bare) or not re.search(r"\s", bare))
    return _LOCAL.match(bare) is not None and bare.count("/") + bare.count(".") > 1 and is_plain(bare)


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
    parts, done = [], 0
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
        parts += [text[done:start], HIDDEN if is_secret else text[start:end]]
        done = end
    return "".join([*parts, text[done:]]) if parts else text


def named_at(text: str, start: int) -> int | None:
    """Return where after `start` the name of a secret stands with what joins it to a value, or None."""
    matches = _NAMED.finditer(text, start)
    return next(
        (match.start() for match in matches if looks_secret(match[2 * ((match.lastindex or 2) // 2) - 1])), None
    )


def _found(text: str, match: re.Match[str], kind: int) -> _Found:
    name, joint = match[2 * kind - 1], match[2 * kind]
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
    return (*value.span(), True) if value and len(value[0]) >= 12 and not is_plain(value[0]) else None


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
    return (*value.span(), scheme is not None or not is_plain(value[0]))


def _is_secret_text(value: str, found: _Found) -> bool:
    """Tell whether a value in quotes is a secret: sentences are, only under the name of a password."""
    if len(value) < 4 or is_telling(value) or looks_secret(value):
        return False
    if found.is_prose:
        return not is_plain(value)
    return is_password(found.name) or value.count(" ") < 2 or not is_plain(value)


def _is_secret_word(value: str, after: str, found: _Found, *, starts_line: bool) -> bool:
    """Tell whether a value without quotes is a secret, and no part of a program or sentence."""
    if len(value) < 4 or value == found.name or is_telling(value) or _CODE.match(value) or after[:1] in ("(", "["):
        return False
    if found.is_prose or found.is_option:
        strong = found.is_option and is_password(found.name)
        return not value.startswith("-") and (strong or len(value) >= 6) and (strong or not is_plain(value))
    if len(value) >= 6 and any(map(str.isdigit, value)) and (is_password(found.name) or not value.isdigit()):
        return True
    if not is_plain(value) and not (_DOTTED.fullmatch(value) and all(map(is_plain, value.split(".")))):
        return True
    if looks_secret(value) or "." in value.rstrip("."):
        return False
    if found.joint.endswith("=") and found.joint.strip("\\\"'`]") == "=":
        return len(value) >= 6
    ends_line = after.strip(" \t,;}\"'")[:1] in ("", "\n", "#")
    return ends_line and is_password(found.name) and (starts_line or len(value) >= 6)
