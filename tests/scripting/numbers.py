"""Numbers in the sandbox, compared with Python: operators, built-in functions, formats and `math`.

``python -m tests.scripting.numbers [ROUNDS] [SEED]`` compares 200 random expressions in each round. An expression that
has a value in both must have the same one, except for

- functions of `math` that are approximations, which differ between platforms in Python itself: 4 units in the last
  place;
- the text of a float that lies exactly in the middle between its two shortest texts: either one.

The sandbox may refuse what Python takes, and the other way round nothing may have a value that Python refuses.
"""

import math
import random
import sys
import warnings
from collections import Counter

from divebook.scripting import default_interpreter

COUNT = 200
HELPER = """
import math
def attempt(function):
    try:
        return ["value", function()]
    except Exception as error:
        return ["error", type(error).__name__]
"""
EDGES = [
    "0.0",
    "-0.0",
    "1e999",
    "-1e999",
    "(1e999-1e999)",
    "5e-324",
    "1.7976931348623157e308",
    "2.2250738585072014e-308",
    "1e16",
    "1e15",
    "9007199254740993.0",
    "0.1",
    "0.5",
    "1.5",
    "2.5",
    "-0.5",
    "2.675",
    "1e22",
    "1e23",
    "True",
    "False",
    "2**31",
    "2**53+1",
    "-2**63",
    "2**63",
    "2**64-1",
    "10**30",
]
OPERATORS = ["+", "-", "*", "/", "//", "%", "<", ">", "<=", ">=", "==", "!=", "&", "|", "^"]
TEXTS = [
    "1_000",
    "_1",
    "1__0",
    "+5",
    "--5",
    "0x1f",
    "1e5",
    "1e400",
    "nan",
    "-Infinity",
    "1_0.5",
    ".5",
    "5.",
    "0b11",
    "01",
    "00",
    "0_0",
    "1e",
    "e5",
    "ff",
    "zz",
    "0xff",
    "0o17",
]
TEXTS += ["", " 12 ", "\t3\n"]
EXACT = [
    "floor",
    "ceil",
    "trunc",
    "sqrt",
    "fabs",
    "isnan",
    "isinf",
    "isfinite",
    "frexp",
    "modf",
    "isqrt",
    "degrees",
    "radians",
]
CLOSE = [
    "exp",
    "log",
    "log2",
    "log10",
    "log1p",
    "expm1",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "erf",
    "erfc",
    "gamma",
    "lgamma",
    "cbrt",
]
SPECIFICATION = (["", "*<", "0>", "=", "_^"], ["", "+", " "], ["", "#", "z"], ["", "0"], ["", "12"], ["", ",", "_"])
"""Parts of a format specification before its precision: fill and alignment, sign, and so on."""


