"""The wording of docstrings, comments and names: standard terms, and no more exceptions than there were.

Each limit is a ratchet: it is lowered when the number falls, and never raised.
"""

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "divebook"

LIMITS = {
    "a module or class starts with a question word": 0,
    "a function does not start with a verb": 1,
    "a name is a participle": 32,
    "a banned phrase in a docstring": 0,
    "a function with six branches explains nothing": 0,
}
"""The most places of each kind that the package may have today. The goal is 0; for names 150, half a percent of all."""

LEAST_COMMENTS = 0.04
"""Share of the lines of the package that have comments, at least."""

QUESTION_WORD = re.compile(r"(What|Which|How|Where|Whether|Who|Those|That)\b")
BANNED = re.compile(
    r"\b(nobody|somebody|whoever|comes? to|came to|go(es)? on|went on|becomes? of|became of|is no|otherwise than)\b"
)
PARTICIPLES = frozenset(
    re.findall(r"\w+", "told found given known asked said made left kept begun taken wanted seen named came others own")
)
VERBS = frozenset(
    re.findall(
        r"\w+",
        """
        Accept Acquire Add Allow Answer Append Apply Ask Assign Await Bind Break Build Call Cancel Change Check
        Claim Clear Close Collect Compare Compute Connect Convert Copy Count Create Decide Decode Decrypt Define
        Delete Deliver Describe Detect Discard Dismiss Display Drive Drop Encode Encrypt End Enter Escape Evaluate
        Execute Expand Export Extract Fail Fetch Fill Find Finish Fold Follow Forget Fork Format Forward Generate
        Get Give Go Group Handle Hash Hide Hold Import Increase Initialize Insert Install Interrupt Invite Join
        Judge Keep Keys Leave Limit List Load Lock Log Look Make Map Mark Match Measure Merge Move Name Normalize
        Note Notify Number Obtain Open Order Parse Pass Pause Pick Place Poll Prepare Print Publish Put Queue Raise
        Read Rebuild Receive Recognize Record Recover Redact Reduce Refresh Refuse Register Reject Release Remember
        Remove Rename Render Renew Reopen Repeat Replace Replay Report Request Require Reset Resolve Restore
        Restrict Resume Retry Return Revoke Roll Run Save Say Search See Select Send Serialize Set Settle Show Shut
        Skip Sleep Sort Split Start State Step Stop Store Subscribe Summarize Suspend Take Tell Test Translate Try
        Turn Undo Unlock Unregister Update Use Validate Verify Wait Wake Walk Warn Watch Withdraw Work Wrap Write
        Yield
        """,
    )
)
"""Verbs that the docstring of a function may start with; "Let" and "Have" say too little."""


class Place(NamedTuple):
    """A place in the code."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


@cache
def sources() -> dict[str, tuple[str, ast.Module]]:
    """Return the text and the syntax tree of each module of the package."""
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    return {name: (text, ast.parse(text)) for name, text in texts.items()}


def documented(*kinds):
    """Yield each documented node of these kinds: its file, the node and its docstring."""
    for name, (_, tree) in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, kinds) and (text := ast.get_docstring(node)):
                yield name, node, text


def line_of(node):
    return getattr(node, "lineno", 1)


def question_words():
    for name, node, text in documented(ast.Module, ast.ClassDef):
        if QUESTION_WORD.match(text):
            yield Place(name, line_of(node), text.splitlines()[0])


def is_property(node):
    return any("property" in ast.unparse(decorator) for decorator in node.decorator_list)


def functions_without_verb():
    for name, node, text in documented(ast.FunctionDef, ast.AsyncFunctionDef):
        if not is_property(node) and text.split(maxsplit=1)[0].strip("`,.:;") not in VERBS:
            yield Place(name, node.lineno, text.splitlines()[0])


def participles():
    for name, (_, tree) in sources().items():
        for node in ast.walk(tree):
            bound = node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else None
            bound = node.arg if isinstance(node, ast.arg) else bound
            if bound in PARTICIPLES:
                yield Place(name, node.lineno, bound)


def banned_phrases():
    for name, node, text in documented(ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef):
        if match := BANNED.search(text):
            yield Place(name, line_of(node), match.group())


def unexplained_functions():
    for name, (text, tree) in sources().items():
        comments = {
            token.start[0]
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type == tokenize.COMMENT and not re.match(r"# (noqa|type:)", token.string)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or branches(node) < 6:
                continue
            has_paragraphs = len((ast.get_docstring(node) or "").splitlines()) > 1
            if not has_paragraphs and not comments & set(range(node.lineno, node.end_lineno + 1)):
                yield Place(name, node.lineno, node.name)


def branches(function):
    """Return the number of branches of a function, without those of functions inside of it."""
    count, nodes = 0, list(ast.iter_child_nodes(function))
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        is_branch = isinstance(node, ast.If | ast.For | ast.While | ast.ExceptHandler | ast.IfExp | ast.match_case)
        count += is_branch
        nodes += ast.iter_child_nodes(node)
    return count


def comment_lines(text):
    """Return the number of comments of a module, without instructions to tools."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(token.type == tokenize.COMMENT and not re.match(r"# (noqa|type:)", token.string) for token in tokens)


CHECKS = dict(
    zip(
        LIMITS,
        [question_words, functions_without_verb, participles, banned_phrases, unexplained_functions],
        strict=True,
    )
)


@pytest.mark.parametrize("check", CHECKS)
def test_no_more_places_than_before_have_unclear_wording(check):
    places = list(CHECKS[check]())
    shown = "\n".join(map(str, places[:40]))
    assert len(places) <= LIMITS[check], f"{len(places)} places where {check}:\n{shown}"


def test_comments_explain_the_code():
    texts = [text for text, _ in sources().values()]
    assert sum(map(comment_lines, texts)) >= LEAST_COMMENTS * sum(len(text.splitlines()) for text in texts)


def test_what_docstrings_and_comments_name_exists():
    tests = {name for path in ROOT.glob("tests/**/*.py") for name in re.findall(r"def (test_\w+)", path.read_text())}
    files = {path.stem for path in ROOT.glob("tests/**/test_*.py")}
    absent = []
    for name, (text, _) in sources().items():
        for number, line in enumerate(text.splitlines(), 1):
            named = re.findall(r"(?<![\w/.])((?:divebook|tests|widgets|benchmarks)/[\w/.-]+\.(?:py|ts|mjs))", line)
            absent += [Place(name, number, path) for path in named if not (ROOT / path).exists()]
            cited = re.findall(r"\((test_\w+)\)", line)
            absent += [Place(name, number, test) for test in cited if test not in tests and test not in files]
    assert absent == []
