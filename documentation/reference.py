"""Generated parts of the pages in ``notebooks``: Python names, types of events, frames, and JSON output.

``python -m documentation.reference`` rewrites the text between ``<!-- KIND: ARGUMENT -->`` and ``<!-- end -->`` in all
pages.
The rest of a page is written by hand. Kinds:

``api``
    A public name, or a module with all its public names: signature, docstring and members.
``errors``
    The classes of `divebook.errors`, as a table of links.
``event``
    A type of event: its fields, and an example from ``tests/events/examples.jsonl``.
``events``
    All types of events in one table.
``frame``
    The columns of a DataFrame, from the function that makes it.
``json``
    The keys of the JSON that commands print.

Docstrings are in numpydoc style. Their sections become lists, and names in backquotes become links, if a page has them.
Signatures have the language ``py`` and examples ``pycon``, because the suite executes blocks of ``python`` in pages.
`tests/test_reference.py` compares the pages with the result.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import enum
import importlib
import inspect
import itertools
import os
import re
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "notebooks"
WIDTH = 120
MARKER = re.compile(
    r"^<!-- (?P<kind>\w+): ?(?P<argument>.*?) ?-->\n(?P<text>.*?)^<!-- end -->$", re.MULTILINE | re.DOTALL
)
_LIST_ITEM = re.compile(r"(?:[-+*#>]|\d+[.)])(?:\s|$)")


# --- public names ----------------------------------------------------------------------------------------------------


def object_of(dotted: str) -> Any:
    """Return the object with a dotted name: a module, or an attribute of one."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        name = ".".join(parts[:count])
        try:
            value = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
            continue
        for attribute in parts[count:]:
            value = getattr(value, attribute)
        return value
    raise LookupError(f"{dotted}: no module of that name")


def names_of_module(module: types.ModuleType) -> list[str]:
    """Return the public classes and functions that a module defines, in the order of its source."""
    return [
        name
        for name, value in vars(module).items()
        if name[0] != "_"
        and getattr(value, "__module__", "") == module.__name__
        and (inspect.isclass(value) or inspect.isfunction(value))
    ]


class Member(NamedTuple):
    """Public member of a class: a function, or a value with the text of its annotation."""

    name: str
    value: Any
    """Function, property or other descriptor; None for an annotated attribute."""
    annotation: str
    text: str
    owner: type
    """Class that defines the member."""


def members_of(cls: type) -> list[Member]:
    """Return the public members of a class that divebook defines: those of the class first, then inherited ones, each
    in the order of the source.
    """
    public_members: dict[str, Member] = {}
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] != "divebook":
            continue
        texts = attribute_texts(base)
        annotations = vars(base).get("__annotations__", {})
        for name in [*annotations, *vars(base)]:
            if name[0] == "_" or name in public_members:
                continue
            value = inspect.getattr_static(base, name, None)
            annotation = annotation_text(annotations.get(name, ""))
            if annotation.startswith("ClassVar") and name not in texts:
                continue
            if "not part of the public API" in (inspect.getdoc(value) or ""):
                continue
            is_code = inspect.isroutine(value) or isinstance(
                value, property | cached_property | staticmethod | classmethod
            )
            if is_code or name in texts or (name in annotations and not isinstance(value, enum.Enum)):
                public_members[name] = Member(name, value if is_code else None, annotation, texts.get(name, ""), base)
    return list(public_members.values())


@cache
def attribute_texts(cls: type) -> dict[str, str]:
    """Return the strings below the attributes in the source of a class, by attribute."""
    return _texts_below(_class_body(cls))


def _texts_below(body: list[ast.stmt]) -> dict[str, str]:
    """Return the strings below the assignments in the body of a class or module, by name."""
    texts: dict[str, str] = {}
    for statement, following in itertools.pairwise(body):
        if isinstance(statement, ast.AnnAssign):
            target: Any = statement.target
        elif isinstance(statement, ast.Assign):
            target = statement.targets[0]
        else:
            continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            text = following.value.value
            if isinstance(text, str) and isinstance(target, ast.Name):
                texts[target.id] = inspect.cleandoc(text)
    return texts


