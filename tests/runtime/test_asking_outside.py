"""Hosts that commands in a workspace ask for: each answer is in the log of the run, under its call."""

from divebook import Environment
from divebook.definitions.functions import step, workflow
from divebook.definitions.resources import WorkspaceDefinition
from divebook.environments.settings import EnvironmentWorkspaces
from divebook.stores import MemoryStore
from divebook.workspaces import LocalWorkspace, present_workspace
from divebook.workspaces.egress.proxy import EgressAnswer


class Telling(LocalWorkspace):
    def __init__(self, folder, told):
        super().__init__(folder)
        self.told = told


def test_hosts_that_commands_ask_for_are_in_the_log(tmp_path, monkeypatch):
    @step(workspace="app")
    async def ask(host: str, refused: str):
        present_workspace().told(EgressAnswer(host, 443, refused or None))

    @workflow
    async def asking(ctx):
        await ask("pypi.org", "")
        await ask("x" * 5000, "not on the list")
        for _ in range(1100):
            present.told(EgressAnswer("often.test", 443))

    present = None

    def lent(_lending, _definition, folder, told):
        nonlocal present
        present = Telling(folder, told)
        return present

    monkeypatch.setattr(EnvironmentWorkspaces, "made", lent)
    definition = WorkspaceDefinition("app", folder=str(tmp_path))
    with Environment(store=MemoryStore(), workspaces=[definition], workflows=[asking]) as made:
        execution = made.start("asking").wait()
    assert execution.status == "completed", execution.error
    answered = [event.data for event in execution.history() if event.event_type == "egress_answered"]
    assert [(data.host[:9], len(data.host), data.refused) for data in answered] == [
        ("pypi.org", 8, None),
        ("xxxxxxxxx", 255, "not on the list"),
    ]
    begun = [event.data.operation_id for event in execution.history() if event.event_type == "operation_started"]
    assert [data.operation_id for data in answered] == begun
