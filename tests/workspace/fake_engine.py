"""A container engine for tests without one: it has containers and a ready answer, and notes what it is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from divebook.errors import ContainerError
from divebook.workspaces.docker.engine import ContainerPlan
from divebook.workspaces.shell import CommandOutcome, OutputBuffer


class FakeEngine:
    """Stands in for `divebook.workspaces.docker.engine.Engine`.

    `containers` says which there are and their status, `answer` what each command comes to: exit_code, stdout, stderr.
    """

    def __init__(self, containers: Mapping[str, str] | None = None, answer: Mapping[str, Any] | None = None) -> None:
        self.containers, self.answer = dict(containers or {}), dict(answer or {})
        self.calls: list[tuple[str, str]] = []
        """What was stopped or removed."""
        self.plans: list[ContainerPlan] = []
        """Of the containers that were started."""
        self.last_exec: dict[str, Any] | None = None

    @property
    def runs(self) -> int:
        return len(self.plans)

    def forget(self) -> None:
        """Lose all containers, as if somebody else had removed them."""
        self.containers.clear()

    async def require_image(self, image: str) -> None:
        if not image:
            raise ContainerError("image not found")

    async def start_container(self, plan: ContainerPlan) -> str:
        self.plans.append(plan)
        name = f"made-{self.runs}"
        self.containers[name] = "running"
        return name

    async def require_running(self, container: str) -> None:
        if container not in self.containers:
            raise ContainerError(f"container {container} not found")
        if self.containers[container] != "running":
            raise ContainerError(f"container {container} is not running but {self.containers[container]}")

    async def find(self, _labels: Mapping[str, str]) -> None:
        return None

    async def ports(self, _container: str) -> dict[int, int]:
        return {}

    async def remove(self, container: str) -> None:
        self.calls.append(("remove", container))
        self.containers.pop(container, None)

    async def leave(self, container: str) -> None:
        pass

    async def close(self) -> None:
        pass

    async def execute(
        self,
        container: str,
        argv: Sequence[str],
        *,
        workdir: str,
        environ: Mapping[str, str],
        out: OutputBuffer,
        err: OutputBuffer,
        **_: object,
    ) -> CommandOutcome:
        await self.require_running(container)
        self.last_exec = {"cmd": list(argv), "workdir": workdir, "environment": dict(environ)}
        out.feed(self.answer.get("stdout", "").encode())
        err.feed(self.answer.get("stderr", "").encode())
        return CommandOutcome(self.answer.get("exit_code", 0), timed_out=False, seconds=0.0)
