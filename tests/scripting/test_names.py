import ast

import pytest

from divebook.scripting.syntax import Scopes, compile_script


@pytest.mark.parametrize(
    ("source", "free", "defined"),
    [
        ("[x for x in [1]][0] + x", "x", ""),
        ("[x for x in y]", "y", ""),
        ("[(lambda q: q + x + z)(1) for x in y]", "y z", ""),
        ("[[i + j + k for i in j] for j in m]", "k m", ""),
        ("{k: v for k, v in d.items() if w}", "d w", ""),
        ("{k for k in d}, k", "d k", ""),
        ("def f(a):\n    return [a + b + x for x in c]", "b c", "f"),
        ("class A:\n    y = 1\n    z = [y for q in w]", "w y", "A"),
        ("def f():\n    global g\n    g = [h for h in i]\n\ng", "i", "f g"),
        ("import os as o, sys\nx = [o for o2 in sys]", "", "o sys x"),
        ("def f(a: T) -> R:\n    pass", "R T", "f"),
        ("try:\n    pass\nexcept E as e:\n    e", "E", "e"),
        ("match v:\n    case {'a': b, **r}:\n        b", "v", "b r"),
        ("def f():\n    return [(lambda: s + t)() for t in u]", "s u", "f"),
        ("f'{[a for a in b]}{c!r:>{d}}'", "b c d", ""),
    ],
)
def test_scopes_are_pythons_own_in_every_version(source, free, defined):
    scopes = Scopes(source, ast.parse(source))
    assert (scopes.free(), scopes.defined()) == (frozenset(free.split()), frozenset(defined.split()))


def test_an_inner_variable_called_state_is_not_the_state():
    assert compile_script("[state.a for state in [1]]").uses == {}
    assert compile_script("def f(state):\n    state.x = 1").uses == {}
