"""Containers that outlive who made them: stopped, begun again, kept as images, measured; found by their labels."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from divebook.errors import ContainerError
from divebook.workspace.docker.engine import Engine


class ContainerUse(NamedTuple):
    """What a container uses now."""

    cpu_percent: float
    """100 is one core."""
    memory_bytes: int
    disk_bytes: int
    """Of what it has written besides folders that are mounted."""


class KeepingEngine(Engine):
    """The container engine, asked for what concerns containers that stay."""

    async def pull(self, image: str) -> None:
        """Have the engine fetch an image; raises `ContainerError` if it cannot."""
        await self._asked(lambda client: client.images.pull(image), f"image {image}")

    async def image_id(self, image: str) -> str:
        """Return the digest of an image; raises `ContainerError` if it is not there."""
        found: str = (await self._asked(lambda client: client.images.get(image), f"image {image}")).id
        return found

    async def version(self) -> str:
        """Return the version of the engine."""
        found: str = (await self._asked(lambda client: client.api.version(), "the engine"))["Version"]
        return found

    async def has_image(self, image: str) -> bool:
        """Return whether an image is there."""
        try:
            await self.image_id(image)
        except ContainerError:
            return False
        return True

    async def write_image(self, image: str, path: Path) -> None:
        """Write an image into a file, which `load_image` has an engine read."""

        def write(client: Any) -> None:
            with path.open("wb") as file:
                file.writelines(client.api.get_image(image))

        await self._asked(write, f"image {image}")

    async def load_image(self, path: Path) -> None:
        """Have the engine read an image of a file."""

        def load(client: Any) -> None:
            with path.open("rb") as file:
                client.images.load(file)

        await self._asked(load, f"the image in {path}")

    async def processes(self, container: str) -> int:
        """Return how many processes run in a container."""
        found = await self._asked(lambda client: client.api.top(container), f"container {container}")
        return len(found["Processes"] or ())

    async def state(self, container: str) -> Mapping[str, Any] | None:
        """Return what the engine says of a container's state (Status, OOMKilled, ...); None if it is gone."""
        try:
            found = await self._asked(lambda client: client.api.inspect_container(container), f"container {container}")
        except ContainerError:
            return None
        told: Mapping[str, Any] = found["State"]
        return told

    async def begin(self, container: str) -> None:
        """Start a container that was stopped; one that runs is fine."""
        await self._asked(lambda client: client.api.start(container), f"container {container}")

    async def stop(self, container: str) -> None:
        """End all that runs in a container, which stays."""
        await self._asked(lambda client: client.api.stop(container, timeout=0), f"container {container}")

    async def keep_as(self, container: str, image: str) -> str:
        """Keep what a container has written as an image, which gets its labels; return the image's digest."""
        repository, _, tag = image.rpartition(":")
        made = await self._asked(
            lambda client: client.api.commit(container, repository=repository, tag=tag, pause=True),
            f"container {container}",
        )
        digest: str = made["Id"]
        return digest

    async def use(self, container: str) -> ContainerUse:
        """Measure a container for about a second."""
        what = f"container {container}"
        told = await self._asked(lambda client: client.api.stats(container, stream=False), what)
        sizes = await self._asked(lambda client: client.api.df()["Containers"] or [], "what the engine holds")
        size = next((found.get("SizeRw", 0) for found in sizes if found["Id"].startswith(container)), 0)
        now, before = told["cpu_stats"], told["precpu_stats"]
        spent = now["cpu_usage"]["total_usage"] - before["cpu_usage"]["total_usage"]
        passed = now.get("system_cpu_usage", 0) - before.get("system_cpu_usage", 0)
        cores = now.get("online_cpus") or 1
        memory = told["memory_stats"].get("usage", 0) - told["memory_stats"].get("stats", {}).get("inactive_file", 0)
        return ContainerUse(100 * cores * spent / passed if passed > 0 else 0.0, max(0, memory), size)

    async def labelled(self, labels: Mapping[str, str]) -> dict[str, Mapping[str, str]]:
        """Return the ids of the containers that have some labels, with all labels of each."""
        wanted = [f"{name}={value}" for name, value in labels.items()]
        found = await self._asked(
            lambda client: client.api.containers(all=True, filters={"label": wanted}), "containers"
        )
        return {container["Id"]: container["Labels"] for container in found}

    async def labelled_images(self, labels: Mapping[str, str]) -> dict[str, Mapping[str, str]]:
        """Return the digests of the images that have some labels, with all labels of each."""
        wanted = [f"{name}={value}" for name, value in labels.items()]
        found = await self._asked(lambda client: client.api.images(filters={"label": wanted}), "images")
        return {image["Id"]: image["Labels"] for image in found}

    async def remove_images(self, labels: Mapping[str, str], *, but: frozenset[str] = frozenset()) -> None:
        """Remove the images that have some labels, but for some digests; one that is in use stays."""
        # The newest first, as they come: one of which others are made can be removed only after them.
        for image in [image for image in await self.labelled_images(labels) if image not in but]:
            with suppress(ContainerError):
                await self.remove_image(image)

    async def remove_image(self, image: str) -> None:
        """Remove an image; raises `ContainerError` for one that is in use."""
        await self._asked(lambda client: client.api.remove_image(image, force=True), f"image {image}")

    async def network(self, name: str, labels: Mapping[str, str]) -> str:
        """Return the name of a network, which is made if it is not there."""
        found = await self._asked(lambda client: client.api.networks(names=[name]), f"network {name}")
        if not any(network["Name"] == name for network in found):
            await self._asked(
                lambda client: client.api.create_network(name, driver="bridge", labels=dict(labels)), f"network {name}"
            )
        return name

    async def labelled_networks(self, labels: Mapping[str, str]) -> list[str]:
        """Return the names of the networks that have some labels."""
        wanted = [f"{name}={value}" for name, value in labels.items()]
        found = await self._asked(lambda client: client.api.networks(filters={"label": wanted}), "networks")
        return [network["Name"] for network in found]

    async def remove_network(self, name: str) -> None:
        """Remove a network, unless a container is in it."""
        with suppress(ContainerError):
            await self._asked(lambda client: client.api.remove_network(name), f"network {name}")
