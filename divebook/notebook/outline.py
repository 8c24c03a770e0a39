"""Outline of an unfinished YAML text: the keys that lead to the cursor, and the values in the text.

A YAML parser rejects text that is still being written. `Outline` therefore reads the text line by line, with a stack of
the mappings and lists that are still open. It understands the parts of YAML that definitions use: mappings and lists by
indentation or in brackets, quoted texts, block texts and comments. For the lines ::

    Steps:
      - Name: plan
        Type: |

the stack at the cursor contains the mapping at column 0 with the key ``Steps``, the list at column 2 with the index 0,
and the mapping at column 4 with the key ``Type``. The keys and indexes of the stack are the position of the cursor:
``("Steps", 0, "Type")``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from divebook.errors import Place

# A key in quotes, or a plain key. A plain key starts with no character that has another meaning in YAML (a dash only if
# no space follows), and ends at a colon before a space or the end of the line. "Prompt: |" -> "Prompt"
_KEY = re.compile(r"""("[^"]*"|'[^']*'|[^\s#&*!|>%@`{}\[\],"'-][^:#]*?|-[^\s:#][^:#]*?)\s*:(?=\s|$)""")
# "- Name: plan": the dash and the spaces behind it.
_DASH = re.compile(r"-(?: +|$)")
# "|", ">-", "|2  # comment": the text follows in the lines below.
_BLOCK_TEXT = re.compile(r"[|>][-+0-9]*\s*(#.*)?$")
_QUOTES = "\"'"


@dataclass(frozen=True, slots=True)
class Spot:
    """Position of the cursor in the structure of an unfinished YAML text."""

    place: Place
    """The keys and list indexes that lead from the top to the mapping, list or value at the cursor."""
    fragment: str
    """The part of the current word before the cursor."""
    after_key: bool
    """True if the cursor is behind a key, so that a value is expected."""
    keys: frozenset[str] = frozenset()
    """The keys above the cursor in the same mapping."""


@dataclass(slots=True)
class _Open:
    """A YAML mapping or list that contains the line that is being read, because it has started in a line above and has
    not ended yet.
    """

    # Column at which the keys of the mapping, or the dashes of the list, start. 0 in brackets, where columns have no
    # meaning.
    column: int
    is_list: bool = False
    is_flow: bool = False
    """True if the mapping or list is written in brackets."""
    key: str | None = None
    index: int = 0
    keys: set[str] = field(default_factory=set)

    @property
    def part(self) -> str | int | None:
        """The current key of this mapping, or the current index of this list. Together, the parts of all open mappings
        and lists lead to the line that is being read.
        """
        return self.index if self.is_list else self.key


