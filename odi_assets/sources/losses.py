"""What a table holds that its sources do not give (any more): a full refresh takes it out of the table."""

from __future__ import annotations

from dataclasses import dataclass

_SHOWN = 10


@dataclass(frozen=True)
class Loss:
    """One kind of rows that would be lost.

    Attributes:
        what: the rows in words.
        names: the files or versions they came in; empty where none can be named.
        for_good: nobody has these rows any more, so a full refresh waits for consent. Others are replaced by what the
            sources have in their place, which a full refresh is often meant for.
    """

    what: str
    names: tuple[str, ...] = ()
    for_good: bool = False

    def __str__(self) -> str:
        if not self.names:
            return self.what
        more = f" and {len(self.names) - _SHOWN:,} more" if len(self.names) > _SHOWN else ""
        return f"{self.what}: {', '.join(self.names[:_SHOWN])}{more}"
