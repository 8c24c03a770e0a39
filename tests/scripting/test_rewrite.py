"""Rewriting must not change what code means, nor move a line."""

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divebook.scripting.prelude import ATTRIBUTE, DOCUMENT, prelude
from divebook.scripting.syntax import compile_expression, compile_script


class Mapping(dict):
    """A dict whose keys are attributes too: what scripts are promised."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def as_mappings(value):
    if isinstance(value, dict):
        return Mapping({key: as_mappings(item) for key, item in value.items()})
    return [as_mappings(item) for item in value] if isinstance(value, list) else value


VALUE = {"a": {"b": {"c": 1, "é": [1, {"d": "x"}]}, "items": 3}, "xs": [{"n": 1}, {"n": 2}], "s": "Text"}


def evaluated(code, names):
    """Run rewritten code in Python itself, with the prelude's own helpers."""
    scope = {DOCUMENT: None}
    exec(prelude(), scope)
    return eval(code, {**scope, **names})


chains = st.recursive(
    st.just("v"),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([".a", ".b", ".c", ".é", ".xs", "['a']", "[0]", "[1]", ".n", ".s"])).map(
            "".join
        ),
        inner.map("({})".format),
        inner.map("({} # a.b\n)".format),
        inner.map("( {}\n).a".format),
        inner.map("{} .b".format),
        inner.map("{}.get('b')".format),
        inner.map("(v.xs)[0 if {} else 1].n".format),
    ),
    max_leaves=6,
)
expressions = st.recursive(
    chains,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("[{0[0]},{0[1]}]".format),
        st.tuples(inner, inner).map("(({0[0]})if({0[0]})else({0[1]}))".format),
        inner.map("f'{{{0}!r:>4}} é {{v.s}}'".format).filter(lambda text: text.count("'") == 2 and "\n" not in text),
        inner.map("[x.n for x in v.xs if({})]".format),
        inner.map("(lambda q: q.a)({})".format),
        inner.map("'é€', {}".format).map("({})".format),
        inner.map("make({{'k': {}}}).k".format),
    ),
    max_leaves=4,
)


def outcome(function, *arguments):
    try:
        return function(*arguments)
    except (AttributeError, KeyError, IndexError, TypeError) as error:
        return type(error)


@given(expressions)
@settings(max_examples=300, deadline=None)
def test_rewriting_keeps_the_meaning(text):
    wrapped = f"({text}\n)"
    wanted = outcome(eval, wrapped, {"v": as_mappings(VALUE), "make": Mapping})
    code = compile_script(wrapped).code
    got = outcome(evaluated, code, {"v": VALUE, "make": dict})
    assert got == wanted or (isinstance(wanted, type) and isinstance(got, type))
    assert code.count("\n") == wrapped.count("\n")


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("a.b", f"({ATTRIBUTE}(a, 'b', 'a')\n)"),
        ("a.b()", "(a.b()\n)"),
        ("a.b.c()", f"({ATTRIBUTE}(a, 'b', 'a').c()\n)"),
        ("x in(a).b", f"(x in {ATTRIBUTE}((a), 'b', 'a')\n)"),
        ("'é' + a.é", f"('é' + {ATTRIBUTE}(a, 'é', 'a')\n)"),
        ("f'{a.b}'", None),
        ("f'{a}'", "(f'{a}'\n)"),
    ],
)
def test_the_text_of_rewriting(text, rewritten):
    code = compile_expression(text).code.replace("__divebook_result__((", "(", 1)
    if rewritten is None:
        assert "f'" not in code
    elif "__divebook_result__" not in compile_expression(text).code:
        assert code == rewritten
    else:
        assert rewritten[1:-3] in code


def test_a_key_called_like_a_method_is_read_and_the_method_is_called():
    assert evaluated(compile_expression("[v.items, v.items()]").code, {"v": {"items": 3}})[0] == 3
    assert evaluated(compile_expression("list(v.items())").code, {"v": {"items": 3}}) == [("items", 3)]


def test_a_name_written_differently_is_still_the_same_key():
    assert evaluated(compile_expression("v.ﬁ").code, {"v": {"fi": 1}}) == 1


@pytest.mark.parametrize(
    "source",
    [
        'x = f"""\n{v.a.b.c}\n  {v["s"]:>{v.a.b.c}}\n"""\ny = 1\n',
        "match v:\n    case Colour.RED:\n        pass\n    case Point(x=0):\n        v.a\n",
        "@v.decorator\ndef f(x=v.a, *y: v.b) -> v.c:\n    '''v.d'''\n    return x.a\n",
        "import os.path\nos.path.join(os.sep, v.a)\n",
        "x = (v\n  .a  # .b\n  .b\n)\n",
        "x = v \\\n  .a \\\n  .b\n",
        "v.a.b.c\n",
        "x = '''\nv.a\n''' + v.s\n",
        "v.a = v.b.c\ndel v.a.b\n",
        "x = 1 if v.a else-v.b\n",
        "print(f'{f\"{v.a}\"}')\n",
    ],
)
def test_rewritten_scripts_parse_line_for_line(source):
    code = compile_script(source).code
    assert code.count("\n") == source.count("\n")
    before = [(type(node), node.lineno) for node in ast.parse(source).body]
    assert [(type(node), node.lineno) for node in ast.parse(code).body] == before


def test_patterns_modules_and_targets_are_left_alone():
    source = (
        "import os\nmatch v:\n    case Colour.RED:\n        os.sep\n    case {Colour.RED: x}:\n        pass\nv.a = 1\n"
    )
    assert compile_script(source).code == source
