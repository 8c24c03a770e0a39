"""What an environment is given beside what it holds: it goes along wherever that is run, on another store too."""

from __future__ import annotations

import functools
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypedDict

from divebook._version import __version__
from divebook.documents import DocumentRepository, Policy
from divebook.documents.policy import HIDDEN, resolved
from divebook.engine.forks import Change
from divebook.engine.state import ExecutionState
from divebook.environment.registry import Outfit
from divebook.errors import SetupError, StartKeyTakenError, StartKeyWarning, did_you_mean
from divebook.events import catalog
from divebook.events.codec import canonical_hash, storable
from divebook.projections.formatter import Formatter, Formatting
from divebook.questions.bounds import Bounds
from divebook.runtime.forks import recorded_opening
from divebook.runtime.notify import VARIABLE, Hook, Notices
from divebook.runtime.recorder import CallTracing
from divebook.runtime.workspaces import OnEgress
from divebook.scripting import Interpreter
from divebook.store import EventStore
from divebook.store.append import Durability
from divebook.store.codec import Codec
from divebook.store.maintenance import file_content
from divebook.text.arguments import describe, require
from divebook.text.redaction import shared
from divebook.workflow.definition import Workflow
from divebook.workflow.servers import DOCKER, FENCED, VIRTUALENV, WorkspaceDefinition
from divebook.workspace.docker.workspace import DockerWorkspace
from divebook.workspace.local import FencedWorkspace, FilesWorkspace, LocalWorkspace, VirtualenvWorkspace
from divebook.workspace.workspace import Workspace

if TYPE_CHECKING:
    from divebook.telemetry import Telemetry


