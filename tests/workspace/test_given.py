"""What a workspace is given wrongly is refused when it is made or entered, with the value and what is to be written."""

import asyncio

import pytest

from divebook.definitions import WorkspaceDefinition
from divebook.errors import ContainerError, DefinitionError, WorkspaceGoneError
from divebook.workspaces import DockerWorkspace, LocalWorkspace, VirtualenvWorkspace, process_manager
from divebook.workspaces.paths import Root
from divebook.workspaces.snapshots.take import Snapshots

TEXTS = {
    "allowed_paths": lambda folder, text: LocalWorkspace(folder, allowed_paths=text),
    "packages": lambda folder, text: VirtualenvWorkspace(folder, packages=text),
    "allow": lambda folder, text: DockerWorkspace(folder, image="i", allow=text),
    "exclude": lambda folder, text: Snapshots(Root(folder), exclude=text, watch=False),
}


def enter(workspace):
    async def entered():
        async with workspace:
            return

    return asyncio.run(entered())


@pytest.mark.parametrize("name", TEXTS)
def test_one_text_is_not_taken_for_a_list_of_its_letters(tmp_path, name):
    with pytest.raises(TypeError, match=rf"{name} must be a list, not a string; write \['abc'\]"):
        TEXTS[name](tmp_path, "abc")


@pytest.mark.parametrize("key", ["exclude", "packages", "hosts"])
def test_nor_is_one_of_a_definition(key):
    kind = {"exclude": "local", "packages": "virtualenv", "hosts": "docker"}[key]
    with pytest.raises(
        DefinitionError, match=f"{key.capitalize()} of workspace app must be a list, not the string 'abc'"
    ):
        WorkspaceDefinition("app", kind=kind, image="i" if kind == "docker" else None, **{key: "abc"})


def test_nor_are_the_arguments_of_a_process(tmp_path):
    async def spawn():
        async with LocalWorkspace(tmp_path) as workspace:
            with pytest.raises(TypeError, match=r"args must be a list, not a string; write \['-l'\]"):
                await process_manager(workspace).spawn("ls", "-l")
            return process_manager(workspace).list()

    assert asyncio.run(spawn()) == []


@pytest.mark.parametrize(
    "limits",
    [{"memory": "0"}, {"memory": ""}, {"memory": "lots"}, {"cpus": 0}, {"cpus": "2"}, {"pids": 0}, {"pids": -1}],
    ids=str,
)
def test_a_container_without_a_limit_is_not_had_by_a_limit_that_is_none(tmp_path, limits):
    (name,) = limits
    with pytest.raises(ValueError, match=f"{name} of a container must be .* not "):  # an engine says yes: unlimited
        DockerWorkspace(tmp_path, image="i", **limits)


@pytest.mark.parametrize(
    "limits", [{"memory": "0"}, {"memory": "0.0g"}, {"processors": 0}, {"processors": -1}], ids=str
)
def test_nor_by_one_of_a_definition(limits):
    with pytest.raises(DefinitionError, match="above 0"):
        WorkspaceDefinition("app", kind="docker", image="i", **limits)


def test_a_folder_that_is_not_there_is_named_and_not_made(tmp_path):
    with pytest.raises(WorkspaceGoneError, match=r"allowed folder .*/gone of a workspace does not exist"):
        enter(LocalWorkspace(tmp_path, allowed_paths=[tmp_path / "gone"]))
    with pytest.raises(WorkspaceGoneError, match=r"/gone does not exist, but the container needs it"):
        enter(DockerWorkspace(tmp_path, image="i", mounts={str(tmp_path / "gone"): "/x"}))
    assert not (tmp_path / "gone").exists()


def test_a_network_that_is_not_there_is_named(make):
    with pytest.raises(
        ContainerError, match="network nowhere-to-be not found; run `docker network create nowhere-to-be"
    ):
        enter(make(network="nowhere-to-be"))


def test_a_folder_for_what_is_passing_that_is_not_there_is_said(tmp_path):
    with pytest.raises(WorkspaceGoneError, match=r"tmp_base_dir .*none of a workspace does not exist; create it first"):
        enter(LocalWorkspace(tmp_path, tmp_base_dir=tmp_path / "none"))
