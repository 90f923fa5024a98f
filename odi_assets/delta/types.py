"""Types of columns as Delta's JSON has them: which holds the values of another one, and how messages name them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_INTEGERS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
"""Integer types, narrow to wide, and how many digits their values have."""

_EXACT_IN_DOUBLE = ("byte", "short", "integer", "float")
_EXACT_IN_FLOAT = ("byte", "short")
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_MOST_DIGITS = 38
_SIMPLE = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
_SAME_MOMENTS = {("timestamp_ntz", "timestamp"), ("timestamp", "timestamp_ntz"), ("date", "timestamp")}
"""Types whose values a cast keeps: the session's zone is UTC."""


def fits_without_loss(narrow: Any, wide: Any) -> bool:
    """Whether every value of type ``narrow`` is one of type ``wide``, whatever time zone or precision it has.

    ``void`` has no value, so it fits every type.
    """
    if narrow == "void":
        return True
    if not isinstance(narrow, str) or not isinstance(wide, str):
        return False
    target = _DECIMAL.fullmatch(wide)
    if narrow in _INTEGERS:
        if wide in _INTEGERS:
            return _INTEGERS[narrow] < _INTEGERS[wide]
        if target:
            return int(target[1]) - int(target[2]) >= _INTEGERS[narrow]
    source = _DECIMAL.fullmatch(narrow)
    if source and target:
        scale, wide_scale = int(source[2]), int(target[2])
        return wide_scale >= scale and int(target[1]) - wide_scale >= int(source[1]) - scale
    return (
        (wide == "double" and narrow in _EXACT_IN_DOUBLE)
        or (wide == "float" and narrow in _EXACT_IN_FLOAT)
        or (narrow, wide) == ("date", "timestamp_ntz")
    )


def same_but_for_nulls(left: Any, right: Any) -> bool:
    """Whether two types are one, but for parts that have no value in one of them."""
    if "void" in (left, right):
        return True
    if not isinstance(left, dict) or not isinstance(right, dict) or left["type"] != right["type"]:
        return bool(plain_type(left) == plain_type(right))
    if "fields" in left:
        fields = [{field["name"]: field["type"] for field in struct["fields"]} for struct in (left, right)]
        same = fields[0].keys() == fields[1].keys()
        return same and all(same_but_for_nulls(kind, fields[1][name]) for name, kind in fields[0].items())
    return all(
        same_but_for_nulls(left[part], right[part]) for part in ("elementType", "keyType", "valueType") if part in left
    )


