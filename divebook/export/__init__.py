"""Export of runs to files: HTML page, notebook and pytest file. Page and notebook can be opened as runs."""
