"""Permissions of definitions. Definitions may come from strangers, so their access to files, network, programs and
secrets is limited.

Without a permission, a definition may read and write files of its own folder, and read the public internet. Only the
user who runs it can permit more, never the definition itself: ``Environment(policy=Policy("programs"))``, ``divebook
run --allow programs``, or the variable ``DIVEBOOK_ALLOW=files,programs``. SECURITY.md has the list.

A file is allowed in two steps::

    definition in /home/ann/project/flow.yaml     file                          allowed?
                                                  notes.txt                     yes
                                                  link -> /etc/passwd           no: its real path is outside (``files``)
                                                  .git/config                   no: protected (``hidden``)
                                                  logs/run.db-wal               no: belongs to a store (``hidden``)

Both steps use the real path of the file, so that neither links nor other spellings of a name bypass them.
"""

from __future__ import annotations

import functools
import glob
import os
import posixpath
import re
import socket
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from divebook.documents.addresses import ip_addresses, is_public
from divebook.errors import SetupError
from divebook.text.passwords import looks_secret
from divebook.text.redaction import LEAST_SECRET, logger, shared

if TYPE_CHECKING:
    from collections.abc import Collection


VARIABLE = "DIVEBOOK_ALLOW"
FILES = "files"
"""Permission for files outside the folder of the definition."""
ADDRESSES = "addresses"
"""Permission for network addresses of this machine and of private networks."""
PROGRAMS = "programs"
CREDENTIALS = "credentials"
"""Permission for agents to read and write credentials, such as those in the tests of a program."""
APPROVALS = "approvals"
"""Permission to ask fewer questions before tool calls."""
HIDDEN = "hidden"
"""Permission for hidden files, version control folders and the files of stores."""
ENVIRONMENT = "environment"
"""Permission for the environment variables of this process."""
KINDS = (FILES, ADDRESSES, PROGRAMS, CREDENTIALS, APPROVALS, HIDDEN, ENVIRONMENT)
OF_CODE = frozenset({APPROVALS, HIDDEN, ENVIRONMENT})
"""Permissions that agents and settings defined in Python code always have, since their author can do the same in
Python.
"""
_ONE_VARIABLE = re.compile(rf"{ENVIRONMENT}:[A-Za-z_][A-Za-z0-9_]*")
# Names that lead to this machine, or to the service with the credentials of a machine in a cloud.
_LOCAL_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "metadata.google.internal")


