"""Environments in which parts are missing: libraries, as in the image of a worker, or what only Unix has."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import MetadataPathFinder
from pathlib import Path

import pytest

from divebook.errors import MissingLibraryError

ROOT = Path(__file__).parent.parent
NEEDED = ("anyio", "orjson", "immutables")
"""Libraries without which nothing runs."""

WORKFLOWS = """
import json, sys
from pathlib import Path
import divebook
from divebook import Environment, step, workflow

@step(retry=2)
def one(number: int) -> int:
    return number + 1

@workflow
async def total(ctx, numbers: list):
    await ctx.sleep(0.01)
    return sum(await ctx.gather(*map(one, numbers)))

def python(store):
    with Environment(store=store, workflows=[total]) as environment:
        return environment.start("total", {"numbers": [1, 2]}, key="once").wait(check=True).outputs["result"]
"""

ON_WINDOWS = f"""
from tests.unix_only import remove
remove()
{WORKFLOWS}
from divebook.config import load

def yaml(store):
    with Environment(store=store) as environment:
        environment.define(load("survey.yaml"))
        run = environment.start("survey", {{"words": ["a", "bird"]}}).wait()
        environment.answer(run.open_questions[0].id, True)
        run.wait(check=True)
        return [run.status, run.variables["lengths"], run.variables["comment"]]

for store in (None, "runs.db"):
    print(json.dumps([python(store), yaml(store)]))
with Environment(store="runs.db") as environment:  # opened again
    print(json.dumps(sorted(run.status for run in environment.runs())))
"""
SURVEY = """
Agents: [{Name: critic}]
Workflows:
  - Name: survey
    Inputs: [{Name: words}]
    Steps:
      - {Name: measure, Each: {Items: $(inputs.words), As: word, Parallel: 4}, Script: len(word), Store: lengths}
      - {Name: sure, Ask: {Question: Sure?, Kind: confirmation}}
      - {Name: comment, Agent: critic, Prompt: "Comment on ${max(state.lengths)} letters", Store: comment}
"""


def output_of(program, folder, *arguments):
    """Return the lines that a program prints in a process of its own."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "DIVEBOOK_STORE": ""}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()


def test_workflows_run_without_what_windows_lacks(tmp_path):
    (tmp_path / "survey.yaml").write_text(SURVEY)
    memory, disk, statuses = map(json.loads, output_of(ON_WINDOWS, tmp_path))
    assert memory[0] == disk[0] == 5
    assert memory[1][:2] == disk[1][:2] == ["completed", [1, 4]]
    assert statuses == ["completed", "completed"]


WORKSPACE_ON_WINDOWS = """
from tests.unix_only import remove
remove()
from divebook.errors import SetupError
from divebook.workspaces import Root
try:
    Root(".")
except SetupError as error:
    print(error)
"""


def test_a_workspace_says_that_it_needs_unix(tmp_path):
    (line,) = output_of(WORKSPACE_ON_WINDOWS, tmp_path)
    assert line == "workspaces need Linux or macOS, because Windows cannot open a path relative to an open folder"


ONLY_NEEDED = f"""
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in {{*sys.stdlib_module_names, "divebook", *{NEEDED!r}, *allowed}} and not top.startswith("_"):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

allowed = sys.argv[1:]
sys.meta_path.insert(0, Hidden())
{WORKFLOWS}
print(python(None), python("runs.db"))
third = {{name.partition(".")[0] for name in sys.modules}} - {{*sys.stdlib_module_names, "divebook", "__main__"}}
print(sorted(name for name in third if not name.startswith("_")))
"""


def test_a_python_workflow_needs_three_libraries(tmp_path):
    allowed = ("idna", "sniffio", "typing_extensions", "exceptiongroup")  # what anyio itself may need
    results, loaded = output_of(ONLY_NEEDED, tmp_path, *allowed)
    assert results == "5 5"
    assert set(json.loads(loaded.replace("'", '"'))) <= {*NEEDED, *allowed}


# --- missing libraries -----------------------------------------------------------------------------------------------

USED_BY = {
    "IPython": "divebook.notebook.commands",
    "anyio": "divebook.agents.turn",
    "anywidget": "divebook.widgets.views",
    "apprise": "divebook.environments.settings",
    "cloudpickle": "divebook.runtime.compute.process_calls",
    "croniter": "divebook.definitions.cron",
    "cryptography": "divebook.stores.codec",
    "distributed": "divebook.runtime.compute.dask",
    "docker": "divebook.workspaces.docker.engine",
    "genai_prices": "divebook.agents.models",
    "httpx2": "divebook.tools.mcp.connection",
    "jsonschema": "divebook.definitions.schema_keywords",
    "mcp": "divebook.tools.mcp.connection",
    "nbformat": "divebook.export.pytest",
    "opentelemetry": "divebook.telemetry",
    "orjson": "divebook.events.codec",
    "pandas": "divebook.analysis.columns",
    "polars": "divebook.events.arrow.polars_frames",
    "psutil": "divebook.devenv.jobs",
    "psycopg": "divebook.stores.postgres.connections",
    "pyarrow": "divebook.analysis.log",
    "pydantic": "divebook.agents.signatures",
    "pydantic_ai": "divebook.agents.agent_loop",
    "pydantic_core": "divebook.definitions.answer_types",
    "pydantic_monty": "divebook.scripting.sandbox",
    "referencing": "divebook.definitions.json_schemas",
    "regex": "divebook.text.patterns",
    "rich": "divebook.cli.progress",
    "ruamel": "divebook.definitions.yaml_text",
    "typer": "divebook.cli.main",
    "uvicorn": "divebook.serve.server",
}
"""A module that imports each library."""
MODULES_OF = {"pydantic_ai": "pydantic_ai_slim", "ruamel": "ruamel.yaml", "opentelemetry": "opentelemetry_sdk"}
NEVER_IMPORTED = {
    "immutables": "divebook.engine.maps replaces it",
    "ipywidgets": "anywidget and IPython come with it",
    "jupyterlab": "it shows the notebooks",
    "opentelemetry_exporter_otlp_proto_http": "imported if an address is given",
}


