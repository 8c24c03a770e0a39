"""Sentences that people read name nothing of the engine: its operations are calls to them, its paths branches."""

import ast
import re
from pathlib import Path

from divebook import __file__ as face

PACKAGE = Path(face).parent
PAGES = PACKAGE.parent / "widgets" / "src"
READ = ("cli", "notebook", "projections", "questions", "runtime", "steps", "text", "widgets")
BANNED = re.compile(
    r"\b(operations?|interrupts?|iterations?|detached|nanoseconds?|strands?|spans?|agent_response|\w+_execution"
    r"|main-\d|path main|already registered)\b",
    re.IGNORECASE,
)
KEPT = {'no question specified for interrupt step "'}
"""What the old system's cases ask for word by word; the type of step has that name in YAML."""


def sentences(tree):
    """Return the texts of a module that hold a space, without what is put into them and without docstrings."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return [node.value for node in texts if id(node) not in alone and re.search(r"[a-z,.:;] |^ ?[a-z]+ ", node.value)]


def test_no_sentence_of_python_names_a_thing_of_the_engine():
    modules = [path for name in READ for path in (PACKAGE / name).rglob("*.py")] + [PACKAGE / "environments/starts.py"]
    assert len(modules) > 80
    found = [
        f"{path.relative_to(PACKAGE)}: {text!r}"
        for path in modules
        for text in sentences(ast.parse(path.read_text()))
        if BANNED.search(text) and text not in KEPT and not text.lstrip().startswith("<")  # SVG
    ]
    assert found == []


def test_no_sentence_of_a_page_names_a_thing_of_the_engine():
    literal = re.compile(r'"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`')
    pages = [path for path in PAGES.rglob("*.ts") if path.name != "protocol.ts"]
    assert len(pages) > 80
    found = [
        f"{path.relative_to(PAGES)}: {text}"
        for path in pages
        for line in path.read_text().splitlines()
        if not line.lstrip().startswith(("//", "/*", "*"))
        for text in (re.sub(r"\$\{[^}]*\}", "", one[0]) for one in literal.finditer(line))
        if " " in text and BANNED.search(text) and not text.startswith("`run.")  # code to copy
    ]
    assert found == []
