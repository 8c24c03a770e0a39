import gc
import sqlite3
import weakref

import pytest

from divebook.errors import AlreadyRegisteredError, SetupError, StoreError
from divebook.stores import MemoryStore, open_store, registry
from divebook.text.passwords import without_password
from tests.store.connections import reader_of, writer_of
from tests.store.logs import ONE, log


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DIVEBOOK_STORE", raising=False)


def test_the_default_is_in_the_current_directory(tmp_path):
    with open_store() as store:
        assert store.location == str(tmp_path / ".divebook" / "executions.db")
        assert (tmp_path / ".divebook" / "executions.db").exists()


def test_the_environment_variable_comes_before_the_default(tmp_path, monkeypatch):
    monkeypatch.setenv("DIVEBOOK_STORE", "mine.db")
    with open_store() as store:
        assert store.location == str(tmp_path / "mine.db")


def test_what_is_asked_for_comes_before_the_environment_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("DIVEBOOK_STORE", "mine.db")
    with open_store(tmp_path / "other.db") as store:
        assert store.location == str(tmp_path / "other.db")


def test_memory_is_a_new_store_every_time():
    assert isinstance(open_store("memory:"), MemoryStore)
    assert open_store("memory:") is not open_store("memory:")


def test_one_file_is_one_store_however_it_is_named(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    with open_store("x.db") as store:
        assert open_store(tmp_path / "x.db") is store
        assert open_store(tmp_path / "link" / "x.db") is store


def test_different_files_are_different_stores(tmp_path):
    with open_store("x.db") as one, open_store("y.db") as other:
        assert one is not other


def test_a_closed_store_is_opened_again(tmp_path):
    with open_store("x.db") as store:
        store.append(ONE, log(2), 0)
    with open_store("x.db") as again:
        assert again is not store
        assert again.read(ONE) == log(2)


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with open_store("~/x.db") as store:
        assert store.location == str(tmp_path / "x.db")


def test_a_url_of_an_unknown_scheme_is_refused_without_its_password():
    with pytest.raises(
        SetupError, match=r"no store for 'mysql://ann:\*\*\*@host/db': .* one of postgres://, postgresql://, sqlite://"
    ):
        open_store("mysql://ann:secret@host/db")


def test_a_sqlite_url_is_the_path(tmp_path):
    with open_store("x.db") as store:
        assert open_store(f"sqlite://{tmp_path}/x.db") is store


@pytest.fixture
def kept(monkeypatch):
    """Register a scheme; return the URLs that its factory was given."""
    monkeypatch.setattr(registry, "_factories", {})
    urls = []

    def make(url):
        urls.append(url)
        return MemoryStore()

    registry.register_store("kept", make)
    return urls


def test_a_registered_scheme_is_opened_once_with_its_password(kept):
    url = "kept://ann:secret@host/db"
    with open_store(url) as store:
        assert open_store(url) is store
        assert kept == [url]
    assert open_store(url) is not store


def test_a_scheme_has_one_factory(kept):
    for scheme in ("kept", "sqlite"):
        with pytest.raises(AlreadyRegisteredError, match=f"store scheme already registered: {scheme}"):
            registry.register_store(scheme, lambda _: MemoryStore())


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("kept://ann:pa:ss@host/db", "kept://ann:***@host/db"),
        ("kept://host/db?user=ann&password=secret&x=1", "kept://host/db?user=ann&password=***&x=1"),
        ("kept://ann@host:5432/db", "kept://ann@host:5432/db"),
        ("kept://:secret@host", "kept://:***@host"),
        ("kept://host/db?sslpassword=secret", "kept://host/db?sslpassword=***"),
    ],
)
def test_passwords_are_not_shown(url, shown):
    assert without_password(url) == shown


@pytest.mark.parametrize(("location", "keeps"), [("memory:", False), ("x.db", True)])
def test_a_store_says_what_it_can_do(location, keeps):
    with open_store(location) as store:
        assert (store.keeps, store.shared, store.local, store.durability) == (keeps, keeps, True, "full")


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(StoreError, match="missing does not exist; create it"):
        open_store(tmp_path / "missing" / "x.db")


def test_a_folder_is_not_a_store(tmp_path):
    with pytest.raises(StoreError, match=r"is a folder; name a file, for example .*executions\.db"):
        open_store(tmp_path)


@pytest.fixture
def no_collection():
    """Leave circles of objects where they are."""
    gc.disable()
    yield
    gc.enable()


def test_what_nobody_holds_is_closed(no_collection):
    store = open_store("x.db")
    store.append(ONE, log(2), 0)
    assert store.read(ONE) == log(2)
    assert open_store("x.db") is store
    writer, reader, held = writer_of(store), reader_of(store), weakref.ref(store)
    del store
    assert held() is None
    for connection in (writer, reader):
        with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
            connection.execute("SELECT 1")
    with open_store("x.db") as again:
        assert again.read(ONE) == log(2)
