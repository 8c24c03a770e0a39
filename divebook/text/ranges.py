"""Ranges of numeric settings: one check, and one error text, for YAML, command line options and Python.

Every numeric setting has an upper limit. Python integers and decimals have none, but clocks, timers and databases do. A
larger value would fail far away from where it was written, as an `OverflowError` of a timer or a `decimal.Overflow`.

>>> SOME_SECONDS.fits(0.5), SOME_SECONDS.fits(True), SOME_SECONDS.fits(float("inf"))
(True, False, False)
>>> print(COUNT)
an integer from 1 to 2**63 - 1
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_INTEGER = 2**63 - 1
"""Largest integer that SQLite, Postgres and Arrow can store in one column."""
# 100 years of 365.25 days of 86,400 seconds, without a float.
MOST_SECONDS = 100 * 36525 * 864
"""100 years in seconds. A deadline that far away is a valid `datetime` and fits `threading.TIMEOUT_MAX` (292 years)."""
MOST_NUMBER = 1e9


@dataclass(frozen=True, slots=True)
class NumberRange:
    """Range of valid numbers for a setting, from `least` to `most`. NaN, infinities and booleans are outside of every
    range.
    """

    least: float | None = None
    most: float = MOST_NUMBER
    is_whole: bool = False
    excludes_least: bool = False
    unit: str = ""

    def fits(self, value: object) -> bool:
        """Return True if a value is a number in this range. Booleans are not numbers."""
        if isinstance(value, bool) or not isinstance(value, int if self.is_whole else (int, float)):
            return False
        # Without a least value the range is symmetric around zero.
        least = -self.most if self.least is None else self.least
        if not least <= value <= self.most:  # False for NaN as well
            return False
        return not (self.excludes_least and value == least)

    def json_schema(self) -> dict[str, str | float]:
        """Return the JSON schema of the numbers in this range."""
        least = -self.most if self.least is None else self.least
        return {
            "type": "integer" if self.is_whole else "number",
            "exclusiveMinimum" if self.excludes_least else "minimum": least,
            "maximum": self.most,
        }

    def __str__(self) -> str:
        noun = "an integer" if self.is_whole else f"a number{f' of {self.unit}' if self.unit else ''}"
        least = -self.most if self.least is None else self.least
        if self.excludes_least:
            return f"{noun} above {_limit(least)} and at most {_limit(self.most)}"
        return f"{noun} from {_limit(least)} to {_limit(self.most)}"


INTEGER = NumberRange(most=MOST_INTEGER, is_whole=True)
COUNT = NumberRange(1, MOST_INTEGER, is_whole=True)
COUNT_OR_ZERO = NumberRange(0, MOST_INTEGER, is_whole=True)
CHARACTERS = NumberRange(100, MOST_INTEGER, is_whole=True)
"""Range for the length of a shortened text. Fewer characters leave no room for its head, its tail and the note between
them.
"""
NUMBER = NumberRange()
SOME = NumberRange(0, excludes_least=True)
FACTOR = NumberRange(0)
SECONDS = NumberRange(0, MOST_SECONDS, unit="seconds")
SOME_SECONDS = NumberRange(0, MOST_SECONDS, excludes_least=True, unit="seconds")


def _limit(number: float) -> str:
    if abs(number) == MOST_INTEGER:
        return "-(2**63 - 1)" if number < 0 else "2**63 - 1"
    return f"{int(number):,}" if number == int(number) else f"{number:g}"
