"""Detection of secrets by name: names that look secret, values assigned to such names in text, and passwords in URLs.

Three parts build on one another:

1. `looks_secret` classifies a name: ``API_TOKEN`` is the name of a secret, ``max_tokens`` is not.
2. `assigned` hides values that a text assigns to such names: ``API_TOKEN=k8Jd0aQz71`` becomes ``API_TOKEN=[redacted]``.
3. `without_password` hides the password of a URL.

A malformed URL is mostly a URL with a password that was not percent-encoded. Such a URL is hidden from the first
position where its password may begin, and no store opens it (test_no_password_is_shown_however_a_url_is_mistyped).
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeAlias

# --- names of secrets: variables, keys, headers and options ---------------------------------------------------------


def listed(text: str) -> tuple[str, ...]:
    """Split a string that lists many words, such as the tables of this module, at spaces and line ends."""
    return tuple(text.split())


# Words in names of all styles: "APIKey_2", "apiKey2" and "api-key-2" -> api, key, 2. A run of capitals ends before the
# capital that begins a word in lower case ("HTTPServer" -> HTTP, Server).
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
"""Words that make a name secret only at its end: ``token_count`` is a number."""
_ENDINGS = (
    *_PASSWORDS,
    *listed(
        """
    apikey accesskey secretkey privatekey sshkey signingkey authkey token secret sessionid sessid credentials
    connectionstring
        """
    ),
)
"""Endings of words without a separator that make a name secret: ``PGPASSWORD``, ``accesstoken``."""
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
"""Adjacent words that make a name secret together: ``api_key``, ``recovery_code``."""
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
"""Last words of names that describe a secret but do not hold one: ``token_type``, ``secret_url``."""


@lru_cache(8192)
def looks_secret(name: str) -> bool:
    """Return True if a name is typical for a secret, such as ``api_key``. Counts of tokens are not secrets.

    >>> names = ("api_key", "apiToken", "X-Auth-Token", "PGPASSWORD", "max_tokens", "key", "passage", "token_type")
    >>> [name for name in names if looks_secret(name)]
    ['api_key', 'apiToken', 'X-Auth-Token', 'PGPASSWORD']
    """
    words = _words(name)
    if not words:
        return False
    # The last word decides, except in two names: a session id is a secret by itself, and ``access_key_id`` contains the
    # pair ``access_key``.
    if words[-1] in _HARMLESS_LAST and words[-2:] not in (["session", "id"], ["key", "id"]):
        return False
    if not _WORDS.isdisjoint(words) or words[-1] in _LAST or any(word.endswith(_ENDINGS) for word in words):
        return True
    return any(pair in _PAIRS for pair in pairwise(words))


def is_password(name: str) -> bool:
    """Return True if a name is typical for a password. Unlike a token, a password may consist of plain words and
    numbers.
    """
    return any(word.endswith(_PASSWORDS) or word in ("pass", "pw", "otp", "totp") for word in _words(name))


def _words(name: str) -> list[str]:
    """Split a name into words in lower case, without a number at the end: ``AuthToken_2`` into ``auth`` and
    ``token``.
    """
    # The limit bounds the time for hostile names. The end is kept, since the last words decide about most names.
    words = [word.lower() for word in _WORD.findall(name[-200:])]
    while words and words[-1].isdigit():  # TOKEN_2
        words.pop()
    return words


# --- values assigned to names of secrets in text --------------------------------------------------------------------
#
# Forms of assignment: ``password: ...``, ``TOKEN="..."``, ``--api-key ...``, headers, parameters of URLs, sentences
# (``the password is ...``). The value after the name of a secret is hidden unless it is clearly something else: a
# placeholder, a type, a call in a program, words of a sentence.
#
# In ``export DB_PASSWORD=hunter2 # for tests`` the pattern `_NAMED` finds the name ``DB_PASSWORD`` and the joint ``=``.
# `looks_secret` accepts the name. `_value_of` finds the value ``hunter2``, and `_is_secret_word` decides that it is a
# secret, because it has six characters and a digit. In ``password = getpass()`` the value is a call, and stays.


REDACTED = "[redacted]"
_HINTS = (
    *("key", "pass", "pwd", "pw", "secret", "token", "auth", "cookie", "cred", "bearer", "jwt", "dsn", "otp", "sess"),
    *("mnemonic", "phrase", "connection", "sig", "code"),
)
_JOINTS = (":", "=", "-", " is ", " was ")
"""Characters of which every assignment contains some, between the name and the value or before the name."""
# Three alternatives with two groups each: a name and its joint, an option and the spaces after it, the subject and the
# verb of a sentence. All runs are possessive (``++``), so that a text without an assignment is read once. Up to 15
# backslashes precede a quote, since JSON inside JSON inside a shell escapes quotes repeatedly.
_NAMED = re.compile(
    r"(?<![\w.-])([-.]{0,3}[A-Za-z_][\w.-]{1,80}+)(\\{0,15}+[\"'`]?\]?[ \t]{0,8}+(?:=>|:=|[:=])[ \t]{0,8}+)"
    r"|(?<![\w.-])--?([A-Za-z][\w-]{2,60}+)([ \t]{1,4}+)"
    r"|\b((?i:password|passphrase|passcode|api[ _-]key|access[ _-]key|secret(?: key)?|token))( (?:is|was)(?: now)?:? )"
)
_QUOTED = re.compile(r"(\\{0,15}+[\"'`])((?:(?!\1)[^\n]){1,2000}+)(?=\1)")
# A literal, also one that lacks its closing quote because the text was cut.
_LITERAL = re.compile(r"[bBrRuU]{0,2}(\\{0,15}+[\"'])((?:(?!\1)(?:\\.|[^\n\\])){0,2000}+)(?:\1)?")
_LONGEST_BRACKET = 2_000
_DEEPEST = 20
# A list, tuple, dict or object: the names of classes begin with a capital letter, and those of functions do not.
_BRACKET = re.compile(r"(?:(?:\w{1,80}\.){0,5}[A-Z]\w{0,80})?[\[({]")
_BARE = re.compile(r"[^\s\"'`\\,;&<>(){}\[\]|]{1,2000}+")
# At the beginning of a line, as in ``TOKEN=a&b;c``, only a space ends a value. Elsewhere it may be an item of a list or
# a parameter of a URL, and ends at a comma, bracket or ampersand (`_BARE`).
_WIDE = re.compile(r"[^\s\"'`\\]{1,2000}+")
_QUOTES = ('"', "'", "`")
_LINE = re.compile(r"[^\n]{1,4000}+")
_INSIDE = {around: re.compile(rf"[^\n{around}]{{1,4000}}+") for around in _QUOTES}
_CREDENTIALS = re.compile(r"[^\n\"'`\\]{1,4000}+")
_SCHEME = re.compile(
    r"(?i)(?:bearer|basic|token|digest|apikey|api-key|bot|key|jwt|negotiate|ntlm|hmac|aws4-hmac-sha256)[ \t]+"
)
# A call or an index, such as ``getpass(`` or ``settings["token"``.
_CODE = re.compile(r"[A-Za-z_][\w.]*[\[(]")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\.?")
# Pieces of plain text: a word of at most 15 letters with a short number, a word in capitals, or a number. Random
# characters change between cases and digits, and do not fit.
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
"""Pattern for beginnings that only paths have, such as ``~/``."""
_LOCAL = re.compile(r"(?:\.{1,2})?/[\w.@+-]")
"""Pattern for beginnings of paths that base64 data may have as well."""
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
"""Parameters of URLs that hold credentials, unless their value consists of plain words."""


@lru_cache(4096)
def is_plain_value(text: str) -> bool:
    """Return True if a text consists only of words and small numbers, as names and prose do and secrets do not.

    >>> [text for text in ('learn-contrib-2', 'getToken', 'k8Jd0aQz71', 'abcdefghijklmnopqrst') if is_plain_value(text)]
    ['learn-contrib-2', 'getToken']
    """
    # "getToken" -> "get_Token", so that camel case counts as two words.
    pieces = re.sub(r"(?<=[a-z])(?=[A-Z][a-z]{2})", "_", text) if len(text) < 400 else text
    return all(_PIECE.fullmatch(piece) for piece in _APART.split(pieces))


@lru_cache(4096)
def describes_secret(value: str) -> bool:
    """Return True if a value is not itself a secret, but only describes one: it states the secret's type, says that the
    secret is missing, or is the path of a file.
    """
    bare = value.strip(" .,;:!?")
    is_description = bare.lower() in _TELLING or _PLACEHOLDER.match(bare) is not None or REDACTED in value
    return is_description or is_path(value)


def is_path(value: str) -> bool:
    r"""Return True if a value is a path of a file or folder, or a list of paths. Paths are not secrets.

    >>> paths = ["/home/ann/key7.json", "~/.aws/x", "/srv/a:/srv/b", "C:\\Users\\ann", "./token.txt", "/nb/a.csv"]
    >>> all(map(is_path, paths)), is_path("/9j4AAQSkZJRgABAQ"), is_path("/wJalr7U/K7MDENG/bPxRfi")
    (True, False, False)
    """
    bare = _FILE.sub("", value.strip().rstrip(".,;:!?)'\""))
    if _AT_HOME.match(bare):
        # A path may contain spaces only if it consists of plain words. Other text with spaces may contain a secret
        # behind the path.
        return len(bare) < _LONGEST_PATH and (is_plain_value(bare) or not re.search(r"\s", bare))
    # Base64 data may begin like an absolute path (``/9j4AAQSkZJRg``). A path has several separators, with plain words
    # between them.
    return _LOCAL.match(bare) is not None and bare.count("/") + bare.count(".") > 1 and is_plain_value(bare)


def is_word(value: str) -> bool:
    """Return True for common words such as ``none`` or ``password``. Such a word may be the value of a secret, but its
    other occurrences in a text are not hidden.

    If they were hidden wherever they occur, text would be unreadable.
    """
    return value.lower() in _TELLING


_Value: TypeAlias = tuple[int, int, bool]
"""Start and end of a value in a text, and True if the value is a secret. Other values are not examined again."""


class _Assignment(NamedTuple):
    """An assignment to the name of a secret in a text, such as ``token=``: the name, and the characters that join it to
    the value.
    """

    name: str
    joint: str
    before: str
    """Text before the name on its line, at most 80 characters."""
    end: int
    """Position after the joint, where the value begins."""
    is_option: bool
    """True for an option of a command, such as ``--api-key``."""
    is_prose: bool
    """True for a sentence, such as ``the password is ...``."""


def assigned(text: str) -> str:
    """Replace in a text each value that is assigned to the name of a secret, such as the value in ``API_TOKEN=...``.
    Other text stays unchanged.
    """
    # Two cheap tests reject most texts: they must contain a joint (such as ``=``) and a part of a secret's name.
    if not any(joint in text for joint in _JOINTS):
        return text
    lower = text.lower()
    if not any(hint in lower for hint in _HINTS):
        return text
    parts = []
    # Position up to which `text` is copied to `parts`, or belongs to a value that was visited.
    done = 0
    for match in _NAMED.finditer(text):
        # A name inside a value that was visited, as in ``TOKEN="key=a1b2c3d4"``.
        if match.start() < done:
            continue
        # Each alternative of `_NAMED` has two groups, so that the last group (2, 4 or 6) gives its number.
        kind = (match.lastindex or 2) // 2
        if looks_secret(match[2 * kind - 1]):
            place = _value_of(text, _assignment(text, match, kind))
        else:
            # ``?sig=...``: a name that is harmless elsewhere may hold a credential in a URL.
            place = _in_query(text, match)
        if place is None:
            continue
        start, end, is_secret = place
        parts += [text[done:start], REDACTED if is_secret else text[start:end]]
        done = end
    return "".join([*parts, text[done:]]) if parts else text


def named_at(text: str, start: int) -> int | None:
    """Return the position at which the first assignment to the name of a secret begins, searching from `start` on; None
    if there is none.
    """
    for match in _NAMED.finditer(text, start):
        kind = (match.lastindex or 2) // 2
        if looks_secret(match[2 * kind - 1]):
            return match.start()
    return None


def _assignment(text: str, match: re.Match[str], kind: int) -> _Assignment:
    """Convert a match of the regular expression `_NAMED`, which finds names with an assigned value, to an
    `_Assignment`.

    `kind` is the alternative that matched: 1 for a name with a joint, 2 for an option, 3 for a sentence.
    """
    name = match[2 * kind - 1]
    joint = match[2 * kind]
    # The text before the name is compared with a few short words only, so that 80 characters are enough. The limit
    # keeps the time constant for a text without line ends.
    earliest = max(0, match.start() - 80)
    line_start = text.rfind("\n", earliest, match.start()) + 1
    before = text[max(line_start, match.start() - 80) : match.start()]
    return _Assignment(name, joint, before, match.end(), kind == 2, kind == 3)


def _value_of(text: str, assignment: _Assignment) -> _Value | None:
    """Find the value in an assignment to the name of a secret. Return its position and True if it must be hidden; None
    if no value follows.

    The headers ``Authorization`` and ``Cookie`` have separate rules. A value in quotes ends at the closing quote. Any
    other value ends at a space; inside a line also at a comma or bracket, which separate values there.
    """
    header = assignment.name.lower()
    if header.endswith(("authorization", "cookie")) and ":" in assignment.joint:
        return _in_cookie(text, assignment) if header.endswith("cookie") else _in_header(text, assignment.end)
    literal = _literal_of(text, assignment)
    if literal is not None:
        return literal
    quoted = _QUOTED.match(text, assignment.end)
    if quoted is not None:
        return quoted.start(2), quoted.end(2), _is_secret_text(quoted[2], assignment)
    # These words precede an assignment in a shell or a Dockerfile.
    starts_line = assignment.before.strip(" \t-") in ("", "export", "set", "env", "ENV", "ARG")
    value = (_WIDE if starts_line else _BARE).match(text, assignment.end)
    if value is None:
        return None
    # A line of a list, such as ``TOKEN: abc,``: the comma is not part of the value.
    bare = value[0].rstrip(",;)}]") if starts_line else value[0]
    end = assignment.end + len(bare)
    is_secret = _is_secret_word(bare, text[end : end + 80], assignment, starts_line=starts_line)
    return assignment.end, end, is_secret


def _literal_of(text: str, assignment: _Assignment) -> _Value | None:
    """Find the literal of a field of an object, or of a key of a dict, as Python and JSON write them. Return its
    position and True if it must be hidden; None for another form of assignment or value.

    Here a value is certain to belong to its name. Therefore a short one is hidden as well, and a list or an object as a
    whole: ``Login(token='q7x')``, ``{'passwords': ['a', 'b']}``.
    """
    before = assignment.before
    if assignment.joint.strip() == "=":
        # The text of a pydantic model separates its fields by spaces: ``token='q7x' n=1``.
        is_field = assignment.joint == "=" or before.rstrip()[-1:] in ("(", ",")
    else:
        # The quotes are around the name, and may be escaped.
        around = before.rstrip("\\\"'").rstrip()[-1:]
        is_field = ":" in assignment.joint and before[-1:] in _QUOTES and around in ("{", ",")
    if not is_field:
        return None
    quoted = _LITERAL.match(text, assignment.end)
    if quoted is not None:
        return quoted.start(2), quoted.end(2), _is_literal_secret(quoted[2])
    opening = _BRACKET.match(text, assignment.end)
    if opening is None:
        return None
    end = _end_of_bracket(text, opening.end())
    # A key of a dict is not a value: ``{'type': 'string'}`` describes a password.
    literals = (
        literal[2]
        for literal in _LITERAL.finditer(text, opening.end(), end)
        if text[literal.end() : literal.end() + 4].lstrip()[:1] != ":"
    )
    # Names inside a bracket that is shown are examined by themselves.
    return (assignment.end, end, True) if any(map(_is_literal_secret, literals)) else None


def _is_literal_secret(content: str) -> bool:
    return bool(content) and not describes_secret(content) and not looks_secret(content)


def _end_of_bracket(text: str, start: int) -> int:
    """Return the position behind the bracket that closes the one before `start`. Brackets in quotes do not count. In a
    text that was cut, this is the end of the line.
    """
    depth = 1
    place = start
    # The limits keep the time constant for a hostile text, in which each bracket is the value of a name.
    last = min(len(text), start + _LONGEST_BRACKET)
    while 0 < depth < _DEEPEST and place < last and text[place] != "\n":
        quoted = _LITERAL.match(text, place)
        if quoted is not None:
            place = quoted.end()
            continue
        depth += (text[place] in "([{") - (text[place] in ")]}")
        place += 1
    return place


def _in_query(text: str, match: re.Match[str]) -> _Value | None:
    """Find the value of a URL parameter that is a credential, such as a signature. Return its position; None for any
    other parameter.
    """
    if text[match.start() - 1 : match.start()] not in ("?", "&", ";") or match[2] != "=":
        return None
    value = _BARE.match(text, match.end()) if match[1].lower() in _QUERY else None
    return (*value.span(), True) if value and len(value[0]) >= 12 and not is_plain_value(value[0]) else None


def _in_cookie(text: str, assignment: _Assignment) -> _Value | None:
    """Find the value of a cookie header: the rest of the line, or of the quotes around the header. Return its position;
    None if no cookie follows.
    """
    # The quotes are around the value (``"Cookie": "a=1"``), or around the whole header (``-H "Cookie: a=1"``), where
    # the opening one precedes the name.
    opening = text[assignment.end : assignment.end + 1]
    if opening in _QUOTES:
        begin = assignment.end + 1
        around = opening
    else:
        begin = assignment.end
        around = assignment.before[-1:]
    # A value without ``=`` has no cookie. The limit is that of the patterns below.
    if text.find("=", begin, begin + 4000) < 0:
        return None
    line = (_INSIDE[around] if around in _QUOTES else _LINE).match(text, begin)
    return (*line.span(), True) if line is not None and "=" in line[0] else None


def _in_header(text: str, start: int) -> _Value | None:
    """Find the credentials in an authorization header: the rest of the line after a scheme such as ``Bearer``, or one
    word. Return their position and True if they must be hidden; None if no credentials follow.
    """
    # A quote after the joint is not part of the credentials: ``"Authorization": "Bearer ..."``.
    begin = start + (text[start : start + 1] in _QUOTES)
    scheme = _SCHEME.match(text, begin)
    value = _CREDENTIALS.match(text, scheme.end()) if scheme else _BARE.match(text, begin)
    if value is None or describes_secret(value[0]):
        return None
    return (*value.span(), scheme is not None or not is_plain_value(value[0]))


def _is_secret_text(value: str, assignment: _Assignment) -> bool:
    """Return True if a quoted value that is assigned to the name of a secret is itself a secret. A sentence of plain
    words is a secret only if the name is typical for a password.
    """
    if len(value) < 4 or describes_secret(value) or looks_secret(value):
        return False
    if assignment.is_prose:
        return not is_plain_value(value)
    return is_password(assignment.name) or value.count(" ") < 2 or not is_plain_value(value)


def _is_secret_word(value: str, after: str, assignment: _Assignment, *, starts_line: bool) -> bool:
    """Return True if an unquoted value after the name of a secret is a secret. In ``token = getpass()`` and
    ``the token is valid`` the value is a part of a program or sentence and not a secret.

    The tests are ordered from clear cases to doubtful cases.
    """
    # Too short, a placeholder, or a call such as ``password = getpass()``.
    if len(value) < 4 or value == assignment.name or describes_secret(value):
        return False
    if _CODE.match(value) or after[:1] in ("(", "["):
        return False
    # ``--api-key VALUE`` and ``the token is VALUE``: mostly prose, unless the value has the form of a key.
    if assignment.is_prose or assignment.is_option:
        if value.startswith("-"):
            return False
        if assignment.is_option and is_password(assignment.name):
            return True
        return len(value) >= 6 and not is_plain_value(value)
    # Digits: ``hunter2`` is a secret; ``123456`` is one only under the name of a password.
    if len(value) >= 6 and any(map(str.isdigit, value)) and (is_password(assignment.name) or not value.isdigit()):
        return True
    # Characters in no order, but not a dotted name of a program such as ``settings.token``.
    if not is_plain_value(value) and not (_DOTTED.fullmatch(value) and all(map(is_plain_value, value.split(".")))):
        return True
    # From here on the value consists of plain words. Another name, as in ``token=api_token``, is part of a program.
    if looks_secret(value) or "." in value.rstrip("."):
        return False
    # ``TOKEN=word`` without spaces is an assignment of a shell or a settings file.
    if assignment.joint.endswith("=") and assignment.joint.strip("\\\"'`]") == "=":
        return len(value) >= 6
    # ``password: word`` counts only if nothing follows on the line.
    ends_line = after.strip(" \t,;}\"'")[:1] in ("", "\n", "#")
    return ends_line and is_password(assignment.name) and (starts_line or len(value) >= 6)


# --- passwords in URLs ----------------------------------------------------------------------------------------------


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
"""Pattern for settings of libpq and divebook in the query of a URL.

