"""The shape of the code, where the linters' own rules do not reach."""

import ast
import functools
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest

import divebook

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "divebook"
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc"}

DOORS = {
    "IPython": ("divebook.notebook",),
    "anywidget": ("divebook.widgets",),
    "apprise": ("divebook.environments.settings",),
    "cloudpickle": ("divebook.runtime.compute.process_calls",),
    "distributed": ("divebook.runtime.compute.dask", "divebook.runtime.compute.dask"),
    "docker": ("divebook.workspaces",),
    "html": ("divebook.report.html", "divebook.tools.builtin"),
    "croniter": ("divebook.definitions.cron",),
    "httpx2": ("divebook.tools",),
    "immutables": ("divebook.engine.maps",),
    "ipywidgets": ("divebook.widgets",),
    "jsonschema": (
        "divebook.devenv.templates",
        "divebook.definitions.json_schemas",
        "divebook.definitions.schema_keywords",
    ),
    "mcp": ("divebook.serve", "divebook.tools"),
    "nbformat": ("divebook.export",),
    "orjson": ("divebook.events",),
    "numpy": ("divebook.analysis", "divebook.events.arrow", "divebook.stores.pages"),
    "pandas": ("divebook.analysis", "divebook.events.arrow"),
    "polars": ("divebook.events.arrow",),
    "psycopg": ("divebook.stores.postgres",),
    "psutil": ("divebook.devenv",),
    "pyarrow": ("divebook.analysis", "divebook.events.arrow", "divebook.stores.pages"),
    "pydantic_ai": ("divebook.agents", "divebook.tools"),
    "pydantic_monty": ("divebook.scripting",),
    "referencing": ("divebook.definitions.json_schemas", "divebook.definitions.schema_keywords"),
    "regex": ("divebook.text.patterns",),
    "rich": ("divebook.cli", "divebook.report.text"),
    "ruamel": ("divebook.definitions",),
    "sqlite3": ("divebook.stores.sqlite",),
    "typer": ("divebook.cli",),
    "uvicorn": ("divebook.serve.server",),
}
"""Who may import what; everything behind a door of its own."""

HEAVY = (
    "IPython",
    "anywidget",
    "apprise",
    "cloudpickle",
    "croniter",
    "cryptography",
    "distributed",
    "docker",
    "httpx2",
    "ipywidgets",
    "jsonschema",
    "mcp",
    "nbformat",
    "numpy",
    "pandas",
    "polars",
    "psycopg",
)
HEAVY += ("pyarrow", "pydantic", "pydantic_ai", "pydantic_monty", "referencing", "regex", "rich", "ruamel", "typer")
HEAVY += ("uvicorn",)
"""Loaded when first used, never by ``import divebook``."""


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph(
        "divebook", include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )


@functools.cache
def tree_of(path):
    """Return the syntax tree of a file. Parsing all files takes seconds, and many tests look at them."""
    return ast.parse(path.read_text(encoding="utf-8"))


def modules():
    return ["divebook", *(found.name for found in pkgutil.walk_packages(divebook.__path__, "divebook."))]


def sources():
    return sorted(path for folder in ("divebook", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("library", DOORS)
def test_a_heavy_library_has_one_door(graph, library):
    if library not in graph.modules:
        return
    strangers = {
        importer
        for importer in graph.find_modules_that_directly_import(library)
        if not any(importer == door or importer.startswith(f"{door}.") for door in DOORS[library])
    }
    assert not strangers, f"{library} may be imported by {DOORS[library]} only"


def test_nothing_inside_imports_the_package_face(graph):
    assert graph.find_modules_that_directly_import("divebook") <= {"divebook"}


def test_importing_divebook_loads_no_heavy_library():
    program = f"import sys, divebook; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_listing_the_commands_loads_neither_stores_nor_what_runs():
    """Completion in a shell waits for it at each key."""
    parts = ("runtime", "stores", "steps", "replay", "projections", "environments")
    program = (
        f"import sys, divebook.cli.main; print([name for name in {parts!r} if f'divebook.{{name}}' in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_no_module_has_a_vague_name():
    assert [str(path) for path in sources() if path.stem in VAGUE or path.parent.name in VAGUE] == []


@pytest.mark.parametrize("name", modules())
def test_all_is_sorted_and_every_name_in_it_exists(name):
    module = importlib.import_module(name)
    names = getattr(module, "__all__", [])
    constants_classes_functions = sorted(names, key=lambda n: (not n.isupper(), not n[:1].isupper(), n))
    assert list(names) in (sorted(names), constants_classes_functions)
    assert [n for n in names if not hasattr(module, n)] == []


@pytest.mark.parametrize("name", modules())
def test_a_module_says_first_what_it_is(name):
    assert (importlib.import_module(name).__doc__ or "").strip()


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("__init__.py")), ids=lambda path: path.parent.name)
def test_an_init_file_only_names_what_is_public(path):
    allowed = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Expr, ast.If)
    if path.parent == PACKAGE:
        allowed += (ast.FunctionDef,)  # lazy public names, and Jupyter's load_ipython_extension
    assert [ast.unparse(node) for node in ast.parse(path.read_text()).body if not isinstance(node, allowed)] == []


