"""A Postgres server of the tests' own, from the machine's programs, in a folder that goes with it."""

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

NOBODY = "nobody"
"""Who runs the server where the tests run as root, which it refuses."""
_PLACES = ("/usr/lib/postgresql", "/usr/local/pgsql", "/opt/homebrew/opt")


def program(name):
    """Return the path of one of the server's programs; Debian has them off the search path. None if there is none."""
    found = [path for place in _PLACES for path in sorted(Path(place).glob(f"**/bin/{name}"))]
    return shutil.which(name) or next((str(path) for path in reversed(found)), None)


def is_available():
    """Return whether a server can be started, and talked to."""
    return all(map(program, ("initdb", "pg_ctl", "postgres"))) and find_spec("psycopg") is not None


class PostgresServer:
    """A server that can be stopped and started; it listens at a socket in its folder only."""

    def __init__(self, folder, *settings):
        self.folder = Path(folder)
        self._settings = settings
        self._user = NOBODY if os.getuid() == 0 else None
        if self._user:
            found = pwd.getpwnam(NOBODY)
            os.chown(self.folder, found.pw_uid, found.pw_gid)
        self._run("initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8")
        self.start()

    @property
    def data(self):
        return self.folder / "data"

    def url(self, schema: str = "divebook", database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}&schema={schema}"

    def start(self):
        settings = ["listen_addresses=", f"unix_socket_directories={self.folder}", "max_connections=100"]
        options = " ".join(f"-c {setting}" for setting in (*settings, *self._settings))
        self._run(
            "pg_ctl", "-D", str(self.data), "-w", "-t", "60", "-l", str(self.folder / "log"), "-o", options, "start"
        )

    def stop(self, mode="fast"):
        """Stop it: ``fast``, or ``immediate`` as a power failure would."""
        self._run("pg_ctl", "-D", str(self.data), "-w", "-m", mode, "stop")

    def _run(self, name, *words):
        done = subprocess.run(
            [program(name), *words],
            user=self._user,
            extra_groups=[] if self._user else None,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if name == "initdb" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, (done.stdout or "") + self._log()

    def _log(self):
        log = self.folder / "log"
        return log.read_text()[-2000:] if log.exists() else ""


@contextmanager
def postgres_server(*settings):
    """Start a server, and end it with all that it has."""
    with tempfile.TemporaryDirectory(prefix="divebook-pg-") as folder:
        Path(folder).chmod(0o755)
        server = PostgresServer(folder, *settings)
        try:
            yield server
        finally:
            server.stop("immediate")
