"""What tests do with workspaces in containers, and how they look at the engine past them."""

import asyncio

from divebook.workspaces.docker.engine import LABEL, Engine


def inside(workspace, work):
    async def entered():
        async with workspace:
            return await work(workspace)

    return asyncio.run(entered())


def said(workspace, *commands, **options):
    async def work(made):
        return [await made.shell.execute(command, **options) for command in commands]

    return inside(workspace, work)


def containers(folder):
    import docker

    client = docker.from_env()
    try:
        return [found["Id"] for found in client.api.containers(all=True, filters={"label": f"{LABEL}={folder}"})]
    finally:
        client.close()


def inspected(container):
    import docker

    client = docker.from_env()
    try:
        return client.api.inspect_container(container)
    finally:
        client.close()


async def removed(folder):
    engine = Engine()
    for container in containers(folder):
        await engine.remove(container)
    await engine.close()