def test_every_imported_library_is_declared(graph):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = (entry for name, found in project["optional-dependencies"].items() if name != "test" for entry in found)
    entries = [*project["dependencies"], *extras]
    declared = {re.split(r"[<>=;\[]", entry)[0].replace("-", "_").lower() for entry in entries}
    named_otherwise = {"ruamel": "ruamel.yaml", "pydantic_ai": "pydantic_ai_slim", "IPython": "ipywidgets"}
    named_otherwise |= {
        "opentelemetry": "opentelemetry_sdk",
        "dask": "distributed",
        "comm": "ipywidgets",
        "traitlets": "ipywidgets",
        "numpy": "pandas",
    }
    imported = {name for name in graph.modules if graph.is_module_squashed(name)} - {"divebook"}
    libraries = imported - sys.stdlib_module_names
    assert {named_otherwise.get(name, name) for name in libraries} <= declared


def test_continuous_integration_runs_the_readme_test_command():
    command = (ROOT / ".ci" / "run").read_text().splitlines()[-1]
    assert command.endswith("-m tests")
    assert command in (ROOT / "README.md").read_text().splitlines()


def callers(name):
    """Return the functions of divebook that call a function or method called `name`, as ``module:function``."""
    return functions_with(name, lambda node: [node.func] if isinstance(node, ast.Call) else [])


def users(name):
    """Return the functions of divebook that call a function or pass it on, as ``module:function``."""
    return functions_with(name, lambda node: [node])


def functions_with(name, names_in):
    """Return the functions of divebook in which `names_in` returns a part called `name` for one of the nodes."""
    found = set()
    for label, nodes in functions():
        parts = (part for node in nodes for part in names_in(node))
        if any(name in (getattr(part, "attr", None), getattr(part, "id", None)) for part in parts):
            found.add(label)
    return found


