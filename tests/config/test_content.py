"""Content entries become content blocks."""

import base64
import hashlib
import itertools
import os
from pathlib import Path
from random import Random

import pytest

from divebook.agents.agent import Agent, digest_of
from divebook.config.content import Sources, build_content, files_at, resolve_content
from divebook.definitions.definition import Definitions, Workflow, fingerprint_of
from divebook.definitions.reader import definitions_from
from divebook.definitions.resources import AgentDefinition
from divebook.definitions.step import ContentEntry, Step
from divebook.documents import Policy
from divebook.documents.fetch import MAX_BYTES, Page
from divebook.documents.repository import alternatives, has_wildcards
from divebook.errors import DefinitionError, SetupError

FILES = {
    "file1.txt": "Content of file1.txt",
    "file2.txt": "Content of file2.txt",
    "file3.md": "Content of file3.md",
    "subdir/nested.txt": "Content of subdir/nested.txt",
}


@pytest.fixture
def sources(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "test.png").write_bytes(b"fake-png-data")
    (tmp_path / "test.pdf").write_bytes(b"fake-pdf-data")
    return Sources(
        tmp_path, lambda name: f"document {name}", lambda url, _: Page("text/html", f"page at {url}".encode())
    )


def test_no_entries_give_no_blocks():
    assert build_content([]) == []


def test_a_text_is_trimmed():
    assert build_content([ContentEntry(text="\n This is inline context \n")]) == [
        {"type": "text", "text": "This is inline context"}
    ]


def test_a_text_file_is_wrapped_with_its_name(sources):
    assert build_content([ContentEntry(path="file1.txt"), ContentEntry(text="more")], sources) == [
        {"type": "text", "text": '<file name="file1.txt">\nContent of file1.txt\n</file>'},
        {"type": "text", "text": "more"},
    ]


def test_an_image_file_is_held_as_base64(sources):
    assert build_content([ContentEntry(path="test.png")], sources) == [
        {
            "type": "image",
            "source": {
                "type": "base64",
                "media_type": "image/png",
                "data": base64.b64encode(b"fake-png-data").decode(),
            },
        }
    ]


def test_a_pdf_file_is_a_document(sources):
    block = build_content([ContentEntry(path="test.pdf")], sources)[0]
    assert (block["type"], block["source"]["media_type"]) == ("document", "application/pdf")


@pytest.mark.parametrize(
    ("url", "told", "kind", "media_type"),
    [
        ("https://example.com/image.png", "image/webp", "image", "image/webp"),
        ("https://example.com/photo", "image/jpeg", "image", "image/jpeg"),
        ("https://example.com/a.JPG?size=3", "application/octet-stream", "image", "image/jpeg"),
        ("https://example.com/report", "application/pdf", "document", "application/pdf"),
        ("https://example.com/a.pdf#page=2", "binary/octet-stream", "document", "application/pdf"),
    ],
)
def test_what_stands_at_an_address_is_what_the_response_says(url, told, kind, media_type):
    (block,) = build_content([ContentEntry(url=url)], Sources(fetch=lambda url, _: Page(told, b"bytes")))
    source = {"type": "base64", "media_type": media_type, "data": base64.b64encode(b"bytes").decode()}
    assert block == {"type": kind, "source": source}


def test_any_other_address_is_fetched(sources):
    assert build_content([ContentEntry(url="https://example.com/")], sources)[0]["text"] == (
        '<file url="https://example.com/">\npage at https://example.com/\n</file>'
    )


def test_only_web_addresses_are_fetched(sources):
    with pytest.raises(SetupError, match="must start with http"):
        build_content([ContentEntry(url="file:///etc/passwd")], sources)


def test_a_document_comes_from_the_repository(sources):
    assert build_content([ContentEntry(document="notes")], sources) == [{"type": "text", "text": "document notes"}]
    with pytest.raises(SetupError, match="there is no document repository"):
        build_content([ContentEntry(document="notes")])