GivenTelemetry: TypeAlias = "Telemetry | bool | str"
TELEMETRY = "DIVEBOOK_TELEMETRY"
_OFF = frozenset({"", "0", "false", "no", "off", "none"})
_ON = frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Settings of `divebook.Environment`; what is None was not given."""

    documents: DocumentRepository | None = None
    interpreter: Interpreter | None = None
    policy: Policy | None = None
    durability: Durability | None = None
    notify: Hook | Sequence[str] | str | None = None
    formatter: Formatter | None = None
    codec: Codec | None = None
    telemetry: GivenTelemetry | None = None

    def plus(self, other: Self) -> Self:
        """Return both in one: what the other was given wins, and policies allow what both allow."""
        given = {field.name: value for field in fields(self) if (value := getattr(other, field.name)) is not None}
        if self.policy is not None and other.policy not in (None, self.policy):
            given["policy"] = self.policy.both(given["policy"])
        return replace(self, **given)

    def listen_to(self, store: EventStore, calls: CallTracing) -> list[Callable[[], object]]:
        """Let formatter, hook and telemetry hear what happens in a store; return what ends that, the last one first."""
        ends: list[Callable[[], object]] = []
        if self.formatter is not None:
            ends.append(store.subscribe(Formatting(self.formatter)))
        hook = self.notify if self.notify is not None else os.environ.get(VARIABLE)
        if hook:
            notices = Notices(hook, workflow_of=lambda execution_id: store.record(execution_id).workflow_name)
            ends += [notices.close, store.subscribe(notices)]
        wanted = _wanted(os.environ.get(TELEMETRY, "") if self.telemetry is None else self.telemetry)
        if wanted:
            from divebook.telemetry import Telemetry  # its libraries may be missing

            telemetry = (
                wanted if isinstance(wanted, Telemetry) else Telemetry(address=None if wanted is True else wanted)
            )
            ends += [telemetry.flush if telemetry is wanted else telemetry.close, *telemetry.listen_to(store)]
            calls.surround = telemetry.surround
            ends.append(lambda: setattr(calls, "surround", None))
        return ends[::-1]


def _wanted(given: object) -> Telemetry | str | bool:
    """Return the telemetry that was asked for: what tells, the address of a collector, or whether there is any.

    Raises
    ------
    SetupError
        It was asked for with something else.
    """
    text = given.strip() if isinstance(given, str) else ""
    if isinstance(given, bool):
        return given
    if isinstance(given, str) and text.lower() in _OFF | _ON:
        return text.lower() in _ON
    if text.startswith(("http://", "https://")):
        return text
    if (module := sys.modules.get("divebook.telemetry")) is not None and isinstance(given, module.Telemetry):
        found: Telemetry = given
        return found
    raise SetupError(
        f"telemetry is True, False, the address of a collector (http://HOST:4318) or a divebook.telemetry.Telemetry, "
        f"in {TELEMETRY} 1, 0 or an address, not {given!r}"
    )


# What gives executions their workspaces: folders beside the store, and the kinds of workspaces over them.


FOLDER = "workspaces"
"""Beside a store: the folders of executions."""


class EnvironmentWorkspaces:
    """Gives executions of one environment their workspaces.

    Parameters
    ----------
    outfit
        Knows the definitions, and what they may reach.
    """

    def __init__(self, outfit: Outfit, store: EventStore) -> None:
        self._outfit = outfit
        self._store = store
        self._passing: Path | None = None
        """The folder for executions whose store is in memory, and passes with it."""

    def definition(self, name: str) -> WorkspaceDefinition:
        """Return what is said of a workspace; raises `NotFoundError`."""
        return self._outfit.workspace(name)

    def may_go_unasked(self, name: str, fingerprint: str) -> bool:
        """Return whether a workflow may have changes of a workspace applied without a question."""
        return self._outfit.may_apply_unasked(self.definition(name), fingerprint)

    def folder_for(self, execution_id: str, name: str) -> Path:
        """Return the folder that an execution has for the files of a workspace."""
        folder = self._base() / execution_id / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def is_of_another(self, folder: Path, execution_id: str) -> bool:
        """Return whether a folder is one that another execution has for its files: a log may name any folder."""
        real = folder.resolve()
        base = self._base().resolve()
        return real.is_relative_to(base) and not real.is_relative_to(base / execution_id)

    def _base(self) -> Path:
        path: Path | None = getattr(self._store, "path", None)
        if path is not None:
            return path.parent / FOLDER
        if self._passing is None:
            self._passing = Path(tempfile.mkdtemp(prefix="divebook-workspaces-"))
        return self._passing

    def source_of(self, definition: WorkspaceDefinition) -> Path | None:
        """Return the folder whose files a workspace begins with; raises `SetupError`."""
        if definition.folder is None:
            return None
        found = self._outfit.folder_of(definition)
        if not found.is_dir():
            raise SetupError(f"workspace {definition.name}: its folder {found} is not there; make it, or name another")
        return found

    def made(self, definition: WorkspaceDefinition, folder: Path, told: OnEgress) -> Workspace:
        """Return a workspace over a folder, which tells of each host that is asked for from there."""
        self._outfit.require_permitted(definition)
        policy = self._outfit.policy_of(definition)
        if not folder.resolve().is_relative_to(self._base().resolve()):  # the log of a run may name any folder
            self._outfit.require_reachable(definition, folder)
        options: dict[str, Any] = {
            "shell_timeout": definition.timeout,
            "environ": definition.environ,
            "guard": None if HIDDEN in policy.allowed else policy.why_protected,
            "secrets": functools.partial(_looked_up, definition.secrets, policy) if definition.secrets else None,
        }
        if not definition.shell:
            return FilesWorkspace(folder, **options)
        if definition.kind == FENCED:
            return FencedWorkspace(folder, **options)
        if definition.kind == VIRTUALENV:
            python = definition.python
            packages = definition.packages
            return VirtualenvWorkspace(folder, python=python, packages=packages, **options)
        if definition.kind == DOCKER:
            limits = {"memory": definition.memory, "cpus": definition.processors}
            options |= {name: value for name, value in limits.items() if value is not None}
            return DockerWorkspace(folder, image=definition.image, allow=definition.hosts, told=told, **options)
        return LocalWorkspace(folder, **options)

    def content(self, digest: str) -> bytes:
        """Return the content of a file that the store keeps."""
        return file_content(self._store, digest)

    def close(self) -> None:
        """Let go of what passes with the environment."""
        if self._passing is not None:
            shutil.rmtree(self._passing, ignore_errors=True)
            self._passing = None


def drop_folders(store: EventStore, *, dry_run: bool = False) -> int:
    """Remove the folders of executions that the store has no more; return how many there were."""
    path: Path | None = getattr(store, "path", None)
    base = None if path is None else path.parent / FOLDER
    if base is None or not base.is_dir():
        return 0
    known = set(store.ids())
    left = [folder for folder in base.iterdir() if folder.name.startswith("exec_") and folder.name not in known]
    for folder in left if not dry_run else ():
        shutil.rmtree(folder, ignore_errors=True)
    return len(left)


def _looked_up(secrets: Mapping[str, str], policy: Policy) -> Mapping[str, str]:
    found: Mapping[str, str] = resolved(dict(secrets), policy)
    return found


# How an execution is started: what may be said beside its workflow and inputs, and what its log begins with.


class StartOptions(TypedDict, total=False):
    """What may be said of an execution that is started; everything may be left out."""

    coerce_text: bool
    """Turn texts into the declared types of inputs, as a command line needs."""
    bounds: Bounds | Mapping[str, Any] | None
    """What it may spend, in place of what the workflow says: ``{"max_llm_calls": 40, "max_cost": 2.50}``."""
    identity: Mapping[str, Any] | None
    """Who asks: ``user_id``, ``session_id``, ``request_id``, ``metadata``; for its envelope."""
    durability: str | None
    """``full`` or ``relaxed``, for this execution only."""
    key: str | None
    """Unique in the store: a workflow that is started with a key a second time is the execution that exists."""
    on_conflict: str
    """What to do where the execution that has the key was started with other inputs: ``warn``, as by default, and
    return that execution, ``refuse`` with `StartKeyTakenError`, or ``return`` it without a word."""
    model: str | None
    """The model of all its agents, in place of theirs: ``provider:model``, or ``scripted``."""
    tags: Sequence[str] | None
    """Words by which executions are found again."""
    note: str | None
    """What a person wants to remember of it."""
    notebook: str | None
    """The notebook that starts it."""
    cell: str | None
    """The cell that starts it."""


WARN = "warn"
REFUSE = "refuse"
RETURN = "return"
CONFLICTS = (WARN, REFUSE, RETURN)
"""What may be done where a start key belongs to an execution with other inputs."""
MOST_NAMED = 5
"""Inputs that differ of which a warning or an error shows the values."""
CELL = "cell"
"""Where the identity of an execution keeps which cell of a notebook began it."""
KNOWN = StartOptions.__optional_keys__
"""The names of the options."""


def opening_of(
    workflow: Workflow,
    inputs: Mapping[str, Any],
    code: Mapping[str, str],
    options: StartOptions,
    *,
    parent: str | None = None,
    origin: str | None = None,
) -> catalog.ExecutionStarted:
    """Return what a log begins with.

    Parameters
    ----------
    inputs
        As the log holds them.
    code
        Digests of the Python functions that it may call.
    parent
        The execution that it comes from, if there is one: that waits for its end, unless `origin` says otherwise.
    """
    check_options(options)
    bounds = options.get("bounds")
    identity = options.get("identity")
    tags = options.get("tags")
    limits = bounds if bounds is not None else workflow.bounds
    return catalog.ExecutionStarted(
        workflow.name,
        inputs,
        workflow.stored,
        workflow.fingerprint,
        workflow.source or None,
        __version__,
        None if limits is None else as_bounds(limits).to_dict() or None,
        storable(identity, "identity") if identity else None,
        parent=parent,
        origin=origin,
        key=options.get("key"),
        tags=_listed(tags) or None,
        note=options.get("note"),
        notebook=options.get("notebook"),
        cell=options.get("cell"),
        code=code or None,
        model=options.get("model"),
    )


def forked_of(
    opening: catalog.ExecutionStarted, source: ExecutionState, opened: int, change: Change, options: StartOptions
) -> catalog.ExecutionForked:
    """Return what the log of a fork goes on with: what an opening says that its source did not.

    Parameters
    ----------
    source
        Its source as it stood at the event of the fork.
    opened
        The number of the newest opening among the events that it shares.
    """
    is_other = opening.fingerprint != source.fingerprint
    return catalog.ExecutionForked(
        source.execution_id,
        source.last_sequence,
        opening.workflow_name,
        opened,
        change.to_data() or None,
        opening.origin,
        opening.definition if is_other else None,
        opening.source if is_other else None,
        opening.fingerprint,
        opening.written_by,
        opening.bounds if options.get("bounds") is not None else None,
        opening.identity,
        opening.key,
        opening.tags,
        opening.note,
        opening.notebook,
        opening.cell,
        source.seed if source.seed == source.execution_id else None,
        None if opening.code == (dict(source.code) or None) else opening.code or {},
        change.model or opening.model,
    )


def said_of(opening: catalog.ExecutionStarted, workflow: Workflow) -> StartOptions:
    """Return what was said of an execution of a workflow when it was started, so that another one is started alike.

    Its start key is its alone, and bounds that come from the workflow are those that it has now.
    """
    own = None if workflow.bounds is None else as_bounds(workflow.bounds).to_dict() or None
    return {
        "bounds": None if opening.bounds == own else opening.bounds,
        "identity": opening.identity,
        "model": opening.model,
        "tags": opening.tags,
        "note": opening.note,
        "notebook": opening.notebook,
        "cell": opening.cell,
    }


def started_before(
    taken: StartKeyTakenError,
    workflow: str,
    store: EventStore,
    inputs: Mapping[str, Any] | None = None,
    on_conflict: str = WARN,
    *,
    change: Mapping[str, Any] | None = None,
) -> str:
    """Return the id of the execution that has a start key; raises the error unless it is one of the same workflow.

    Parameters
    ----------
    inputs
        Those that were to be started with; None where they do not matter.
    on_conflict
        What to do where that execution was started with others: see `StartOptions`.
    change
        What a fork changes. For a fork this is compared, in place of the inputs, with what the existing fork changed.
    """
    known = store.record(taken.execution_id).workflow_name
    if known != workflow:
        raise StartKeyTakenError(taken.key, taken.execution_id, known, workflow) from taken
    if on_conflict == RETURN:
        return taken.execution_id
    difference = _otherwise_begun(taken.execution_id, store, inputs, change)
    if difference and on_conflict == REFUSE:
        raise StartKeyTakenError(taken.key, taken.execution_id, difference=difference) from taken
    if difference:
        warnings.warn(
            f"start key {taken.key!r} belongs to execution {taken.execution_id}, which {difference}; that execution is "
            "returned, and nothing was started. Use another key, or say what you want: on_conflict='refuse' or "
            "'return'",
            StartKeyWarning,
            stacklevel=4,
        )
    return taken.execution_id


def _otherwise_begun(
    execution_id: str, store: EventStore, inputs: Mapping[str, Any] | None, change: Mapping[str, Any] | None
) -> str:
    """Return how an execution was begun otherwise than with some inputs, or than a fork with a change; empty if not."""
    if change is None:
        different = "" if inputs is None else _difference(recorded_opening(execution_id, store).inputs, inputs)
        return different and f"was started with other inputs ({different})"
    (event,) = store.read(execution_id, store.record(execution_id).opened - 1, 1)
    if not isinstance(event.data, catalog.ExecutionForked):
        different = _difference({}, change)
        return different and f"is not a fork ({different})"
    different = _difference(event.data.change or {}, change)
    return different and f"was forked with another change ({different})"


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the inputs that differ, each as it was and as it is now, without secrets; empty if none does."""
    shared().learn(before)
    shared().learn(now)
    names = [
        name
        for name in dict.fromkeys((*before, *now))
        if (name in before) != (name in now) or canonical_hash(before[name], name) != canonical_hash(now[name], name)
    ]
    told = [f"{name}: {_brief(before, name)}, now {_brief(now, name)}" for name in names[:MOST_NAMED]]
    return "; ".join([*told, *([f"and {len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else [])])


def _brief(inputs: Mapping[str, Any], name: str) -> str:
    return shared().text(f"{inputs[name]!r:.60}") if name in inputs else "none"


def as_bounds(given: Bounds | Mapping[str, Any]) -> Bounds:
    """Return bounds that are given in either form."""
    return given if isinstance(given, Bounds) else Bounds.read(given)


def require_options(given: Iterable[str], known: Collection[str], refusal: str) -> None:
    """Raise `SetupError` for an option that there is not, with the words of `refusal` before its name."""
    for name in given:
        if name not in known:
            advice = did_you_mean(name, known) or f"there are {', '.join(known)}"
            raise SetupError(f"{refusal} {name!r} ({advice})")


def check_options(options: StartOptions) -> None:
    """Raise `SetupError` for an option that there is not, or one of another type."""
    named: Mapping[str, Any] = options
    require_options(named, sorted(KNOWN), "an execution cannot be started with the option")
    for name in ("bounds", "identity"):
        require(named.get(name), name, "a mapping", fits=isinstance(named.get(name), Mapping | Bounds))
    for name in ("durability", "model"):
        require(named.get(name), name, "a string", fits=isinstance(named.get(name), str))
    for name in ("key", "note", "notebook", "cell"):
        if not isinstance(named.get(name), str | None):
            raise SetupError(f"{name} must be a text, not {type(named[name]).__name__}; write {name}=str(...)")
    key = named.get("key")
    on_conflict = named.get("on_conflict", WARN)
    if key is not None and not key.strip():
        raise SetupError(f"a start key must not be blank, and {key!r} is; leave it out, or write key='order 7'")
    if on_conflict not in CONFLICTS:
        advice = did_you_mean(str(on_conflict), CONFLICTS) or f"write one of {', '.join(CONFLICTS)}"
        raise SetupError(f"unknown on_conflict {on_conflict!r} ({advice})")


def _listed(tags: Sequence[str] | None) -> list[str]:
    if isinstance(tags, str):
        raise SetupError(f"tags are a list of words, not {tags!r}; write tags=[{tags!r}]")
    if tags is not None and not isinstance(tags, Iterable):
        raise SetupError(f"tags must be a list of words, not {describe(tags)}; write tags=['baseline']")
    listed = list(tags or ())
    for tag in listed:
        if not isinstance(tag, str):
            raise SetupError(f"a tag must be a word, not {tag!r}; write {str(tag)!r}")
    return listed
