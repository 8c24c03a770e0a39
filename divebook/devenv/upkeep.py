"""Maintenance of environments: removal of unused ones (``gc``), and checks of this machine (``doctor``)."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from divebook.devenv.checkpoints import EnvironmentCheckpoints
from divebook.devenv.docker import IMAGE, LABEL, engine_version
from divebook.devenv.environments import RUNNING, STOPPED, UNFINISHED, Environments
from divebook.devenv.isolation import State, available_pythons
from divebook.devenv.templates import Layout
from divebook.errors import ContainerError, DevEnvError, EngineUnavailableError, EnvironmentDeniedError
from divebook.text.format import size
from divebook.workspace.docker.engine import PersistentEngine, engine_url

# --- removal of unused environments (``gc``) ---


class CleanupResult(NamedTuple):
    """An environment, container, image or network that a cleanup has removed or stopped, with the reason."""

    kind: str
    """One of ``environment``, ``container``, ``image`` and ``network``."""
    name: str
    reason: str
    """One of ``half made`` (creation or removal was interrupted), ``expired``, ``idle`` and ``left behind``."""
    done: str
    """Either ``removed`` or ``stopped``."""


@dataclass(frozen=True)
class Cleanup:
    """One cleanup of all environments of a tenant, and of their containers, images and networks.

    Removed are unfinished and expired environments, and containers, images and networks without an environment. Idle
    environments are stopped. An environment that another process has locked is skipped.
    """

    environments: Environments
    idle: float | None
    """Seconds without a command after which an environment is stopped; None to stop none."""
    is_dry: bool
    """True to report only, without removing or stopping anything."""

    async def run(self) -> AsyncIterator[CleanupResult]:
        """Remove or stop everything of the tenant that is unused. Yield a result for each removed or stopped object."""
        async for result in self._environments():
            yield result
        if not self.is_dry:
            self.environments.tidy()
        engine = PersistentEngine()
        try:
            async for result in self._of_engine(engine):
                yield result
        except EngineUnavailableError:  # there is nothing to remove without an engine
            return
        finally:
            await engine.close()

    async def _environments(self) -> AsyncIterator[CleanupResult]:
        for folder in self.environments.folders():
            if self.environments.state(folder)["tenant"] != self.environments.tenant:
                continue
            # No waiting for the lock: an environment that is in use is not idle, and its creation is not unfinished.
            with suppress(DevEnvError):  # another process works on it
                async with self.environments.lock(folder.name, wait=0):
                    # Read again under the lock: another process may have changed or removed the environment meanwhile.
                    state = self.environments.state(folder)
                    reason = await self._reason(state, folder.name) if folder.exists() else None
                    if reason is None:
                        continue
                    done = "stopped" if reason == "idle" else "removed"
                    # Idle environments are only stopped: the next command starts them again.
                    if not self.is_dry and reason == "idle":
                        await self.environments.isolation(folder, state).stop()
                        self.environments.write(folder, {**state, "status": STOPPED})
                    elif not self.is_dry:
                        await self.environments.remove(folder, state)
                    yield CleanupResult("environment", folder.name, reason, done)

    async def _reason(self, state: State, name: str) -> str | None:
        """Return the reason why an environment must be removed or stopped. Return None if it must be kept as it is."""
        # The order matters: an unfinished environment has no complete state that the later checks could read.
        now = datetime.fromisoformat(self.environments.now())
        if state.get("phase") in UNFINISHED or not (self.environments.layout.environment(name) / "state.json").exists():
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

    async def _of_engine(self, engine: PersistentEngine) -> AsyncIterator[CleanupResult]:
        """Remove the tenant's containers, images and networks that belong to environments that no longer exist. Yield a
        result for each.
        """
        labels = {f"{LABEL}.root": str(self.environments.layout.root), f"{LABEL}.tenant": self.environments.tenant}
        # The engine is listed before the environments. A container that is created between the two already has the
        # record of its environment, and so is not removed by mistake.
        containers = await engine.labelled(labels)
        images = await engine.labelled_images(labels)
        states = [self.environments.state(folder) for folder in self.environments.folders()]
        ids = {state.get("id") for state in states}
        for container, labels_of in containers.items():
            if labels_of.get(f"{LABEL}.id") not in ids:
                if not self.is_dry:
                    await engine.remove(container)
                yield CleanupResult("container", container[:12], "left behind", "removed")
        images_of_checkpoints = self._checkpoint_images()
        for image, labels_of in images.items():
            # Kept checkpoints of a destroyed environment have images whose environment does not exist.
            if labels_of.get(f"{LABEL}.id") not in ids and image.removeprefix("sha256:") not in images_of_checkpoints:
                if not self.is_dry:
                    with suppress(ContainerError):
                        await engine.remove_image(image)
                yield CleanupResult("image", image[:19], "left behind", "removed")
        # The network is shared by all containers of the tenant.
        if any(state.get("isolation_type", "docker") == "docker" for state in states):
            return
        for network in await engine.labelled_networks(labels):
            if not self.is_dry:
                await engine.remove_network(network)
            yield CleanupResult("network", network, "left behind", "removed")

    def _checkpoint_images(self) -> set[str]:
        """Return the digests of the container images that checkpoints of any tenant contain. Checkpoints kept from
        destroyed environments are included.
        """
        existing = [folder / "checkpoints" for folder in self.environments.folders()]
        folders = [*existing, *self.environments.layout.destroyed_checkpoints.glob("*/*")]
        checkpoints = [manifest for folder in folders for manifest in EnvironmentCheckpoints(folder).manifests()]
        artefacts = (artefact for checkpoint in checkpoints for artefact in checkpoint["artefacts"])
        return {artefact["sha256"] for artefact in artefacts if artefact["kind"] == IMAGE}


# --- checks of this machine (``doctor``) ---


_MIN_FREE_SPACE = 1 << 30
"""Free disk space in bytes below which the check of the disk fails."""


async def check_machine(layout: Layout) -> list[dict[str, Any]]:
    """Check whether this machine meets the requirements of environments: a private root folder, disk space, a container
    engine, Python versions and uv.

    Returns a dict for each check: name, ok, detail, and required (whether nothing works without it).
    """
    return [_root(layout), _permissions(layout), _disk(layout), await _engine(), _pythons(), _uv()]


def _result(name: str, detail: str, *, ok: bool, required: bool = False) -> dict[str, Any]:
    return {"name": name, "ok": ok, "required": required, "detail": detail}


def _root(layout: Layout) -> dict[str, Any]:
    is_there = layout.root.is_dir()
    is_open = os.access(layout.root, os.W_OK | os.X_OK)
    detail = f"{layout.root}" if is_there and is_open else f"{layout.root} is not a folder that you may write"
    return _result("root", detail, ok=is_there and is_open, required=True)


def _permissions(layout: Layout) -> dict[str, Any]:
    try:
        layout.require_own()
    except EnvironmentDeniedError as error:
        return _result("permissions", str(error), ok=False, required=True)
    return _result("permissions", "only you can change the recorded environments", ok=True, required=True)


def _disk(layout: Layout) -> dict[str, Any]:
    if not layout.root.is_dir():
        return _result("disk", "the root folder does not exist", ok=False, required=True)
    usage = shutil.disk_usage(layout.root)
    return _result(
        "disk", f"{size(usage.free)} free of {size(usage.total)}", ok=usage.free >= _MIN_FREE_SPACE, required=True
    )


async def _engine() -> dict[str, Any]:
    try:
        return _result("engine", f"{await engine_version()} at {engine_url()}", ok=True)
    except EngineUnavailableError as error:
        return _result("engine", str(error), ok=False)


def _pythons() -> dict[str, Any]:
    versions = available_pythons()
    return _result("python", ", ".join(versions) or "none on the PATH", ok=bool(versions))


def _uv() -> dict[str, Any]:
    path = shutil.which("uv")
    return _result("uv", path or "not on the PATH: venv and pip are used instead", ok=path is not None)
