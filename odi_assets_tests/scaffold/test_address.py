"""Addresses of databases, as a command line has them."""

from __future__ import annotations

import pytest

from odi_assets.errors import ConfigError
from odi_assets.scaffold.address import read_address


def test_an_address_says_where_the_database_is_and_who_signs_in() -> None:
    read = read_address("postgresql://me:s%2Fe%40c@db.example:6543/My%20Shop?sslmode=require", {})
    one = read.connection
    assert (one.type, one.host, one.port, one.database, one.user) == ("postgres", "db.example", 6543, "My Shop", "me")
    assert one.password is not None
    assert one.password.get_secret_value() == "s/e@c"
    assert one.options == {"sslmode": "require"}
    assert (read.variable, read.shown) == ("MY_SHOP_PASSWORD", "postgresql://db.example:6543/My Shop")


@pytest.mark.parametrize(
    ("address", "kind", "host", "port"),
    [
        ("postgres://me@/shop", "postgres", "localhost", 5432),
        ("mariadb://me@h/shop", "mysql", "h", 3306),
        ("MySQL://me@[::1]:3307/shop", "mysql", "::1", 3307),
    ],
)
def test_what_an_address_leaves_out_is_the_usual(address: str, kind: str, host: str, port: int) -> None:
    one = read_address(address, {}).connection
    assert (one.type, one.host, one.port, one.password) == (kind, host, port, None)


def test_a_password_with_any_sign_is_no_part_of_another_name() -> None:
    read = read_address("postgresql://me:p@ss/w:rd?#1@h:5/shop", {})
    assert read.connection.password is not None
    assert read.connection.password.get_secret_value() == "p@ss/w:rd?#1"
    assert (read.connection.host, read.connection.database) == ("h", "shop")


def test_a_password_that_the_address_lacks_is_taken_from_the_environment() -> None:
    read = read_address("postgresql://me@h/2shop", {"DB_2SHOP_PASSWORD": "secret"})
    assert read.connection.password is not None
    assert read.connection.password.get_secret_value() == "secret"


@pytest.mark.parametrize(
    "address",
    [
        "me:secret@h/shop",
        "oracle://me:secret@h/shop",
        "postgresql://:secret@h/shop",
        "postgresql://me:secret@h",
        "postgresql://me:secret@h:secret/shop",
        "postgresql://me:secret@h/shop?password=secret",
    ],
)
def test_what_is_no_address_is_refused_without_showing_it(address: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_address(address, {})
    assert "secret" not in str(refused.value) + repr(refused.value)
