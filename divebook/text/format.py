"""Formatting of text and values for display, and differences between two texts or values.

Text of models, users and logs may contain control characters. They could move a cursor, change colours or reorder text,
so that a reader sees something that is not there. `visible` replaces them by escapes.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from difflib import SequenceMatcher
from io import StringIO
from marshal import dumps
from typing import Any, Literal, NamedTuple, TypeAlias, overload

from divebook.text.passwords import for_command

# Control characters except tab (09) and line feed (0a).
_CONTROLS = "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f"
# Marks of the writing direction, characters of no width, line separators other than the line feed, and surrogates.
_REORDERING = "\\u061c\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u2069\\ufeff\\ufff9-\\ufffb\\ud800-\\udfff"
_TEN_CENTS = 0.1
_NANODOLLAR_DECIMALS = 9
AS_TEXT = "mathjax_ignore tex2jax_ignore"
"""CSS class of HTML elements in which notebook pages do not render formulas. Without the class, the dollar signs of two
prices would enclose a formula (`tests/notebook/test_looking.py`).
"""
UNSAFE = re.compile(f"[{_CONTROLS}{_REORDERING}]")


def visible(text: str) -> str:
    r"""Replace control characters and marks of the writing direction in a text by escapes, so that they can be seen.
    Line ends and tabs stay.

    >>> visible("a\x1b[31mb\u202ec")
    'a\\x1b[31mb\\u202ec'
    """
    # A carriage return alone moves the cursor to the beginning of the line, and stays visible. Before a line feed it is
    # an ordinary line end of Windows.
    return UNSAFE.sub(_spelled, text.replace("\r\n", "\n"))


def _spelled(match: re.Match[str]) -> str:
    # "surrogatepass" lets unpaired surrogates through, which the codec would refuse.
    return match[0].encode("unicode_escape", "surrogatepass").decode("ascii")


def as_unicode(text: str) -> str:
    r"""Replace each unpaired surrogate in a text by its escape, so that UTF-8 can encode the text.

    >>> as_unicode("a\ud800")
    'a\\ud800'
    """
    return text.encode("utf-8", "backslashreplace").decode()


def size(count: int) -> str:
    """Format a number of bytes with a suitable unit, such as kB.

    >>> size(812), size(1_240), size(3_400_000), size(999_960)
    ('812 B', '1.2 kB', '3.4 MB', '1.0 MB')
    """
    if count < 1000:
        return f"{count} B"
    value = count / 1000
    units = ["kB", "MB", "GB", "TB"]
    # 999.95 kB would be rounded to "1000.0 kB".
    while value >= 999.95 and len(units) > 1:
        value = value / 1000
        units = units[1:]
    return f"{value:.1f} {units[0]}"


# A number and a letter, in either case: "1024", "512m", "1.5GB", ".5g", "1e9". The limits keep the number finite.
_SIZE = re.compile(r"((?:[0-9]{1,30}\.?|(?=\.[0-9])\.)[0-9]{0,30}(?:e[+-]?[0-9]{1,2})?)([kmgt]?)b?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Parse a size such as ``512m``, ``1.5gb`` or ``1024`` and return bytes. The letters k, m, g and t are powers of
    1024.

    >>> parse_size("512m"), parse_size("1.5GB"), parse_size("1024"), parse_size("1e9")
    (536870912, 1610612736, 1024, 1000000000)

    Raises
    ------
    ValueError
        `text` is not a size.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size such as 512m")
    number, letter = match.groups()
    return int(float(number) * 1024 ** " kmgt".index(letter.lower() or " "))


def branch_name(path_id: str) -> str:
    """Return the display name of a path of an execution, such as ``branch 1``; empty for the first path.

    >>> branch_name("main"), branch_name("main-1"), branch_name("main-1-2"), branch_name("rollback-3")
    ('', 'branch 1', 'branch 1.2', 'rollback 3')
    """
    # "main-1-2" -> kind "main", numbers "1-2" -> "branch 1.2".
    kind, _, numbers = path_id.partition("-")
    noun = "rollback" if kind == "rollback" else "branch"
    return f"{noun} {numbers.replace('-', '.')}" if numbers else ""


def price(dollars: float) -> str:
    """Format a cost in US dollars: with two decimals; below ten cents with four, or as many as show two digits.

    >>> price(0.00412), price(1.956), price(0), price(0.00002)
    ('$0.0041', '$1.96', '$0.00', '$0.000020')
    """
    if not 0 < dollars < _TEN_CENTS:
        return f"${dollars:,.2f}"
    decimals = 4
    # 0.00002 * 10^5 = 2 has its first digit before the point, so that 6 decimals show two digits.
    while decimals < _NANODOLLAR_DECIMALS and dollars * 10 ** (decimals - 1) < 1:
        decimals += 1
    return f"${dollars:.{decimals}f}"


def plural(count: int, noun: str) -> str:
    """Format a count together with its noun in singular or plural.

    >>> plural(1, "model call"), plural(1200, "token")
    ('1 model call', '1,200 tokens')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