@functools.cache
def functions():
    """Return all functions of divebook as ``module:function``, with the nodes in them that name something."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for function in ast.walk(tree_of(path)):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                nodes = [node for node in ast.walk(function) if isinstance(node, ast.Call | ast.Name | ast.Attribute)]
                found.append((f"{module}:{function.name}", nodes))
    return found


def test_the_first_event_of_a_variant_is_made_in_one_place():
    """Forks, what-ifs, their children, continuations and trials differ in the arguments of one function."""
    assert callers("ExecutionForked") == {"divebook.environments.starts:forked_of"}
    assert callers("forked_of") == {"divebook.environments.variants:_forked"}
    ways_in = {"fork", "_what_if", "forked_child", "_continuation", "try_step"}
    assert callers("_forked") == {f"divebook.environments.variants:{name}" for name in ways_in}


def test_the_first_event_of_a_run_is_made_in_one_place():
    """Starts, children and successors differ in the arguments of one function. An imported log is written."""
    assert callers("ExecutionStarted") == {"divebook.environments.starts:opening_of", "divebook.agents.imports:log_of"}


def test_calls_of_functions_are_prepared_in_one_way():
    """A second object for what calls have in common would be kept, bounded and dropped by rules of its own."""
    assert callers("PreparedCall") == {"divebook.runtime.calls:call", "divebook.runtime.calls:prepared_call"}
    keepers = functions_with("prepared_calls", lambda node: [node] if isinstance(node, ast.Attribute) else [])
    assert keepers == {
        "divebook.runtime.calls:prepared_call",
        "divebook.runtime.context:__init__",
        "divebook.runtime.step:_attempt",
    }


def test_agents_and_tools_of_the_library_are_kept_in_one_place():
    """They hold keys of providers. `LibraryCache` forgets them when its environment is closed."""
    assert callers("LibraryCache") == {"divebook.environments.registry:__init__"}
    made = {path for path in callers("library_tool") if not path.startswith("divebook.agents.agent:")}
    assert made == {
        "divebook.agents.agent_loop:_library_tool",
        "divebook.export.pytest:_tools_of",
        "divebook.steps.checks:_check_signatures",
    }


def test_costs_are_converted_in_one_place():
    """`nanodollars` is exact for binary fractions too; a second way would count 0.1 dollars as another number."""
    scaled = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv):
                sides = {ast.unparse(side) for side in (node.left, node.right)}
                if sides & {"NANODOLLARS", "bounds.NANODOLLARS", "1000000000", "1000000000.0", "10 ** 9", "1e-09"}:
                    scaled.add(path.relative_to(PACKAGE).as_posix())
    others = {
        "agents/models.py": "rates of single tokens, which are less than a nanodollar",
        "workspaces/docker/engine.py": "parts of a processor",
    }
    assert scaled - {"questions/bounds.py"} == others.keys(), "use the functions of divebook.questions.bounds"


def test_typed_values_are_split_in_one_place():
    """``NAME=VALUE`` and ``NAME:=JSON`` mean the same in each option: a second way would take other names."""
    others = {
        "notebook/commands.py": "splits options such as ``--limit=3``",
        "notebook/line_completion.py": "looks at a word that is not complete",
        "workspaces/local.py": "reads the settings of a virtual environment",
    }
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(tree_of(path))
        if _called(node) in ("partition", "split") and node.args and getattr(node.args[0], "value", None) == "="
    }
    assert found - {"text/arguments.py"} == others.keys(), "use divebook.text.arguments.assignment_of"


def test_durations_are_converted_in_one_place():
    """Every duration of the public API is a number, a timedelta or a text. A second way would take fewer forms."""
    others = {
        "commands/command.py": "writes results as JSON",
        "definitions/table.py": "calls `plain_seconds` for some types only",
        "events/codec.py": "writes values as JSON",
        "runtime/errors.py": "writes an error to the log",
    }
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(tree_of(path))
        if _called(node) == "isinstance" and "timedelta" in re.findall(r"\w+", ast.unparse(node.args[1]))
    }
    assert found - {"text/arguments.py"} == others.keys(), "use seconds_of or plain_seconds of divebook.text.arguments"
    assert {name for name in callers("parse_duration") if not name.startswith("divebook.text.")} == {
        "divebook.commands.store:_age",
        "divebook.definitions.table:read",
    }


def test_times_of_logs_are_converted_in_one_place():
    """`to_datetime` and `to_microseconds` calculate in UTC and in whole numbers, so that no time is rounded."""
    outside_logs = {
        "divebook.agents.batches:_find_existing",
        "divebook.config.content:_fingerprint",
        "divebook.config.schedules:_wall_time",
        "divebook.scripting.sandbox:_now",
        "divebook.steps.script_step:now",
        "divebook.tools.file_tools:_time",
        "divebook.workspaces.agent_tools:ls",
    }
    assert callers("fromtimestamp") | callers("timestamp") == outside_logs, "use divebook.events.event.to_datetime"
    of_a_second = re.compile(r"^\w*(SECOND|MICRO)\w*(: \w+)? = (1_000_000|1e6)$", re.MULTILINE)
    places = {path for path in PACKAGE.rglob("*.py") if of_a_second.search(path.read_text(encoding="utf-8"))}
    assert places == {PACKAGE / "events/event.py"}


def test_changes_of_a_log_are_watched_in_one_way():
    """`on_change` combines the events of this process with news of others. The inbox of the engine needs news only."""
    outside_the_store = {name for name in callers("on_news") if not name.startswith("divebook.stores.")}
    assert outside_the_store == {"divebook.runtime.loop:_listen"}


POLLS = {
    "stores/sqlite/tables.py": "looks for writes of other processes",
    "stores/postgres/store.py": "looks for news of the server",
    "workspaces/docker/engine.py": "asks the engine whether a command has ended",
}
"""Files that look for something less and less often. They try nothing again."""


def test_a_growing_pause_is_computed_by_a_retry_policy_only():
    """`Retry.delay` is the only formula. A loop that multiplies its own pause would be a second retry policy, and so
    would a table of growing pauses.
    """
    growing = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if grows_a_pause(path)}
    assert growing == POLLS.keys(), "use a divebook.definitions.step.Retry"


PAUSE = re.compile("pause|wait|delay|interval|backoff", re.IGNORECASE)


def grows_a_pause(path):
    for node in ast.walk(tree_of(path)):
        target = node.target if isinstance(node, ast.AugAssign) else next(iter(getattr(node, "targets", ())), None)
        name = ast.unparse(target) if isinstance(target, ast.Name | ast.Attribute) else ""
        if PAUSE.search(name) and is_scaled(node):
            names = [ast.unparse(part) for part in ast.walk(node) if isinstance(part, ast.Name | ast.Attribute)]
            if isinstance(node, ast.AugAssign) or names.count(name) > 1:
                return True
        # `await asyncio.sleep(2**failures)`
        if _called(node) in ("sleep", "call_later") and is_scaled(node):
            return True
        # `PAUSES = (1, 5, 30)`
        if PAUSE.search(name) and isinstance(getattr(node, "value", None), ast.Tuple | ast.List):
            numbers = [getattr(each, "value", None) for each in node.value.elts]
            if len(numbers) > 2 and all(type(number) in (int, float) for number in numbers):
                return True
    return False


def is_scaled(node):
    """Return True if something is multiplied, raised to a power or shifted in a node."""
    return any(isinstance(part, ast.Mult | ast.Pow | ast.LShift) for part in ast.walk(node))


def test_inputs_are_bound_in_one_place():
    """`BoundInputs` keeps the stored form and its hash. Of a changed definition only the names of inputs are used."""
    assert callers("bind_inputs") == {
        "divebook.definitions.functions:of",
        "divebook.environments.variants:_changed_definition",
    }


def test_values_of_inputs_are_converted_in_one_place():
    """Every way in (Python, shell, queue, MCP) passes inputs to `bind_inputs`, so that their types hold everywhere."""
    assert callers("_validated") == {"divebook.definitions.answer_types:convert"}
    assert callers("parsed_word") == {
        "divebook.definitions.answer_types:_parsed",
        "divebook.definitions.functions:_from_text",
    }


def test_there_are_three_contexts_of_calls():
    """`Context` for workflow functions, `StepContext` for step types, `ToolContext` for actions."""
    defined = {
        (str(path.relative_to(PACKAGE)), node.name)
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef) and node.name.endswith("Context")
    }
    assert defined == {
        ("steps/function.py", "Context"),
        ("runtime/context.py", "StepContext"),
        ("runtime/calls.py", "ToolContext"),
        ("testing.py", "Context"),  # the first one in unit tests
    }


def test_the_calls_that_an_edit_affects_are_determined_in_one_place():
    """The choice in a cell, `run_again` and a continuation all ask `Edits`."""
    assert callers("changed_since") == {
        "divebook.environments.variants:__init__",
        "divebook.steps.function:changed_functions",
    }
    assert callers("reused_calls_of") == {
        f"divebook.environments.variants:{name}" for name in ("operations", "first_call")
    }


CALLED_IN_TURN = {
    "cli/run.py: _restore": "undoes what a command has set up",
    "environments/environment.py: _closers": "closes parts of an environment once",
    "environments/environment.py: _unsubscribers": "removes listeners once",
    "runtime/concurrency.py: _parked": "asks whether parked paths are ready",
    "runtime/recorder.py: _unwritten": "writes what waited for the start of a call",
    "text/patterns.py: _loops": "tests of characters",
    "text/patterns.py: _tests": "tests of characters",
    "workspaces/shell.py: _listeners": "the listeners of one command, given when it starts",
}
"""Attributes with functions that a method calls one after the other, and are no lists of listeners, with the reason."""


def test_there_is_one_list_of_listeners():
    """`Listeners` may be changed by any thread while it is iterated. A second list would need the same rules."""
    own_lists = set()
    for path in PACKAGE.rglob("*.py"):
        for loop in ast.walk(tree_of(path)):
            if isinstance(loop, ast.For | ast.AsyncFor):
                names = {part.id for part in ast.walk(loop.target) if isinstance(part, ast.Name)}
                parts = [part for part in ast.walk(loop.iter) if isinstance(part, ast.Attribute)]
                own = {part.attr for part in parts if getattr(part.value, "id", "") == "self"}
                calls = {getattr(call.func, "id", "") for call in ast.walk(loop) if isinstance(call, ast.Call)}
                if names & calls and "entries" not in {part.attr for part in parts}:
                    own_lists |= {f"{path.relative_to(PACKAGE).as_posix()}: {name}" for name in own}
    assert own_lists == CALLED_IN_TURN.keys(), "use divebook.stores.listeners.Listeners"
    assert callers("Listeners") == {
        "divebook.runtime.streaming:subscribe",
        "divebook.stores.listeners:__init__",
        "divebook.widgets.publisher:__init__",
        "divebook.widgets.publisher:_stop_sending",
    }


RENAMES = {
    "divebook.documents.private_files",  # the one way
    "divebook.devenv.checkpoints",  # folders
    "divebook.devenv.environments",  # folders
    "divebook.devenv.jobs",  # a full log file, which begins anew
    "divebook.stores.sqlite.store",  # SQLite's own files
    "divebook.workspaces.files",  # relative to an open folder that other programs change at the same time
    "divebook.workspaces.snapshots.restore",  # likewise
}


def path_replacements():
    """Return the functions that replace a file by another: `os.replace`, or `replace` of a path, with one argument."""

    def is_of_files(call):
        name = ast.unparse(call.func)
        return name == "os.replace" or (name.endswith(".replace") and len(call.args) == 1 and not call.keywords)

    return functions_with(
        "replace", lambda node: [node.func] if isinstance(node, ast.Call) and is_of_files(node) else []
    )


def test_files_are_replaced_in_one_way():
    """Each caller of these functions that is not listed here would need its own draft, mode and clean-up."""
    drafts = {name for name in callers("mkstemp") if not name.startswith("divebook.workspaces.shell:")}
    assert drafts == {"divebook.documents.private_files:_draft"}
    assert callers("NamedTemporaryFile") == set()
    moved = {name.partition(":")[0] for name in callers("rename") | path_replacements()}
    assert moved == RENAMES, "use divebook.documents.private_files.replace_whole"
    assert callers("hardlink_to") == {"divebook.documents.private_files:create_whole"}
    # SQLite's own files, and writes relative to an open folder that other programs change at the same time.
    elsewhere = ("divebook.stores.sqlite.store:", "divebook.workspaces.snapshots.restore:")
    syncs = {name for name in callers("fsync") if not name.startswith(elsewhere)}
    assert syncs == {"divebook.documents.private_files:_complete", "divebook.stores.transfer:flush"}


def test_files_are_locked_in_one_way():
    """A second way would need the same time limit, and the same rules for forked processes and deleted lock files."""
    assert callers("flock") == {f"divebook.workspaces.locks:{name}" for name in ("_try_lock", "release")}
    assert callers("lockf") == set()
    # The other one asks for the path of an open file.
    assert importers("fcntl") == {"workspaces/locks.py", "workspaces/paths.py"}
    assert importers("msvcrt") == {"workspaces/locks.py"}


def importers(module):
    """Return the files of divebook that import a module, or name it to `import_module`, anywhere in them."""
    return {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(tree_of(path))
        if (isinstance(node, ast.Constant) and node.value == module)
        or (
            isinstance(node, ast.Import | ast.ImportFrom)
            and module in {getattr(node, "module", None), *(alias.name for alias in node.names)}
        )
    }


def test_names_of_hosts_are_resolved_and_checked_in_one_place():
    """Code that resolves a name itself could connect to an address that the policy has not checked."""
    assert callers("getaddrinfo") == {"divebook.documents.addresses:ip_addresses"}
    # The proxy of workspaces runs in a process of its own, without a policy.
    uses = {"divebook.documents.policy:addresses_of", "divebook.workspaces.egress.proxy:resolve"}
    assert users("ip_addresses") == uses
    pages = {"divebook.documents.fetch:_connect"}
    servers = {
        f"divebook.tools.mcp.connection:{name}" for name in ("opener", "handle_async_request", "_over_http", "admit")
    }
    assert users("addresses_of") == pages | servers


def test_one_function_records_model_requests():
    """Single requests and those of turns once had two makers. An imported log is written, not made."""
    makers = {
        f"{path.relative_to(PACKAGE)}: {function.name}"
        for path in PACKAGE.rglob("*.py")
        for function in ast.walk(tree_of(path))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
        and any(
            "AGENT_RESPONSE" in (getattr(value, "id", ""), getattr(value, "attr", ""))
            for value in (*call.args, *(keyword.value for keyword in call.keywords))
        )
    }
    assert makers == {"agents/requests.py: record_request", "agents/imports.py: _write_request"}


def test_plain_data_with_tagged_values_is_made_in_one_place():
    """A second way could write another form, or forget the limits of `encode`: `codec.tagged_form` is the only one."""
    places = {
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "divebook").rglob("*.py"))
        for call in ast.walk(tree_of(path))
        if _called(call) in {"parse", "loads"} and call.args and _called(call.args[0]) == "encode"
    }
    assert places == {"divebook/events/codec.py"}


def _called(node):
    """Return the name of the function that a node calls; None if it is no call."""
    return getattr(node.func, "attr", getattr(node.func, "id", None)) if isinstance(node, ast.Call) else None


def test_a_time_as_text_ends_with_z_by_one_function():
    """`rfc3339` also converts to UTC; a second way would write times that do not sort as texts."""
    places = {
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "divebook").rglob("*.py"))
        if '"+00:00", "Z"' in path.read_text(encoding="utf-8")
    }
    assert places - {"divebook/devenv/manager.py"} == {"divebook/text/format.py"}


def test_ids_that_identify_by_a_hash_are_made_in_one_place():
    """Logs contain them: another way would give the same question another id in a replay."""
    hashed = {"question_id", "rule_id_of"}
    assert {caller.partition(":")[2] for caller in callers("hashed_id")} == hashed


def test_the_json_of_models_is_parsed_in_one_place():
    """Python's parser accepts NaN and infinities, which JSON lacks and a log of plain data would not hold."""
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / "divebook").rglob("*.py")}
    strict = {path.relative_to(ROOT).as_posix() for path, text in sources.items() if "parse_constant=" in text}
    assert strict == {"divebook/pipeline/envelope/plain.py"}


