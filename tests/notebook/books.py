"""The project's notebooks, run whole as a new user would run them."""

import shutil
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def executed_in(folder, name):
    """Run a copy of a notebook in a folder of its own; return both."""
    notebook = nbformat.read(shutil.copy(NOTEBOOKS / name, folder), as_version=4)
    NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook, folder


def shown(executed, source):
    """Return what the cell that begins so shows as text."""
    notebook, _ = executed
    (cell,) = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.startswith(source)]
    return "\n".join(output.get("text") or output["data"]["text/plain"] for output in cell.outputs)
