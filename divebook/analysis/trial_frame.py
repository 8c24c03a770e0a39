"""A trial as a DataFrame."""

from __future__ import annotations

import pandas as pd

from divebook.analysis.columns import ANYTHING, COUNT, NUMBER, TEXT, Column, Columns, documented, frame
from divebook.replay.trial import StepTrial

TRIAL_COLUMNS: Columns = {
    "number": Column(COUNT, "0 of what is recorded, 1 of the first try"),
    "execution_id": Column(TEXT, "the execution that it was done in, ``exec_...``", "execution"),
    "status": Column(TEXT, "``completed``, ``failed``, ``waiting`` for an answer ..."),
    "asked": Column(TEXT, "what a model was asked, as rendered; of other steps the arguments of what they call"),
    "value": Column(ANYTHING, "what the step stores, or gives out; None where it has failed"),
    "error": Column(TEXT, "why it failed, or what it waits for"),
    "model": Column(TEXT, "who was asked"),
    "tokens": Column(NUMBER, "read and written; missing where no model was asked"),
    "cost": Column("float64", "US dollars; missing where no price is known"),
    "seconds": Column("float64", "how long it took"),
}


@documented(TRIAL_COLUMNS)
def trial_frame(trial: StepTrial) -> pd.DataFrame:
    """Return one row for what is recorded, and one for each try."""
    return frame(TRIAL_COLUMNS, [trial.recorded, *trial.tries])