# --- lines of a text ------------------------------------------------------------------------------------------------


def lines_in(text: str) -> list[str]:
    r"""Split a text into lines that keep their line ends. Only a line feed ends a line, as in git and in text editors.

    `str.splitlines` also splits at form feeds and other characters, so that its line numbers differ from those of other
    programs.

    >>> lines_in("a\x0cb\r\n\u2028c")
    ['a\x0cb\r\n', '\u2028c']
    """
    # `StringIO` with its default newline splits at line feeds only, in C.
    return StringIO(text).readlines()


# --- output of commands ---------------------------------------------------------------------------------------------


# Three forms: CSI sequences (colours, cursor), OSC sequences (titles, links; ended by BEL or ST), and two-character
# escapes.
_CONTROL = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Escape sequences that programs print to colour text and move the cursor."""
_CODES = ("return_code", "exit_code")


def printed(value: Any) -> str | None:
    """Format the result of a shell command (its output and exit code) as a terminal shows it; return None for any other
    value.

    >>> print(printed({"stdout": "1 passed", "stderr": "", "exit_code": 0}))
    1 passed
    [exit 0]
    """
    if not isinstance(value, Mapping) or not {"stdout", "stderr"} <= value.keys():
        return None
    # Tools of agents call it ``return_code``, commands of workspaces ``exit_code``.
    code = next((value[name] for name in _CODES if name in value), None)
    # A user's function may return a mapping with the same keys. It is formatted only if its values have the types of a
    # command.
    if type(code) is not int or not all(isinstance(value[name], str) for name in ("stdout", "stderr")):
        return None
    lines = [_plain(value["stdout"]), _plain(value["stderr"])]
    for name in ("stdout", "stderr"):
        key = f"{name}_file_path"
        if key in value:
            lines.append(f"[all of {name}: {value[key]}]")
    # A command that was not run, or ran out of time, has an error. Its code is then always 1.
    lines.append(str(value.get("error") or f"[exit {code}]"))
    return "\n".join(line for line in lines if line)


def _plain(text: str) -> str:
    """Remove terminal colours from the output of a program. Of a line that was overwritten several times, such as a
    progress bar, keep only the last version.
    """
    lines = _CONTROL.sub("", text).replace("\r\n", "\n").split("\n")
    # "10 %\r50 %\r100 %\r" -> "100 %". The trailing carriage return precedes the line feed of a pty, and ends no
    # version.
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines).rstrip("\n")


# --- times ----------------------------------------------------------------------------------------------------------


def local_time(moment: datetime | None) -> str:
    """Format a time in the reader's time zone, with the name of the zone; empty for None.

    >>> from datetime import UTC
    >>> local_time(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)).count(":"), local_time(None)
    (2, '')
    """
    return "" if moment is None else f"{moment.astimezone():%Y-%m-%d %H:%M:%S %Z}"


def local_zone(moment: datetime) -> str:
    """Return the name of the reader's time zone at a certain time. The name changes with daylight saving time."""
    return f"{moment.astimezone():%Z}"


def local_clock(moment: datetime) -> str:
    """Format the time of day in the reader's time zone, with milliseconds."""
    # Microseconds without their last three digits are milliseconds.
    return f"{moment.astimezone():%H:%M:%S.%f}"[:-3]


@overload
def json_time(moment: datetime) -> str: ...
@overload
def json_time(moment: None) -> None: ...
def json_time(moment: datetime | None) -> str | None:
    """Format a time in UTC for JSON; return None for None.

    >>> json_time(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    '2026-01-02T03:04:05.000Z'
    """
    return None if moment is None else rfc3339(moment, "milliseconds")


