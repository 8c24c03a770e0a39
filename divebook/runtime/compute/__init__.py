"""Executors for user code: threads, processes, a Dask cluster."""