class Policy:
    """Set of permissions for a definition, in addition to the files of its own folder and the public internet.

    Parameters
    ----------
    allowed
        Any of ``files``, ``addresses``, ``programs``, ``credentials``, ``approvals``, ``hidden`` and ``environment``;
        ``environment:NAME`` permits one environment variable.

    Examples
    --------
    >>> Policy("programs")
    Policy('programs')
    >>> Policy().file("../notes.txt", Path("project"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    divebook.errors.SetupError: '../notes.txt' is outside the definition's folder project; to allow it: ...
    """

    def __init__(self, *allowed: str) -> None:
        for kind in allowed:
            if kind not in KINDS and not _ONE_VARIABLE.fullmatch(kind):
                raise SetupError(
                    f"{kind!r} cannot be allowed; use {', '.join(KINDS)}, or {ENVIRONMENT}:NAME with the name of an "
                    "environment variable"
                )
        self.allowed = frozenset(allowed)

    @classmethod
    def given(cls, *more: str) -> Self:
        """Return a policy with the permissions in the environment variable ``DIVEBOOK_ALLOW``, and in addition the
        permissions `more`.
        """
        kinds = (kind.strip() for kind in os.environ.get(VARIABLE, "").split(","))
        return cls(*filter(None, kinds), *more)

    def __repr__(self) -> str:
        return f"Policy({', '.join(map(repr, sorted(self.allowed)))})"

    def of_code(self) -> Policy:
        """Return this policy with additional permissions: those that definitions in Python code always have
        (`OF_CODE`).
        """
        return Policy(*self.allowed, *OF_CODE)

    def both(self, other: Policy) -> Policy:
        """Return a policy with only those permissions that both this policy and `other` have."""
        return Policy(*(kind for kind in self.allowed | other.allowed if self._has(kind) and other._has(kind)))

    def _has(self, kind: str) -> bool:
        # ``environment`` includes each ``environment:NAME``.
        return kind in self.allowed or kind.partition(":")[0] in self.allowed

    def file(self, path: str | Path, folder: Path) -> Path:
        """Return the real path of a file, with links resolved. Raise `SetupError` if the policy does not allow the
        file. `folder` is the definition's folder.

        Raises
        ------
        SetupError
            The file is outside the folder, or is protected; see `divebook.documents.policy`.
        """
        try:
            real = (folder / path).resolve()
            # The folder may be a link itself. Both paths are resolved, since only real paths can be compared.
            root = folder.resolve()
        except (OSError, ValueError, RuntimeError) as error:  # a NUL; links in a circle
            raise SetupError(f"{str(path)!r} cannot be the path of a file: {error}") from error
        if FILES not in self.allowed and not real.is_relative_to(root):
            raise SetupError(f"{str(path)!r} is outside the definition's folder {folder}; {_how_to_allow(FILES)}")
        # The permission for files outside the folder does not include protected files.
        reason = self.why_protected(real, root)
        if reason:
            raise SetupError(f"{str(path)!r} cannot be used: {reason}")
        return real

    def why_protected(self, path: Path, base: Path) -> str:
        """Return the reason why a file below a folder may not be accessed, and how to allow it; an empty string if the
        policy allows the file.
        """
        reason = "" if HIDDEN in self.allowed else why_protected(path, base)
        return f"{reason}; {_how_to_allow(HIDDEN)}" if reason else ""

    def variable(self, name: str) -> None:
        """Raise `SetupError` unless the policy allows a definition to read an environment variable."""
        kind = f"{ENVIRONMENT}:{name}"
        if not self._has(kind):
            raise SetupError(
                f"the definition uses the environment variable {name}, and environment variables are not allowed; "
                f"{_how_to_allow(kind if _ONE_VARIABLE.fullmatch(kind) else ENVIRONMENT)}"
            )

    def program(self, path: str, key: str = "DynamicFrom") -> None:
        """Raise `SetupError` unless the policy allows a definition to run programs. The error names the path of the
        program, and `key`, the key of the definition that contains this path.
        """
        self._require_programs(f"{key} names the program {path!r}")

    def commands(self, key: str) -> None:
        """Raise `SetupError` unless the policy allows a definition to run programs. The error names `key`, the key of
        the definition with the commands to be run.
        """
        self._require_programs(f"{key} may run commands")

    def _require_programs(self, reason: str) -> None:
        if PROGRAMS not in self.allowed:
            raise SetupError(f"{reason}, and programs are not allowed; {_how_to_allow(PROGRAMS)}")

    def host(self, name: str) -> None:
        """Raise `SetupError` if the policy does not allow connections to a host. The name is not resolved; use
        `address` to check the IP addresses of the host.
        """
        # ``[::1]`` is an address in a URL, and ``localhost.`` is a name with its root.
        bare = name.strip("[]").rstrip(".").lower()
        if ADDRESSES in self.allowed:
            return
        # ``.local`` and ``.internal`` are names of local networks, which a public name server does not know.
        if not bare or bare in _LOCAL_NAMES or bare.endswith((".localhost", ".local", ".internal")):
            raise _private(name)
        try:
            self.address(_as_address(bare), name)
        except ValueError:
            return  # a name, whose addresses are checked when it is resolved for a connection

    def address(self, address: str, name: str) -> None:
        """Raise `SetupError` if the policy does not allow connections to an IP address. `name` is the host name for the
        error.
        """
        if ADDRESSES not in self.allowed and not is_public(address):
            raise _private(name)


def addresses_of(policy: Policy, host: str) -> list[str]:
    """Return the IP addresses of a host name. Raise `SetupError` if the policy forbids the name or one of the
    addresses.

    Callers must connect to one of them: a second look-up of the name could return others. Blocks the thread.
    """
    policy.host(host)
    addresses = ip_addresses(host)
    # One forbidden address is enough to refuse the name, because each address may be connected to.
    for address in addresses:
        policy.address(address, host)
    return addresses


