"""Text utilities: formatting of values, times and durations, redaction of secrets, and checks of arguments.

This is the lowest layer above `divebook.errors`.
"""
