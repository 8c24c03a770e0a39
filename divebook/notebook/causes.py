"""The causes of a value as a view: a chain from the value back to its inputs, and a replay that shows each cause."""

from __future__ import annotations

from typing import Any

from divebook.notebook.session import current_session
from divebook.notebook.shell_state import shows_widgets
from divebook.notebook.view_output import PAGES, view_data
from divebook.replay.provenance import Provenance
from divebook.replay.replayer import positions_of
from divebook.runtime.run import Run
from divebook.stores.history import History
from divebook.widgets.source import source_of
from divebook.widgets.stepping import SteppedLog
from divebook.widgets.views import ReplayPictures, ReplayView


def bundle_of_causes(provenance: Provenance, **_options: Any) -> dict[str, object]:
    """Return the causes of a value by MIME type, as a view in pages that host views.

    IPython calls this for each provenance that a cell shows. In the view each cause leads to its event in a replay.
    """
    bundle = provenance._repr_mimebundle_()
    run = _run_of(provenance) if PAGES.host_views and shows_widgets() else None
    if run is None:
        return bundle
    log = SteppedLog(positions_of(run), run.history)
    log.provenances[provenance.at, provenance.name] = provenance
    view = ReplayView(
        log,
        f"{run.workflow.name} {run.id}",
        dict,
        pictures=ReplayPictures.of(lambda: source_of(run)),
        explained={"name": provenance.name, "sequence": provenance.at},
    )
    return {**bundle, **view_data(view.model_id)}


def _run_of(provenance: Provenance) -> Run | None:
    """Return the run that a provenance is about; None if its log is not in the store of the session."""
    history = provenance.log
    environment = current_session().present
    if environment is None or not isinstance(history, History) or environment.store is not history.store:
        return None
    return environment.run_of(history.execution_id)
