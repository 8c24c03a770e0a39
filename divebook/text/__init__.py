"""Text for people: formatting of values, times and durations, and redaction of secrets.

This is the lowest layer above `divebook.errors`.
"""
