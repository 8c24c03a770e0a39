"""Cases about tools, most of them of files: each is called as by a model, what comes of it is held against the case."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic_ai.exceptions import ToolFailed

from divebook import Agent, ScriptedModel, Step, Workflow
from divebook.documents import MemoryDocuments, Policy
from divebook.documents.repository import matches
from divebook.environments.environment import Environment
from divebook.stores import MemoryStore
from divebook.tools.builtin import offered
from divebook.tools.file_tools import ToolReach

Data = Mapping[str, Any]
ERROR = "Error: "


def run(case: Data) -> dict[str, Any]:
    """Return what comes of a case: under each key what is expected, where that is met, else what was seen."""
    given = case["given"]
    if "limit" in given:
        return {"effective_limit": _searched(given["limit"])}
    if "pattern" in given:
        return {"match": matches(given["pattern"], given["path"])}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for name in ("allowed", "denied", "subdir1", "subdir2", ".hidden"):
            (root / name).mkdir()
        kind = given.get("tool") or ("text_editor" if {"commands", "input"} & set(given) else "list_directory")
        return _RUN[kind](root, given, case["expect"])


def _searched(limit: int) -> int:
    """Return with what limit a person's own ``web_search`` is called, where a model asks for one."""
    searched: list[int] = []

    def web_search(query: str, limit: int = 10) -> str:
        """Search."""
        searched.append(limit)
        return f"nothing about {query}"

    call = {"call": {"web_search": {"query": "owls", "limit": limit}}}
    agent = Agent("a", model=ScriptedModel([call, "done"]), tools=[web_search])
    with MemoryStore() as store:
        workflow = Workflow("ask", [Step("ask", prompt="Which?", agent="a")])
        Environment(store=store, agents=[agent]).start(workflow).wait(20)
    return searched[0]


def _called(root: Path, name: str, options: Data, **arguments: Any) -> str:
    """Return what a model gets of a call."""
    tool = offered(name, ToolReach(MemoryDocuments(), Policy(), root), options)
    try:
        result = tool.function(**arguments)
    except ToolFailed as error:
        return str(error)
    return result if isinstance(result, str) else json.dumps(result)


def _seen(text: str, expect: Data) -> dict[str, Any]:
    """Return a text under the keys that ask about it."""
    holds = expect.get("text_contains", "")
    is_error = text.startswith(ERROR)
    found = {"text": text, "text_contains": holds if holds in text else text, "raised": False, "is_error": is_error}
    return {key: found[key] for key in found if key in expect}


def _read(root: Path, given: Data, expect: Data) -> dict[str, Any]:
    path = root / given.get("path", "file.txt")
    if "path" not in given:
        path.write_text(given.get("file", "x" * given.get("size", 0)))
    options = {"max_size": given["max_size"]} if "max_size" in given else {}
    return _seen(_called(root, "read_file", options, path=str(path)), expect)


def _write(root: Path, given: Data, expect: Data) -> dict[str, Any]:
    if "path" in given:
        text = _called(root, "write_file", {}, path=given["path"], content="it")
        return {**_seen(text, expect), "file_written": (root / given["path"]).read_text() == "it"}
    options = {key: [text.replace("{root}", str(root)) for text in given[key]] for key in ("AllowList", "DenyList")}
    done = {
        key: _called(root, "write_file", options, path=str(root / expect[key]), content="it")
        for key in ("ok", "denied")
    }
    is_denied = done["denied"].startswith(expect["denied_text"]) and not (root / expect["denied"]).exists()
    return {
        "ok": expect["ok"] if (root / expect["ok"]).exists() else done["ok"],
        "denied": expect["denied"] if is_denied else done["denied"],
        "denied_text": expect["denied_text"] if is_denied else done["denied"],
    }


def _list(root: Path, given: Data, expect: Data) -> dict[str, Any]:
    (root / "subdir1" / "test2.txt").write_text("x")
    if "file" in given:
        (root / "subdir2" / "test.txt").write_text(given["file"])
        (entry,) = json.loads(_called(root, "list_directory", {}, path="subdir2"))["entries"]
        return {"entry": {key: entry[key] for key in expect["entry"]}, "keys": list(entry)}
    if "files" in given:
        for number in range(given["files"]):
            (root / "subdir2" / f"{number}.txt").touch()
        text = _called(root, "list_directory", {"MaxEntries": given["max_entries"]}, path="subdir2")
        return {**_seen(text, expect), "entries": len(json.loads(text)["entries"])}
    if "path" in given and "root" not in given:
        return _seen(_called(root, "list_directory", {}, path=given["path"]), expect)
    if "root" in given:
        text = _called(root, "list_directory", {"RootDirectory": str(root)}, path=given["path"])
        return {"entry_paths": [entry["path"] for entry in json.loads(text)["entries"]]}
    key = "allow" if "allow" in given else "deny"
    options = {f"{key}_list": [text.replace("{tmp}", str(root)) for text in given[key]]}
    said = {name: _called(root, "list_directory", options, path=name) for name in expect}
    return {name: "ok" if text.startswith("{") else text.split(": ")[1] for name, text in said.items()}


def _edit(root: Path, given: Data, expect: Data) -> dict[str, Any]:
    (root / "exists").write_text("one\ntwo\n")
    if "input" in given:
        arguments = {**given["input"], "path": str(root) + given["input"]["path"]}
        return _seen(_called(root, "text_editor", {}, **arguments), expect)
    path = str(root / "exists")
    view = _called(root, "text_editor", {}, command="view", path=path)
    create = _called(root, "text_editor", {}, command="create", path=path, file_text="x")
    replace = _called(root, "text_editor", {}, command="str_replace", path=path, old_str="o", new_str="x")
    _called(root, "text_editor", {}, command="insert", path=path, insert_line=0, new_str="top")
    met = {
        "view": view.splitlines()[:2] == ["     1\tone", "     2\ttwo"],
        "create": create.startswith(ERROR) and "exists" in create,
        "str_replace": replace.startswith(ERROR) and "exactly once" in replace,
        "insert": (root / "exists").read_text() == "top\none\ntwo\n",
    }
    return {command: expect[command] if is_met else "not so" for command, is_met in met.items()}


_RUN: Mapping[str, Callable[[Path, Data, Data], dict[str, Any]]] = {
    "read_file": _read,
    "write_file": _write,
    "list_directory": _list,
    "text_editor": _edit,
}
SHAPES = (
    *("tool file", "tool path", "tool max_size size", "tool AllowList DenyList", "path pattern", "path"),
    *("max_entries files", "root path", "allow", "deny", "file", "commands", "input", "limit"),
)
"""Keys of `given` in cases that can be run."""