@pytest.mark.parametrize(
    "entry",
    [
        ContentEntry(),
        ContentEntry(text="some text", path="test.txt"),
        ContentEntry(text="some text", path="test.txt", url="https://example.com/doc.pdf"),
        ContentEntry(text="Some text", dynamic="Some script"),
        ContentEntry(dynamic="Some script", dynamic_from="./script.py"),
    ],
)
def test_an_entry_has_exactly_one_source(entry):
    with pytest.raises(DefinitionError, match="must specify exactly one"):
        build_content([entry])


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("**/*.txt", ["file1.txt", "file2.txt", "nested.txt"]),
        ("*.txt", ["file1.txt", "file2.txt"]),
        ("file1.txt", ["file1.txt"]),
        ("file[12].txt", ["file1.txt", "file2.txt"]),
        ("{file3.md,subdir/*}", ["file3.md", "nested.txt"]),
        ("*.csv", []),
        ("sub*", []),
    ],
)
def test_patterns_add_every_match_in_order(sources, pattern, names):
    texts = [block["text"] for block in build_content([ContentEntry(path=pattern)], sources)]
    assert [text.split('"')[1] for text in texts] == names


def test_patterns_and_files_mix(sources):
    assert len(build_content([ContentEntry(path="*.md"), ContentEntry(path="file1.txt")], sources)) == 2


def test_an_absolute_pattern_works_inside_the_folder(sources):
    assert len(build_content([ContentEntry(path=f"{sources.base_path}/*.txt")], sources)) == 2


def test_a_pattern_cannot_explode():
    with pytest.raises(SetupError, match="expands to more than 1000 patterns"):
        alternatives("{a,b}" * 20)


def test_a_pattern_that_is_not_valid_is_refused(sources):
    with pytest.raises(SetupError, match="is not valid: '\\*\\*' can only be an entire path component"):
        build_content([ContentEntry(path="a**b/*")], sources)


def test_a_missing_file_is_an_error(sources):
    with pytest.raises(SetupError, match=r"unable to read file .*gone\.txt: No such file"):
        build_content([ContentEntry(path="gone.txt")], sources)


def test_a_file_of_an_unknown_kind_is_an_error(sources):
    with pytest.raises(SetupError, match=r"unsupported local file extension: \.exe"):
        build_content([ContentEntry(path="a.exe")], sources)


def test_a_text_file_that_is_no_text_is_an_error(sources):
    (sources.base_path / "a.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SetupError, match="not UTF-8 at byte 0"):
        build_content([ContentEntry(path="a.txt")], sources)


@pytest.mark.parametrize(
    ("path", "expected"), [("*.txt", True), ("[abc].txt", True), ("{a,b}", True), ("normal/path/file.txt", False)]
)
def test_wildcards_are_recognised(path, expected):
    assert has_wildcards(path) is expected


def test_documents_are_left_to_the_step_without_a_repository():
    agent = {"Name": "a", "Context": [{"Document": "d"}]}
    found = resolve_content(definitions_from({"Agents": [agent]}))
    assert found.agents[0].context[0].blocks is None


def test_dynamic_entries_wait_until_the_step_runs(tmp_path):
    blocks = build_content([ContentEntry(dynamic="1 +"), ContentEntry(dynamic_from="./gone.py")], Sources(tmp_path))
    assert blocks == [
        {"type": "dynamic", "script": "1 +"},
        {"type": "dynamic", "program": str(tmp_path / "gone.py")},
    ]


def test_definitions_take_in_their_content(sources):
    definitions = definitions_from(
        {
            "Name": "e",
            "Agents": [{"Name": "a", "Context": [{"Path": "file1.txt"}, {"Text": " x "}, {"Dynamic": "1"}]}],
            "Workflows": [
                {
                    "Name": "w",
                    "Steps": [
                        {"Name": "s", "Prompt": "x", "Content": [{"Path": "*.md"}, {"DynamicFrom": "run.py"}]},
                        {"Name": "t", "Prompt": "x"},
                    ],
                }
            ],
        }
    )
    found = resolve_content(definitions, sources)
    context = found.agents[0].context
    assert [len(entry.blocks) if entry.blocks else None for entry in context] == [1, 1, None]
    content = found.workflows[0].first_step.content
    assert content[0].blocks[0]["text"].startswith('<file name="file3.md">')
    assert content[1].dynamic_from == str(sources.base_path / "run.py")
    assert found.workflows[0].fingerprint != definitions.workflows[0].fingerprint
    assert Workflow.from_dict(found.workflows[0].to_dict()) == found.workflows[0]


def test_a_fetched_page_must_be_text_and_not_too_long():
    assert Page("text/html", b"caf\xe9", "latin-1").text("u") == "café"
    assert Page("application/ld+json", b"{}").text("u") == "{}"
    with pytest.raises(SetupError, match="has the unsupported type image/png: use a text"):
        Page("image/png", b"").text("u")
    with pytest.raises(SetupError, match=f"more than {MAX_BYTES} bytes"):
        Page("text/plain", b"x" * (MAX_BYTES + 1)).text("u")
    with pytest.raises(SetupError, match="is not utf-8 text"):
        Page("text/plain", b"\xff").text("u")
    with pytest.raises(SetupError, match="is not klingon text"):
        Page("text/plain", b"x", "klingon").text("u")


# --- what may be reached ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["../secret.txt", "/etc/passwd.txt", "../*.txt", "/**/*.nothing", "a/../../*.txt", "link.txt", "l*.txt"]
)
def test_no_path_leads_out_of_the_folder(tmp_path, path):
    (tmp_path / "secret.txt").write_text("secret")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(SetupError, match=r"outside the definition's folder .* DIVEBOOK_ALLOW=files"):
        build_content([ContentEntry(path=path)], Sources(folder))