def _as_address(host: str) -> str:
    """Convert an IP address in an old notation (``0x7f.1``) to the usual one (``127.0.0.1``), since a proxy would
    accept both. Any other host is returned unchanged.
    """
    try:
        # `inet_aton` accepts what old programs accept: fewer than four numbers, in octal or hexadecimal.
        return socket.inet_ntoa(socket.inet_aton(host))
    except (OSError, UnicodeEncodeError):
        return host


def _private(name: str) -> SetupError:
    return SetupError(f"{name!r} is an address of this machine or of a private network; {_how_to_allow(ADDRESSES)}")


def _how_to_allow(kind: str) -> str:
    return f"to allow it: {VARIABLE}={kind} or --allow {kind}"


# --- protected files: hidden files, version control, and the stores of this process ---
#
# A definition needs permission to use them. Changes of a run in them are copied to a user's folder only if a person
# names them (`divebook.workspaces.snapshots.restore`).
#
# A file is judged by its real path. Only names below the granted folder count: a project in ``~/.cache/project`` is not
# hidden from a definition in it.


VERSION_CONTROL = frozenset({"cvs", "rcs", "sccs", "_darcs", "_fossil_", "_mtn", "_svn", "{arch}"})
"""Names of version control folders that do not start with a dot, in the form that `canonical_name` returns."""
BARE_REPOSITORY = frozenset({"HEAD", "objects", "refs"})
"""File names by which git recognizes a folder of any name as a repository."""
LINKED_REPOSITORY = frozenset({"HEAD", "commondir"})
"""File names by which git recognizes a folder as part of another repository, which the file ``commondir`` names."""
REPOSITORY_MARKS = BARE_REPOSITORY | LINKED_REPOSITORY
_SHORT_NAME = re.compile(r"[^.]{1,6}~\d+(\..{0,3})?")
"""Pattern of the short second name that a file has on Windows: ``GIT~1`` is ``.git``."""
# Categories of characters that some file systems ignore: format (Cf), control (Cc) and combining marks (Mn).
_IGNORED_CATEGORIES = frozenset({"Cf", "Cc", "Mn"})
# Fillers of Hangul, which are letters without a shape.
_IGNORED_LETTERS = frozenset("\u115f\u1160\u3164\uffa0")
_EXECUTION = "exec_"
_WORKSPACES = "workspaces"
_stores: dict[Path, set[str]] = {}
"""Names of the store files of this process by folder. A lookup by folder stays fast with many stores."""


def protect_store(path: Path) -> None:
    """Register the file of a store, and the files that belong to it, as protected from access by definitions, until
    this process ends.
    """
    store = path.resolve()
    _stores.setdefault(store.parent, set()).add(store.name)


def patterns_of_stores(folder: Path) -> list[str]:
    """Return path patterns, relative to a folder, that match the files of all stores below this folder."""
    real = folder.resolve()
    stores = [
        (parent.relative_to(real).as_posix(), glob.escape(name))
        for parent, names in _stores.items()
        if parent.is_relative_to(real)
        for name in names
    ]
    return [
        # A store in the folder itself has the parent ".": "/./runs.db" -> "/runs.db".
        f"/{parent}/{pattern}".replace("/./", "/")
        for parent, name in stores
        # For runs.db: itself, ``runs.db-wal``, ``runs.db.cache``, and the workspaces of executions beside it.
        for pattern in (name, f"{name}-*", f"{name}.*", f"{_WORKSPACES}/{_EXECUTION}*")
    ]


def canonical_name(name: str) -> str:
    r"""Return a file name in the form in which the most lenient file system compares names: without case, ignorable
    characters and look-alikes.

    Examples
    --------
    >>> [canonical_name(name) for name in (".GIT", "\uff0egit", ".g\u200cit", ".git. ")]
    ['.git', '.git', '.git', '.git']
    """
    # Normalized twice, because a removed character may have kept two others from being composed.
    text = "".join(
        letter
        for letter in unicodedata.normalize("NFKC", name)
        if unicodedata.category(letter) not in _IGNORED_CATEGORIES and letter not in _IGNORED_LETTERS
    )
    text = unicodedata.normalize("NFKC", text).casefold()
    # Windows ignores dots and spaces at the end of a name. A name of dots only keeps them.
    return text.rstrip(". ") or text


