"""Export of runs as files: a page, a notebook and a test. All contain the log; page and notebook open again as runs."""
