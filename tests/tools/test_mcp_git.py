"""A server from the package index, used as it is: the one for git, on a repository that is made for it."""

import subprocess
import sys

import pytest

from divebook import Agent, ScriptedModel, Step, Workflow
from divebook.definitions.resources import ApprovalRule
from divebook.definitions.servers import MCPServerDefinition
from tests.runtime.worlds import environment

ASK = Workflow("ask", [Step("ask", prompt="What was done last?", agent="historian", store="said")])


@pytest.fixture
def repository(tmp_path):
    def git(*command):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True, capture_output=True)

    git("init", "-q")
    (tmp_path / "a.txt").write_text("a\n")
    git("add", ".")
    git("-c", "user.name=Ann", "-c", "user.email=ann@example.com", "commit", "-q", "-m", "A first file")
    (tmp_path / "a.txt").write_text("b\n")
    return str(tmp_path)


def test_an_agent_reads_a_repository(repository):
    server = MCPServerDefinition("git", "stdio", command=sys.executable, args=("-m", "mcp_server_git"))
    calls = [{"call": {name: {"repo_path": repository}}} for name in ("git_log", "git_status", "git_diff_unstaged")]
    script = [calls, {"call": {"git_log": {"repo_path": "/no/such/place"}}}, "Ann added a file"]
    agent = Agent("historian", model=ScriptedModel(script), servers=[server])
    with environment(ASK, agents=[agent], approvals=[ApprovalRule("git_*", server="git")]) as here:
        execution = here.start("ask").wait(60)
        assert execution.variables == {"said": "Ann added a file"}, execution.error
    said = str(execution.requests[-1].messages)
    for text in ("A first file", "modified:   a.txt", "-a", "+b", "/no/such/place"):
        assert text in said