def _class_body(cls: type) -> list[ast.stmt]:
    node = _definitions(cls.__module__).get(cls.__qualname__)
    return node.body if isinstance(node, ast.ClassDef) else []


@cache
def _definitions(module: str) -> dict[str, ast.AST]:
    """Return the classes and functions in the source of a module of divebook, by qualified name.

    `inspect.getsource` would parse the module again for each class.
    """
    nodes_by_name: dict[str, ast.AST] = {}
    source = getattr(sys.modules.get(module), "__file__", None)
    todo: list[tuple[str, ast.AST]] = []
    if source and module.partition(".")[0] == "divebook":
        todo.append(("", ast.parse(Path(source).read_text(encoding="utf-8"))))
    while todo:
        prefix, node = todo.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                nodes_by_name[prefix + child.name] = child
            if isinstance(child, ast.ClassDef):
                todo.append((f"{prefix}{child.name}.", child))
    return nodes_by_name


# --- signatures ------------------------------------------------------------------------------------------------------


def annotation_text(annotation: Any) -> str:
    """Return an annotation as it is written, without the description of a key (``Annotated[T, Key(...)]`` is ``T``)."""
    if annotation is inspect.Parameter.empty or annotation is None:
        return "None" if annotation is None else ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return text
    return ast.unparse(_Plain().visit(tree))


class _Plain(ast.NodeTransformer):
    """Replaces ``Annotated[T, ...]`` by ``T``, and ``ForwardRef('T')``, as fields of named tuples have it, by ``T``."""

    def visit_Call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == "ForwardRef" and isinstance(node.args[0], ast.Constant):
            return self.visit(ast.parse(str(node.args[0].value), mode="eval").body)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == "Annotated" and isinstance(node.slice, ast.Tuple):
            return node.slice.elts[0]
        return node


def default_text(value: Any, source: str | None) -> str:
    """Return the default of a parameter as it is best read: a short literal, or the text in the source."""
    if isinstance(value, enum.Enum):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return repr(value)
    if inspect.isfunction(value) or inspect.isclass(value):
        return value.__name__
    if isinstance(value, tuple | list | dict | set | frozenset) and not value:
        return repr(value)
    text = source or repr(value)
    return "..." if " at 0x" in text or text.startswith("<") or len(text) > 40 else text


def _source_defaults(function: Any) -> dict[str, str]:
    """Return the defaults of the parameters of a function as they are written, by parameter."""
    plain = inspect.unwrap(function)
    tree = _definitions(getattr(plain, "__module__", "")).get(getattr(plain, "__qualname__", ""))
    if not isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef):
        return {}
    arguments = tree.args
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs: list[tuple[ast.arg, ast.expr | None]] = [
        *zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    return {argument.arg: ast.unparse(value) for argument, value in pairs if value is not None}


def _parameters(signature: inspect.Signature, written: Mapping[str, str], *, is_method: bool) -> list[str]:
    parameters = list(signature.parameters.values())[1 if is_method else 0 :]
    texts: list[str] = []
    has_star = False
    for number, parameter in enumerate(parameters):
        if parameter.kind is parameter.KEYWORD_ONLY and not has_star:
            texts.append("*")
            has_star = True
        has_star = has_star or parameter.kind is parameter.VAR_POSITIONAL
        star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        annotation = annotation_text(parameter.annotation)
        text = f"{star}{parameter.name}" + (f": {annotation}" if annotation else "")
        if parameter.default is not parameter.empty:
            shown = default_text(parameter.default, written.get(parameter.name))
            text += f" = {shown}" if annotation else f"={shown}"
        texts.append(text)
        following = parameters[number + 1].kind if number + 1 < len(parameters) else None
        if parameter.kind is parameter.POSITIONAL_ONLY and following is not parameter.POSITIONAL_ONLY:
            texts.append("/")
    return texts


def _laid_out(head: str, parameters: list[str], tail: str) -> str:
    """Return a signature on one line if it is short, or else with one parameter per line."""
    line = f"{head}({', '.join(parameters)}){tail}"
    if len(line) <= 80 or not parameters:
        return line
    return "\n".join([f"{head}(", *(f"    {parameter}," for parameter in parameters), f"){tail}"])


def function_signature(name: str, function: Any, *, is_method: bool = False) -> str:
    """Return the signature of a function as Python code."""
    prefix = ""
    if isinstance(function, staticmethod | classmethod):
        prefix = f"@{type(function).__name__}\n"
        is_method = isinstance(function, classmethod)
        function = function.__func__
    signature = inspect.signature(function)
    plain = inspect.unwrap(function)
    is_async = inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain)
    parameters = _parameters(signature, _source_defaults(function), is_method=is_method)
    returned = annotation_text(signature.return_annotation)
    tail = f" -> {returned}" if returned else ""
    return prefix + _laid_out(f"{'async ' if is_async else ''}def {name}", parameters, tail)


