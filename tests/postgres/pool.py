"""A PgBouncer before a server, mostly as it is usually set up: each transaction gets any session that is free."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from tests.postgres.server import NOBODY

PORT = 6432
_SETTINGS = """
[databases]
postgres = host={server} user=postgres
[pgbouncer]
pool_mode = {mode}
default_pool_size = {sessions}
max_client_conn = 200
unix_socket_dir = {folder}
listen_port = {port}
auth_type = any
logfile = {folder}/log
"""


def pooler():
    """Return the path of PgBouncer, which Debian has off the users' search path; None if there is none."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")


def _listens(place):
    """Return whether a socket takes connections; its file exists a moment before."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(place)) == 0


@contextmanager
def pooled(server, mode="transaction", sessions=3):
    """Start a PgBouncer; give the function from the name of a schema to the URL of a store behind it."""
    user = NOBODY if os.getuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="divebook-pool-") as name:
        folder = Path(name)
        if user:
            os.chown(folder, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
        settings = folder / "settings.ini"
        settings.write_text(
            _SETTINGS.format(server=server.folder, folder=folder, port=PORT, mode=mode, sessions=sessions)
        )
        settings.chmod(0o644)
        folder.chmod(0o755)
        with subprocess.Popen([pooler(), "-q", settings], user=user, extra_groups=[] if user else None) as process:
            try:
                while not _listens(folder / f".s.PGSQL.{PORT}"):
                    assert process.poll() is None
                    time.sleep(0.01)
                yield (
                    lambda schema="divebook": (
                        f"postgresql://postgres@/postgres?host={folder}&port={PORT}&schema={schema}"
                    )
                )
            finally:
                process.kill()
