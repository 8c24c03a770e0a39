"""List the texts that users read: messages of the package, texts of the front end, pages and notebooks.

`python -m tests.user_texts` prints each text with its file and line; `python -m tests.user_texts divebook/engine` only
those under a folder. A text of the package is each string literal of several words, wherever it stands: most messages
are put together in functions, so the name of the function that is called does not say whether a user reads them.
Docstrings, SQL, CSS and patterns are left out. A literal with placeholders is listed with them: `run {run.id} ended`.
"""

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

SEVERAL_WORDS = re.compile(r"[A-Za-z][a-z']*[,.;:?!)]? +[A-Za-z(]|[A-Za-z][,;:.] *\{|\} [a-z]{2}|^ [a-z]{2}")
NOT_PROSE = re.compile(
    r"\b(SELECT|INSERT|UPDATE|DELETE FROM|CREATE|ALTER|PRAGMA|DROP|WHERE|VALUES|LIMIT|BEGIN|ORDER BY)\b [a-z_(%\"{?1]"
    r"|[a-z-]+:[^ ;]+;|\(\?[:P!=<]|<svg|^\s*(import|from \w+ import|def|class) "
)
"""SQL, CSS, regular expressions, drawings and generated code."""

WORD_LISTS = {"_words", "words", "split", "compile", "namedtuple", "listed", "execute", "executemany", "getLogger"}
"""Functions whose arguments are lists of names or statements."""


class UserText(NamedTuple):
    """A text that users read: its file, its line, the function it is an argument of (or ""), and the text."""

    file: str
    line: int
    of: str
    text: str

    def __str__(self) -> str:
        where = f" ({self.of})" if self.of else ""
        return f"{self.file}:{self.line}{where}: {' '.join(self.text.split())}"


def python_texts(path: Path) -> Iterator[UserText]:
    """Yield the string literals of several words in a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    file = str(path.relative_to(ROOT))
    for node, of in literals(tree, ""):
        text = node.value if isinstance(node, ast.Constant) else template(node)
        if SEVERAL_WORDS.search(text) and not NOT_PROSE.search(text):
            yield UserText(file, node.lineno, of, text)


def literals(node: ast.AST, of: str) -> Iterator[tuple[ast.Constant | ast.JoinedStr, str]]:
    """Yield each string literal below a node, with the function that it is an argument of."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue  # a docstring
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child, of
        elif isinstance(child, ast.JoinedStr):
            yield child, of
            for part in child.values:  # literals within its placeholders
                if isinstance(part, ast.FormattedValue):
                    yield from literals(part, of)
        elif isinstance(child, ast.Call):
            name = ast.unparse(child.func).rpartition(".")[2]
            if name not in WORD_LISTS:
                yield from literals(child, name)
        elif not isinstance(child, ast.Subscript):  # subscripts hold annotations and keys
            yield from literals(child, of)
        else:
            yield from literals(child.value, of)


def template(node: ast.JoinedStr) -> str:
    """Return an f-string as it stands in the source, with its placeholders."""
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else "{" + ast.unparse(part.value) + "}"
        for part in node.values
    )


TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/"
    r"|(?P<text>\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|`(?:\\.|\$\{(?:[^{}`]|\{[^{}]*\}|`[^`]*`)*\}|[^`\\])*`)",
    re.DOTALL,
)
SHOWN = re.compile(r"[A-Za-z][a-z']*[,.;:?!)]? +[A-Za-z(]|\} [a-z]{2}|^[A-Z][a-z]+(…|\.)?$|^ [a-z]{2}")
NOT_SHOWN = re.compile(r"dive-|\bd-|[{;] *[a-z-]+: |^[.#@]|px\b|use strict")


def typescript_texts(path: Path) -> Iterator[UserText]:
    """Yield the strings in a TypeScript file that are shown: several words, or one that starts with a capital."""
    source = path.read_text(encoding="utf-8")
    for match in TOKEN.finditer(source):
        text = (match["text"] or "")[1:-1]
        if SHOWN.search(text) and not NOT_SHOWN.search(text):
            yield UserText(str(path.relative_to(ROOT)), source.count("\n", 0, match.start()) + 1, "", text)


def page_texts(path: Path) -> Iterator[UserText]:
    """Yield the lines of a Markdown page, or of the Markdown cells of a notebook, without blocks of code."""
    file, source = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = [cell["source"] for cell in json.loads(source)["cells"] if cell["cell_type"] == "markdown"]
        source = "\n\n".join("".join(cell) for cell in cells)
    is_code = False
    for number, line in enumerate(source.splitlines(), 1):
        is_fence = line.lstrip().startswith("```")
        is_code ^= is_fence
        if line.strip() and not is_code and not is_fence:
            yield UserText(file, number, "page", line)


def user_texts(folder: str = "") -> Iterator[UserText]:
    """Yield all texts that users read, in files whose path starts with `folder`."""
    readers = {
        python_texts: ROOT.glob("divebook/**/*.py"),
        typescript_texts: ROOT.glob("widgets/src/**/*.ts*"),
        page_texts: [ROOT / "README.md", *ROOT.glob("notebooks/**/*.md"), *ROOT.glob("notebooks/**/*.ipynb")],
    }
    for read, paths in readers.items():
        for path in sorted(paths):
            if str(path.relative_to(ROOT)).startswith(folder) and ".d.ts" not in path.name:
                yield from read(path)


if __name__ == "__main__":
    for each in user_texts(*sys.argv[1:]):
        sys.stdout.write(f"{each}\n")
