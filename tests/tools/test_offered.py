"""The tools that come with divebook: what they reach, what they refuse, and what they say of themselves."""

import json
import os
from http.server import BaseHTTPRequestHandler

import pytest
from pydantic_ai.exceptions import ToolFailed

from divebook.agents.signatures import library_tool
from divebook.definitions.dialect import TOOLS
from divebook.definitions.step import Retry
from divebook.documents import FileDocuments, MemoryDocuments, Policy
from divebook.errors import SetupError
from divebook.tools import builtin
from divebook.tools.builtin import ABSENT, OFFERED, offered, readable
from divebook.tools.file_tools import ToolReach
from tests.websites import OneHost, serving


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("Owls fly\nat night.\n")
    return tmp_path.resolve()


@pytest.fixture
def use(folder):
    """Return what calls a tool as a model's call does."""

    def call(name, /, options=None, policy=None, documents=None, **arguments):
        reach = ToolReach(documents or FileDocuments(folder), policy or Policy(), folder)
        return offered(name, reach, options or {}).function(**arguments)

    return call


def test_every_tool_of_the_old_system_is_there_or_says_why_not():
    assert set(TOOLS) == {*OFFERED, *ABSENT, "assign_work"} - {
        "read_document",
        "list_documents",
        "search_documents",
        "write_document",
    }


@pytest.mark.parametrize("name", OFFERED)
def test_a_model_sees_what_each_argument_is(folder, name):
    tool = offered(name, ToolReach(MemoryDocuments(), Policy(), folder), {})
    shown = library_tool(tool, None)
    assert (shown.name, tool.confirmation) == (name, "if-not-read-only")
    assert shown.description
    assert all(said["description"] for said in shown.function_schema.json_schema["properties"].values())
    assert tool.is_repeatable is (name != "text_editor")


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("read_file", {"maxsise": 3}, "tool read_file has no option 'maxsise'; did you mean 'max_size'"),
        ("text_editor", {"Type": "x"}, "tool text_editor has no option 'Type'; available options: name"),
        ("read_file", {"MAXSIZE": "3"}, "option MAXSIZE of tool read_file must be an integer from 0 to"),
        ("read_file", {"max_size": True}, "must be an integer from 0 to"),
        ("fetch", {"timeout": -1}, "must be a number of seconds from 0 to"),
        ("write_file", {"AllowList": [1]}, r"must be a list of strings, not \[1\]"),
        ("text_editor", {"Name": 3}, "must be a string, not 3"),
        ("write_document", {"x": 3}, "available options: none"),
    ],
)
def test_wrong_options_are_refused_in_words(folder, name, options, says):
    with pytest.raises(SetupError, match=says):
        offered(name, ToolReach(MemoryDocuments(), Policy(), folder), options)


def test_options_are_known_however_they_are_written(folder):
    reach = ToolReach(MemoryDocuments(), Policy(), folder)
    assert offered("text_editor", reach, {"NAME": "edit"}).name == "edit"
    assert offered("write_file", reach, {"deny_list": "*.md"}).function("a.txt", "x") == (
        "Successfully wrote 1 bytes to a.txt"
    )


# --- files -----------------------------------------------------------------------------------------------------------


def link_out(folder):
    (folder / "out").symlink_to("/etc")
    return "out/hostname"


@pytest.mark.parametrize("path", ["/etc/hostname", "../x", "notes/../../x", link_out, "a\0b"])
@pytest.mark.parametrize("name", ["read_file", "list_directory", "write_file", "text_editor"])
def test_what_is_outside_the_folder_is_not_reached(use, folder, name, path):
    where = path(folder) if callable(path) else path
    more = {"write_file": {"content": "x"}, "text_editor": {"command": "view"}}.get(name, {})
    with pytest.raises(ToolFailed, match="Error: Access denied: "):
        use(name, path=where, **more)


def test_more_may_be_reached_if_the_person_who_runs_it_allows_it(use, tmp_path_factory):
    other = tmp_path_factory.mktemp("other") / "far.txt"
    other.write_text("far")
    assert use("read_file", path=str(other), policy=Policy("files")) == "far"


def test_lists_hold_for_where_a_link_leads(use, folder):
    (folder / "secret.txt").write_text("s")
    (folder / "notes" / "link").symlink_to(folder / "secret.txt")
    for options in ({"deny_list": ["secret.txt"]}, {"deny_list": ["SECRET.*"]}, {"allow_list": ["notes/**"]}):
        with pytest.raises(ToolFailed, match="is not among the files"):
            use("write_file", options, path="notes/link", content="x")
    assert (folder / "secret.txt").read_text() == "s"


def test_what_is_denied_is_not_listed(use):
    found = use("list_directory", {"deny_list": ["**/*.md"]}, path="notes")
    assert found == {"entries": []}


