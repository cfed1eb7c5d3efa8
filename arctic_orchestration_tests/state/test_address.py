"""``ARCTIC_DATABASE_URL`` is taken apart, or refused, and its password is in no message."""

import pytest

from arctic_orchestration.errors import ConfigurationError, InvalidInput
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database

#: each with the password "pw-1" or "pw@1", in shapes that people and shells make of it
ODD = [
    "postgresql//u:pw-1@h/d",
    "://u:pw-1@h/d",
    "://u:p@pw-1@h/d",
    "u:pw-1@h/d",
    "pw-1",
    "host=h user=u password=pw-1 dbname=d",
    "jdbc:postgresql://h/d?user=u&password=pw-1",
    " postgresql://u:pw-1@h/d",
    "post gres://u:pw-1@h/d",
    "postgresql://u:pw-1@[::1/d",
    "postgresql://u:pw-1@h:port/d",
    "postgresql://u:x@pw-1@h/d",
    "postgresql://u:x@pw-1/x@h/d",
    "postgresql://u:pw-1@h:5,4/d",
    "postgresql://u:pw-1\udce9@h/d",
    "postgresql+asyncpg://u:pw-1@h/d",
    "mysql://u:pw-1@h/d",
    "mysql://u:pw%2D1@h/d",
    "mysql://h/d?password=pw-1&sslpassword=pw-1",
    "mysql://u%3Apw-1@h/d",
    "foo+bar+baz://u:pw-1@h/d",
    "sqlite://u:pw-1@h/d",
    "sqlite:///file.db?password=pw-1",
    "sqlite:///file.db?isolation_level=DEFERRED",
]


@pytest.mark.parametrize("url", ODD)
def test_an_odd_url_is_refused_without_its_password(url: str) -> None:
    """As a value of ARCTIC_DATABASE_URL; also the value that the error carries has none."""
    with pytest.raises(InvalidInput) as error:
        Database(url)
    assert error.value.field == "ARCTIC_DATABASE_URL"
    for text in (str(error.value), repr(error.value), str(error.value.value)):
        assert "pw-1" not in text
        assert "pw%2D1" not in text
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__ or error.value.__context__ is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:pw%401@h:5432/d", "postgresql+psycopg2://u:***@h:5432/d"),
        ("postgresql://u@h/d?password=pw-1", "postgresql+psycopg2://u@h/d?password=hidden"),
        (
            "postgresql://u@h/d?sslmode=require&sslpassword=pw-1",
            "postgresql+psycopg2://u@h/d?sslmode=require&sslpassword=hidden",
        ),
        ("postgresql://u%3Apw-1@h/d", "postgresql+psycopg2://hidden@h/d"),
        ("postgresql://[::1]:5432/d", "postgresql+psycopg2://[::1]:5432/d"),
        ("sqlite:////tmp/arctic.db", "sqlite:////tmp/arctic.db"),
    ],
)
def test_a_url_is_shown_without_what_is_secret(url: str, shown: str) -> None:
    """And with the rest, by which a person recognises it."""
    database = Database(url)
    assert database.shown == shown
    database.close()


def test_what_the_driver_does_not_take_is_reported() -> None:
    """By its name, and without its value."""
    database = Database("postgresql://u:pw-1@127.0.0.1:1/d?passwrd=pw-1")
    with pytest.raises(ConfigurationError, match="ARCTIC_DATABASE_URL cannot be used") as error:
        database.revision()
    assert "passwrd" in str(error.value)
    assert "pw-1" not in str(error.value)


def test_settings_do_not_show_the_url() -> None:
    """Wherever they are printed."""
    settings = Settings.from_environment({"ARCTIC_DATABASE_URL": "postgresql://u:pw-1@h/d"})
    assert "pw-1" not in repr(settings)
