"""Tests of the methods that a back end implements, and of the statements that the two databases share."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

import divebook.stores
from divebook.stores import MemoryStore, SqliteStore, sql
from divebook.stores.backend import BlobBackend, CacheBackend, ListBackend, QueueBackend
from divebook.stores.base import EventStore
from divebook.stores.postgres.connections import DIALECT as POSTGRES
from divebook.stores.sqlite.connections import DIALECT as SQLITE

STORE = Path(divebook.stores.__file__).parent
PARTS = {"_lists": ListBackend, "_queues": QueueBackend, "_caches": CacheBackend, "_large_values": BlobBackend}
MOST_METHODS = 36
SQL = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE)\b.*\b(FROM|INTO|SET)\b", re.DOTALL)


def methods_of(protocol):
    return {name: method for name, method in vars(protocol).items() if not name.startswith("_")}


def test_a_back_end_implements_few_methods():
    """A method that follows from others belongs into `EventStore`, once, and not into every back end."""
    required = [*EventStore.__abstractmethods__, *(name for part in PARTS.values() for name in methods_of(part))]
    assert len(required) <= MOST_METHODS, f"derive a new method from one of these instead: {sorted(required)}"


@pytest.mark.parametrize("part", PARTS)
def test_the_parts_of_all_stores_have_the_methods_of_their_protocol(part, tmp_path):
    with MemoryStore() as memory, SqliteStore(tmp_path / "s.db") as file:
        for store in (memory, file):
            for name, method in methods_of(PARTS[part]).items():
                expected = [*inspect.signature(method).parameters][1:]
                assert [*inspect.signature(getattr(getattr(store, part), name)).parameters] == expected


def statements_in(folder):
    """Return the place of each SQL statement in the modules of one database, by its normalized text."""
    places = {}
    for path in sorted((STORE / folder).glob("*.py")):
        # Texts of released migrations do not change any more.
        if path.name != "schema.py":
            names = vars(importlib.import_module(f"divebook.stores.{folder}.{path.stem}"))
            for line, text in texts_in(ast.parse(path.read_text()), names):
                if SQL.search(text):
                    places[normalized(text)] = f"{folder}/{path.name}:{line}"
    return places


def texts_in(node, names):
    """Yield each string in a module with its line. An f-string has the values of the module's constants in it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.JoinedStr):
            yield child.lineno, "".join(part_of(part, names) for part in child.values)
        elif isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child.lineno, child.value
        else:
            yield from texts_in(child, names)


def part_of(part, names):
    if isinstance(part, ast.Constant):
        return part.value
    is_constant = isinstance(part.value, ast.Name) and part.value.id in names
    return str(names[part.value.id]) if is_constant else "{" + ast.unparse(part.value) + "}"


def normalized(text):
    return " ".join(text.replace("divebook.", "").replace("%s", "?").split())


def test_no_statement_is_written_for_each_database():
    """A statement that both databases understand belongs into `divebook.stores.sql`."""
    in_files, on_servers = statements_in("sqlite"), statements_in("postgres")
    assert len(in_files) > 30
    assert len(on_servers) > 30
    twice = {in_files[text]: on_servers[text] for text in in_files.keys() & on_servers.keys()}
    assert not twice, f"write these statements once, in divebook/stores/sql.py: {twice}"
    shared = [text for text in vars(sql).values() if isinstance(text, str) and SQL.search(text)]
    assert len(shared) > 20
    for dialect, places in ((SQLITE, in_files), (POSTGRES, on_servers)):
        copies = [places[text] for text in map(normalized, map(dialect.text, shared)) if text in places]
        assert not copies, f"use the statement of divebook/stores/sql.py: {copies}"
