"""What columns are made of: plain data, without Spark and without a parser."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple


class Origin(NamedTuple):
    """A column of a view that a query reads."""

    view: str
    column: str


Origins = frozenset[Origin]
NONE: Origins = frozenset()


class NotFollowed(Exception):
    """What columns are made of cannot be read; the text says why, as part of a sentence.

    Args:
        fix: what the reader can do about it; empty if a run of the node is what helps, or nothing does.
    """

    def __init__(self, why: str, fix: str = "") -> None:
        super().__init__(why)
        self.fix = fix


@dataclass(frozen=True)
class Made:
    """What a value is made of.

    Attributes:
        values: the columns whose values go into it.
        conditions: the columns that decide about it: of CASE, of windows, of filters of aggregates.
        fields: of a struct that the query puts together, what its fields are made of; empty if that is not known.
    """

    values: Origins = NONE
    conditions: Origins = NONE
    fields: tuple[tuple[str, Made], ...] = field(default=(), compare=False, repr=False)

    @property
    def all(self) -> Origins:
        return self.values | self.conditions

    def deciding(self) -> Made:
        """The same, where it decides and no value of it goes in."""
        return Made(NONE, self.all)

    def part(self, name: str) -> Made:
        """What a field of it is made of; of all that it is made of, if its fields are not known."""
        named = [made for own, made in self.fields if own.casefold() == name.casefold()]
        return named[0] if len(named) == 1 else self

    def under(self, conditions: Origins) -> Made:
        """The same, where these columns decide about it."""
        fields = tuple((name, made.under(conditions)) for name, made in self.fields)
        return Made(self.values, self.conditions | conditions, fields)

    def greatest(self) -> Made:
        """The greatest or the least of several such values: of structs, all fields decide which one that is."""
        fields = tuple((name, made.under(self.all - made.values)) for name, made in self.fields)
        return Made(self.values, self.conditions, fields)

    @staticmethod
    def struct(fields: Iterable[tuple[str, Made]]) -> Made:
        """A struct of these fields."""
        fields = tuple(fields)
        return replace(Made.of(made for _, made in fields), fields=fields)

    @staticmethod
    def of(parts: Iterable[Made]) -> Made:
        """What is made of several parts."""
        filled = [part for part in parts if part.values or part.conditions]
        if len(filled) < 2 and not any(part.fields for part in filled):
            return filled[0] if filled else NOTHING
        return Made(
            frozenset().union(*(part.values for part in filled)),
            frozenset().union(*(part.conditions for part in filled)),
        )


NOTHING = Made()


@dataclass(frozen=True)
class Unlisted:
    """Further columns of a view whose columns are not known: they have the names that they have there.

    Attributes:
        without: names, in small letters, that are left out of them.
    """

    view: str
    without: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Rows:
    """What a query gives.

    Attributes:
        columns: in order, each with its name.
        decided: the columns that decide which rows there are: filters, joins, groups, orders.
        unlisted: in place of columns that cannot be named.
    """

    columns: tuple[tuple[str, Made], ...]
    decided: Origins = NONE
    unlisted: Unlisted | None = None

    def column(self, name: str) -> Made | None:
        """What the column is made of; None if there is none of this name.

        Raises:
            NotFollowed: there are several.
        """
        folded = name.casefold()
        matches = [made for column, made in self.columns if column.casefold() == folded]
        if len(matches) > 1:
            raise NotFollowed(f"there are several columns `{name}`")
        if matches:
            return matches[0]
        if self.unlisted is None or folded in self.unlisted.without:
            return None
        return Made(frozenset({Origin(self.unlisted.view, name)}))

    def lists(self, name: str) -> bool:
        """Whether a column of this name is known to be there."""
        return any(column.casefold() == name.casefold() for column, _ in self.columns)

    def renamed(self, names: Iterable[str]) -> Rows:
        """The same rows with other names for all columns.

        Raises:
            NotFollowed: it is not known which columns there are.
        """
        new_names = tuple(names)
        if not new_names:
            return self
        if self.unlisted is not None or len(new_names) != len(self.columns):
            raise NotFollowed(f"the columns that get the names {', '.join(new_names)} are not known")
        return Rows(tuple((name, made) for name, (_, made) in zip(new_names, self.columns, strict=True)), self.decided)


@dataclass(frozen=True)
class Views:
    """The views that a query may read, with their columns; None for one whose columns are not known."""

    columns: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)

    def rows(self, name: str) -> Rows | None:
        """The rows of a view; None if there is no such view."""
        view = next((candidate for candidate in self.columns if candidate.casefold() == name.casefold()), None)
        if view is None:
            return None
        names = self.columns[view]
        if names is None:
            return Rows((), unlisted=Unlisted(view))
        return Rows(tuple((column, Made(frozenset({Origin(view, column)}))) for column in names))