class Outline:
    r"""Line-by-line reader of an unfinished YAML text, which finds its keys, its values and the position of the cursor.

    Examples
    --------
    >>> Outline("Steps:\n  - Name: plan\n    Type: script\n").values
    {('Steps', 0, 'Name'): 'plan', ('Steps', 0, 'Type'): 'script'}
    """

    def __init__(self, text: str) -> None:
        self.values: dict[Place, str] = {}
        """The plain values of keys, by their position (keys and list indexes from the top)."""
        self._open: list[_Open] = []
        """The open mappings and lists, outermost first."""
        self._text_below: int | None = None
        """Column of the key whose block text is being read; None outside a block text."""
        self._token = 0
        """Index at which the current word starts in a line inside brackets."""
        for line in text.splitlines():
            self._read(line)

    def _read(self, line: str) -> None:
        # An index of another line would be meaningless.
        self._token = 0
        column = _indent(line)
        # Before anything else, because an unclosed bracket would swallow all lines below it.
        self._end_forgotten_flow(line, column)
        if self._in_flow:
            self._flow(line, 0)
            return
        # Blank lines and comments are checked after the block text, which may contain both.
        if self._is_text(line, column) or not line.strip() or line.lstrip().startswith("#"):
            return
        # Dashes first: in ``- Name: plan`` the key stands in a mapping behind the dash.
        start = self._items(line, column)
        if start < len(line):
            self._entry(line, start)

    def spot(self, head: str) -> Spot | None:
        """Return the position of a cursor; None if the cursor is in a block text (a YAML text of several lines) or
        comment.

        `head` is the part of the cursor's line before the cursor.
        """
        # The outline has read the lines above. The brackets that they have opened still contain the cursor.
        if self._in_flow:
            return self._spot_in_flow(head, 0)
        column = _indent(head)
        if self._is_text(head, column) or _has_comment(head):
            return None
        start = self._items(head, column)
        key = _KEY.match(head, start)
        # Unlike `_entry`, this does not store the value, because the cursor is still in it.
        if key is not None:
            self._take_key(_unquoted(key[1]), start)
            start = key.end() + _indent(head[key.end() :])
        else:
            # The cursor may have left the mapping above it: fewer spaces close the mappings that are indented more.
            self._close_to(start)
        if head[start : start + 1] in ("{", "["):
            return self._spot_in_flow(head, start)
        return self._spot_here(head[start:], after_key=key is not None, column=start)

    def block_text(self, head: str) -> Place | None:
        """Return the position of the block text (a YAML text of several lines) that contains the cursor; None if the
        cursor is not in one.

        `head` is the part of the cursor's line before the cursor.
        """
        return self._place if not self._in_flow and self._is_text(head, _indent(head)) else None

    # --- by indentation --------------------------------------------------------------------------------------------

    def _is_text(self, line: str, column: int) -> bool:
        """Return whether a line belongs to the block text (a YAML text of several lines) that is being read; False if
        none is being read.

        A line that is not indented more than the key of the text ends the text.
        """
        if self._text_below is None:
            return False
        # A line of spaces only belongs to the text while it is indented more than the key. An empty line always does.
        if column > self._text_below or not line.strip():
            return column > self._text_below or not line
        self._text_below = None
        return False

    def _items(self, line: str, start: int) -> int:
        """Add a list item to the open lists for each dash at the start of a YAML line. Return the column after the last
        dash.
        """
        while dash := _DASH.match(line, start):
            # A dash ends everything that is indented more than the dash itself.
            while self._open and self._open[-1].column > start:
                self._open.pop()
            # Another dash at the same column is the next item of the same list.
            if self._open and self._open[-1].is_list and self._open[-1].column == start:
                self._open[-1].index += 1
            else:
                # A list may start at the column of the key above it, so the mapping around it stays open.
                self._open.append(_Open(start, is_list=True))
            start = dash.end()
        return start

    def _entry(self, line: str, start: int) -> None:
        key = _KEY.match(line, start)
        if key is not None:
            self._take_key(_unquoted(key[1]), start)
            column = start
            start = key.end() + _indent(line[key.end() :])
        # A line that continues a plain value, or a scalar list item. It belongs to the mapping or list around it.
        else:
            column = self._open[-1].column if self._open else 0
        rest = line[start:]
        if rest[:1] in ("{", "["):
            self._flow(line, start)
        elif _BLOCK_TEXT.match(rest):
            self._text_below = column
        else:
            # Behind " #" a comment starts. A value that contains it must be quoted in YAML too.
            self._note(rest.split(" #")[0])

    def _take_key(self, key: str, column: int) -> None:
        self._close_to(column)
        # A key that is indented more than the open mapping, or that follows a dash, begins a new mapping.
        if not self._open or self._open[-1].is_list or self._open[-1].column < column:
            self._open.append(_Open(column))
        self._open[-1].key = key
        self._open[-1].keys.add(key)

    def _close_to(self, column: int) -> None:
        """Remove the open mappings and lists that a key at this column ends: those that are indented more than the key,
        and a list at the same column.
        """
        while self._open and (
            self._open[-1].column > column or (self._open[-1].is_list and self._open[-1].column == column)
        ):
            self._open.pop()

    def _spot_here(self, fragment: str, *, after_key: bool, column: int) -> Spot:
        top = self._open[-1] if self._open else None
        in_mapping = top is not None and not top.is_list and top.column == column
        # A cursor behind a key, or at the start of a new item, has no sibling keys.
        if after_key or top is None or not in_mapping:
            return Spot(self._place, fragment.lstrip(_QUOTES), after_key)
        return Spot(self._place[:-1], fragment.lstrip(_QUOTES), after_key=False, keys=frozenset(top.keys))

    # --- in brackets -----------------------------------------------------------------------------------------------

    def _end_forgotten_flow(self, line: str, column: int) -> None:
        """Close the YAML lists and mappings in brackets above this line whose closing bracket a person has forgotten.

        Such brackets exist if the line is not indented more than the mapping around the brackets.
        """
        # The brackets stand in a mapping or list that is written by indentation.
        outside = next((frame for frame in reversed(self._open) if not frame.is_flow), None)
        # A line that only closes brackets, or that is blank, may be indented like the text around the brackets.
        if outside is None or column > outside.column or line.strip()[:1] in ("", "}", "]", "#"):
            return
        while self._in_flow:
            self._open.pop()

    @property
    def _in_flow(self) -> bool:
        return bool(self._open) and self._open[-1].is_flow

    def _flow(self, line: str, start: int) -> None:
        self._token = start
        position = start
        while position < len(line):
            character = line[position]
            # A quote counts only at the start of a word. Brackets inside a quoted text have no meaning.
            if character in _QUOTES and not line[self._token : position].strip():
                end = line.find(character, position + 1)
                # An unclosed quote reaches to the end of the line.
                position = len(line) if end < 0 else end + 1
                continue
            # A hash in a word, such as ``a#b``, does not start a comment.
            if character == "#" and line[position - 1 : position] in ("", " "):
                return
            self._flow_character(line, position)
            position += 1
            # The outermost bracket is closed. The rest of the line does not matter.
            if not self._in_flow:
                return

    def _flow_character(self, line: str, position: int) -> None:
        # Only characters that end a token move its start (the last line); the others are part of the token.
        character = line[position]
        top = self._open[-1] if self._open else None
        if character in "{[":
            self._open.append(_Open(0, is_list=character == "[", is_flow=True))
        # A closing bracket without an opening one is a mistake that needs no reaction here.
        elif top is None:
            return
        elif character in "}],":
            self._note(line[self._token : position])
            if character != ",":
                self._open.pop()
            # A comma starts the next item of a list, or the next key of a mapping.
            elif top.is_list:
                top.index += 1
            else:
                top.key = None
        # The first colon of an entry ends its key. `top.part` is None for a mapping whose entry has no key yet, and
        # never for a list.
        elif character == ":" and line[position + 1 : position + 2] in ("", " ") and top.part is None:
            top.key = _unquoted(line[self._token : position].strip())
            top.keys.add(top.key)
        else:
            return
        self._token = position + 1

    def _spot_in_flow(self, head: str, start: int) -> Spot | None:
        # The brackets up to the cursor become open. The outline is used for one cursor only, so it may change.
        self._flow(head, start)
        if not self._in_flow or _has_comment(head[self._token :]):
            return None
        top = self._open[-1]
        fragment = head[self._token :].lstrip().lstrip(_QUOTES)
        return Spot(self._place, fragment, top.key is not None, frozenset(top.keys))

    # --- values --------------------------------------------------------------------------------------------

    @property
    def _place(self) -> Place:
        # An open mapping without a key has no part: the cursor is where a key is expected.
        return tuple(part for part in (frame.part for frame in self._open) if part is not None)

    def _note(self, text: str) -> None:
        if text.strip() and self._open and self._open[-1].part is not None:
            self.values[self._place] = _unquoted(text.strip())


def keys_below(tail: str, column: int) -> Iterator[str]:
    """Yield the keys below the cursor that are in the same YAML mapping, whose keys start at `column`."""
    for line in tail.splitlines():
        indent = _indent(line)
        # Lines that are indented more belong to values of the mapping.
        if not line.strip() or indent > column:
            continue
        key = _KEY.match(line, indent)
        # Less indentation, or another thing than a key, ends the mapping.
        if indent < column or key is None:
            return
        yield _unquoted(key[1])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _has_comment(head: str) -> bool:
    return head.lstrip().startswith("#") or " #" in head


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] in _QUOTES and text[-1] == text[0] else text
