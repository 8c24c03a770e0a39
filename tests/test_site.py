"""The pages of the documentation are built as a reader builds them, and every link in them leads somewhere."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import typer.main

import divebook
from divebook.cli.main import app
from tests.built_site import built_site

pytestmark = pytest.mark.timeout(600)
"""The first test builds the site."""

ROOT = Path(__file__).parents[1]
ELSEWHERE = (
    *("squidfunk.github.io", "www.mkdocs.org"),  # the theme names its makers
    *("ai.pydantic.dev", "docs.python.org", "github.com", "mybinder.org", "ollama.com", "semver.org"),
)
"""Servers to which pages may link. Add one after you have opened the link."""


class Page(HTMLParser):
    """The links of a page, and the places in it that a link can name."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loaded, self.places = [], [], {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.places |= {attributes[name] for name in ("id", "name") if attributes.get(name)}
        source = {"a": "href", "link": "href", "img": "src", "script": "src"}.get(tag)
        if source and attributes.get(source):
            self.links.append(attributes[source])
            if tag != "a":
                self.loaded.append(attributes[source])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder, complaint = built_site(tmp_path_factory)
    assert complaint == ""
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_link_leads_to_a_page_that_is_there_and_to_a_place_in_it(site, pages):
    dead = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            target = target / "index.html" if target.is_dir() else target
            places = pages[target].places if target in pages else {unquote(parts.fragment)}
            if not target.exists() or unquote(parts.fragment) not in places:
                dead.append((path.relative_to(site).as_posix(), link))
    assert dead == []


def test_no_page_asks_another_server_for_anything(pages):
    """A page loads nothing from elsewhere. Its links lead to a few known servers."""
    assert {urlsplit(link).netloc for page in pages.values() for link in page.loaded} == {""}
    assert {urlsplit(link).netloc for page in pages.values() for link in page.links} - {""} <= set(ELSEWHERE)


def test_every_public_name_has_a_place(pages):
    places = set().union(*(page.places for page in pages.values())) | {"divebook.__version__"}
    homes = {name: f"{getattr(getattr(divebook, name), '__module__', 'divebook')}.{name}" for name in divebook.__all__}
    assert [name for name, home in homes.items() if not {home, f"divebook.{name}"} & places] == []


def test_the_page_of_commands_lists_every_command_with_its_options():
    page = (ROOT / "notebooks" / "COMMANDS.md").read_text(encoding="utf-8")
    parts = dict(re.findall(r"^## `divebook (\S+)`$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    commands = typer.main.get_command(app).commands
    flags = {name: {flag for given in command.params for flag in given.opts} for name, command in commands.items()}
    unwritten = {
        (name, flag) for name in flags for flag in flags[name] if flag[:2] == "--" and flag not in parts.get(name, "")
    }
    hint = "python -m divebook.commands.reference"
    assert (set(parts), unwritten) == (set(commands), set()), hint


def test_every_notebook_and_page_is_in_the_index():
    index = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([^)#:]+)\)", index))
    folder = ROOT / "notebooks"
    there = {path.relative_to(folder).as_posix() for kind in ("*.ipynb", "*.md") for path in folder.rglob(kind)}
    assert {path for path in there if path not in linked and not path.startswith(".")} <= {
        "README.md",
        "licence-report.md",
        "limits.md",
    }