PAGES_OF_THEIR_OWN = {
    "report/html.py": "renders reports",
    "export/page.py": "writes a whole page around the viewer, with a head and scripts",
    "notebook/view_output.py": "adds the style by which a page shows a live view or its saved form",
    "analysis/timeline.py": "draws a picture as SVG",
    "stores/embedded.py": "writes and reads the parts of an exported page",
    "tools/builtin.py": "reads web pages",
    "scripting/syntax.py": "calls the source of a script by this name",
}
"""Files whose strings contain elements of HTML or SVG, with the reason."""


def test_html_is_made_of_reports_alone():
    """An object that made its HTML itself would show other words than its text, and could forget to escape one."""
    elements = "a b blockquote br caption code del details div em font h1 h2 h3 hr i img ins li ol p pre script small"
    elements += " span strong style sub summary sup svg table tbody td th thead tr ul"
    tag = re.compile(rf"</?(?:{'|'.join(elements.split())})(?:[ >/]|$)")
    by_hand = set()
    for path in PACKAGE.rglob("*.py"):
        tree = tree_of(path)
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        texts = {ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, documented)}
        strings = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
        if any(isinstance(text, str) and text not in texts and tag.search(text) for text in strings):
            by_hand.add(path.relative_to(PACKAGE).as_posix())
    assert by_hand <= PAGES_OF_THEIR_OWN.keys(), "return a divebook.report.model.Report, and render that"


