"""Points where runs are killed name functions of production code: a name that moved is an error, not a point less."""

from __future__ import annotations

from pkgutil import resolve_name

import pytest

from benchmarks.kill_sweep import points
from odi_assets_tests.cluster import killed

NAMED = {
    **{point.name: point.function for point in (*points.POINTS, *points.CAPTURE_POINTS, *points.NAIVE_POINTS)},
    **{f"on a cluster, {name}": function for name, (function, _) in killed.POINTS.items()},
}


@pytest.mark.parametrize("name", NAMED)
def test_every_named_point_is_a_function(name: str) -> None:
    assert callable(resolve_name(NAMED[name]))


@pytest.mark.parametrize("gone", ["odi_assets.tables.modes.base.gone", "odi_assets.tables.gone.stage"])
def test_a_point_that_does_not_resolve_is_an_error(gone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(points._BY_NAME, "gone", points.Point("gone", gone, "before"))
    with pytest.raises((AttributeError, ImportError)):
        points.install("gone", 1, 0.0, print)
    with pytest.raises((AttributeError, ImportError)):
        killed._end_at(gone, False)