def class_signature(name: str, cls: type, text: str) -> str:
    """Return the call of a class as Python code, or only its name if users do not create instances.

    They do where the docstring has parameters or an example with a call, and of plain data.
    """
    is_data = dataclasses.is_dataclass(cls) or issubclass(cls, tuple)
    is_called = re.search(rf"^Parameters$|\b{cls.__name__}\(", text, re.MULTILINE)
    if issubclass(cls, enum.Enum) or getattr(cls, "_is_protocol", False) or not (is_data or is_called):
        return f"class {name}"
    try:
        signature = inspect.signature(cls)
    except (TypeError, ValueError):
        return f"class {name}"
    written = {}
    if not is_data or "__init__" in vars(cls):
        written = _source_defaults(cls.__init__)
    for base in reversed(cls.__mro__):
        for statement in _class_body(base):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
                written.setdefault(statement.target.id, _field_default(statement.value))
    parameters = [
        parameter.replace("= <factory>", "= ...") for parameter in _parameters(signature, written, is_method=False)
    ]
    return _laid_out(f"class {name}", parameters, "")


def _field_default(value: ast.expr) -> str:
    """Return the default of a dataclass field, which may be wrapped in a call of `field`."""
    if isinstance(value, ast.Call):
        for keyword in value.keywords:
            if keyword.arg == "default":
                return ast.unparse(keyword.value)
            if keyword.arg == "default_factory":
                return {"dict": "{}", "list": "[]", "set": "set()"}.get(ast.unparse(keyword.value), "...")
        if isinstance(value.func, ast.Name) and value.func.id in ("many", "field"):
            return "()" if value.func.id == "many" else "..."
    return ast.unparse(value)


# --- docstrings ------------------------------------------------------------------------------------------------------


SECTIONS = ("Parameters", "Attributes", "Returns", "Yields", "Raises", "Notes", "Examples", "See Also", "Warns")
_SECTION = re.compile(rf"^({'|'.join(SECTIONS)})\n-{{3,}}\n?", re.MULTILINE)


class Scope(NamedTuple):
    """Place of a docstring, from which names in it are looked up."""

    page: Path
    index: Mapping[str, tuple[Path, str]]
    """Page and anchor of each name."""
    classes: tuple[str, ...] = ()
    """Dotted names of the class around the docstring."""
    local_names: frozenset[str] = frozenset()
    """Names that the docstring itself describes, such as those of parameters. They get no link."""

    def link(self, name: str) -> str:
        """Return a name as code, with a link if a page has its description."""
        bare = name.removesuffix("()")
        candidates = [*(f"{cls}.{bare}" for cls in self.classes), bare, f"divebook.{bare}"]
        place = (
            None
            if bare in self.local_names
            else next((self.index[each] for each in candidates if each in self.index), None)
        )
        if place is None:
            return f"`{name}`"
        page, anchor = place
        path = "" if page == self.page else os.path.relpath(page, self.page.parent)
        return f"[`{name}`]({path}#{anchor})"


