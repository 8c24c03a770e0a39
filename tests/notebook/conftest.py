"""A shell with the extension and a session of its own, and real kernels."""

import contextlib
import gc
import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from divebook.notebook.session import open_session, reset_session


@pytest.fixture(scope="module", autouse=True)
def _libraries_stay():
    """Have the collector leave alone what tests have imported since the beginning: each reset of a shell collects."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def session():
    yield open_session("memory:")
    reset_session()


@pytest.fixture(scope="session")
def bare_shell():
    """Return the only shell that IPython allows in a process, without history on disk."""
    before = sys.modules["__main__"]
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    sys.modules["__main__"] = before
    yield shell
    InteractiveShell.clear_instance()


@pytest.fixture
def shell(bare_shell, session, tmp_path, monkeypatch):
    """Return the shell with the extension loaded, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "__main__", bare_shell.user_module)
    bare_shell.run_line_magic("load_ext", "divebook")
    yield bare_shell
    bare_shell.run_line_magic("unload_ext", "divebook")
    bare_shell.reset(new_session=False)


@pytest.fixture
def cell(shell, capsys):
    """Return ``cell(text)``, which runs a cell and returns its value and all it printed; a failing cell raises."""

    def run(text):
        result = shell.run_cell(text, store_history=True)
        printed = capsys.readouterr()
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            error.shown = printed.out + printed.err
            raise error
        return result.result, printed.out

    return run


class Kernel:
    """A real kernel with the extension loaded."""

    def __init__(self, manager, client):
        self.manager, self.client = manager, client

    def run(self, code, hook=lambda content: None, *, allow_stdin=True):
        """Run a cell; return the status of the reply, and the contents of its output messages."""
        outputs = []

        def collect(message):
            content = message["content"]
            if message["header"]["msg_type"] in ("stream", "display_data", "execute_result", "error"):
                outputs.append(content)
                hook(content)
            if message["header"]["msg_type"] == "update_display_data":
                name = content["transient"]["display_id"]
                places = [n for n, shown in enumerate(outputs) if shown.get("transient", {}).get("display_id") == name]
                for place in places:
                    outputs[place] = content

        reply = self.client.execute_interactive(code, output_hook=collect, timeout=40, allow_stdin=allow_stdin)
        return reply["content"]["status"], outputs

    def run_and_interrupt(self, code, when):
        """Run a cell and interrupt the kernel as soon as it prints a text."""

        def interrupt(content):
            if when in content.get("text", ""):
                self.manager.interrupt_kernel()

        return self.run(code, interrupt)

    def text(self, code):
        """Run a cell that must succeed; return what it printed and its value as text."""
        status, outputs = self.run(code)
        assert status == "ok", outputs
        return "".join(output["text"] if "text" in output else output["data"]["text/plain"] for output in outputs)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    from jupyter_client.manager import start_new_kernel

    folder = tmp_path_factory.mktemp("kernel")
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(folder))
    started = Kernel(manager, client)
    started.run("%load_ext divebook")
    yield started
    client.stop_channels()
    with contextlib.suppress(RuntimeError):
        manager.shutdown_kernel(now=True)
    manager.cleanup_resources()