def requirements():
    """Return the requirement of each library that divebook declares, and the extra that it belongs to."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {name: found for name, found in project["optional-dependencies"].items() if name not in ("docs", "test")}
    for extra, found in {"": project["dependencies"], **extras}.items():
        for requirement in found:
            yield re.split(r"[<>=;\[]", requirement)[0].replace("-", "_"), extra


DECLARED = dict(requirements())


def ending(module):
    """Return a pattern of the command with which the error about a missing library ends."""
    library = MODULES_OF.get(module, module)
    if module == "IPython":
        return r"pip install 'ipywidgets>=[\d.]+'$"
    if DECLARED[library]:
        return rf"pip install 'divebook\[{DECLARED[library]}\]'$"
    return rf"pip install '{re.sub('[_.]', '[-_.]', library)}[<>=].+'$"


class Hidden:
    """A finder of modules, and all others but divebook's own, that finds nothing of one library."""

    def __init__(self, library):
        self.library = library
        self.finders = [each for each in sys.meta_path if type(each).__module__ != "divebook.libraries"]

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == self.library:
            return None
        found = (each.find_spec(name, path, target) for each in self.finders)
        return next(filter(None, found), None)

    def find_distributions(self, *arguments):
        """Return the metadata of packages, which is found through finders as well."""
        # `PathFinder.find_distributions` would do, but the library importlib_metadata removes it where it is imported.
        return MetadataPathFinder.find_distributions(*arguments)


@pytest.fixture
def hide(monkeypatch):
    def hide(library):
        for name in [name for name in sys.modules if name.partition(".")[0] == library]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setattr(sys, "meta_path", [Hidden(library), explaining])

    # Libraries such as six add finders behind it.
    (explaining,) = [each for each in sys.meta_path if type(each).__module__ == "divebook.libraries"]
    return hide


@pytest.mark.parametrize("library", sorted(USED_BY))
def test_a_missing_library_is_named_with_the_command_that_installs_it(hide, library):
    user = USED_BY[library]
    source = Path(importlib.util.find_spec(user).origin).read_text(encoding="utf-8")
    assert re.search(rf"^ *(import|from) {library}\b", source, re.MULTILINE)
    hide(library)
    with pytest.raises(MissingLibraryError, match=ending(library)) as caught:
        exec(f"import {library}", {"__name__": user})
    assert str(caught.value).startswith(".".join(user.split(".")[:2]) + " needs the package ")
    assert isinstance(caught.value, ModuleNotFoundError)
    assert caught.value.name == library
    with pytest.raises(ModuleNotFoundError) as caught:  # code of users and of other libraries
        exec(f"import {library}", {"__name__": "mine"})
    assert type(caught.value) is ModuleNotFoundError
    exec(f"assert find_spec({library!r}) is None", {"__name__": user, "find_spec": importlib.util.find_spec})


REALLY_HIDDEN = f"""
import sys
hidden = sys.argv[1].split(",")

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in hidden else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = map(Without, sys.meta_path)
{WORKFLOWS}
from divebook.config import load
from divebook.environments.settings import Addresses
from divebook.runtime.compute.dask import DaskCluster
from divebook.stores import open_store
from divebook.stores.codec import FernetCodec

run = Environment(workflows=[total]).start("total", {{"numbers": [1]}}).wait(check=True)
for use in (
    lambda: run.events,
    lambda: load("survey.yaml"),
    lambda: FernetCodec("x"),
    lambda: DaskCluster("tcp://127.0.0.1:1"),
    lambda: open_store("postgresql://localhost/x"),
    lambda: Addresses(["mailto://a@b"]),
    lambda: divebook.telemetry,
):
    try:
        use()
    except divebook.errors.SetupError as error:
        print(error)
"""


def test_the_parts_that_need_a_missing_library_say_so(tmp_path):
    (tmp_path / "survey.yaml").write_text(SURVEY)
    libraries = ("pandas", "ruamel", "cryptography", "distributed", "psycopg", "apprise", "opentelemetry")
    lines = output_of(REALLY_HIDDEN, tmp_path, ",".join(libraries))
    assert len(lines) == len(libraries), lines
    for library, line in zip(libraries, lines, strict=True):
        assert re.search(ending(library), line), line
        assert line.count("pip install") == 1


def test_each_declared_library_is_hidden_once():
    names = {MODULES_OF.get(name, name) for name in USED_BY} - {"IPython"}
    assert names | NEVER_IMPORTED.keys() == DECLARED.keys()


def test_other_failed_imports_stay_as_they_are():
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'surely_missing'$"):
        import surely_missing  # noqa: F401