def why_protected_name(name: str) -> str:
    """Return the reason why files or folders with a name are protected, as the end of a sentence; an empty string if
    they are not.
    """
    text = canonical_name(name)
    if text.startswith("."):
        return f"{name} is hidden"
    # ``cvs:stream`` is a stream of the folder ``cvs`` on Windows.
    if text.partition(":")[0] in VERSION_CONTROL:
        return f"{name} belongs to version control"
    return f"{name} may be another name of a hidden file" if _SHORT_NAME.fullmatch(text) else ""


def why_protected(path: Path, base: Path) -> str:
    """Return the reason why definitions may not access a file, as the end of a sentence; an empty string if the file is
    not protected.

    Parameters
    ----------
    path
        Real path of the file, which need not exist.
    base
        Real path of the granted folder. For a file outside it, the names below their common parent count.
    """
    # The nearest folder above both, for a file that a link or a permission leads to outside of `base`.
    common = base
    while not path.is_relative_to(common) and common != common.parent:
        common = common.parent
    place = common
    # The names of the path are checked one after the other. Each may be a protected name, complete a git repository in
    # its folder, or be a git repository itself. At the end, the path may belong to a store.
    # On Windows, paths of two drives have no common parent. Then all names count except the drive (part 0).
    for name in path.parts[len(common.parts) if path.is_relative_to(common) else 1 :]:
        reason = why_protected_name(name)
        if reason:
            return reason
        # Before the name is added: `place` is the folder in which the name would be created.
        if _completes_repository(place, name):
            return f"with {name}, {place.name or place} would become a git repository"
        place /= name
        if _is_bare_repository(place):
            return f"{name} is a git repository"
    return _why_protected_as_store(path, base)


def unprotected_files(root: Path) -> Iterator[Path]:
    """Yield the files below a folder that definitions may access. Protected folders are not searched.

    Parameters
    ----------
    root
        Real path of the granted folder.
    """
    for place, folders, files in os.walk(root):
        folder = Path(place)
        # `os.walk` visits only the folders that remain in this list.
        folders[:] = [name for name in folders if not _why_protected_entry(folder / name, root)]
        for name in files:
            # A link is judged by its own name here. `_locate` judges its target when the document is read.
            path = folder / name
            if path.is_file() and not _why_protected_entry(path, root):
                yield path


def _why_protected_entry(path: Path, root: Path) -> str:
    """Return the reason why a file or folder in an unprotected folder is protected, as the end of a sentence; an empty
    string if it is not.
    """
    # Unlike `why_protected`, this looks at one name. The walk has checked the names above.
    reason = why_protected_name(path.name)
    if reason:
        return reason
    if _is_bare_repository(path):
        return f"{path.name} is a git repository"
    return _why_protected_as_store(path, root)


def marks_named(name: str) -> set[str]:
    """Return the name in `REPOSITORY_MARKS` (entries that make a folder a git repository) that equals a file name on a
    lenient file system, for example one that ignores case. The result is a set, which is empty without such a name.
    """
    text = canonical_name(name)
    return {mark for mark in REPOSITORY_MARKS if text == mark.casefold()}


def is_repository(marks: Collection[str]) -> bool:
    """Return whether git recognizes a folder that has the entries `marks` as a repository."""
    return BARE_REPOSITORY.issubset(marks) or LINKED_REPOSITORY.issubset(marks)


def marks_in(folder: str | Path) -> set[str]:
    """Return the names in `REPOSITORY_MARKS` (entries that make a folder a git repository) that exist in a folder on
    disk.
    """
    # `Path.exists` raises for a name that is too long, and in a folder that this user may not list.
    return {mark for mark in REPOSITORY_MARKS if os.path.lexists(os.path.join(folder, mark))}  # noqa: PTH118


def _is_bare_repository(folder: Path) -> bool:
    # Most folders have no HEAD, so that one check is enough.
    return os.path.lexists(folder / "HEAD") and is_repository(marks_in(folder))


def _completes_repository(folder: Path, name: str) -> bool:
    """Return whether a folder would become a git repository if an entry with a name were created in it. Return False if
    git recognizes the folder as a repository already.

    Git runs programs that the file ``config`` of a repository names. A definition could write that file first, and then
    the entry that completes the repository.
    """
    mark = marks_named(name)
    if not mark:
        return False
    marks = marks_in(folder)
    # A folder that is a repository already is refused by its own check, with a better reason.
    return not is_repository(marks) and is_repository(marks | mark)