def split_sections(text: str) -> dict[str, str]:
    """Return the sections of a numpydoc docstring by title; the text before them has the title ``""``."""
    parts = _SECTION.split(text)
    return {
        "": parts[0].strip(),
        **{title: body.strip("\n") for title, body in zip(parts[1::2], parts[2::2], strict=True)},
    }


def entries(body: str) -> Iterator[tuple[str, str]]:
    """Yield the entries of a section such as ``Parameters``: a line, and the indented text below it."""
    for entry in re.split(r"\n(?=\S)", body.strip("\n")):
        head, _, text = entry.partition("\n")
        yield head.strip(), textwrap.dedent(text).strip("\n")


def inline(text: str, scope: Scope) -> str:
    """Return a paragraph of a docstring as Markdown: code, links, and no other markup."""
    parts = re.split(r"(``.+?``|`[^`\n]+?(?:\n[^`\n]+?)?`)", text, flags=re.DOTALL)
    return "".join(_inline_part(part, scope) for part in parts)


def _inline_part(part: str, scope: Scope) -> str:
    if part.startswith("``"):
        code = " ".join(part[2:-2].split())
        return f"`` {code} ``" if "`" in code else f"`{code}`"
    if part.startswith("`"):
        return scope.link(" ".join(part[1:-1].split()))
    part = part.replace("\\", "\\\\").replace("<", "&lt;").replace("*", "\\*")
    return re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", part)


def wrapped(text: str, indent: str = "", first: str = "") -> str:
    """Return a paragraph wrapped to the width of the pages."""
    lines = textwrap.wrap(
        " ".join(text.split()),
        WIDTH,
        initial_indent=first or indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    # A line must not begin like a list item or a heading.
    for number in range(len(lines) - 1, 0, -1):
        if _LIST_ITEM.match(lines[number].strip()):
            lines[number - 1 : number + 1] = [f"{lines[number - 1]} {lines[number].strip()}"]
    return "\n".join(lines)


def paragraphs(text: str, scope: Scope) -> Iterator[str]:
    """Yield the blocks of a docstring text as Markdown: paragraphs, lists, tables, code and examples."""
    blocks = re.split(r"\n[ \t]*\n", text.strip("\n"))
    number = 0
    while number < len(blocks):
        block = blocks[number]
        number += 1
        if block.lstrip().startswith(">>>"):
            yield f"```pycon\n{textwrap.dedent(block)}\n```"
        elif re.match(r"=+( +=+)+$", block.partition("\n")[0]):
            yield _table(block, scope)
        elif block.startswith("- "):
            yield _bullets(block, scope)
        elif block.rstrip().endswith("::"):
            # The indented blocks that follow are code.
            intro = block.rstrip()[:-2].rstrip()
            if intro:
                yield wrapped(inline(intro + ":", scope))
            code = []
            while number < len(blocks) and blocks[number].startswith(" "):
                code.append(blocks[number])
                number += 1
            yield _code(textwrap.dedent("\n\n".join(code)).strip("\n"))
        elif block.startswith("::\n"):
            yield _code(textwrap.dedent(block[3:]).strip("\n"))
        else:
            yield wrapped(inline(block, scope))


def _code(code: str) -> str:
    """Return a literal block; with the language if it is Python."""
    try:
        ast.parse(code)
    except SyntaxError:
        language = "pycon" if code.startswith(">>>") else "toml" if code.startswith("[project") else ""
        if "await " in code:
            language = "py"
    else:
        language = "py"
    return f"```{language}\n{code}\n```"


def _table(block: str, scope: Scope) -> str:
    """Return a simple reStructuredText table as a Markdown table."""
    rule, *lines = block.split("\n")
    ends = [match.end() for match in re.finditer("=+", rule)][:-1]
    starts = [match.start() for match in re.finditer("=+", rule)]
    rows = [
        [line[start:end].strip() for start, end in zip(starts, [*ends, None], strict=True)]
        for line in lines
        if not line.startswith("==")
    ]
    return "\n".join(table(rows[0], ([inline(cell, scope) for cell in row] for row in rows[1:])))


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    names = list(head)
    yield f"| {' | '.join(names)} |"
    yield f"|{'---|' * len(names)}"
    for row in rows:
        yield f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in row)} |"


