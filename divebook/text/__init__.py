"""Text utilities: formatting of values, times and durations, redaction of secrets, and checks of arguments.

Only `divebook.errors` and `divebook.interrupts` are in lower layers.
"""