class Expressions:
    """Random expressions of numbers."""

    def __init__(self, seed):
        self._chance = random.Random(seed)
        self._kinds = [self._operator] * 4 + [self._power, self._shift, self._rounded, self._rounded, self._divided]
        self._kinds += [self._called, self._collected, self._format, self._format, self._percent, self._parsed]
        self._kinds += [self._modular, self._exact, self._close]

    def number(self):
        chance = self._chance
        return chance.choice(
            [
                lambda: chance.choice(EDGES),
                lambda: str(chance.randint(-20, 20)),
                lambda: str(chance.randint(-(10**6), 10**6)),
                lambda: str(chance.randint(-(10**40), 10**40)),
                lambda: repr(chance.uniform(-10, 10)),
                lambda: repr(chance.randint(-(10**6), 10**6) / 1000),
                lambda: repr(chance.randint(-(10**6), 10**6) / 8),
                lambda: repr(chance.uniform(-1, 1) * 10.0 ** chance.randint(-300, 300)),
                lambda: repr(float(chance.randint(-(2**60), 2**60))),
            ]
        )()

    def any(self):
        return self._chance.choice(self._kinds)()

    def _operator(self):
        return f"({self.number()}) {self._chance.choice(OPERATORS)} ({self.number()})"

    def _power(self):
        exponent = self._chance.choice([self._chance.randint(-5, 30), 0.5, -0.5, 2.0, 1 / 3, True])
        return self._chance.choice([f"({self.number()}) ** ({exponent})", f"pow({self.number()}, {exponent})"])

    def _shift(self):
        return f"({self.number()}) {self._chance.choice(['<<', '>>'])} ({self._chance.randint(-2, 70)})"

    def _rounded(self):
        digits = self._chance.choice(
            ["", f", {self._chance.randint(-25, 25)}", ", None", ", True", ", ndigits=2", ", 1.0"]
        )
        return f"round({self.number()}{digits})"

    def _divided(self):
        return f"divmod({self.number()}, {self.number()})"

    def _called(self):
        return f"{self._chance.choice(['int', 'float', 'bool', 'abs', 'str', 'repr', '-', '+', '~'])}({self.number()})"

    def _collected(self):
        numbers = ", ".join(self.number() for _ in range(self._chance.randint(1, 6)))
        return f"{self._chance.choice(['sum', 'min', 'max', 'math.fsum', 'math.prod'])}([{numbers}])"

    def _format(self):
        chance = self._chance
        specification = "".join(map(chance.choice, SPECIFICATION))
        specification += chance.choice(["", ".0", ".2", ".10", ".17"]) + chance.choice([*"dfegFEG%xXob", "", "c", "n"])
        number = self.number()
        return chance.choice([f"format({number}, {specification!r})", f'f"{{({number}):{specification}}}"'])

    def _percent(self):
        chance = self._chance
        width = chance.choice(["", "-12", "+", "012"]) + chance.choice(["", ".0", ".2"])
        return f"'%{width}{chance.choice('dfegxs')}' % ({self.number()})"

    def _parsed(self):
        text = self._chance.choice([*TEXTS, self.number()])
        base = self._chance.choice(["", "", f", {self._chance.choice([0, 2, 8, 10, 16, 36, 37, 1])}"])
        return self._chance.choice([f"int({text!r}{base})", f"float({text!r})"])

    def _modular(self):
        chance = self._chance
        return (
            f"pow({chance.randint(-(10**20), 10**20)}, {chance.randint(0, 10**9)}, {chance.randint(-(10**9), 10**9)})"
        )

    def _exact(self):
        return f"math.{self._chance.choice(EXACT)}({self.number()})"

    def _close(self):
        return f"math.{self._chance.choice(CLOSE)}({self.number()})"


def is_same(expression, one, other):
    """Return whether the outcomes of Python and of the sandbox agree."""
    (kind, value), (other_kind, other_value) = one, other
    if other_kind == "error":
        return True
    return kind == "value" and _is_equal(expression, value, other_value)


def _is_equal(expression, value, other):
    if isinstance(value, tuple | list):
        return len(value) == len(other) and all(_is_equal(expression, *pair) for pair in zip(value, other, strict=True))
    if type(value) is not type(other):
        return False
    if isinstance(value, float):
        if math.isnan(value) or math.isnan(other):
            return math.isnan(value) and math.isnan(other)
        is_close = expression.startswith(tuple(f"math.{name}(" for name in CLOSE))
        near = 4 * math.ulp(max(1.0, abs(value)) if expression.startswith("math.lgamma(") else value)  # which has zeros
        is_same_number = (value, math.copysign(1, value)) == (other, math.copysign(1, other))
        return is_same_number or (is_close and abs(value - other) <= near)
    return value == other or (isinstance(value, str) and _is_tie(value, other))


def _is_tie(text, other):
    """Return whether two texts of a float are equally short and equally near to it."""
    try:
        return float(text) == float(other) and len(text) == len(other)
    except ValueError:
        return False


def differences(rounds, seed):
    """Return the expressions that differ with both outcomes, and how many the sandbox refuses that Python takes."""
    python, refused, found = {"math": math}, Counter(), []
    exec(HELPER, python)
    for number in range(rounds):
        expressions = Expressions(f"{seed}/{number}")
        texts = [expressions.any() for _ in range(COUNT)]
        script = HELPER + "[" + ",\n".join(f"attempt(lambda: {text})" for text in texts) + "]"
        for text, outcome in zip(texts, default_interpreter().run_script(script, {}), strict=True):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected = python["attempt"](eval(f"lambda: {text}", python))
            if not is_same(text, expected, outcome):
                found.append((text, expected, outcome))
            if expected[0] == "value" and outcome[0] == "error":
                refused[text.partition("(")[0]] += 1
    return found, refused


def main(arguments):
    rounds, seed = [*map(int, arguments), *(100, 1)[len(arguments) :]]
    found, refused = differences(rounds, seed)
    sys.stdout.write("".join(f"{text}: Python {one}, sandbox {other}\n" for text, one, other in found))
    sys.stdout.write(f"{rounds * COUNT} expressions: {len(found)} differ, refused are {dict(refused)}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