def _bullets(block: str, scope: Scope) -> str:
    items = re.split(r"\n(?=- )", block)
    return "\n".join(wrapped(inline(item[2:], scope), "  ", "- ") for item in items)


def indented(blocks: Iterable[str], prefix: str = "    ") -> str:
    """Return blocks below a list item. Fences cannot be there, so that code is indented."""
    plain = (
        textwrap.indent(block.split("\n", 1)[1][:-4], "    ") if block.startswith("```") else block for block in blocks
    )
    return textwrap.indent("\n\n".join(plain), prefix)


def item(term: str, text: str, scope: Scope) -> str:
    """Return a list item: a term, and blocks of text."""
    blocks = [*paragraphs(text, scope)] if text else []
    if blocks and not blocks[0].startswith(("```", "|", "- ")):
        first = " ".join(blocks.pop(0).split())
        head = wrapped(f"{term}: {first}", "  ", "- ")
    else:
        head = f"- {term}"
    return head + (f"\n\n{indented(blocks)}\n" if blocks else "")


def docstring(text: str, scope: Scope, *, leaves_out: Iterable[str] = ()) -> Iterator[str]:
    """Yield the blocks of a whole docstring as Markdown."""
    sections = split_sections(text)
    names = {
        name.strip().lstrip("*")
        for title in ("Parameters", "Attributes")
        for head, _ in entries(sections.get(title, ""))
        for name in head.partition(" : ")[0].split(",")
    }
    scope = scope._replace(local_names=scope.local_names | names)
    yield from paragraphs(sections.pop(""), scope)
    for title, body in sections.items():
        if title in leaves_out:
            continue
        if title in ("Notes", "Examples", "See Also"):
            yield "**Example**" if title == "Examples" else f"**{title}**"
            yield from paragraphs(body, scope)
        else:
            yield f"**{title}**"
            yield "\n".join(item(_term(title, head, scope), text, scope) for head, text in entries(body))


def _term(title: str, head: str, scope: Scope) -> str:
    if title in ("Raises", "Warns"):
        return scope.link(head)
    name, _, kind = head.partition(" : ")
    return ", ".join(f"`{each.strip()}`" for each in name.split(",")) + (f" ({kind})" if kind else "")


# --- entries of the reference ----------------------------------------------------------------------------------------


def entry(dotted: str, level: int, scope: Scope, shown: str = "") -> Iterator[str]:
    """Yield the blocks about one public name."""
    value = object_of(dotted)
    yield heading(dotted, level, shown)
    if inspect.ismodule(value):
        yield from docstring(inspect.getdoc(value) or "", scope)
        for name in names_of_module(value):
            yield from entry(f"{dotted}.{name}", level + 1, scope, name)
    elif inspect.isclass(value):
        yield from _class_entry(dotted, value, level, scope)
    elif typing.get_origin(value) is not None:  # an alias of a type
        yield f"```py\n{dotted.rpartition('.')[2]} = {inspect.formatannotation(value)}\n```"
        yield from docstring(alias_text(dotted), scope)
    elif callable(value):
        yield from _function_entry(dotted.rpartition(".")[2], value, scope)
    else:
        yield f"```py\n{dotted.rpartition('.')[2]} = {value!r}\n```"


