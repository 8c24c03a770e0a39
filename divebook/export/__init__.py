"""Export of runs to files: HTML page, notebook and pytest file. Each contains the log; page and notebook can be opened
as runs.
"""
