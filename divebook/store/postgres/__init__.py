"""Events in a Postgres database that machines share; the one door to psycopg."""

from divebook.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
