"""Where a user's code runs: threads, processes, a cluster."""
