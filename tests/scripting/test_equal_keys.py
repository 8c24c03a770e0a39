"""Keys that are equal and differ, as 1, True and 1.0 do: the first key stays, with the last value, as in Python."""

import random

import pytest

from divebook.scripting import Limits, default_interpreter

KEYS = ["1", "True", "1.0", "0", "False", "-0.0", "0.0", "2", "'a'", "'1'", "None", "(1, 0)", "(True, False)", "n", "t"]
NAMES = {"n": 1, "t": True, "state": {"n": 1, "pairs": [[1, "a"], [True, "b"]]}}


def run(source):
    return default_interpreter().run_script(f"n = 1\nt = True\n{source}", NAMES, None, Limits())


def literal(chance, depth=2):
    """Return a dict or set display, a comprehension or a call of dict or set, with keys that may be equal."""
    keys = [chance.choice(KEYS) for _ in range(chance.randint(1, 5))]

    def value():
        return literal(chance, depth - 1) if depth and chance.random() < 0.3 else str(chance.randint(0, 9))

    pairs = ", ".join(f"({key}, {value()})" for key in keys)
    entries = ", ".join(f"({key}): {value()}" if chance.random() < 0.2 else f"{key}: {value()}" for key in keys)
    return chance.choice(
        [
            f"{{{entries}}}",
            f"{{{entries},}}",
            f"{{\n    # {{a: 1}}\n    {entries}\n}}",
            f"{{**{{{entries}}}, {keys[0]}: 5, **{{{keys[-1]}: {value()}}}}}",
            f"{{key: value for key, value in [{pairs}]}}",
            f"{{(key): (value) for key, value in [{pairs}] if key != 2}}",
            f"dict([{pairs}])",
            f"dict((key, value) for key, value in [{pairs}])",
            f"dict([{pairs}], z=1)",
            f"sorted(map(repr, {{{', '.join(keys)}}}))",
            f"sorted(map(repr, set([{', '.join(keys)}])))",
            f"sorted(map(repr, {{key for key in [{', '.join(keys)}]}}))",
        ]
    )


@pytest.mark.parametrize("seed", range(12))
def test_displays_comprehensions_and_calls_keep_the_keys_that_python_keeps(seed):
    chance = random.Random(seed)
    sources = [literal(chance) for _ in range(25)]
    assert run("[" + ", ".join(f"repr({source})" for source in sources) + "]") == [
        repr(eval(source, {"n": 1, "t": True})) for source in sources
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{1: 'a', True: 'b'}", {1: "b"}),
        ("{True: 'a', 1: 'b'}", {True: "b"}),
        ("repr({k: v for k, v in state.pairs})", "{1: 'b'}"),
        ("repr({state.n: 1, True: state.n})", "{1: 1}"),
        ("def f(dict):\n    return dict\nf([1])", [1]),
        ("{'a': 1, 'a': 2}", {"a": 2}),
        ("f'{ {1: 2} }'", "{1: 2}"),
    ],
)
def test_single_cases(source, expected):
    assert repr(run(source)) == repr(expected)


def test_an_error_in_a_display_keeps_its_line():
    with pytest.raises(Exception, match=r"line 5"):
        run("{\n    1: 2,\n    True: 1 / 0,\n}")