def common_schema(left: Mapping[str, Any], right: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """The schema with the columns of both, each of the wider type.

    Args:
        above: what stands before the names of the columns, in messages.

    Raises:
        TypeError: a column has types of which neither holds all values of the other; its name and types are the
            arguments.
    """
    right_fields = {item["name"].lower(): item for item in right["fields"]}
    fields = []
    for item in left["fields"]:
        right_field = right_fields.pop(item["name"].lower(), item)
        kind = common_type(item["type"], right_field["type"], f"{above}{item['name']}.")
        if kind is None:
            raise TypeError(f"{above}{item['name']}", item["type"], right_field["type"])
        fields.append({**item, "type": kind, "nullable": True})
    return {**left, "fields": [*fields, *({**item, "nullable": True} for item in right_fields.values())]}


def common_type(left: Any, right: Any, above: str = "") -> Any:
    """The type that holds the values of both; None if neither does.

    Raises:
        TypeError: ``above`` is given, and fields of a STRUCT have no such type.
    """
    try:
        return _common_type(left, right, above)
    except TypeError:
        if above:
            raise
        return None


def _common_type(left: Any, right: Any, above: str) -> Any:
    if plain_type(left) == plain_type(right) or fits_without_loss(right, left):
        return left
    if fits_without_loss(left, right):
        return right
    shape = left["type"] if isinstance(left, dict) else None
    if shape is None or not isinstance(right, dict) or right["type"] != shape:
        return None
    if shape == "struct":
        return common_schema(left, right, above)
    parts = ("elementType",) if shape == "array" else ("keyType", "valueType")
    common = {part: _common_type(left[part], right[part], above) for part in parts}
    return None if None in common.values() else {**left, **common, "containsNull": True, "valueContainsNull": True}


def holding_type(left: Any, right: Any) -> Any:
    """A type that ``read.schema`` may name for a column that is ``left`` in some files and ``right`` in others.

    Values that it does not hold stop the read: of a DOUBLE, whole numbers beyond 2^53.

    Returns:
        None if there is none.
    """
    common = common_type(left, right)
    if common is not None or not isinstance(left, str) or not isinstance(right, str):
        return common
    both = {left, right}
    if both <= {"date", "timestamp", "timestamp_ntz"}:
        return "timestamp"
    if "binary" in both:
        return "binary" if "string" in both else None
    digits = [_digits(kind) for kind in (left, right)]
    if digits[0] is not None and digits[1] is not None:
        whole, scale = (max(pair) for pair in zip(*digits, strict=True))
        return f"decimal({whole + scale},{scale})" if whole + scale <= _MOST_DIGITS else "string"
    is_number = [
        pair is not None or kind in ("float", "double") for pair, kind in zip(digits, (left, right), strict=True)
    ]
    return "double" if all(is_number) else "string"


def cast_type(table: Any, rows: Any) -> Any:
    """The type that a column of rows is to be cast to for its table, with the fields that the rows have, in their
    order: a cast takes fields of a STRUCT by their places.

    Returns:
        None if a cast would change values and not stop at them.
    """
    if plain_type(table) == plain_type(rows):
        return rows
    if isinstance(table, str) or isinstance(rows, str):
        return table if _stops_or_keeps(rows, table) else None
    if table["type"] != rows["type"]:
        return None
    if rows["type"] != "struct":
        parts = {
            part: cast_type(table[part], rows[part]) for part in ("elementType", "keyType", "valueType") if part in rows
        }
        return None if None in parts.values() else {**rows, **parts}
    table_kinds = {field["name"].lower(): field["type"] for field in table["fields"]}
    kinds = [
        cast_type(table_kinds.get(field["name"].lower(), field["type"]), field["type"]) for field in rows["fields"]
    ]
    if None in kinds:
        return None
    return {**rows, "fields": [{**field, "type": kind} for field, kind in zip(rows["fields"], kinds, strict=True)]}


def _stops_or_keeps(rows: Any, table: Any) -> bool:
    """Whether a cast from ``rows`` to ``table`` keeps each value, or stops at it."""
    if not isinstance(rows, str) or not isinstance(table, str):
        return False
    if fits_without_loss(rows, table) or (rows, table) in _SAME_MOMENTS:
        return True
    if table == "string":
        return rows != "binary"
    if rows == "string":
        # Of texts with digits behind a point, casts to decimals keep some digits.
        return table in _INTEGERS
    rows_digits, table_digits = _digits(rows), _digits(table)
    return rows_digits is not None and table_digits is not None and table_digits[1] >= rows_digits[1]


def _digits(kind: str) -> tuple[int, int] | None:
    """How many digits stand before the point and behind it; None of other types."""
    match = _DECIMAL.fullmatch(kind)
    if match:
        return int(match[1]) - int(match[2]), int(match[2])
    return (_INTEGERS[kind], 0) if kind in _INTEGERS else None


def plain_type(kind: Any) -> Any:
    """A type without nullability and field metadata, which do not decide whether values fit."""
    if isinstance(kind, dict):
        return {
            key: plain_type(value)
            for key, value in kind.items()
            if key not in {"nullable", "metadata", "containsNull", "valueContainsNull"}
        }
    return [plain_type(item) for item in kind] if isinstance(kind, list) else kind


def type_name(kind: Any) -> str:
    """A type in words, as Spark's DDL takes it."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "array":
        return f"array<{type_name(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{type_name(kind['keyType'])}, {type_name(kind['valueType'])}>"
    fields = (f"{ddl_name(field['name'])}: {type_name(field['type'])}" for field in kind["fields"])
    return f"struct<{', '.join(fields)}>"


def simple_name(kind: Any) -> str:
    """A type as Spark's ``simpleString`` has it.

    Example:
        >>> simple_name({"type": "array", "elementType": "long", "containsNull": True})
        'array<bigint>'
    """
    if isinstance(kind, str):
        return _SIMPLE.get(kind, kind)
    if kind["type"] == "array":
        return f"array<{simple_name(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{simple_name(kind['keyType'])},{simple_name(kind['valueType'])}>"
    fields = (f"{field['name']}:{simple_name(field['type'])}" for field in kind["fields"])
    return f"struct<{','.join(fields)}>"


def ddl_type(kind: Any) -> str:
    """A type as SQL has it."""
    return kind.upper() if isinstance(kind, str) else type_name(kind)


def ddl_name(name: str) -> str:
    """A name as SQL has it, in backquotes where it needs them."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else "`" + name.replace("`", "``") + "`"
