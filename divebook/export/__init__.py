"""Runs as files that show themselves: a page, and a notebook; both carry the log, and open again as runs."""
