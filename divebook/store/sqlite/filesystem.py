"""Whether a file lies on a network file system, where SQLite's write-ahead log must not be used.

The log's index is memory that all processes map; over a network each machine has a copy of its own, and the database is
damaged.
"""

from __future__ import annotations

import re
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "drvfs",
        "fuse.ceph",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.grpcfuse",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "fuse.vmhgfs-fuse",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "prl_fs",
        "smb2",
        "smb3",
        "smbfs",
        "vboxsf",
        "vmhgfs",
        "wekafs",
    }
)


def network_type(path: Path) -> str | None:
    """Return the kind of network file system that a path is on; None if it is local, or if that is not known."""
    try:
        mounts = _MOUNTS.read_text(errors="surrogateescape")
    except OSError:  # not Linux
        return None
    kind = type_of_mount(path.parent.resolve(), mounts)
    return kind if kind in _NETWORK else None


def type_of_mount(folder: Path, mounts: str) -> str | None:
    """Return the type of the file system that a folder is on, by the text of ``/proc/self/mountinfo``."""
    best: tuple[int, str] | None = None
    for line in mounts.splitlines():
        place, _, source = line.partition(" - ")
        fields = place.split()
        if len(fields) < 5 or not source:
            continue
        point = Path(_unescape(fields[4]))
        # Of two mounts in one place, the later one hides the earlier.
        if folder.is_relative_to(point) and (best is None or len(point.parts) >= best[0]):
            best = (len(point.parts), source.split()[0])
    return best[1] if best else None


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