def test_files_elsewhere_can_be_allowed(tmp_path):
    (tmp_path / "notes.txt").write_text("notes")
    (tmp_path / "project").mkdir()
    sources = Sources(tmp_path / "project", policy=Policy("files"))
    assert "notes" in build_content([ContentEntry(path="../notes.txt")], sources)[0]["text"]


@pytest.mark.parametrize(
    "entry", [ContentEntry(path="a\0.txt"), ContentEntry(path="a\0*.txt"), ContentEntry(dynamic_from="a\0")]
)
def test_a_path_with_a_nul_is_refused(tmp_path, entry):
    with pytest.raises(SetupError, match="cannot be the path of a file"):
        build_content([entry], Sources(tmp_path))


def test_a_folder_that_vanishes_while_a_pattern_is_looked_for_is_an_error_of_one_line(tmp_path, monkeypatch):
    def iterdir(self):
        raise FileNotFoundError(2, "No such file or directory", "/proc/3/fd")

    monkeypatch.setattr("pathlib.Path.iterdir", iterdir)
    with pytest.raises(SetupError, match=r"cannot be searched: .*/proc/3/fd"):
        build_content([ContentEntry(path="**/*.txt")], Sources(tmp_path))


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.txt")
    with pytest.raises(SetupError, match="it is not a file"):
        build_content([ContentEntry(path="a.txt")], Sources(tmp_path))


def test_the_script_of_an_agent_may_be_a_file(sources, tmp_path):
    (tmp_path / "replies.yaml").write_text("- {call: {search: {query: owls}}}\n- done\n")
    found = resolve_content(definitions_from({"Agents": [{"Name": "a", "Script": "replies.yaml"}]}), sources)
    assert found.agents[0].script == [{"call": {"search": {"query": "owls"}}}, "done"]
    (tmp_path / "replies.yaml").write_text("- [")
    with pytest.raises(DefinitionError, match="not valid YAML"):
        resolve_content(definitions_from({"Agents": [{"Name": "a", "Script": "replies.yaml"}]}), sources)


# --- what content was made of ----------------------------------------------------------------------------------------


def with_content(folder, *entries, **sources):
    step = Step("s", prompt="look", agent="a", content=[ContentEntry(**entry) for entry in entries])
    agents = (AgentDefinition("a", context=step.content),)
    given = Sources(folder, **sources)
    return resolve_content(Definitions(workflows=(Workflow("w", [step]),), agents=agents), given)


