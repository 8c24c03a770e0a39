"""Every type that code of users can receive has a place on a page of the reference."""

import ast
import importlib
import inspect
import json
import re
import sys
import typing
from functools import cached_property
from pathlib import Path

import pytest
import typer.main

import divebook
from divebook import _SUBPACKAGES as SUBPACKAGES
from divebook import Bounds
from divebook.analysis import log as arrow_tables
from divebook.cli.dev_env import app as dev_env
from divebook.events.catalog import PAYLOADS
from divebook.events.codec import decode_line, encode_line
from documentation import data, reference

ROOT = Path(__file__).parents[1]
PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / "notebooks/reference").glob("*.md"))}
PACKAGES = ("divebook", *(f"divebook.{name}" for name in SUBPACKAGES))


def object_of(dotted):
    """Return the object with a dotted name: a module, or an attribute of one."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for name in parts[count:]:
            found = getattr(found, name)
        return found
    raise AssertionError(dotted)


def on_pages():
    """Return the objects that the pages show. A module stands for the public names that it defines."""
    shown = []
    for text in PAGES.values():
        for dotted in re.findall(r"^<!-- api: (\S+) -->$", text, re.MULTILINE):
            found = object_of(dotted)
            if inspect.ismodule(found):
                shown += [getattr(found, name) for name in reference.names_of_module(found)]
            else:
                shown.append(found)
    return shown


def public_objects():
    """Return the public names of the packages, with their objects."""
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            if not name.startswith("_"):
                yield f"{package}.{name}", getattr(module, name)


def members(cls):
    """Return the public functions and properties of a class that divebook defines."""
    for name, value in inspect.getmembers_static(cls):
        if name.startswith("_"):
            continue
        if isinstance(value, property):
            yield value.fget
        elif isinstance(value, cached_property):
            yield value.func
        elif isinstance(value, staticmethod | classmethod):
            yield value.__func__
        elif inspect.isfunction(value):
            yield value


def classes_in(hint):
    """Return the classes of divebook in an annotation, at any depth."""
    if isinstance(hint, type) and not typing.get_args(hint):
        return {hint} if hint.__module__.partition(".")[0] == "divebook" else set()
    return {cls for part in typing.get_args(hint) for cls in classes_in(part)} | (
        classes_in(typing.get_origin(hint)) if isinstance(typing.get_origin(hint), type) else set()
    )


NAMES = {}


def scope():
    """Return the classes of divebook by name, for annotations that only type checkers resolve."""
    if not NAMES:
        for module in [module for name, module in sys.modules.items() if name.partition(".")[0] == "divebook"]:
            for name, value in vars(module).items():
                if isinstance(value, type) and value.__module__.partition(".")[0] == "divebook":
                    NAMES.setdefault(name, value)
    return NAMES


def classes_of(annotation, module):
    """Return the classes of divebook in an annotation of a module, which may be a text."""
    if not isinstance(annotation, str):
        return classes_in(annotation)
    # The description of a key of definitions is not a type.
    names = set(re.findall(r"\b[A-Z]\w+", annotation.partition(", Key(")[0]))
    # A module may have another object of that name, such as an alias.
    space = {**scope(), **vars(sys.modules[module])}
    found = (space[name] for name in names if isinstance(space.get(name), type))
    return {cls for cls in found if cls.__module__.startswith("divebook")}


def result_classes(function):
    """Return the classes of divebook in the return annotation of a function."""
    annotation = getattr(inspect.unwrap(function), "__annotations__", {}).get("return")
    return set() if annotation is None else classes_of(annotation, function.__module__)


def attributes(cls):
    """Yield the names of the public attributes of a class that divebook annotates, each with its classes."""
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] == "divebook":
            for name, annotation in vars(base).get("__annotations__", {}).items():
                if not name.startswith("_"):
                    yield name, classes_of(annotation, base.__module__)


def received():
    """Return the classes that code of users can receive from public functions and methods, with the first way."""
    todo = [(name, value) for name, value in public_objects()]
    found = {}
    while todo:
        way, value = todo.pop()
        functions = list(members(value)) if isinstance(value, type) else [value] if inspect.isfunction(value) else []
        parts = [(function.__qualname__, result_classes(function)) for function in functions]
        parts += attributes(value) if isinstance(value, type) else []
        for name, classes in parts:
            for cls in classes:
                if cls not in found and not cls.__name__.startswith("_"):
                    found[cls] = f"{way} -> {name}"
                    todo.append((f"{cls.__module__}.{cls.__qualname__}", cls))
    return found


PLUMBING = {
    "divebook.definitions.dialect.DialectRules": "rules of the two dialects",
    "divebook.definitions.functions.Takes": "properties of a function that each of its calls needs",
    "divebook.definitions.resources.Approvals": "argument of internal methods of an environment",
    "divebook.config.answers.Answers": "answers of a handle, given in advance",
    "divebook.definitions.answer_types.ParameterType": "the annotation of an input",
    "divebook.definitions.definition.Written": "what a definition file said",
    "divebook.definitions.stored_form.Definition": "base class of definitions",
    "divebook.definitions.table.Key": "description of a key of definitions",
    "divebook.definitions.table.Kind": "kind of the values of a key",
    "divebook.definitions.table.Table": "same; `Frames.arrow` returns a table of pyarrow",
    "divebook.runtime.run.HandleOptions": "how a handle waits and is shown",
    "divebook.runtime.run.RunInternals": "parts of a run for other packages of divebook",
    "divebook.runtime.compute.threads.LimitedSlot": "slot of an executor",
    "divebook.runtime.concurrency.ConcurrentCalls": "bookkeeping of concurrent calls",
    "divebook.widgets.protocol.RunsPage": "message to the view of a list of runs",
    "divebook.widgets.runs_and_questions.RunsFeed": "reads the rows for the view of a list of runs",
}
"""Classes that only internal methods return, with the reason."""
WRITE = "python -m documentation.reference"
CONSTANTS = (str, int, Bounds)
HINT = "write <!-- api: NAME --> and <!-- end --> on a page of notebooks/reference, then run: " + WRITE


def test_every_public_name_has_a_place_on_a_page():
    shown = on_pages()
    found = [
        name
        for name, value in public_objects()
        if not isinstance(value, CONSTANTS) and not any(value is each for each in shown)
    ]
    assert found == [], HINT


def test_every_class_that_a_public_function_returns_has_a_place_on_a_page():
    shown = on_pages()
    ways = {f"{cls.__module__}.{cls.__qualname__}": (cls, way) for cls, way in received().items()}
    assert PLUMBING.keys() <= ways.keys(), "no public method returns these any more"
    ways = {name: found for name, found in ways.items() if name not in PLUMBING}
    missing = {name: way for name, (cls, way) in ways.items() if not any(cls is each for each in shown)}
    assert missing == {}, HINT


def test_the_page_of_errors_shows_the_module():
    assert "<!-- api: divebook.errors -->" in PAGES["errors.md"]


def test_the_generated_parts_of_the_pages_are_current():
    present = reference.read()
    wrong = [path.name for path, text in reference.current().items() if text != present[path]]
    assert wrong == [], WRITE
    assert [path.name for path, text in present.items() if re.search(r"^::: ", text, re.MULTILINE)] == []


def test_each_description_has_a_heading_with_an_anchor_and_a_text():
    """A name on a page is of use only with its docstring."""
    empty = []
    for name, text in PAGES.items():
        for match in reference.MARKER.finditer(text):
            if match["kind"] != "api":
                continue
            value = object_of(match["argument"])
            assert f'<a id="{match["argument"]}"></a>' in match["text"]
            documented = inspect.isfunction(value) or (inspect.isclass(value) and reference.own_docstring(value))
            first = re.split(r"\W+", inspect.getdoc(value) or "")[0]
            if documented and not re.search(rf"^(?:Return|{first})", match["text"], re.MULTILINE):
                empty.append((name, match["argument"]))
    assert empty == []


def test_types_are_shown_as_they_are_written():
    for name, text in PAGES.items():
        assert "ForwardRef(" not in text, name
    assert "Dialect = Literal['divebook', 'dive']\n```\n\nName of a dialect." in PAGES["definitions.md"]


def test_names_are_described_once():
    shown = [name for text in PAGES.values() for name in re.findall(r"^<!-- api: (\S+) -->$", text, re.MULTILINE)]
    assert sorted(shown) == sorted(set(shown))


def test_the_page_of_events_has_every_type_with_its_fields_and_an_example():
    described = re.findall(r"^<!-- event: (\w+) -->$", PAGES["events.md"], re.MULTILINE)
    assert sorted(described) == sorted(PAYLOADS)
    parts = dict(
        re.findall(r'^### <a id="(\w+)"></a>(.*?)^<!-- end -->$', PAGES["events.md"], re.MULTILINE | re.DOTALL)
    )
    for name, payload in PAYLOADS.items():
        assert re.findall(r"^\| `(\w+)` \|", parts[name], re.MULTILINE) == list(payload.field_names)
        assert "```json" in parts[name]


def test_the_example_of_an_event_is_an_event_of_the_present_form():
    lines = data.EXAMPLES.read_text(encoding="utf-8").splitlines()
    events = [decode_line(line) for line in lines]
    assert [event.event_type for event in events] == list(PAYLOADS)
    for line, event in zip(lines, events, strict=True):
        assert json.loads(encode_line(event)) == json.loads(line), event.event_type


def test_the_page_of_frames_has_every_frame():
    described = re.findall(r"^<!-- frame: .* = (\S+) -->$", PAGES["frames.md"], re.MULTILINE)
    declared = [
        f"divebook.analysis.{path.stem}.{name}"
        for path in sorted((ROOT / "divebook/analysis").glob("*.py"))
        for name in re.findall(r"^@documented\(\w+\)\ndef (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert sorted(described) == sorted(declared)


def test_the_page_of_frames_has_the_arrow_type_of_each_dtype():
    (part,) = re.findall(r"^## Types and units$(.*?)^## ", PAGES["frames.md"], re.MULTILINE | re.DOTALL)
    rows = dict(re.findall(r"^\| (`.*?`) \| `(.+?)` \|", part, re.MULTILINE))
    written = {dtype: arrow for dtypes, arrow in rows.items() for dtype in re.findall(r"`([^`]+)`", dtypes)}
    assert {dtype: str(kind) for dtype, kind in arrow_tables.TYPES.items()}.items() <= written.items()


def test_every_method_of_a_context_has_an_example():
    text = PAGES["context.md"]
    code = "".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    methods = [name for name, value in vars(divebook.Context).items() if inspect.isfunction(value) and name[0] != "_"]
    assert [name for name in methods if not re.search(rf"\bctx\.{name}\(", code)] == []


def functions_that_read_variables(tree):
    """Yield the expressions in a module that name an environment variable."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called.endswith(("environ.get", "getenv", "_variable")) and node.args:
                yield node.args[0]
            yield from (keyword.value for keyword in node.keywords if keyword.arg in ("envvar", "variable"))
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("os.environ"):
            yield node.slice
        elif isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]).endswith("os.environ"):
            yield node.left


