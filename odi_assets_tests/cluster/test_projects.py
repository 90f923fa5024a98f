"""A project whose ``spark`` settings name a cluster or a server, run by ``odi`` as a user would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from odi_assets_tests.cli.shop import FAILING, PROJECT, deliver, make_shop, odi
from odi_assets_tests.cluster.conftest import PLACES
from odi_assets_tests.cluster.servers import executors, local_environment


def placed(text: str, place: tuple[str, str], **more: str) -> str:
    """The project file on another place than this machine; ``more`` are settings of its classic session."""
    key, address = place
    conf = {"spark.sql.shuffle.partitions": "1"} | (executors() | more if key == "master" else {})
    begin, rest = text.index("spark:\n"), text.index("pipelines:\n")
    return f"{text[:begin]}spark: {json.dumps({key: address, 'conf': conf})}\n{text[rest:]}"


# Spark Connect does not count what SQL reads through a view.
SELECTED = PROJECT.replace(
    "        write: {connection: lake, path: orders,",
    '        transform: {sql: "SELECT * FROM df WHERE amount > 0"}\n        write: {connection: lake, path: orders,',
)


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_a_project_runs_where_its_settings_say(place: tuple[str, str], tmp_path: Path) -> None:
    def run(text: str) -> tuple[int, dict[str, Any], str]:
        (shop / "odibi.yaml").write_text(placed(text, place), encoding="utf-8")
        done = odi("run", "--json", cwd=shop, env=local_environment())
        assert done.stdout, done.stderr
        return done.returncode, {result["node"]: result for result in json.loads(done.stdout)}, done.stderr

    shop = tmp_path / "shop"
    make_shop(shop)
    deliver(shop, "orders-2.csv", ["3,ann,7", "4,bob,-1"])
    code, nodes, said = run(SELECTED + FAILING)
    assert (code, [nodes[name]["status"] for name in ("orders", "spending")]) == (1, ["SUCCESS", "SUCCESS"]), said
    assert nodes["orders"]["rows_read"] == (4 if place[0] == "master" else None)
    assert (nodes["orders"]["rows_written"], nodes["spending"]["rows_read"]) == (3, 3)
    spent = DeltaTable(str(shop / "lake" / "spending")).to_pyarrow_table().to_pylist()
    assert sorted((row["customer"], row["amount"]) for row in spent) == [("ann", 17), ("bob", 5)]
    assert "DIVIDE_BY_ZERO" in nodes["ratio"]["error"]
    assert "odi: shop.ratio failed: " in said
    for noise in ("Traceback", "\tat org.apache", "JVM stacktrace", "grpc", "Exception in thread", "WARN"):
        assert noise not in said

    code, nodes, said = run(SELECTED)
    assert (code, [node["status"] for node in nodes.values()]) == (0, ["NO_DATA", "NO_DATA"]), said