def rfc3339(moment: datetime, precision: Literal["milliseconds", "microseconds"] = "microseconds") -> str:
    """Format a time as RFC 3339 text in UTC with ``Z``. A time without a time zone counts as UTC.

    >>> rfc3339(datetime(2026, 1, 2, 3, 4, 5))
    '2026-01-02T03:04:05.000000Z'
    """
    in_utc = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    return in_utc.isoformat(timespec=precision).replace("+00:00", "Z")


# --- durations ------------------------------------------------------------------------------------------------------
#
# People write them as ``30s``, ``1m30s``, ``5 min``, ``1.5h``, ``30d`` or ``7 days``.


UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_UNIT_WORDS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0, "week": 7 * 86400.0}
UNITS |= {name: size for word, size in _UNIT_WORDS.items() for name in (word, f"{word}s")}
_NUMBER = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
# The words come first, so that "5 minutes" is not read as "5 m".
PART = re.compile(_NUMBER + " ?(seconds?|minutes?|hours?|days?|weeks?|ns|us|µs|ms|s|min|m|h|d) ?")
GO_PART = re.compile(_NUMBER + "(ns|us|µs|ms|s|m|h|d)")
"""Part of a duration in the dialect ``dive``, whose durations are those of the language Go: without spaces."""
DURATION_PATTERN = rf"^\s*({PART.pattern})+\s*$"
"""Pattern of a duration, for JSON schemas."""


def parse_duration(value: str | float, part: re.Pattern[str] = PART) -> float:
    """Parse a duration such as ``1m30s`` or ``5 min`` and return seconds. A number is a count of seconds, whose
    fraction is cut off.

    Parameters
    ----------
    part
        Form of one number with its unit: `PART`, or `GO_PART` in the dialect ``dive``.

    Raises
    ------
    ValueError
        `value` is not a duration, or is negative.
    """
    if not isinstance(value, str):
        if not 0 <= value < float("inf"):
            raise ValueError(f"{value!r} is not a duration")
        return float(int(value))
    # `findall` skips characters that do not match, so that "5 mins" would be read as "5 min". The parts must make up
    # the whole text.
    if not re.fullmatch(f"(?:{part.pattern})+", value.strip()):
        raise ValueError(f"{value!r} is not a duration")
    return sum(float(number) * UNITS[unit] for number, unit in part.findall(value))


def seconds(value: float) -> str:
    """Format a duration in seconds with suitable units, such as ``1 min 15 s``.

    >>> seconds(0.0042), seconds(3.21), seconds(75), seconds(7300)
    ('4 ms', '3.2 s', '1 min 15 s', '2 h 01 min')
    """
    # The limits are half a unit of the last digit below 1 s and 60 s. Otherwise "1000 ms" and "60.0 s" would be shown.
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    if value < 59.95:
        return f"{value:.1f} s"
    # The rounded seconds are divided, so that 119.7 s is "2 min 00 s" and not "1 min 60 s".
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def between(started: datetime | None, ended: datetime | None) -> str:
    """Format the duration between two times; empty if one of them is None."""
    return "" if started is None or ended is None else seconds((ended - started).total_seconds())


def in_parts(whole: int) -> str:
    """Format whole seconds in days, hours, minutes and seconds. Units with a count of zero are omitted.

    >>> in_parts(3600), in_parts(86_461), in_parts(0)
    ('1 h', '1 d 1 min 1 s', '0 s')
    """
    parts = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, whole = divmod(whole, size)
        parts += [f"{count} {unit}"] if count else []
    return " ".join(parts) or "0 s"


# --- commands to copy -----------------------------------------------------------------------------------------------
#
# Each printed command works as it is: its words are quoted for the shell or for a magic. The URL of a database is
# printed without its password. The command then looks the password up in its usual place, while a masked one
# (``***``) would be used as it stands and fail.


_NEEDS_QUOTES = ("'", '"', "-", "{", "[")


