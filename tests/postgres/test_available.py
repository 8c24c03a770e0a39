from tests.postgres.server import is_available


def test_there_is_a_server_to_test_with(require):
    require("postgres, with psycopg,", is_available())
