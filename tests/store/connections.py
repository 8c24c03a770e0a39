"""Connections of a store in a file, for tests of their settings, plans and statements."""


def writer_of(store):
    """Return the connection that writes."""
    return store._writer


def reader_of(store):
    """Return the connection with which this thread reads; it is opened if there is none."""
    return store._readers.of_this_thread().connection


def count_of_readers(store):
    """Return how many threads have a connection that reads."""
    return len(store._readers._all)