def variables_in_code():
    """Return the environment variables that the code of divebook reads."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "divebook").rglob("*.py")]
    # A constant may be defined in another module than the one that uses it.
    constants = {}
    for text in texts:
        for name, value in re.findall(r'^([A-Z_]+) = "(\w+)"$', text, re.MULTILINE):
            constants.setdefault(name, set()).add(value)
    variables = set()
    for text in texts:
        if not re.search(r"environ|getenv|envvar|variable", text):
            continue
        in_file = dict(re.findall(r'^([A-Z_]+) = "(\w+)"$', text, re.MULTILINE))
        for node in functions_that_read_variables(ast.parse(text)):
            if isinstance(node, ast.Constant):
                variables.add(node.value)
            elif isinstance(node, ast.Name):
                variables |= {in_file[node.id]} if node.id in in_file else constants.get(node.id, set())
    return {name for name in variables if isinstance(name, str) and re.fullmatch(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+", name)}


def test_the_page_of_environment_variables_has_every_variable():
    found = variables_in_code()
    assert {"DIVEBOOK_STORE", "DIVEBOOK_KEY", "DEV_ENV_ROOT", "DOCKER_HOST", "OTEL_SDK_DISABLED"} <= found
    written = set(re.findall(r"`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)`", PAGES["environment-variables.md"]))
    assert sorted(found - written) == []
    ours = {name for name in written if name.startswith(("DIVEBOOK_", "DEV_ENV_"))}
    assert sorted(ours - found) == []


def test_the_page_of_environment_variables_has_the_options_of_dev_env():
    page = dict(re.findall(r"^\| `(DEV_ENV_\w+)` \| `(--[\w-]+)` \|", PAGES["environment-variables.md"], re.MULTILINE))
    command = typer.main.get_command(dev_env)
    declared = {option.envvar: option.opts[0] for option in command.params if option.envvar}
    assert declared.items() <= page.items()


def test_the_stability_page_names_the_public_packages():
    page = (ROOT / "notebooks/project/stability.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `(divebook[.a-z]*)` \|", page, re.MULTILINE)
    assert named == sorted(PACKAGES)


def test_a_listing_has_the_public_names_only():
    assert dir(divebook) == sorted({*divebook.__all__, *SUBPACKAGES, "last"})
    assert 25 <= len(divebook.__all__) <= 34
    assert list(divebook.__all__) == sorted(divebook.__all__)


@pytest.mark.parametrize(("module", "entries"), divebook._FORMER_NAMES.items())
def test_a_former_name_leads_to_the_present_one(module, entries):
    for entry in entries.split():
        former, _, present = entry.partition(":")
        with pytest.raises(AttributeError, match=rf"use {re.escape(module)}\.{present or former}$"):
            getattr(divebook, former)
        assert object_of(f"{module}.{present or former}") is not None


@pytest.mark.parametrize("name", SUBPACKAGES)
def test_a_subpackage_needs_no_import_of_its_own_and_says_what_is_public(name):
    assert getattr(divebook, name).__all__


def test_a_misspelled_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"has no attribute 'stepp'$"):
        _ = divebook.stepp


FORMER_WORDS = {"execution_id": "run_id", "interrupt_id": "question_id"}
"""Words of logs and their stores, and the words for users: they know runs and questions."""
LOG_LEVEL = ("analysis", "engine", "events", "pipeline", "projections", "stores", "telemetry", "widgets")
"""Packages that show logs as they are recorded, or the fields of an envelope."""


def names_in(value):
    """Yield the names of the parameters of a public function or class, and of the attributes of the class."""
    functions = [value]
    if isinstance(value, type):
        yield from (name for base in value.__mro__ for name in vars(base).get("__annotations__", ()))
        yield from (name for name, _ in inspect.getmembers_static(value))
        functions += [member for name, member in vars(value).items() if name[0] != "_" and inspect.isfunction(member)]
    for function in functions:
        try:
            yield from inspect.signature(function).parameters
        except (TypeError, ValueError):  # a module, or a class without a signature
            continue


def test_users_meet_runs_and_questions_and_not_the_words_of_logs():
    values = {**{value: name for name, value in public_objects() if callable(value)}, **received()}
    wrong = {
        f"{value.__module__}.{value.__qualname__}": sorted(FORMER_WORDS.keys() & {*names_in(value)})
        for value in values
        if value.__module__.partition("divebook.")[2].partition(".")[0] not in LOG_LEVEL
    }
    plumbing = {f"{name}" for name in PLUMBING}
    assert {name: found for name, found in wrong.items() if found and name not in plumbing} == {}


def test_a_former_word_and_a_wrong_name_of_the_context_name_the_right_one():
    from divebook.testing import Context

    with pytest.raises(AttributeError, match="Context no longer has 'execution_id'; write run_id"):
        _ = Context().execution_id
    with pytest.raises(AttributeError, match="Context has no attribute 'slep'; did you mean 'sleep'"):
        _ = Context().slep
    with pytest.raises(AttributeError, match="AgentHandle has no attribute 'rum'; did you mean 'run'"):
        _ = Context().agent("critic").rum


def test_classes_of_the_fields_of_an_mcp_server_are_exported_with_it():
    from divebook import definitions

    classes, pending = set(), [definitions.MCPServerDefinition]
    while pending:
        cls = pending.pop()
        classes.add(cls.__name__)
        for hint in typing.get_type_hints(cls).values():
            pending += [part for part in (hint, *typing.get_args(hint)) if hasattr(part, "like")]
    assert "TokenStoreDefinition" in classes
    assert classes <= set(definitions.__all__)
