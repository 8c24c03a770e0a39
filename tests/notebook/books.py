"""The project's notebooks, run whole as a new user would run them."""

import shutil
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def executed_in(folder, *names):
    """Run a copy of a notebook, or of several one after the other in one kernel, in a folder; return both."""
    notebook, *more = [nbformat.read(shutil.copy(NOTEBOOKS / name, folder), as_version=4) for name in names]
    for other in more:
        notebook.cells += other.cells
    resources = {"metadata": {"path": str(folder)}}
    # A busy machine sends what one line prints in pieces.
    NotebookClient(notebook, timeout=60, resources=resources, coalesce_streams=True).execute()
    return notebook, folder


def shown(executed, source):
    """Return what the cell that begins so shows as text."""
    notebook, _ = executed
    (cell,) = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.startswith(source)]
    return "\n".join(output.get("text") or output["data"]["text/plain"] for output in cell.outputs)
