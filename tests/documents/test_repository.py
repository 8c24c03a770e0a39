"""One set of promises, two repositories."""

import pytest

from divebook.documents import FileDocuments, MemoryDocuments
from divebook.errors import NotFoundError, SetupError


@pytest.fixture(params=["memory", "files"])
def documents(request, tmp_path):
    return MemoryDocuments() if request.param == "memory" else FileDocuments(tmp_path / "root")


def test_what_is_put_is_got(documents):
    documents.put("docs/test.txt", "test content")
    found = documents.get("docs/test.txt")
    assert (found.content, found.name, found.path) == ("test content", "test.txt", "docs/test.txt")


def test_line_ends_and_letters_are_kept(documents):
    documents.put("a.txt", "a\r\nb\nü\u2028")
    assert documents.get("a.txt").content == "a\r\nb\nü\u2028"


def test_listing_is_sorted_and_may_stop_at_the_folder(documents):
    for path in ("docs/test.txt", "docs/sub1/a.txt", "docs/sub1/b.txt", "docs/sub2/c.txt", "docsother/d.txt"):
        documents.put(path, "x")
    assert documents.list("docs") == ["docs/sub1/a.txt", "docs/sub1/b.txt", "docs/sub2/c.txt", "docs/test.txt"]
    assert documents.list("docs", recursive=False) == ["docs/test.txt"]
    assert documents.list("docs/sub1") == ["docs/sub1/a.txt", "docs/sub1/b.txt"]
    assert len(documents.list()) == 5


def test_a_missing_document_is_told_with_the_nearest(documents):
    documents.put("report.md", "x")
    with pytest.raises(NotFoundError, match=r"document does not exist: reprot.md .did you mean 'report.md'"):
        documents.get("reprot.md")


def test_a_path_is_required(documents):
    with pytest.raises(SetupError, match="document path is required"):
        documents.put("", "x")


@pytest.mark.parametrize("path", ["../../etc/passwd", "a/../../b", "..\\x"])
def test_nothing_outside_is_reached(documents, path):
    with pytest.raises(SetupError, match="attempts to escape root directory"):
        documents.get(path)


def test_an_absolute_path_is_read_below_the_root(documents):
    documents.put("/etc/passwd", "mine")
    assert documents.get("etc/passwd").content == "mine"


def test_a_link_that_leads_out_is_refused(tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "secret.txt").write_text("x")
    (tmp_path / "root" / "link.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(SetupError, match="attempts to escape"):
        FileDocuments(tmp_path / "root").get("link.txt")


def test_two_paths_with_one_name_are_two_documents(documents):
    documents.put("a/x.txt", "1")
    documents.put("b/x.txt", "2")
    assert documents.get("a/x.txt").content == "1"


def test_a_registered_name_stands_for_its_path(documents):
    documents.register("guide", "docs/guide.md")
    documents.put("guide", "x")
    assert documents.get("docs/guide.md").content == "x"
    assert documents.get("guide").path == "docs/guide.md"


def test_deleting_what_is_not_there_is_fine(documents):
    documents.put("a.txt", "x")
    documents.delete("a.txt")
    documents.delete("a.txt")
    assert not documents.exists("a.txt")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.md", "text/markdown"),
        ("a.json", "application/json"),
        ("a.txt", "text/plain"),
        ("a", "text/plain"),
        ("a.yaml", "application/yaml"),
    ],
)
def test_content_types_follow_the_extension(documents, path, expected):
    assert documents.put(path, "x").content_type == expected