def test_reports_hold_their_commands_as_data():
    """``%dive`` has no meaning in a shell and in plain Python. `divebook.report.hints` words a command for each."""
    command = re.compile(r"(?<!%)%dive \w|`divebook \w")
    found = set()
    for package in ("report", "analysis", "projections", "replay"):
        for path in (PACKAGE / package).rglob("*.py"):
            nodes = [*ast.walk(tree_of(path))]
            # A string that stands alone is a docstring.
            documentation = {node.value for node in nodes if isinstance(node, ast.Expr)}
            constants = {node for node in nodes if isinstance(node, ast.Constant)} - documentation
            if any(isinstance(node.value, str) and command.search(node.value) for node in constants):
                found.add(path.relative_to(PACKAGE).as_posix())
    assert not found, "write a divebook.report.hints.Hint"


def test_an_object_shows_itself_by_its_report():
    """`Shown` has the methods that front ends call. A second one in a class would show something else than `report`."""
    others = {"analysis/lists.py": "pandas shows its frames itself", "widgets/views.py": "anywidget shows its views"}
    others["events/rich_output.py"] = "has the display of the object for which it stands"
    others["runtime/run.py"] = "reads the log once for the report and for the data beside it"
    methods = {"_repr_html_", "_repr_mimebundle_", "_repr_pretty_", "_repr_markdown_", "__rich__", "__rich_console__"}
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef) and node.name in methods
    }
    assert found - {"report/shown.py"} <= others.keys(), "derive from divebook.report.shown.Shown"


