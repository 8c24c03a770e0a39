import ast
import sys
import threading

import pytest

from divebook.text import syntax
from divebook.text.syntax import parse_python

SOURCE = "\n".join(f"def f{n}(a):\n    return [a.b[{n}] + (x if y else z) for x in a]" for n in range(60))


class Circle:
    """Ends in the garbage collector, which lets other threads run in the middle of parsing."""

    def __init__(self):
        self.me = self

    def __del__(self):
        for _ in range(200):
            pass


def test_threads_parse_at_the_same_time():
    errors, interval = [], sys.getswitchinterval()

    def parse():
        try:
            for _ in range(40):
                [Circle() for _ in range(50)]
                parse_python(SOURCE)
        except SystemError as error:
            errors.append(error)

    threads = [threading.Thread(target=parse) for _ in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert errors == []


def test_what_always_fails_is_raised(monkeypatch):
    def fail(*_, **__):
        raise SystemError("AST constructor recursion depth mismatch")

    monkeypatch.setattr(syntax.ast, "parse", fail)
    with pytest.raises(SystemError):
        parse_python("1")


@pytest.mark.parametrize(("mode", "kind"), [("exec", ast.Module), ("eval", ast.Expression)])
def test_a_source_is_a_tree_of_its_mode(mode, kind):
    assert type(parse_python("1 + 1", mode)) is kind
    with pytest.raises(SyntaxError):
        parse_python("1 +", mode)