def alias_text(dotted: str) -> str:
    """Return the docstring below a type alias that a package imports from one of its modules."""
    package, _, name = dotted.rpartition(".")
    imports = ast.parse(inspect.getsource(object_of(package))).body
    module = next(
        node.module
        for node in imports
        if isinstance(node, ast.ImportFrom) and node.module and name in [alias.name for alias in node.names]
    )
    source = inspect.getsource(importlib.import_module(module))
    return _texts_below(ast.parse(source).body).get(name, "")


def heading(dotted: str, level: int, shown: str = "") -> str:
    """Return a heading with the anchor of a name. GitHub has no syntax for anchors, so that it is an HTML tag."""
    return f'{"#" * min(level, 6)} <a id="{dotted}"></a>`{shown or dotted}`'


def _function_entry(name: str, value: Any, scope: Scope, *, is_method: bool = False) -> Iterator[str]:
    with contextlib.suppress(TypeError, ValueError):
        yield f"```py\n{function_signature(name, value, is_method=is_method)}\n```"
    plain = value.__func__ if isinstance(value, staticmethod | classmethod) else value
    try:
        parameters = frozenset(inspect.signature(plain).parameters)
    except (TypeError, ValueError):
        parameters = frozenset()
    yield from docstring(inspect.getdoc(plain) or "", scope._replace(local_names=parameters))


def _class_entry(dotted: str, cls: type, level: int, scope: Scope) -> Iterator[str]:
    name = dotted.rpartition(".")[2]
    text = own_docstring(cls)
    # Constructors may have a docstring of their own.
    init = vars(cls).get("__init__")
    init_text = inspect.cleandoc(init.__doc__ or "") if inspect.isfunction(init) else ""
    yield f"```py\n{class_signature(name, cls, text + chr(10) + init_text)}\n```"
    inside = scope._replace(classes=(dotted,))
    bases = [
        base for base in cls.__bases__ if base.__module__.partition(".")[0] == "divebook" and base.__name__[0] != "_"
    ]
    linked = [scope.link(f"{base.__module__}.{base.__qualname__}") for base in bases]
    short = [link for base, link in zip(bases, linked, strict=True) if link.startswith("[")]
    if short:
        yield "Base class: " + ", ".join(re.sub(r"`divebook\.(?:\w+\.)*(\w+)`", r"`\1`", link) for link in short)
    yield from docstring(text, inside, leaves_out=["Attributes"])
    if init_text:
        yield from docstring(init_text, inside)
    members, inherited = [], []
    for member in members_of(cls):
        # The members of a base class are described there, if it is on a page.
        home = f"{member.owner.__module__}.{member.owner.__qualname__}"
        is_elsewhere = member.owner is not cls and home in scope.index
        (inherited if is_elsewhere else members).append(member)
    described = (
        dict(entries(split_sections(text).get("Attributes", ""))) if "Attributes" in split_sections(text) else {}
    )
    lines = [*_attribute_lines(dotted, cls, members, described, inside)]
    if lines:
        yield "**Values**" if issubclass(cls, enum.Enum) else "**Attributes**"
        yield "\n".join(lines)
    for member in members:
        if isinstance(member.value, property | cached_property):
            if _has_code(member):
                function = _getter(member.value)
                yield heading(f"{dotted}.{member.name}", level + 1, f"{name}.{member.name}")
                kind = annotation_text(inspect.signature(function).return_annotation)
                yield f"```py\n{member.name}: {kind or 'Any'}\n```"
                yield from docstring(inspect.getdoc(function) or "", inside)
        elif member.value is not None:
            yield heading(f"{dotted}.{member.name}", level + 1, f"{name}.{member.name}")
            yield from _function_entry(
                member.name, member.value, inside, is_method=not isinstance(member.value, staticmethod)
            )
    for owner in dict.fromkeys(member.owner for member in inherited):
        home = f"{owner.__module__}.{owner.__qualname__}"
        names = [
            scope.link(f"{home}.{member.name}").replace(f"`{home}.", "`")
            for member in inherited
            if member.owner is owner
        ]
        base = scope.link(home).replace(f"`{home}`", f"`{owner.__name__}`")
        yield wrapped(f"Inherited from {base}: {', '.join(names)}.")