WORDS_OF_VALUES = {
    "definitions/functions.py": "a list of problems; definitions are pure, and reports read the environment",
    "engine/bounds.py": "the reason of an error",
    "engine/operations.py": "a place of a log, named in errors",
    "engine/state.py": "a signal, named in lines",
    "agents/clients.py": "the state of a limiter, named in a line",
    "projections/compare.py": "a difference in one line",
    "replay/verify.py": "a difference in one line",
    "replay/what_if.py": "a call in one line",
    "runtime/commit.py": "the reason of a wait, named in lines",
    "runtime/operations.py": "a call, named in errors",
    "text/ranges.py": "a range of numbers, named in errors",
    "workspaces/snapshots/tree.py": "a patch as git writes it",
}
"""Files with classes whose text is a part of a sentence, with what it names. They are not the content of an output."""


def test_texts_of_results_come_from_their_reports():
    """A result with a text of its own shows less in a notebook, and other words than its report in a terminal."""
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef) and node.name == "__str__"
    }
    assert found - {"report/shown.py"} == WORDS_OF_VALUES.keys(), "derive from divebook.report.shown.Shown"


def test_pipelines_read_the_time_from_the_clock_of_the_engine():
    """A time from another clock is not in the log, and differs in a replay. No code exchanges an envelope's clock."""
    for path in sorted((ROOT / "divebook" / "pipeline").rglob("*.py")):
        for node in ast.walk(tree_of(path)):
            assert _called(node) not in {"now", "utcnow", "time", "monotonic", "time_ns"} or _is_clock(node), path
            targets = node.targets if isinstance(node, ast.Assign) else []
            assert "clock" not in {getattr(target, "attr", None) for target in targets}, path