def _why_protected_as_store(path: Path, base: Path) -> str:
    # A run may be granted a folder inside a store: its own workspace, ``workspaces/exec_...``. All files in it belong
    # to that store, and must stay accessible.
    stores = (store for store in _stores_of(path) if store not in _stores_of(base))
    store = next(stores, None)
    return "" if store is None else f"it belongs to the store {store.name}"


def _stores_of(path: Path) -> list[Path]:
    """Return the store files of this process to which a path belongs, for example as a file with data of the store
    beside it. Return an empty list if there are none.

    The files of a store are its own file, files next to it (``-wal``, ``.cache``), and files in the folder of an
    execution.
    """
    return [
        folder / name
        for folder in path.parents
        if folder in _stores
        for name in _stores[folder]
        if _belongs_to(name, path.relative_to(folder))
    ]


def _belongs_to(store: str, path: Path) -> bool:
    """Return whether a path belongs to the store whose file is named `store`: it is that file, a file beside it with a
    longer name (``NAME-wal``), or in a workspace of an execution. The path is relative to the store's folder.
    """
    first, *below = (name.casefold() for name in path.parts)  # some disks ignore capitals
    name = store.casefold()
    is_beside = first == name or first.startswith((f"{name}-", f"{name}."))
    return is_beside or (first == _WORKSPACES and bool(below) and below[0].startswith(_EXECUTION))


# --- references: values that a definition names instead of containing them, ``env://NAME`` and ``file://PATH`` ---
#
# They are resolved at the moment of the call, so that no log, definition or notebook contains them. The redactor of
# this process hides each of them from then on. The policy must allow the variable or the file.


_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
MAX_BYTES = 64 * 1024
"""Maximum size, in bytes, of a file to which a reference refers."""
# Groups: a prefix such as "Bearer " with its space, the kind, and the name or path.
_REFERENCE = re.compile(r"([A-Za-z]+ )?(env|file)://(.+)", re.DOTALL)
_log = logger(__name__)


def is_reference(value: Any) -> bool:
    """Return whether a value is a reference: a string such as ``env://TOKEN``, ``file://PATH`` or ``Bearer
    env://TOKEN``.
    """
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def resolved(value: Any, policy: Policy, folder: Path | None = None) -> Any:
    """Return plain data in which all references (strings such as ``env://NAME`` or ``file://PATH``) are replaced by the
    values to which they refer.

    Parameters
    ----------
    policy
        Policy for the files and environment variables.
    folder
        Folder of relative paths; by default the current one.

    Raises
    ------
    SetupError
        A variable or file does not exist, or may not be read.

    Examples
    --------
    >>> os.environ["SEARCH_KEY"] = "k-2f9d8c71"
    >>> resolved({"Authorization": "Bearer env://SEARCH_KEY", "retries": 3}, Policy("environment:SEARCH_KEY"))
    {'Authorization': 'Bearer k-2f9d8c71', 'retries': 3}
    >>> del os.environ["SEARCH_KEY"]
    """
    match value:
        case str():
            reference = _REFERENCE.fullmatch(value)
            return (
                value
                if reference is None
                else (reference[1] or "") + _value_of(reference[2], reference[3], policy, folder)
            )
        case Mapping():
            # The parts are resolved first, so that the redactor learns the values and not the references.
            resolved_parts = {name: resolved(part, policy, folder) for name, part in value.items()}
            shared().know_all(resolved_parts)  # a literal value under the name of a secret is a secret too
            return resolved_parts
        case list() | tuple():
            return [resolved(part, policy, folder) for part in value]
    return value


def require_allowed(value: Any, policy: Policy, folder: Path | None = None) -> None:
    """Raise `SetupError` unless a policy allows every reference (such as ``env://NAME``) in plain data. The variables
    and files are not read.

    A definition is refused by this before anything starts.
    """
    for kind, name in _references_in(value):
        if kind == "env":
            policy.variable(name)
        else:
            policy.file(_path(name), folder or Path())