def in_shell(verb: str, words: Sequence[str], options: Sequence[str] = ()) -> str:
    r"""Format a divebook command with quoted arguments, for pasting into a shell.

    >>> in_shell("signal", ["exec_1", "it's on"], ["--store", "my runs.db"])
    'divebook signal exec_1 \'it\'"\'"\'s on\' --store \'my runs.db\''
    >>> in_shell("answer", ["ask_1", "-1"])
    'divebook answer -- ask_1 -1'
    >>> in_shell("show", ["exec_1"], ["--store", "postgresql://ann:***@host/db"])
    'divebook show exec_1 --store postgresql://ann@host/db'
    """
    options = [for_command(option) for option in options]
    # Options precede ``--``, because everything after it is positional.
    if any(word.startswith("-") for word in words):
        return shlex.join(["divebook", verb, *options, "--", *words])
    return shlex.join(["divebook", verb, *words, *options])


def in_notebook(verb: str, words: Sequence[str], options: Sequence[str] = ()) -> str:
    """Format a divebook command with quoted arguments as a line with the magic ``%dive``, for pasting into a notebook
    cell.

    >>> in_notebook("signal", ["exec_1", "it's on"], ["--store", "my runs.db"])
    "%dive signal exec_1 'it''s on' --store 'my runs.db'"
    """
    shown_options = map(for_command, options)
    # Names of options are never quoted: the magic would take a quoted word for an argument.
    parts = [*map(quoted, words), *(word if word.startswith("--") else quoted(word) for word in shown_options)]
    return " ".join(["%dive", verb, *parts])


def quoted(word: str) -> str:
    """Put a word into quotes for a line of the magic ``%dive``, if the magic would split or interpret the word. Return
    any other word unchanged.
    """
    needs = not word or word.startswith(_NEEDS_QUOTES) or any(map(str.isspace, word))
    return "'" + word.replace("'", "''") + "'" if needs else word


# --- differences between two texts (by word) and between two values (by part) ----------------------------------------


Sign: TypeAlias = Literal["same", "removed", "added"]
SAME: Sign = "same"
REMOVED: Sign = "removed"
ADDED: Sign = "added"
# A comparison of 1,500 words with 1,500 others takes about 0.3 s.
MOST_WORDS = 1_500
"""Largest number of words for which the differences inside a changed part are computed. In a longer part, all words
count as changed.
"""
_WITHOUT_REFERENCES = 2
"""Version of the `marshal` format in which equal data has equal bytes: later versions write references to objects."""
_WORDS = re.compile(r"\d+(?:[.,]\d+)+(?!\w)|\w+|\s+|[^\w\s]")
"""Pattern that splits text into words. A number is one word, with its points and commas."""


class Piece(NamedTuple):
    """Part of the comparison of two texts: adjacent words that are all unchanged, all removed or all added."""

    sign: Sign
    text: str


class Differing(NamedTuple):
    """A part in which two compared values differ: its path within the values, such as ``params.n``, and its content in
    each value.
    """

    place: str
    """Place of the part, such as ``params.n`` or ``parts[0].content``; empty for the whole values."""
    before: Any
    after: Any
    """Content in the second value; `NOTHING` if the second value lacks the part."""


class _Nothing:
    """Type of the constant `NOTHING`, which stands for the content of a part that one of two compared values lacks."""

    def __repr__(self) -> str:
        return "nothing"


NOTHING = _Nothing()


def pieces(before: str, after: str) -> list[Piece]:
    """Compare two texts word by word. Return their words in order, grouped into pieces that are unchanged, removed from
    the first text or added in the second.

    >>> [tuple(piece) for piece in pieces("a red rose", "a white rose")]
    [('same', 'a '), ('removed', 'red'), ('added', 'white'), ('same', ' rose')]
    """
    old = _WORDS.findall(before)
    new = _WORDS.findall(after)
    # The common beginning and end are cut off first. Only the words between them are compared with `SequenceMatcher`,
    # whose time grows with the square of their number.
    head = _shared(old, new)
    # The tail is measured behind the head, so that the two never overlap.
    tail = _shared(old[head:][::-1], new[head:][::-1])
    result = [Piece(SAME, "".join(old[:head]))]
    result += _between(old[head : len(old) - tail], new[head : len(new) - tail])
    result.append(Piece(SAME, "".join(old[len(old) - tail :])))
    return [piece for piece in result if piece.text]


