"""Commands: run in a shell, bounded in time and output, with nothing of them left behind."""