def test_a_file_keeps_its_permissions_and_nothing_is_left_beside_it(use, folder):
    program = folder / "run.sh"
    program.write_text("old")
    program.chmod(0o750)
    use("write_file", path="run.sh", content="new")
    assert (program.read_text(), program.stat().st_mode & 0o777) == ("new", 0o750)
    assert sorted(path.name for path in folder.iterdir()) == ["notes", "run.sh"]


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("read_file", {"path": "notes"}, "notes is not a file"),
        ("read_file", {"path": "pipe"}, "pipe is not a file"),
        ("read_file", {"path": "bytes"}, r"no UTF-8 text \(at byte 0\)"),
        ("write_file", {"path": "notes", "content": ""}, "notes is not a file"),
        ("write_file", {"path": "notes/a.md/b", "content": ""}, "cannot be written: "),
        ("write_file", {"path": "x", "content": "\ud800"}, "it holds half of a character"),
        ("text_editor", {"command": "insert", "path": "notes/a.md", "insert_line": 9, "new_str": ""}, "0 and 3, not 9"),
        ("text_editor", {"command": "view", "path": "notes/a.md", "view_range": [2, 9]}, "within the 3 lines"),
        ("text_editor", {"command": "view", "path": "notes", "view_range": [1, 2]}, "leave it out for a folder"),
        ("text_editor", {"command": "str_replace", "path": "notes", "old_str": "a"}, "is not a file"),
        ("text_editor", {"command": "str_replace", "path": "notes/a.md", "old_str": ""}, "did not appear"),
        ("text_editor", {"command": "str_replace", "path": "notes/a.md", "old_str": "t"}, "appears 2 times"),
    ],
)
def test_what_cannot_be_done_is_told_to_the_model(use, folder, name, arguments, says):
    os.mkfifo(folder / "pipe")
    (folder / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(ToolFailed, match=f"Error: .*{says}"):
        use(name, **arguments)


def test_an_edit_shows_what_it_has_done_and_leaves_the_rest_as_it_was(use, folder):
    (folder / "make").write_text("all:\n\tcc a.c\n\tcc b.c\n")
    said = use("text_editor", command="str_replace", path="make", old_str="a.c", new_str="a.c\n\tcc d.c")
    assert (folder / "make").read_text() == "all:\n\tcc a.c\n\tcc d.c\n\tcc b.c\n"
    assert said.splitlines()[1:4] == ["     1\tall:", "     2\t\tcc a.c", "     3\t\tcc d.c"]
    assert use("text_editor", command="view", path="make", view_range=[2, -1]).splitlines()[0] == "     2\t\tcc a.c"
    assert use("text_editor", command="view", path=".").splitlines() == [
        ". holds, two levels deep:",
        "make",
        "notes",
        "notes/a.md",
    ]


# --- documents -------------------------------------------------------------------------------------------------------


def test_documents_are_read_in_whole_or_in_part(use):
    papers = MemoryDocuments({"a/long.txt": "1\n2\n3\n"})
    papers.register("long", "a/long.txt")
    assert use("read_document", documents=papers, path="long") == "1\n2\n3\n"
    assert use("read_document", documents=papers, path="long", first_line=2, lines=1) == "2\n"
    assert use("read_document", documents=papers, path="long", first_line=3) == "3\n"


def test_what_is_too_large_is_not_read(use, folder):
    (folder / "large.txt").write_text("owl\n" * 300_000)
    assert use("search_documents", words="owl") == {"matches": [use("search_documents", words="owls")["matches"][0]]}
    with pytest.raises(ToolFailed, match=r"large.txt is too large \(1200000 bytes\): at most 1000 bytes"):
        use("read_document", {"max_size": 1000}, path="large.txt")
    assert MemoryDocuments({"a": "\u00e9"}).size("a") == 2
    assert FileDocuments(folder).size("none") == 0


def test_documents_are_listed_and_searched(use, folder):
    (folder / ".hidden").write_text("owls at night")
    (folder / "picture.png").write_bytes(b"\xff")
    assert use("list_documents") == {"paths": ["notes/a.md", "picture.png"]}
    assert use("list_documents", recursive=False) == {"paths": ["picture.png"]}
    assert use("list_documents", {"max_entries": 1}) == {"paths": ["notes/a.md"], "note": "limited to 1 of 2"}
    found = use("search_documents", words="NIGHT at")
    assert found == {"matches": [{"path": "notes/a.md", "line": 2, "text": "at night."}]}
    assert use("search_documents", {"max_matches": 1}, words="t") == {
        "matches": [{"path": "notes/a.md", "line": 2, "text": "at night."}]
    }
    assert use("search_documents", words="night", folder="elsewhere") == {"matches": []}


def test_search_is_limited_and_says_so(use):
    papers = MemoryDocuments({"a.txt": "owl\n" * 9})
    found = use("search_documents", {"max_matches": 3}, documents=papers, words="owl")
    assert (len(found["matches"]), found["note"]) == (3, "limited to 3: use more words")


def test_documents_are_written_by_path_or_name(use):
    papers = MemoryDocuments()
    papers.register("report", "out/report.md")
    assert use("write_document", documents=papers, path="report", content="It is so") == (
        "Successfully wrote 8 characters to out/report.md"
    )
    assert papers.get("out/report.md").content == "It is so"


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("read_document", {"path": "none.md"}, "document none.md cannot be read: document does not exist"),
        ("read_document", {"path": "../x"}, "attempts to escape"),
        ("list_documents", {"folder": "../x"}, "attempts to escape"),
        ("write_document", {"path": ".git/x", "content": ""}, "is hidden"),
        ("search_documents", {"words": " "}, "no words were given"),
    ],
)
def test_what_cannot_be_done_with_documents_is_told_to_the_model(use, name, arguments, says):
    with pytest.raises(ToolFailed, match=f"Error: .*{says}"):
        use(name, **arguments)


