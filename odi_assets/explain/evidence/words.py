"""Times, distances and rows in words."""

from __future__ import annotations

from datetime import datetime, timedelta

from odi_assets.explain.verdicts import moment

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1))


def time_text(time: datetime) -> str:
    """``2024-01-01 10:00:00``, in UTC; with a fraction of the second if there is one."""
    text = f"{time:%Y-%m-%d %H:%M:%S}"
    return f"{text}.{time.microsecond:06d}".rstrip("0") if time.microsecond else text


def watermark_text(milliseconds: int) -> str:
    """A watermark; ``none`` before there was one."""
    return "none" if milliseconds <= 0 else time_text(moment(milliseconds))


def distance(time: timedelta) -> str:
    """``8 min``, ``1 h 3 min``, ``12.5 s``: the two largest units."""
    rest, parts = abs(round(time / timedelta(milliseconds=1))), []
    if not rest:
        return "less than 1 ms" if time else "nothing"
    for name, size in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count:,} {name}")
        if len(parts) == 2:
            break
    return " ".join(parts)


def amount(number: float) -> str:
    """``3``, ``0.5``."""
    return f"{number:,.15g}"


def capital(text: str) -> str:
    """The text with a capital at its beginning."""
    return text[:1].upper() + text[1:]
