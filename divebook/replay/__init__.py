"""Uses of recorded logs: stepping through a run, verification, what-ifs, trials, and the provenance of values.

No module of this package repeats an external call whose result is in the log. The names in `__all__` are the results
of the methods of `divebook.Run` about recorded runs.
"""

from divebook.projections.comparison import Comparison
from divebook.replay.files import ChangedFiles, KeptFiles
from divebook.replay.inspect import Inspection
from divebook.replay.provenance import Provenance
from divebook.replay.replayer import LogWalk
from divebook.replay.resume_changed import ResumePlan
from divebook.replay.trial import StepTrial
from divebook.replay.verify import Verification
from divebook.replay.what_if import Plan, RepeatedWhatIf, WhatIf

__all__ = [
    "ChangedFiles",
    "Comparison",
    "Inspection",
    "KeptFiles",
    "LogWalk",
    "Plan",
    "Provenance",
    "RepeatedWhatIf",
    "ResumePlan",
    "StepTrial",
    "Verification",
    "WhatIf",
]
