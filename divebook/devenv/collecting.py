"""What nobody needs any more is removed: environments half made, expired or idle, and what others have left behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from divebook.devenv.checkpoints import EnvironmentCheckpoints
from divebook.devenv.containers import IMAGE, LABEL
from divebook.devenv.environments import HALF, RUNNING, STOPPED, Environments
from divebook.devenv.isolation import State
from divebook.errors import ContainerError, DevEnvError, EngineUnavailableError
from divebook.workspace.docker.keeping import KeepingEngine


class Collected(NamedTuple):
    """Something that was removed, or stopped."""

    kind: str
    """environment, container, image or network."""
    name: str
    reason: str
    """half made (or half removed), expired, idle or left behind."""
    done: str
    """removed or stopped."""


@dataclass(frozen=True)
class Collection:
    """One look at the environments of a tenant."""

    environments: Environments
    idle: float | None
    """Seconds without a command after which one is stopped; None for never."""
    is_dry: bool
    """Whether it is only told what would be done."""

    async def carried_out(self) -> AsyncIterator[Collected]:
        """Remove what nobody needs, and tell of each; what is busy stays."""
        async for collected in self._environments():
            yield collected
        if not self.is_dry:
            self.environments.tidy()
        engine = KeepingEngine()
        try:
            async for collected in self._of_engine(engine):
                yield collected
        except EngineUnavailableError:  # then nothing is left there that could be removed
            return
        finally:
            await engine.close()

    async def _environments(self) -> AsyncIterator[Collected]:
        for folder in self.environments.folders():
            if self.environments.state(folder)["tenant"] != self.environments.tenant:
                continue
            with suppress(DevEnvError):  # another process works on it
                async with self.environments.lock(folder.name, wait=0):
                    state = self.environments.state(folder)
                    reason = await self._reason(state, folder.name) if folder.exists() else None
                    if reason is None:
                        continue
                    done = "stopped" if reason == "idle" else "removed"
                    if not self.is_dry and reason == "idle":
                        await self.environments.isolation(folder, state).stop()
                        self.environments.write(folder, {**state, "status": STOPPED})
                    elif not self.is_dry:
                        await self.environments.remove(folder, state)
                    yield Collected("environment", folder.name, reason, done)

    async def _reason(self, state: State, name: str) -> str | None:
        now = datetime.fromisoformat(self.environments.now())
        if state.get("phase") in HALF or not (self.environments.layout.environment(name) / "state.json").exists():
            return "half made"
        if "expires_at" in state and datetime.fromisoformat(state["expires_at"]) <= now:
            return "expired"
        if self.idle is None or state["status"] != RUNNING:
            return None
        unused = (now - datetime.fromisoformat(state["last_used"])).total_seconds()
        isolation = self.environments.isolation(self.environments.layout.environment(name), state)
        is_idle = unused >= self.idle and await isolation.status() == RUNNING and not await isolation.is_busy()
        return "idle" if is_idle else None

    # --- what is left in the engine --------------------------------------------------------------------------------

    async def _of_engine(self, engine: KeepingEngine) -> AsyncIterator[Collected]:
        """Remove the containers, images and networks of this root and tenant whose environments are gone."""
        told = {f"{LABEL}.root": str(self.environments.layout.root), f"{LABEL}.tenant": self.environments.tenant}
        # Before it is looked which environments there are: what is made meanwhile has its record first.
        containers, images = await engine.labelled(told), await engine.labelled_images(told)
        states = [self.environments.state(folder) for folder in self.environments.folders()]
        known = {state.get("id") for state in states}
        for container, labels in containers.items():
            if labels.get(f"{LABEL}.id") not in known:
                if not self.is_dry:
                    await engine.remove(container)
                yield Collected("container", container[:12], "left behind", "removed")
        kept = self._kept_images()
        for image, labels in images.items():
            if labels.get(f"{LABEL}.id") not in known and image.removeprefix("sha256:") not in kept:
                if not self.is_dry:
                    with suppress(ContainerError):
                        await engine.remove_image(image)
                yield Collected("image", image[:19], "left behind", "removed")
        if any(state.get("isolation_type", "docker") == "docker" for state in states):
            return
        for network in await engine.labelled_networks(told):
            if not self.is_dry:
                await engine.remove_network(network)
            yield Collected("network", network, "left behind", "removed")

    def _kept_images(self) -> set[str]:
        """Return the digests that checkpoints of environments have, also of those that are gone."""
        own = [folder / "checkpoints" for folder in self.environments.folders()]
        folders = [*own, *self.environments.layout.kept.glob("*/*")]
        checkpoints = [told for folder in folders for told in EnvironmentCheckpoints(folder).listed()]
        found = (artefact for checkpoint in checkpoints for artefact in checkpoint["artefacts"])
        return {artefact["sha256"] for artefact in found if artefact["kind"] == IMAGE}
