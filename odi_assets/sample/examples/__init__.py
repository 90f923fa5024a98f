"""Projects to begin with: a project file, and what lands for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from pathlib import Path

from odi_assets.config.json_schema import SCHEMA_FILE, schema_text
from odi_assets.nodes.project import DEFAULT_PROJECT_FILE
from odi_assets.sample import shop_db, shop_postgres
from odi_assets.sample.orders_payments import in_order, json_files
from odi_assets.scaffold.new_files import require_new, write_new
from odi_assets.util.yaml_text import flow


class Example(StrEnum):
    """What ``odi init`` can make."""

    FILES = "files"
    SQL = "sql"
    STREAM = "stream"
    CDC = "cdc"


@dataclass(frozen=True)
class Step:
    """A command to go on with.

    Attributes:
        command: what to type.
        what: what it does.
    """

    command: str
    what: str


_SHOP_POSTGRES = "python -m odi_assets.sample.shop_postgres"
_SHOP_DB = "python -m odi_assets.sample.shop_db"
NEXT: dict[Example, tuple[Step, ...]] = {
    Example.FILES: (
        Step("odi plan", "what a run would read"),
        Step("odi run", "load the orders, and sum them up"),
        Step("odi explain shop.spending --key customer=ann", "which file a row came from"),
    ),
    Example.SQL: (
        Step("odi run", "load the orders, and sum them up"),
        Step(f"{_SHOP_DB} \"INSERT INTO orders VALUES (5, 'dan', 7.50)\"", "order something"),
        Step("odi run", "load that order alone"),
    ),
    Example.STREAM: (
        Step("odi run --node paid_orders", "join what has arrived, a batch for each file"),
        Step("odi explain paid_orders --key ord-574", "why this order is not in the table"),
        Step("odi run --node by_customer", "count the paid orders by customer"),
    ),
    Example.CDC: (
        Step(f"{_SHOP_POSTGRES} start", "start the server; `stop` in its place stops it"),
        Step("odi run", "read snapshots of the tables, and the log from there"),
        Step(f"{_SHOP_POSTGRES} change", "order, raise, withdraw and rename something"),
        Step(f'{_SHOP_POSTGRES} "UPDATE orders SET amount = 9"', "or what you like, in SQL"),
        Step("odi run", "take over these changes"),
        Step("odi show orders", "the orders as the database has them"),
        Step("odi show orders_history", "each version of an order, with its operation"),
    ),
}
"""What to type after ``odi init``."""

_ORDERS = {
    "landing/orders/2024-01-01.csv": "1,ann,12.50,2024-01-01\n2,bob,8.00,2024-01-01\n",
    "landing/orders/2024-01-02.csv": "3,ann,5.25,2024-01-02\n4,cem,40.00,2024-01-02\n",
}


def create(folder: Path, example: Example) -> tuple[Path, ...]:
    """Make a project in ``folder``, which may have other files in it, and return what was written.

    Raises:
        ConfigError: a file that would be written is there already. Nothing is written then.
        JavaError: the example with a database needs Java, and there is none that will do.
        ConfigError: the example of a capture needs PostgreSQL, and none is installed.
    """
    contents = {folder / name: text for name, text in _contents(folder, example)}
    databases = {Example.SQL: [folder / shop_db.FOLDER], Example.CDC: [folder / shop_postgres.FOLDER]}
    made = [*contents, *databases.get(example, [])]
    require_new(folder, made)
    if example is Example.SQL:
        folder.mkdir(parents=True, exist_ok=True)
        shop_db.execute(folder, shop_db.TABLE, create=True)
    elif example is Example.CDC:
        shop_postgres.make(folder)
    write_new(contents)
    in_order(contents)
    return tuple(made)


def project_file(example: str) -> str:
    """The project file of an example."""
    return (files(__package__) / f"{example}.yaml").read_text(encoding="utf-8")


def _contents(folder: Path, example: Example) -> Iterator[tuple[str, str]]:
    text = project_file(example)
    if example is Example.CDC:
        text = text.replace("SOCKET", flow(str(shop_postgres.socket_folder(folder))))
    yield DEFAULT_PROJECT_FILE, text
    yield SCHEMA_FILE, schema_text()
    if example is Example.FILES:
        for name, rows in _ORDERS.items():
            yield name, f"order_id,customer,amount,ordered_on\n{rows}"
    elif example is Example.STREAM:
        yield from ((f"landing/{name}", text) for name, text in json_files())