def _references_in(value: Any) -> Iterator[tuple[str, str]]:
    # Only a string that is a reference as a whole counts, at any depth of mappings and sequences.
    match value:
        case str():
            reference = _REFERENCE.fullmatch(value)
            if reference is not None:
                yield reference[2], reference[3]
        case Mapping():
            for part in value.values():
                yield from _references_in(part)
        case list() | tuple():
            for part in value:
                yield from _references_in(part)


def require_expandable(text: str, policy: Policy) -> None:
    """Raise `SetupError` unless a policy allows every environment variable that `expanded` would insert into a text."""
    for match in _VARIABLE.finditer(text):
        policy.variable(match[1] or match[2])


def expanded(text: str, policy: Policy) -> str:
    """Return a text in which ``$NAME`` and ``${NAME}`` are replaced by the values of environment variables; by nothing
    if a variable is not set.

    Raises
    ------
    SetupError
        The policy does not allow one of the variables.

    Examples
    --------
    >>> os.environ["WHERE"] = "here"
    >>> expanded("$WHERE/${WHERE}/$NO_SUCH_VARIABLE", Policy("environment"))
    'here/here/'
    >>> del os.environ["WHERE"]
    """

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        policy.variable(name)
        text_of_variable = os.environ.get(name, "")
        # A variable with a harmless name, such as ``HOME``, is not hidden: its value occurs in many texts.
        if looks_secret(name):
            shared().know(text_of_variable)
        return text_of_variable

    return _VARIABLE.sub(value, text)


def _value_of(kind: str, name: str, policy: Policy, folder: Path | None) -> str:
    value = _variable(name, policy) if kind == "env" else _content(name, policy, folder or Path())
    # The redactor hides known secrets from `LEAST_SECRET` characters on.
    if len(value) < LEAST_SECRET:
        _log.warning(
            "%s://%s refers to a value of fewer than %s characters, which is hidden only under a key that is the name "
            "of a secret: use a longer value",
            kind,
            name,
            LEAST_SECRET,
        )
    shared().know(value)
    return value


def _variable(name: str, policy: Policy) -> str:
    policy.variable(name)
    value = os.environ.get(name, "").strip()
    if not value:
        raise SetupError(
            f"env://{name} refers to an environment variable that is not set or is empty: set {name} and run again"
        )
    return value


