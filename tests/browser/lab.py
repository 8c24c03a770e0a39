"""A notebook in JupyterLab in a browser, driven as a person would: everything waits for a condition, nothing sleeps."""

import itertools
import time
import urllib.parse

import nbformat

VIEWPORT = {"width": 1280, "height": 1000}
PATIENCE = 60_000
"""Milliseconds within which whatever is waited for must have happened; several browsers share small machines."""

HELPERS = """
window.inLab = (() => {
  const panel = () => [...jupyterapp.shell.widgets("main")].find((one) => one.content?.widgets && one.sessionContext);
  const kernel = () => panel()?.sessionContext.session?.kernel;
  const pending = new Set();
  const start = (command, args = {}) => {
    const done = jupyterapp.commands.execute(command, args).catch(() => undefined).finally(() => pending.delete(done));
    pending.add(done);
  };
  const clear = () => {
    for (const one of [...jupyterapp.shell.widgets("main")]) one.dispose(); // without a word about what is not saved
    jupyterapp.shell.collapseLeft();
    jupyterapp.shell.collapseRight();
    return document.querySelector(".jp-Dialog, .jp-ModalCommandPalette:not(.lm-mod-hidden), .Toastify__toast") === null;
  };
  return {
    panel,
    kernel,
    start,
    clear,
    ready: () => panel()?.context.isReady && ["idle", "busy"].includes(kernel()?.status),
    connected: () => panel()?.context.isReady && kernel()?.connectionStatus === "connected",
    idle: () => pending.size === 0 && kernel()?.status === "idle" &&
      panel().content.widgets.every((cell) => cell.model.executionState !== "running"),
    runCell: (index) => {
      const notebook = panel().content;
      notebook.deselectAll();
      notebook.activeCellIndex = index;
      start("notebook:run-cell");
    },
    outputs: (index) => panel().content.widgets[index].model.outputs.toJSON(),
    state: (index) => panel().content.widgets[index].model.executionState,
  };
})();
"""


_workspaces = (f"tab{number}" for number in itertools.count())


def write_notebook(path, cells, kernel="python3"):
    """Write a notebook of code cells."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    notebook.metadata["kernelspec"] = {"name": kernel, "display_name": kernel}
    nbformat.write(notebook, path)
    return path


class Lab:
    """A tab that shows one notebook, and after it another."""

    def __init__(self, page, server, shots):
        self.page, self.server, self.shots = page, server, shots
        self.folder = self._path = None
        self.errors = []
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", lambda dialog: dialog.accept())

    # --- the notebook --------------------------------------------------------------------------------------------

    def open(self, path):
        """Open a notebook that lies in the server's folder; return when its kernel is ready.

        JupyterLab's page is loaded for the first one only: that takes longer than most tests.
        """
        self.page.bring_to_front()  # a tab behind another one draws once a second
        is_there, self._path, self.folder = self._path is not None, path, path.parent
        if is_there and self.is_lab:
            self.command("docmanager:open", path=self._inside)
        else:
            self._load()
        self.until("inLab.ready()")
        return self

    def reload(self):
        """Load the page anew; a busy kernel may not answer yet."""
        self._load()
        self.until("inLab.connected()")

    @property
    def is_lab(self):
        """Whether it is JupyterLab, which shows one notebook after another, and not Notebook 7."""
        return self.server.program == "jupyterlab"

    @property
    def _inside(self):
        return self._path.relative_to(self.server.folder).as_posix()

    def _load(self):
        workspace = f"lab/workspaces/{next(_workspaces)}/tree"  # its own, or it would open what other tabs have open
        place = workspace if self.is_lab else "notebooks"
        self.page.goto(f"{self.server.url}/{place}/{urllib.parse.quote(self._inside)}?token={self.server.token}")
        self.until("window.jupyterapp !== undefined")
        self.page.evaluate("jupyterapp.restored.then(() => jupyterapp.shell.collapseLeft())")
        self.page.evaluate(HELPERS)

    def clear(self):
        """Close the notebook, so that the tab can show another; return whether the tab is as new."""
        self.page.set_viewport_size(VIEWPORT)
        self.be("Light")
        return self.page.evaluate("inLab.clear()") and not self.errors

    def run(self, index):
        """Start running a cell, counted from 0."""
        self.page.evaluate("(index) => inLab.runCell(index)", index)

    def run_through(self, index):
        """Run a cell and wait for its end."""
        self.run(index)
        self.wait_idle()

    def run_all(self):
        """Start running all cells."""
        self.command("notebook:run-all-cells")

    def command(self, name, **arguments):
        """Start a command of JupyterLab."""
        self.page.evaluate("([name, args]) => inLab.start(name, args)", [name, arguments])

    def interrupt(self):
        """Interrupt the kernel."""
        self.page.evaluate("inLab.kernel().interrupt()")

    def save(self):
        """Save the notebook."""
        self.page.evaluate("inLab.panel().context.save()")

    def be(self, theme):
        """Change to the ``Light`` or the ``Dark`` theme, if it is not the present one."""
        is_so = f"document.body.dataset.jpThemeName === 'JupyterLab {theme}'"
        if not self.page.evaluate(is_so):
            self.command("apputils:change-theme", theme=f"JupyterLab {theme}")
            self.until(f"{is_so} && document.getElementById('jupyterlab-splash') === null")

    # --- what it shows -------------------------------------------------------------------------------------------

    def until(self, condition):
        """Wait until an expression is true in the page."""
        self.page.wait_for_function(condition, timeout=PATIENCE)

    def wait_idle(self):
        """Wait until no cell runs."""
        self.until("inLab.idle()")

    def is_busy(self, index):
        """Tell whether a cell runs."""
        return self.page.evaluate("(index) => inLab.state(index)", index) == "running"

    def outputs(self, index):
        """Return what a cell shows, as the notebook format has it."""
        return self.page.evaluate("(index) => inLab.outputs(index)", index)

    def cell(self, index):
        """Return a cell on the page."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(index)

    def output(self, index):
        """Return the output area of a cell."""
        return self.cell(index).locator(".jp-Cell-outputArea")

    def see(self, index, text):
        """Wait until a cell's output shows a text."""
        self.output(index).get_by_text(text).filter(visible=True).first.wait_for()

    # --- what the actions of its workflows have done -----------------------------------------------------------------

    def _calls(self):
        path = self.folder / "calls.txt"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def calls(self, what):
        """Return the names of the calls that ``began`` or ``ended``, in their order."""
        return [name for kind, name, _ in self._calls() if kind == what]

    def pids(self):
        """Return the processes that made the calls."""
        return [int(pid) for _, _, pid in self._calls()]

    def until_calls(self, what, names):
        """Wait until exactly these calls began or ended."""
        self.until_here(lambda: self.calls(what) == names, lambda: f"{what}: {self.calls(what)}, not {names}")

    def until_began(self, names):
        """Wait until all of these calls have begun."""
        self.until_here(lambda: set(names) <= set(self.calls("began")), lambda: f"began: {self.calls('began')}")

    def until_here(self, condition, told):
        """Wait until something is true on this machine; else say what is told."""
        deadline = time.monotonic() + PATIENCE / 1000
        while not condition():
            assert time.monotonic() < deadline, told()
            self.page.wait_for_timeout(50)  # the page's own events go on meanwhile

    # --- pictures ------------------------------------------------------------------------------------------------

    def shot(self, name, target=None):
        """Take a picture of the page, or of a part of it."""
        path = self.shots / f"{name}.png"
        (target or self.page).screenshot(path=path)
        return path
