"""Rewriting with comments, strings and line breaks between all tokens gives the values of Python."""

import ast
import itertools
import random

import pytest

from divebook.scripting import Limits, default_interpreter
from divebook.scripting.syntax import compile_script

STATE = {"a": {"b": {"c": 1}, "n": 2}, "n": 1, "t": True, "rows": [{"n": 1, "x": "p"}, {"n": 2, "x": "q"}]}
GAPS = ["", "", "", " ", "\n", "\\\n", " # x ** y\n", "\t# ): , . { ' \" [\n  ", "#**\n# }\n"]
STRINGS = ["'#'", "'** x'", '"a: b, c.d # }"', "'''**\n# ):\n'''", "r'\\**'", "'k'"]


class Mapping(dict):
    """A dict whose keys can be read as attributes, as in scripts."""

    __getattr__ = dict.__getitem__


class State(Mapping):
    def __init__(self, value, changes):
        super().__init__(value)
        self.__dict__["changes"] = changes

    def set(self, key, value):
        self.changes.append((key, value))
        self[key] = value


class Host:
    def __init__(self):
        self.changes = []

    def mutate(self, _change, key, value):
        self.changes.append((key, value))


def as_mappings(value):
    if isinstance(value, dict):
        return Mapping({key: as_mappings(item) for key, item in value.items()})
    return [as_mappings(item) for item in value] if isinstance(value, list) else value


def listed(parts):
    """Join lists of tokens by commas."""
    return [token for index, part in enumerate(parts) for token in ([",", *part] if index else part)]


class Expressions:
    """Random expressions as lists of tokens."""

    def __init__(self, chance):
        self._chance = chance

    def key(self):
        choices = ["1", "True", "1.0", "0", "state . n", "( state ) . n", "state . a . n", "( state . t )", "'k'"]
        return self._chance.choice([*(text.split(" ") for text in choices), [self._chance.choice(STRINGS)]])

    def pairs(self, depth):
        return ["[", *listed([["(", *self.key(), ",", *self.value(depth), ")"] for _ in range(3)]), "]"]

    def mapping(self, depth):
        def entry():
            kind = self._chance.randrange(4)
            if kind == 0:
                return ["**", *(self.mapping(depth - 1) if depth else ["state", ".", "a"])]
            if kind == 1:
                return ["(", *self.key(), ")", ":", "(", "(", *self.value(depth), ")", ")"]
            return [*self.key(), ":", *self.value(depth)]

        end = self._chance.choice([[], [","]])
        display = ["{", *listed([entry() for _ in range(self._chance.randint(1, 4))]), *end, "}"]
        loop = ["for", "k", ",", "v", "in", *self.pairs(depth), "if", "k", "!=", "0"]
        return self._chance.choice(
            [
                display,
                display,
                ["{", "k", ":", "v", *loop, "}"],
                ["{", "(", "k", ")", ":", "[", "v", ",", "state", ".", "n", "]", *loop, "}"],
                ["dict", "(", *self.pairs(depth), ")"],
                ["(", "dict", ")", "(", "(", "k", ",", "v", ")", *loop, ")"],
                ["dict", "(", "(", "k", ",", "v", ")", *loop, ")"],
            ]
        )

    def value(self, depth):
        if not depth:
            return self._chance.choice(
                [
                    *(text.split(" ") for text in ("7", "state . a . b", "( state . rows ) [ 0 ] . x", "state . n")),
                    ["state", ".", "get", "(", "'n'", ")"],
                    ["(", "state", ".", "set", ")", "(", "'z'", ",", *self.key(), ")"],
                    ["state", ".", "set", "(", self._chance.choice(["'z'", "'**'"]), ",", *self.key(), ")"],
                    [self._chance.choice(["f'{state.a.b.c} ** # {1}'", "f'''{ {1: state.n,\n True: 2} }'''"])],
                    [self._chance.choice(STRINGS)],
                ]
            )
        inner = depth - 1
        return self._chance.choice(
            [
                self.mapping(inner),
                [*self.key(), "in", *self.mapping(inner)],
                ["(", *self.value(inner), ")", "if", "(", *self.value(inner), ")", "else", *self.value(inner)],
                ["(", *self.value(inner), "or", *self.value(inner), ")"],
                ["[", "r", ".", "n", "for", "r", "in", "state", ".", "rows", "if", "not", *self.key(), "]"],
                ["(", "lambda", "q", ":", "q", ".", "n", ")", "(", "state", ")"],
                ["{", "'m'", ":", *self.value(inner), "}", "[", "'m'", "]"],
            ]
        )


def are_separable(before, after):
    """Return True if no space is needed between two tokens."""
    is_word = before[-1].isalnum() or before[-1] == "_"
    is_number = before[0].isdigit() and after[0] == "."
    return not is_number and not (is_word and (after[0].isalnum() or after[0] in "_'\""))


def with_gaps(tokens, chance):
    source = tokens[0]
    for before, after in itertools.pairwise(tokens):
        gap = chance.choice(GAPS)
        source += gap if gap or are_separable(before, after) else " "
        source += after
    return source


@pytest.mark.parametrize("seed", range(8))
def test_scripts_with_text_between_all_tokens_give_the_values_of_python(seed):
    chance = random.Random(seed)
    expressions = Expressions(chance)
    # All tokens are inside brackets, where a line break may be at each place.
    items = [["repr", "(", "(", *expressions.value(2), ")", ")"] for _ in range(20)]
    source = f"x = 1\n{with_gaps(['[', *listed(items), ']'], chance)}"
    changes, host = [], Host()
    expected = eval(source.partition("\n")[2], {"state": State(as_mappings(STATE), changes)})
    assert default_interpreter().run_script(source, {"state": STATE}, host, Limits()) == expected
    assert host.changes == changes
    # No line moves.
    code = compile_script(source).code
    assert [(node.lineno, node.end_lineno) for node in ast.parse(code).body] == [
        (node.lineno, node.end_lineno) for node in ast.parse(source).body
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a = 'k'\nc = {1: 2}\n{a: 1, # x ** y\n **c}", {"k": 1, 1: 2}),
        ("def f(a):\n    return{1: a, True: 2}\nf(1)", {1: 2}),
        ("1 in{k: 3 for k in [1]}", True),
        ("(dict)(x for x in [(1, 2), (True, 3)])", {1: 3}),
        ("f'{dict([(1, 2), (True, 3)])} { {k: 1 for k in (1, True)} }'", "{1: 3} {1: 1}"),
    ],
)
def test_single_cases(source, expected):
    assert repr(default_interpreter().run_script(source, {"state": STATE}, None, Limits())) == repr(expected)


def test_an_f_string_leaves_the_names_and_keys_of_the_script_unchanged():
    assert compile_script("f'{state.a + 1} {state.b}'").uses == {"state": {"a", "b"}}
    assert compile_script("f'{state.set(\"n\", 1) or 1}'").uses == {"state": set()}
    host = Host()
    assert default_interpreter().run_script("f'{state.set(\"n\", 1) or 7}'", {"state": STATE}, host, Limits()) == "7"
    assert host.changes == [("n", 1)]


@pytest.mark.parametrize("source", ["'Go!' x", "1 1 # a && b", '"""$(" ?:""" x'])
def test_advice_about_operators_ignores_strings_and_comments(source):
    with pytest.raises(Exception, match=r"^(?!.*write|.*is valid only at the start)"):
        compile_script(source)


@pytest.mark.parametrize("source", ["x = a && 'b'", "f'{a && b}' x"])
def test_advice_about_operators_remains_for_code(source):
    with pytest.raises(Exception, match="write 'and' instead of '&&'"):
        compile_script(source)
