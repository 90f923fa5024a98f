"""Random changes of a table as Debezium writes them, and what the table has after them, by a few lines of Python."""

from __future__ import annotations

import json
import random
from typing import Any

from odi_assets_tests.sources.cdc.debezium.support import UNAVAILABLE, described, envelope, keyed

Row = dict[str, Any]


class Life:
    """A table that changes.

    Attributes:
        rows: what it has now, by key.
        sent: the messages since they were last taken, with the key of each; a truncation has none.
    """

    def __init__(self, draw: random.Random, *, truncates: bool = True) -> None:
        self.draw, self.truncates = draw, truncates
        self.rows: dict[int, Row] = {}
        self.sent: list[tuple[int | None, Any]] = []
        self._lsn = 100

    def go_on(self, count: int) -> None:
        for _ in range(count):
            self._lsn += self.draw.randint(1, 5)
            id_ = self.draw.randint(1, 8)
            if self.truncates and self.draw.random() < 0.02:
                self.rows.clear()
                self._send(None, envelope("t", lsn=self._lsn))
            elif id_ not in self.rows:
                self.rows[id_] = self._row(id_)
                self._send(id_, self._whole("c", None, self.rows[id_]))
            elif (chance := self.draw.random()) < 0.2:
                self._delete(id_)
            elif chance < 0.4 and (other := self.draw.randint(1, 8)) not in self.rows:
                note, old = self.rows[id_]["note"], {"__debezium.oldkey": json.dumps({"id": id_})}
                self._delete(id_)
                self.rows[other] = {**self._row(other), "note": note}
                shown = {**self.rows[other], "note": UNAVAILABLE}
                self._send(other, {**keyed(self._whole("c", None, shown), id=other), "headers": old})
            else:
                keeps = self.draw.random() < 0.5
                note = self.rows[id_]["note"]
                self.rows[id_] = self._row(id_)
                if keeps:
                    self.rows[id_]["note"] = note
                shown = {**self.rows[id_], "note": UNAVAILABLE} if keeps else self.rows[id_]
                self._send(id_, self._whole("u", None, shown))

    def taken(self) -> list[tuple[int | None, Any]]:
        found, self.sent = self.sent, []
        return found

    def _row(self, id_: int) -> Row:
        return {"id": id_, "state": self.draw.choice(["new", "paid", None]), "note": f"note {self._lsn}"}

    def _whole(self, op: str, before: Any, after: Any) -> Any:
        return described(envelope(op, before, after, lsn=self._lsn, txId=self._lsn))

    def _delete(self, id_: int) -> None:
        del self.rows[id_]
        self._send(id_, self._whole("d", {"id": id_, "state": None, "note": None}, None))
        self._send(id_, None)

    def _send(self, id_: int | None, message: Any) -> None:
        has_key = isinstance(message, dict) and "key" in message
        self.sent.append((id_, message if has_key or id_ is None else keyed(message, id=id_)))