def _is_clock(call):
    """Return True for ``SystemClock().now()`` and the recorded ``context.now()``."""
    return _called(call.func.value) == "SystemClock" or ast.unparse(call.func.value).endswith("context")


def test_texts_of_questions_have_one_home():
    """`questions/wording.py` has the texts of all questions that divebook itself asks."""
    assert callers("InterruptRaised") == {"divebook.questions.wording:event", "divebook.runtime.waiting:_raise"}
    texts = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        for call in ast.walk(tree_of(path)):
            name = getattr(getattr(call, "func", None), "attr", None)
            if isinstance(call, ast.Call) and name in ("interrupt", "question") and len(call.args) > 1:
                texts |= {str(path)} if isinstance(call.args[1], ast.Constant | ast.JoinedStr) else set()
    assert texts == set()


def test_a_process_is_recognized_in_one_way():
    """The start time in seconds changes when the clock is set. Records of older versions of `dev_env` have no other."""
    assert callers("create_time") == {"divebook.devenv.jobs:_began"}
    assert callers("is_running") == {"divebook.devenv.jobs:_is_alive", "divebook.stores.leases:has_died"}
    assert callers("pid_exists") == set()
    asked = functions_with("kill", lambda node: [node.func] if _called(node) == "kill" and is_question(node) else [])
    assert asked == {"divebook.processes:_accepts_signals"}


def is_question(call):
    """Return True for ``os.kill(pid, 0)``, which only asks whether a process exists."""
    return len(call.args) == 2 and getattr(call.args[1], "value", None) == 0


CLASSES_OF_AN_EXECUTION = {
    "runtime/run.py: Run": "the handle, for people and code",
    "runtime/driver.py: Driver": "drives it in this process",
    "runtime/driver.py: ExecutionRegistry": "finds the driver of each",
    "engine/state.py: ExecutionState": "the state, folded from the log",
    "runtime/runner.py: ParkedRun": "waits in this process without a task",
    "runtime/step.py: StepRun": "one visit of a step",
    "notebook/rerun.py: PreviousRun": "the earlier one of a cell",
    "notebook/saved_notebook.py: SavedRun": "read from a file, without a store",
    "widgets/recording.py: CleanRun": "what is saved of it, without secrets",
    "pipeline/stages.py: _Run": "one request in a pipeline",
    "commands/inspection.py: ExecutionData": "its JSON",
    "commands/inspection.py: ShownRun": "the result of a command, with options",
    "commands/queues.py: InterruptedRun": "its JSON in a list",
    "projections/summary.py: _PathOfRun": "one path of it",
    "widgets/protocol.py: PackedRun": "its JSON in a saved notebook",
    "workspaces/shell.py: _Run": "a command of a shell",
}
"""Classes above the stores that stand for one execution, each with what no other one is."""
CLASSES_OF_A_LOG = {
    "projections/summary.py: ReadLog": "its events in memory, with what is computed from them",
    "replay/replayer.py: Positions": "the state after each event",
    "replay/replayer.py: LogWalk": "moves through the positions",
    "widgets/stepping.py: SteppedLog": "the positions of a view",
    "widgets/recording.py: RecordedPositions": "the positions of a saved run, without its events",
    "replay/tape.py: Tape": "what code has reproduced of it",
    "replay/tape.py: TapeLog": "the journal of code that is compared with it",
    "replay/tape.py: TapeOperations": "the operations of code that is compared with it",
    "runtime/driver.py: LoadedLog": "what a driver begins with",
    "runtime/operations.py: OperationLog": "the look-up of operations",
    "runtime/clock.py: StepLog": "protocol of the journal and of `TapeLog`",
    "engine/lifecycle.py: _LogChecker": "checks the order of events",
    "projections/log_frames.py: FramedLog": "its DataFrames",
    "analysis/store.py: Logged": "one log among those of a DataFrame",
    "telemetry.py: TracedLog": "reports it to OpenTelemetry",
    "steps/conversations.py: DurableLog": "a list that outlasts a run, kept as a log",
    "runtime/compute/worker.py: _Logged": "lines of `logging`",
}
"""Classes above the stores that stand for one log, each with what no other one is."""