def _path(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # no such user
        raise SetupError(f"file://{text} cannot be the path of a file: {error}") from error


def _content(path: str, policy: Policy, folder: Path) -> str:
    # The file is opened by the real path that the policy has checked.
    file = policy.file(_path(path), folder)
    try:
        if file.exists() and not file.is_file():  # reading a pipe would block
            raise SetupError(f"file://{path} is not a file: name a file that contains only the value")
        data = file.read_bytes()
        if len(data) > MAX_BYTES:
            raise SetupError(
                f"file://{path} contains more than {MAX_BYTES} bytes: name a file that contains only the value"
            )
        text = data.decode("utf-8").strip()
    except OSError as error:
        raise SetupError(f"file://{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SetupError(f"file://{path} is not UTF-8 text at byte {error.start}") from error
    if not text:
        raise SetupError(f"file://{path} is empty: write the value into it")
    return text


# --- arguments of tools that name files, in the spellings that approval rules are compared with ---
#
# A tool follows links, and ``./a//b``, ``x/../a/b`` and an absolute path all reach the file ``a/b``. A rule about
# ``a/b`` applies to the file, so a call is judged by the real path of the file, relative to the working folder and
# absolute. A rule that asks or denies also applies to the file that its own path leads to: ``secret/**`` protects
# ``vault/`` if ``secret`` is a link to ``vault``. The path of a rule that allows is not followed: a link under an
# allowed name must not extend the rule to its target.


_WILDCARD = "*"


class FileArguments:
    """Converter of those arguments of a tool that are file paths. It brings the paths in calls and in approval rules
    into the same form, so that they can be compared.

    Parameters
    ----------
    names
        Names of the arguments, at any depth: ``src`` in ``{"pairs": [{"src": "a", "dst": "b"}]}``.
    folder
        The working folder, to which paths of rules are relative.
    start
        The folder to which paths of calls are relative; by default the working folder.
    shown_as
        Absolute path of the working folder as the tool knows it, such as the mount point in a container.
    path_of_name
        Returns the path that a registered name stands for; None if it is not a file.
    """

    def __init__(
        self,
        names: Sequence[str],
        folder: Path,
        shown_as: str | None = None,
        start: Path | None = None,
        path_of_name: Callable[[str], str | None] = str,
    ) -> None:
        self._names = frozenset(names)
        self._path_of_name = path_of_name
        self._folder = os.path.realpath(folder)
        self._start = self._folder if start is None else os.path.realpath(start)
        self._shown_as = self._folder if shown_as is None else shown_as

    def spellings(self, arguments: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return the arguments of a call in two forms, since an approval rule may be written in either of them: with
        real paths relative to the working folder, and with absolute real paths.
        """
        # The relative form is derived from the absolute one, so that links are resolved once.
        absolute = dict(self._map_paths(arguments, functools.partial(self._absolute, start=self._start)))
        return [dict(self._map_paths(absolute, self._below)), absolute]

    def with_links_followed(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments of an approval rule with real paths of files: symbolic links are resolved in the part of
        each path before its first wildcard.
        """
        return dict(self._map_paths(arguments, self._follow_links))

    def without_detours(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments of an approval rule with normalized paths (without ``..``). Links below the working
        folder are not resolved.
        """
        return dict(self._map_paths(arguments, self._without_detours))

    def _map_paths(self, value: Any, change: Callable[[str], str], *, is_path: bool = False) -> Any:
        match value:
            case str():
                # An empty argument is not a path. `realpath` would return the working folder for it.
                return change(value) if is_path and value else value
            case Mapping():
                parts = value.items()
                # Below a named argument, all strings are paths: ``{"files": ["a", "b"]}``.
                return {
                    name: self._map_paths(part, change, is_path=is_path or name in self._names) for name, part in parts
                }
            case list() | tuple():
                return [self._map_paths(part, change, is_path=is_path) for part in value]
        return value

    def _absolute(self, path: str, start: str | None = None) -> str:
        # A registered name of a document stands for its path. None: the document is in a library and has no file.
        file = self._path_of_name(path)
        if file is None:
            return path
        try:
            return os.path.realpath(Path(start or self._folder, self._on_disk(file)))
        except (OSError, ValueError):  # NUL in the path, which the tool refuses
            return path

    def _relative(self, path: str) -> str:
        return self._below(self._absolute(path))

    def _below(self, real: str) -> str:
        # The folder itself is ".".
        return real.removeprefix(f"{self._folder}/") if real != self._folder else "."

    def _on_disk(self, path: str) -> str:
        """Return the path on this machine of a file that a tool knows by another path, for example inside a container;
        other paths unchanged.
        """
        # A container may mount the folder at ``/workspace``. The path ``/workspace/a`` of a call is then ``FOLDER/a``
        # here.
        if path == self._shown_as or path.startswith(f"{self._shown_as.rstrip('/')}/"):
            return self._folder + path[len(self._shown_as.rstrip("/")) :]
        return path

    def _follow_links(self, pattern: str) -> str:
        # The text before the first wildcard up to its last slash is the part that can be looked up on disk: for
        # ``secret/a*`` it is ``secret``.
        start, wildcard, rest = pattern.partition(_WILDCARD)
        folder, slash, name = start.rpartition("/") if wildcard else (start, "", "")
        # A pattern such as ``*.txt`` names no folder.
        if wildcard and not slash:
            return pattern
        return f"{self._relative(folder or '/')}{slash}{name}{wildcard}{rest}"

    def _without_detours(self, pattern: str) -> str:
        # ``..`` behind a link leads elsewhere than the text says. Such a rule stays as written.
        if ".." in pattern.split("/") or self._path_of_name(pattern) is None:
            return pattern
        tidy = posixpath.normpath(self._on_disk(pattern))
        if not tidy.startswith("/"):
            return tidy
        # /tmp/project/** means the project even if /tmp is a link: links on the way to the folder may be followed.
        parts = tidy.split("/")
        # Of the beginnings of the path, the longest that is the working folder is replaced by its real path.
        for count in range(len(parts), 1, -1):
            start = "/".join(parts[:count])
            if _WILDCARD not in start and os.path.realpath(start) == self._folder:
                return "/".join([self._folder, *parts[count:]])
        return tidy