def own_docstring(cls: type) -> str:
    """Return the docstring of a class that is in its source."""
    # Dataclasses and named tuples without a docstring get their signature as one.
    text = inspect.cleandoc(cls.__doc__ or "")
    return "" if text.startswith(f"{cls.__name__}(") else text


def _attribute_lines(
    dotted: str, cls: type, members: list[Member], described: Mapping[str, str], scope: Scope
) -> Iterator[str]:
    """Yield a list item for each attribute and property of a class."""
    if issubclass(cls, enum.Enum):
        texts = attribute_texts(cls)
        for member in cls:
            yield item(f"`{member.name}` = `{member.value!r}`", texts.get(member.name, ""), scope)
    groups = {
        tuple(name.strip() for name in head.partition(" : ")[0].split(",")): text for head, text in described.items()
    }
    together = {name for names in groups for name in names}
    for names, text in groups.items():
        anchors = "".join(f'<a id="{dotted}.{name}"></a>' for name in names)
        yield item(anchors + ", ".join(f"`{name}`" for name in names), text, scope)
    for member in members:
        if member.name in together:
            continue
        if isinstance(member.value, property | cached_property):
            if not _has_code(member):
                function = _getter(member.value)
                kind = annotation_text(inspect.signature(function).return_annotation)
                yield item(_attribute(dotted, member.name, kind), inspect.getdoc(function) or "", scope)
        elif member.value is None:
            yield item(_attribute(dotted, member.name, member.annotation), member.text, scope)


def _getter(value: Any) -> Any:
    return value.fget if isinstance(value, property) else value.func


def _has_code(member: Member) -> bool:
    """Return True if the docstring of a property has sections or code, which are not put into a list."""
    text = inspect.getdoc(_getter(member.value)) or ""
    return len(split_sections(text)) > 1 or "::\n" in text or ">>>" in text


def _attribute(dotted: str, name: str, kind: str) -> str:
    return f'<a id="{dotted}.{name}"></a>`{name}`' + (f" (`{kind}`)" if kind else "")


# --- pages -----------------------------------------------------------------------------------------------------------


def index_of(pages: Mapping[Path, str]) -> dict[str, tuple[Path, str]]:
    """Return page and anchor of every name on the pages, by its dotted name, its name alone, and the place where it is
    defined.
    """
    index: dict[str, tuple[Path, str]] = {}
    short: dict[str, tuple[Path, str]] = {}

    def add(dotted: str, home: str, name: str, place: tuple[Path, str], *, is_top: bool) -> None:
        index.setdefault(dotted, place)
        index.setdefault(home, place)
        # Names of the package itself win over others of the same name, such as the `Context` for tests.
        if is_top or name not in short:
            short[name] = place

    described = list(_described(pages, index))
    for page, dotted, value in described:
        home = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
        add(dotted, home, dotted.rpartition(".")[2], (page, dotted), is_top=dotted.count(".") == 1)
    for page, dotted, value in described:
        if not inspect.isclass(value):
            continue
        home = f"{value.__module__}.{value.__qualname__}"
        for member in members_of(value):
            # An inherited member is described with its class, if that is on a page.
            owner = f"{member.owner.__module__}.{member.owner.__qualname__}"
            owner_page, owner_anchor = index.get(owner, (page, dotted)) if member.owner is not value else (page, dotted)
            place = (owner_page, f"{owner_anchor}.{member.name}")
            name = f"{value.__name__}.{member.name}"
            add(f"{dotted}.{member.name}", f"{home}.{member.name}", name, place, is_top=dotted.count(".") == 1)
    return {**short, **index}