def test_each_class_of_an_execution_or_log_has_a_purpose_of_its_own():
    """Two classes with the same content would have to be kept equal, and a reader would have to learn both."""
    of_an_execution = re.compile(r"^Execution|(Execution|Run|Driver)$")
    of_a_log = re.compile(r"Log($|[A-Z])|Logged|History|Tape|Positions")
    found = {of_an_execution: set(), of_a_log: set()}
    sequences = set()
    for path in PACKAGE.rglob("*.py"):
        file = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.ClassDef):
                continue
            bases = {ast.unparse(base) for base in node.bases}
            if any(re.search(r"(Sequence|List|list|tuple)\[Event\b", base) for base in bases):
                sequences.add(f"{file}: {node.name}")
            if not file.startswith(("stores/", "devenv/", "events/", "errors.py")):
                for names, places in found.items():
                    places.update({f"{file}: {node.name}"} if names.search(node.name) else ())
    advice = "use History (events), ReadLog (what is computed from them), Positions (states) or Run, or say what is new"
    assert found[of_an_execution] == CLASSES_OF_AN_EXECUTION.keys(), advice
    assert found[of_a_log] == CLASSES_OF_A_LOG.keys(), advice
    assert sequences == {"projections/summary.py: ReadLog", "stores/history.py: History"}, advice


def test_there_is_one_handle_of_an_execution():
    """A method of `Environment` that takes an id would be the verb of `Run` a second time."""
    from divebook.environments.environment import REMOVED, Environment
    from divebook.runtime.run import Run

    handles = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
                if {"wait", "pause", "resume", "history"} <= methods:
                    handles.add(node.name)
    assert handles == {"Run"}, "a second class that drives an execution: add the method to divebook.runtime.run.Run"
    by_id = set()
    for name in vars(Environment):
        method = getattr(Environment, name)
        if not name.startswith("_") and callable(method) and "run" in inspect.signature(method).parameters:
            by_id.add(name)
    assert by_id == {"answer", "run_of"}, "what concerns one execution is a method of Run"
    members = {name for name in vars(Environment) if not name.startswith("_")}
    assert len(members) <= 26, "Environment grows: put what is not for users on its registry (environment.internals)"
    assert not members & REMOVED.keys()
    moved = [text.partition("run_of(id).")[2].partition("(")[0] for text in REMOVED.values() if "run_of(id)." in text]
    assert [name for name in moved if not hasattr(Run, name)] == [], "the error of an old name names a member of Run"


def test_a_property_with_a_plural_name_of_rows_is_a_frame():
    """Lists of objects have names of their own, so that a reader knows what a property returns."""
    from divebook.projections.log_frames import Framed
    from divebook.runtime.run import Run

    frames = {name for name, value in vars(Framed).items() if isinstance(value, property)} | {"questions"}
    lists = {"chain", "children", "conversation", "failures", "open_questions", "paths", "requests", "tags"}
    plural = set()
    for owner in Run.__mro__:
        for name, value in vars(owner).items():
            if isinstance(value, property) and name.endswith("s") and not name.startswith("_"):
                plural.add(name)
    values = {"continued_as", "inputs", "internals", "outputs", "status", "unused_answers", "variables"}
    assert plural - frames - lists - values == set(), "a frame, or a list with a name of its own: see the class of Run"