After a password, ``&`` begins a new setting only before one of these names; otherwise it is part of the password.
"""
_POSTGRES = re.compile(r"postgres(?:ql)?://", re.IGNORECASE)


def _hidden(value: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return two regular expressions that find the passwords in a URL. The first serves to replace a password by
    ``***``, the second to remove it together with the name of its parameter.

    `value` is the regular expression of a password in a query.
    """
    return (
        re.compile(rf"(://[^/?#:@]*:)[^/?#@]*(?=@)|([?&]{_SECRET}){value}", re.IGNORECASE),
        re.compile(rf"(://[^/?#:@]*):[^/?#@]*(?=@)|([?&]){_SECRET}{value}&?", re.IGNORECASE),
    )


# In a URL of Postgres, ``&`` may be part of a password, as in ``?password=a&b``. Elsewhere it always ends the password.
_OF_ANY = _hidden(r"[^&#]*")
_OF_POSTGRES = _hidden(rf"(?:(?!&{_SETTING}|&\w*password=)[^#])*")
_HIDING = rf"(?:{re.escape(HIDDEN)}|{re.escape(REDACTED)})"
_UNKNOWN = re.compile(rf":{_HIDING}@|={_HIDING}(?=&|$)")
_KEYS = r"(?:host|hostaddr|port|dbname|user|password|passfile|service|sslmode|connect_timeout|options)"
# Connection strings without ``://``: a password, two settings, the setting ``dbname`` at the beginning, or the scheme
# alone.
_OF_LIBPQ = re.compile(
    rf"(?:^|\s)(?:ssl)?password\s*=|^\s*{_KEYS}\s*=\s*\S+\s+{_KEYS}\s*=|^\s*dbname\s*=|^\s*postgres(?:ql)?:(?!//)",
    re.IGNORECASE,
)