def _described(pages: Mapping[Path, str], index: dict[str, tuple[Path, str]]) -> Iterator[tuple[Path, str, Any]]:
    """Yield page, name and object of each description on the pages; add those of frames to `index`."""
    for page, text in pages.items():
        for match in MARKER.finditer(text):
            if match["kind"] == "frame":
                dotted = match["argument"].partition(" = ")[2]
                index[dotted] = (page, dotted.rpartition(".")[2])
            elif match["kind"] == "api":
                value = object_of(match["argument"])
                yield page, match["argument"], value
                if inspect.ismodule(value):
                    for name in names_of_module(value):
                        yield page, f"{match['argument']}.{name}", getattr(value, name)


def render(page: Path, text: str, index: Mapping[str, tuple[Path, str]]) -> str:
    """Return the text of a page with its generated parts as they should be."""
    scope = Scope(page, index)

    def replace(match: re.Match[str]) -> str:
        levels = re.findall(
            r"^(#+) (?!<a id)",
            re.sub(r"^```.*?^```", "", text[: match.start()], flags=re.MULTILINE | re.DOTALL),
            re.MULTILINE,
        )
        # Members are one level below. Deeper headings would be smaller than the text.
        level = min(len(levels[-1]) + 1, 3) if levels else 2
        blocks = KINDS[match["kind"]](match["argument"], level, scope)
        body = re.sub(r"\n{3,}", "\n\n", "\n\n".join(blocks)).strip("\n")
        marker = f"{match['kind']}: {match['argument']}".strip()
        return f"<!-- {marker} -->\n\n{body}\n\n<!-- end -->"

    return MARKER.sub(replace, text)


def errors(_: str, __: int, scope: Scope) -> Iterator[str]:
    """Yield a table of all exception classes, each below its base class."""
    from divebook import errors as module

    classes = [getattr(module, name) for name in names_of_module(module)]
    classes = [cls for cls in classes if isinstance(cls, type) and issubclass(cls, BaseException)]
    rows = []

    def add(cls: type, depth: int) -> None:
        text = split_sections(own_docstring(cls))[""].partition("\n\n")[0]
        link = f"[`{cls.__name__}`](#divebook.errors.{cls.__name__})"
        rows.append(["&nbsp;" * (4 * depth) + link, inline(text, scope)])
        for below in classes:
            if cls in below.__bases__:
                add(below, depth + 1)

    for cls in classes:
        if not any(base in classes for base in cls.__bases__):
            add(cls, 0)
    yield "\n".join(table(["class", "meaning"], rows))


def api(argument: str, level: int, scope: Scope) -> Iterator[str]:
    """Yield the description of a public name."""
    return entry(argument, level, scope)


def _data(name: str) -> Callable[[str, int, Scope], Iterator[str]]:
    """Return a function of `documentation.data`, which imports this module."""

    def blocks(argument: str, level: int, scope: Scope) -> Iterator[str]:
        function: Callable[[str, int, Scope], Iterator[str]] = getattr(
            importlib.import_module("documentation.data"), name
        )
        return function(argument, level, scope)

    return blocks


KINDS: dict[str, Callable[[str, int, Scope], Iterator[str]]] = {
    "api": api,
    "errors": errors,
    "event": _data("event"),
    "events": _data("all_events"),
    "frame": _data("frame"),
    "json": _data("json_output"),
}


def read() -> dict[Path, str]:
    """Return the text of each page with generated parts."""
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in sorted(PAGES.rglob("*.md"))
        if "/." not in f"/{path.relative_to(PAGES).as_posix()}"
    }
    return {path: text for path, text in texts.items() if MARKER.search(text)}


def current() -> dict[Path, str]:
    """Return the text that each page with generated parts should have."""
    pages = read()
    index = index_of(pages)
    return {page: render(page, text, index) for page, text in pages.items()}


def main() -> None:
    """Rewrite the pages."""
    for page, text in current().items():
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
