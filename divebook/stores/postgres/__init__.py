"""Event store in a Postgres database that several machines share. Only this package imports psycopg."""

from divebook.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
