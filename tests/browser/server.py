"""A JupyterLab or Notebook 7 of one's own: a free port, a random token, throw-away settings, this interpreter."""

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
START_WITHIN, STARTS = 60, 3

SETTINGS = {
    # every cell stays in the page, and nothing pops up or saves by itself
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
    "@jupyterlab/docmanager-extension/plugin": {"autosave": False},
    "@jupyterlab/apputils-extension/notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": True,
    },
}


class JupyterServer:
    """A server that serves one folder.

    Parameters
    ----------
    folder
        Where notebooks lie; settings, logs and kernel specifications go beside it.
    settings
        JupyterLab's settings by plugin, besides those that keep it quiet.
    extended
        Whether it loads the extension that comes with divebook, as built last; otherwise it does not even where this
        environment has it installed.
    program
        The module that is run: ``jupyterlab`` or ``notebook``.
    """

    def __init__(self, folder, settings=None, *, extended=False, program="jupyterlab"):
        self.program = program
        self.folder, self.home = folder / "notebooks", folder / "jupyter"
        self.folder.mkdir()
        self._write_settings({**SETTINGS, **(settings or {})})
        self._extend() if extended else self._leave_out()
        self.token = secrets.token_hex(16)
        self._log = folder / "server.log"
        self._process = self._spare = None
        self._ending, self._endings = ThreadPoolExecutor(1), {}

    def _write_settings(self, settings):
        for plugin, values in settings.items():
            path = self.home / "settings" / f"{plugin}.jupyterlab-settings"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(values))

    def _extend(self):
        place = self.home / "data" / "labextensions" / "divebook"
        place.parent.mkdir(parents=True)
        place.symlink_to(ROOT / "widgets" / "labextension", target_is_directory=True)

    def _leave_out(self):
        path = self.home / "config" / "labconfig" / "page_config.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"disabledExtensions": {"divebook": True}}))

    def __enter__(self):
        for _ in range(STARTS):
            self.url = f"http://127.0.0.1:{_free_port()}"
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    self._command(),
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    env=self._environ(),
                    cwd=self.folder,
                )
            if self._answers():
                return self
        raise RuntimeError(f"{self.program} did not start:\n{self.log()}")

    def __exit__(self, *_):
        self._ending.shutdown()
        with contextlib.suppress(OSError):
            for kernel in self.ask("/api/kernels"):
                self.ask(f"/api/kernels/{kernel['id']}", "DELETE")
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _command(self):
        options = {
            "ServerApp.ip": "127.0.0.1",
            "ServerApp.port": self.url.rpartition(":")[2],
            "ServerApp.port_retries": 0,
            "ServerApp.open_browser": False,
            "ServerApp.root_dir": self.folder,
            "ServerApp.allow_root": True,
            "IdentityProvider.token": self.token,
            "FileCheckpoints.checkpoint_dir": self.home / "checkpoints",
            "LabApp.expose_app_in_browser": True,
            "JupyterNotebookApp.expose_app_in_browser": True,
        }
        return [sys.executable, "-m", self.program, *(f"--{name}={value}" for name, value in options.items())]

    def _environ(self):
        places = {
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTER_DATA_DIR": "data",
            "IPYTHONDIR": "ipython",
        }
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("DIVEBOOK_")}
        here = {name: str(self.home / place) for name, place in places.items()}
        # else the extension that this environment has installed, perhaps an older one, is loaded before what was built
        return {**inherited, **here, "JUPYTER_PREFER_ENV_PATH": "0", "PYTHONPATH": str(ROOT)}

    def _answers(self):
        """Wait until it answers; return whether it does. It ends if another process has taken its port meanwhile."""
        pause, deadline = threading.Event(), time.monotonic() + START_WITHIN
        while self._process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError, HTTPException, ValueError):  # what that other one answers
                self.ask("/api/status")
                return True
            pause.wait(0.05)
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        return False

    def log(self):
        """Return the end of what the server has said."""
        return self._log.read_text(errors="replace")[-4000:]

    def ask(self, path, method="GET", body=None):
        """Send a request to the server's interface; return what it answers."""
        headers = {"Authorization": f"token {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(request, timeout=10) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def end_kernels(self, *, wait=True):
        """Shut down the kernels of all notebooks but the one that is lent; that takes a while."""
        for session in self.ask("/api/sessions"):
            name = session["id"]
            if session["kernel"]["id"] != self._spare and name not in self._endings:
                self._endings[name] = self._ending.submit(self.ask, f"/api/sessions/{name}", "DELETE")
        for ending in self._endings.values() if wait else ():
            ending.result()

    def lend_kernel(self, path):
        """Have a notebook that is opened next find a kernel in which nothing was ever run, without starting one."""
        kernel = {"name": "python3"} if self._spare is None else {"id": self._spare}
        session = {"path": path.relative_to(self.folder).as_posix(), "name": "", "type": "notebook", "kernel": kernel}
        self._spare = self.ask("/api/sessions", "POST", session)["kernel"]["id"]

    def add_kernel(self, name, python):
        """Let notebooks choose a kernel that another interpreter runs."""
        folder = self.home / "data" / "kernels" / name
        folder.mkdir(parents=True, exist_ok=True)
        arguments = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        specification = {"argv": arguments, "display_name": name, "language": "python"}
        (folder / "kernel.json").write_text(json.dumps(specification))


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
