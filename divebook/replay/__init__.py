"""Uses of recorded logs: stepping through a run, verification, what-ifs, trials, and the provenance of values.

No module of this package repeats an external call whose result is in the log.
"""