def test_content_says_what_it_was_made_of(tmp_path):
    (tmp_path / "notes").mkdir()
    for name, text in {"a.md": "one", "b.txt": "zwei \u00fc"}.items():
        (tmp_path / "notes" / name).write_text(text, "utf-8")
        os.utime(tmp_path / "notes" / name, (0, 1_700_000_000.5))
    page = Page("text/plain", b"page")
    found = with_content(
        tmp_path,
        {"path": "notes/*"},
        {"url": "https://example.com/x"},
        {"document": "doc"},
        {"text": "in the definition"},
        {"dynamic": "1"},
        read_document=lambda _: "text",
        fetch=lambda *_: page,
    )
    files, pages, documents, text, dynamic = (entry.fingerprints for entry in found.workflows[0].steps[0].content)
    assert [(one["source"], one["size"], one["modtime"]) for one in (*files, *pages, *documents)] == [
        ("notes/a.md", 3, "2023-11-14T22:13:20+00:00"),
        ("notes/b.txt", 7, "2023-11-14T22:13:20+00:00"),
        ("https://example.com/x", 4, ""),
        ("doc", 4, ""),
    ]
    assert files[0]["hash"] == hashlib.sha256(b"one").hexdigest()
    assert (text, dynamic) == (None, None)
    assert Workflow.from_dict(found.workflows[0].to_dict()).steps[0].content[0].fingerprints == files


def test_a_file_that_was_only_touched_changes_no_definition(tmp_path):
    (tmp_path / "a.md").write_text("one")
    made = []
    for seconds in (1_600_000_000, 1_700_000_000):
        os.utime(tmp_path / "a.md", (0, seconds))
        made.append(with_content(tmp_path, {"path": "a.md"}))
    first, second = made
    assert first.workflows[0].steps[0].content[0].fingerprints != second.workflows[0].steps[0].content[0].fingerprints
    assert first.workflows == second.workflows
    assert first.workflows[0].fingerprint == second.workflows[0].fingerprint
    agents = [Agent("a") for _ in made]
    for agent, definitions in zip(agents, made, strict=True):
        agent.definition = definitions.agents[0]
    assert digest_of(agents[0]) == digest_of(agents[1])
    (tmp_path / "a.md").write_text("two")
    assert with_content(tmp_path, {"path": "a.md"}).workflows[0].fingerprint != second.workflows[0].fingerprint


def test_a_workflow_without_content_has_the_fingerprint_that_it_had():
    assert fingerprint_of({"name": "w"}) == hashlib.sha256(b'{"inputs":[],"name":"w","outputs":[]}').hexdigest()


def test_patterns_find_the_files_that_pathlib_finds(tmp_path):
    random = Random(7)
    for _ in range(60):
        path = tmp_path.joinpath(*random.choices(["a", "b", "ab", ".c"], k=random.randint(1, 4)), "x.txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("", "utf-8")
    hidden = 0
    for _ in range(300):
        parts = random.choices(["**", "*", "a", "b*", "?", "[!a]*", ".c", "*.txt", "x.txt"], k=random.randint(1, 5))
        pattern = "/".join([*parts, "*.txt"])
        files = sorted({path for path in tmp_path.glob(pattern) if path.is_file()})
        assert files_at(pattern, tmp_path, Policy("files", "hidden")) == files, pattern
        named = itertools.takewhile(lambda part: not has_wildcards(part), parts)
        if ".c" in named:  # a hidden folder that is named is refused; one that only matches is left out
            with pytest.raises(SetupError, match=r"\.c is hidden; to allow it"):
                files_at(pattern, tmp_path, Policy("files"))
            continue
        visible = [path for path in files if ".c" not in path.parts]
        assert files_at(pattern, tmp_path, Policy("files")) == visible, pattern
        hidden += len(files) - len(visible)
    assert hidden > 100


def test_many_wildcards_over_folders_visit_each_folder_once(tmp_path, monkeypatch):
    tmp_path.joinpath(*"a" * 30).mkdir(parents=True)
    listed = []
    iterdir = Path.iterdir
    monkeypatch.setattr("pathlib.Path.iterdir", lambda folder: listed.append(folder) or iterdir(folder))
    assert files_at("**/a/" * 12 + "*.txt", tmp_path, Policy("files")) == []
    assert len(listed) == len(set(listed)) == 31