# --- the web ---------------------------------------------------------------------------------------------------------


class Pages(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(dict(self.headers))
        status, kind, body = self.server.pages.pop(0)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Set-Cookie", "k=v")
        if status == 302:
            self.send_header("Location", body)
        self.end_headers()
        self.wfile.write(body.encode())


@pytest.fixture
def site():
    with serving(Pages) as server:
        server.asked, server.pages = [], []
        server.url += "/"
        yield server


OPEN = Policy("addresses")


def test_a_page_comes_as_text_with_links_and_without_cookies(use, site):
    site.pages += [(302, "text/html", "/there"), (200, "text/html", "<title>T</title><p>Hi <a href='x'>all</a>")]
    assert use("fetch", policy=OPEN, url=site.url) == f"T\n\nHi [all]({site.url}x)"
    assert [headers.get("Cookie") for headers in site.asked] == [None, None]
    site.pages.append((200, "application/json", '{"a": 1}'))
    assert json.loads(use("fetch", policy=OPEN, url=site.url)) == {"a": 1}


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ((404, "text/plain", ""), "HTTP Error 404"),
        ((200, "image/png", ""), "has the unsupported type image/png"),
        ((200, "text/plain", "x" * 200), "more than 100 bytes"),
        ((302, "text/plain", "file:///etc/passwd"), "is not allowed"),
        ((302, "text/plain", "http://169.254.169.254/latest"), "is an address of this machine or of a private network"),
    ],
)
def test_what_cannot_be_fetched_is_told_to_the_model(use, site, page, says):
    site.pages.append(page)
    with pytest.raises(ToolFailed, match=f"Error: .*{says}"):
        use("fetch", {"max_size": 100}, policy=OneHost(), url=site.url)


def test_this_machine_is_not_asked(use, site):
    with pytest.raises(ToolFailed, match=r"Error: '127\.0\.0\.1' is an address of this machine"):
        use("fetch", url=site.url)
    assert site.asked == []


def test_a_page_that_failed_is_asked_for_again_as_often_as_said(use, site, monkeypatch):
    monkeypatch.setattr(builtin, "UNREACHABLE_PAGE", Retry(seconds=0))
    site.pages += [(503, "text/plain", ""), (503, "text/plain", ""), (200, "text/plain", "here")]
    assert use("fetch", {"max_retries": 2}, policy=OPEN, url=site.url) == "here"
    site.pages += [(503, "text/plain", ""), (503, "text/plain", "")]
    with pytest.raises(ToolFailed, match="503"):
        use("fetch", {"max_retries": 1}, policy=OPEN, url=site.url)


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<ul><li>a<li>b</ul>c", "- a\n- b\n\nc"),
        ("<pre>a\n  b</pre>", "a\n  b"),
        ("a   b\n c<br>d", "a b c\nd"),
        ("<table><tr><td>1<td>2<tr><td>3</table>", "1 2\n3"),
        ("<style>p{}</style><svg><text>no</text></svg>yes", "yes"),
        ("<head><script>x</script><body>shown", "shown"),
        ("<a href='javascript:x()'>a</a> <a href='#b'>b</a> <a>c</a> <a href='http://[x'>d</a>", "a b c d"),
        ("a &lt; b &amp; c", "a < b & c"),
        ("<p>unclosed <b>bold", "unclosed bold"),
        ("a<!-- <p>no</p> -->b<!-- never ends <p>no", "ab"),
        ("<![if IE]>a<![endif]><![odd[b]]>c", "ac"),
        ("<b>1 < 2</b> and <a href='x", "1 < 2 and a href='x"),
    ],
)
def test_a_page_is_read_as_text(markup, text):
    assert readable(markup, "http://a/") == text


@pytest.mark.parametrize(
    "piece", ["<!--", "<!", "<a ", "<![", "</", "<script><", "<a href='", "&#", "<?", "<svg></p>", "<div>", "<ul><li>"]
)
def test_a_page_that_was_made_to_hold_the_reader_up(piece):
    """Each of these takes minutes where it is read again from every place, or a level of calls for each element."""
    assert "seen" in readable(f"<p>seen</p>{piece * 50_000}", "http://a/")