def is_plain(url: str) -> bool:
    """Return True if a URL is well-formed, so that it is certain where its password is. The password in a malformed URL
    cannot be found reliably.
    """
    return _PLAIN.fullmatch(url) is not None


def without_password(url: str) -> str:
    """Hide the password in a URL for display or storage. A malformed URL is cut off before its password.

    Examples
    --------
    >>> without_password("postgresql://ann:secret@host/db")
    'postgresql://ann:***@host/db'
    >>> without_password("postgresql://ann:se/cret@host/db")
    'postgresql://ann:***'
    """
    if is_plain(url):
        # Group 1 is the part of the URL before a password of a user, group 2 the name of a parameter.
        return _passwords(url)[0].sub(lambda match: f"{match[1] or match[2]}{HIDDEN}", url)
    return cut_short(url) if "://" in url or names_database(url) else url


def cut_short(url: str) -> str:
    """Return the part of a malformed URL before the position where its password may begin, with ``***`` appended."""
    beginning = _BEGINNING.match(url)
    return f"{beginning[0]}:{HIDDEN}" if beginning else HIDDEN


def for_command(location: str) -> str:
    """Return the location of a store for a command that is shown to the user, who runs it later. The password in the
    location is removed; the command finds it by itself.

    Examples
    --------
    >>> for_command("postgresql://ann:***@host/db?schema=runs")
    'postgresql://ann@host/db?schema=runs'
    """
    if not is_plain(location):
        # Options that are not URLs pass through here as well.
        return location
    return _passwords(location)[1].sub(lambda match: match[1] or match[2], location).rstrip("?&")


def _passwords(url: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    return _OF_POSTGRES if _POSTGRES.match(url) else _OF_ANY


def is_hidden(url: str) -> bool:
    """Return True if a URL contains a masked password (``***``). Such a URL was copied from displayed text, and cannot
    be opened.
    """
    return _UNKNOWN.search(url) is not None


def names_database(location: str) -> bool:
    """Return True if a location looks like a file path but is a connection string, such as ``host=h password=p``."""
    return _OF_LIBPQ.search(location) is not None