def _shared(one: list[str], other: list[str]) -> int:
    """Return the length of the common beginning of two lists: the number of items before the first difference."""
    shorter = min(len(one), len(other))
    return next((place for place in range(shorter) if one[place] != other[place]), shorter)


def _between(old: list[str], new: list[str]) -> Iterator[Piece]:
    # A result without common words is right, if coarse. Quadratic time would stop the view.
    if max(len(old), len(new)) > MOST_WORDS:
        yield from (Piece(REMOVED, "".join(old)), Piece(ADDED, "".join(new)))
        return
    # `autojunk` would ignore words that occur often in a long text, and show them as changed.
    codes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    removed = added = ""
    for place, (kind, begins, ends, new_begins, new_ends) in enumerate(codes):
        before, after = "".join(old[begins:ends]), "".join(new[new_begins:new_ends])
        # A space between two replaced words belongs to them: "one word" -> "two texts" is one change and not two.
        is_joint = before.isspace() and [code[0] for code in codes[place - 1 : place + 2]] == _JOINT
        if kind == "equal" and not is_joint:
            yield from (Piece(REMOVED, removed), Piece(ADDED, added), Piece(SAME, before))
            removed = added = ""
        else:
            removed, added = removed + before, added + after
    yield from (Piece(REMOVED, removed), Piece(ADDED, added))


_JOINT = ["replace", "equal", "replace"]


def marked(before: str, after: str) -> str:
    """Merge two versions of a text into one, with marks around the words that were removed and added.

    >>> marked("a red rose", "a white rose")
    'a [-red-]{+white+} rose'
    >>> marked("one red rose", "a white rose")
    '[-one red-]{+a white+} rose'
    >>> marked("pay 25,210.80", "pay 330.12")
    'pay [-25,210.80-]{+330.12+}'
    """
    signs = {SAME: "{}", REMOVED: "[-{}-]", ADDED: "{{+{}+}}"}
    return "".join(signs[piece.sign].format(piece.text) for piece in pieces(before, after))


def alike(one: Any, other: Any) -> bool:
    """Return True if two values have the same recorded form in a log. 1, 1.0 and true differ; the order of keys does
    not matter.

    >>> alike({"a": 1, "b": [2]}, {"b": [2], "a": 1}), alike(1, 1.0), alike(1, True)
    (True, False, False)
    """
    kind = one.__class__
    if kind is not other.__class__:
        return False
    if kind is str:
        return bool(one == other)
    if kind is Decimal and (one.is_nan() or other.is_nan()):  # == raises for a signaling NaN
        return bool(one.compare_total(other) == 0)
    # Equal bytes prove that the values are alike. Different bytes prove nothing, since the order of keys may differ.
    if (kind is dict or kind is list) and _are_written_alike(one, other):
        return True
    if kind is dict:
        if one.keys() != other.keys():
            return False
        return all(alike(value, other[name]) for name, value in one.items())
    if kind is list or kind is tuple:
        return len(one) == len(other) and all(map(alike, one, other))
    return bool(one == other) or (one != one and other != other)  # noqa: PLR0124 - only NaN differs from itself


def _are_written_alike(one: Any, other: Any) -> bool:
    """Return True if two values have equal bytes in Python's `marshal` format; False if they differ or `marshal` cannot
    write them. The test takes a fifth of the time of a full comparison.
    """
    try:
        return dumps(one, _WITHOUT_REFERENCES) == dumps(other, _WITHOUT_REFERENCES)
    except ValueError:  # marshal takes plain data only
        return False


def parts(before: Any, after: Any, place: str = "") -> Iterator[Differing]:
    """Compare two nested values recursively. Yield the smallest parts in which they differ, in the order of the first
    value.

    >>> [tuple(part) for part in parts({"a": [1, 2], "b": 3}, {"a": [1, 5], "c": 4})]
    [('a[1]', 2, 5), ('b', 3, nothing), ('c', nothing, 4)]
    """
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        # The keys of the first value come first, then the keys that only the second value has.
        for name in [*before, *(name for name in after if name not in before)]:
            under = f"{place}.{name}" if place else str(name)
            yield from parts(before.get(name, NOTHING), after.get(name, NOTHING), under)
    # Items of lists of different lengths cannot be paired. Such lists differ as a whole.
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from parts(old, new, f"{place}[{number}]")
    elif not alike(before, after):
        yield Differing(place, before, after)
