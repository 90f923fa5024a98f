"""The core knows kinds of nodes by their questions, and no wing by an import."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from odi_assets.config.models import NodeConfig
from odi_assets.nodes.kinds import PLACES, NodeKind, kind_of, load_place
from odi_assets_tests.pages import ROOT

PACKAGE = ROOT / "odi_assets"
WINGS = ("explain", "streams", "checkpoints", "store", "documents")
BATCH = {"name": "n", "read": {"connection": "c", "format": "parquet", "path": "p"}}
WRITE = {"connection": "c", "path": "t", "mode": "append"}


def test_each_place_of_the_table_is_there() -> None:
    for name in PLACES:
        assert callable(load_place(name))


def test_a_kind_answers_only_what_the_core_asks() -> None:
    kind = type(kind_of(NodeConfig.model_validate({**BATCH, "write": WRITE, "stream": {}})))
    assert issubclass(kind, NodeKind)
    assert {name for name in vars(kind) if not name.startswith("_")} <= set(vars(NodeKind))


@pytest.mark.slow
def test_no_module_of_the_core_asks_whether_a_node_streams() -> None:
    """``config`` defines the settings of streams, and checks them."""
    asks = [
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        if file.relative_to(PACKAGE).parts[0] not in (*WINGS, "cli", "config")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "stream" and ast.unparse(node.value).endswith("config")
    ]
    assert asks == []


PROJECT = """
project: shop
connections: {landing: {type: local, base_path: landing}, lake: {type: local, base_path: lake}}
pipelines:
  - pipeline: p
    nodes:
      - name: orders
        read: {connection: landing, format: json, path: orders, schema: "id BIGINT"}
        write: {connection: lake, path: orders, mode: append}
        STREAM
"""


@pytest.mark.parametrize(("stream", "loaded"), [("", False), ("stream: {}", True)], ids=["batch", "stream"])
@pytest.mark.slow
def test_the_wing_of_streams_is_loaded_with_the_first_stream_node(tmp_path: Path, stream: str, loaded: bool) -> None:
    (tmp_path / "landing" / "orders").mkdir(parents=True)
    (tmp_path / "odibi.yaml").write_text(PROJECT.replace("STREAM", stream), encoding="utf-8")
    script = (
        "import sys\n"
        "from odi_assets.cli import main\n"
        "main(['plan'])\n"
        "print('LOADED' if 'odi_assets.streams' in sys.modules else 'NOT LOADED')\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ("LOADED" if loaded else "NOT LOADED"), done.stderr
