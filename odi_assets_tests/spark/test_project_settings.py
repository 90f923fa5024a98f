"""Whatever starts Spark for a project starts it with all that `spark` of its file says."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from odi_assets.cli import main
from odi_assets.cli.checkpoint.place import CheckpointPlace, open_reader
from odi_assets.config.models import SparkConfig
from odi_assets.errors import OdiError
from odi_assets.nodes.project import Project
from odi_assets.orchestration.definitions import build_definitions
from odi_assets.sample.examples import Example, create
from odi_assets.spark import session
from odi_assets.streams.execution import definition as stream_definition
from odi_assets_tests.pages import ROOT

SAID: dict[str, Any] = {
    "master": "local[3]",
    "remote": "sc://127.0.0.1:1",
    "conf": {"spark.sql.shuffle.partitions": "7", "spark.a.b": "c"},
    "packages": ["org.postgresql:postgresql:42.7.8"],
}
"""By field of `spark`, what a project file says of it in these tests: another value than the default."""


class NoSession(OdiError):
    """Raised where a session would start."""


def _materialize(project: Project) -> None:
    definitions = build_definitions(project, executor=dg.in_process_executor)
    job = definitions.resolve_implicit_global_asset_job_def()
    keys = [key for key in job.asset_layer.executable_asset_keys if key.path[-1] in ("orders", "paid_orders")]
    assert not job.execute_in_process(raise_on_error=False, asset_selection=keys).success


def _typed(command: str) -> Callable[[Project], None]:
    def way(_: Project) -> None:
        assert main(command.split()) == 1

    return way


def _explain(project: Project) -> None:
    write_deltalake(project.location("lake", "orders").uri, pa.table({"order_id": [1]}))
    _typed("explain orders --key order_id=1")(project)


def _lineage(project: Project) -> None:
    (project.root / "same.py").write_text("def same(df):\n    return df\n", encoding="utf-8")
    text = project.path.read_text(encoding="utf-8")
    written = "    write: {connection: lake, path: orders"
    project.path.write_text(
        text.replace(written, f"    transform: {{function: 'same:same'}}\n{written}"), encoding="utf-8"
    )
    _typed("lineage orders")(project)


def _a_reader(project: Project) -> None:
    place = CheckpointPlace(project.location("lake", "checkpoint"), project)
    place.location.local_path.mkdir(parents=True)
    (place.location.local_path / "metadata").write_text('{"id": "of-a-query"}', encoding="utf-8")
    with pytest.raises(NoSession), open_reader(place):
        pass


def _a_definition(project: Project) -> None:
    with pytest.raises(NoSession):
        stream_definition._tell_definition(str(project.path), "", "orders_payments.paid_orders", "")


FILES, STREAM = Example.FILES, Example.STREAM
WAYS: dict[str, tuple[Example, Callable[[Project], None]]] = {
    "odi run": (FILES, _typed("run --node orders")),
    "odi run of a stream": (STREAM, _typed("run --node paid_orders")),
    "odi explain": (FILES, _explain),
    "odi lineage": (FILES, _lineage),
    "odi stream run": (STREAM, _typed("stream run paid_orders")),
    "odi explain of a stream": (STREAM, _typed("explain paid_orders --key ord-1")),
    "Dagster": (FILES, _materialize),
    "Dagster, a stream": (STREAM, _materialize),
    "a checkpoint's reader": (STREAM, _a_reader),
    "the process that examines a query": (STREAM, _a_definition),
}
_HERE = {"master": "local[1]", "remote": None}
HERE_ONLY = {"odi lineage": _HERE, "the process that examines a query": _HERE}
"""Where a way has settings of its own: it is a process of this machine."""


@pytest.fixture
def started_with(monkeypatch: pytest.MonkeyPatch) -> list[SparkConfig]:
    """The settings that sessions were to start with. None starts."""
    found: list[SparkConfig] = []

    def no_session(config: SparkConfig, *_: Any, **__: Any) -> None:
        found.append(config)
        raise NoSession("no session starts in this test")

    monkeypatch.setattr(session, "JvmStart", lambda *_, **__: None)
    monkeypatch.setattr(session, "classic_session", no_session)
    monkeypatch.setattr(session, "_connect", no_session)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    return found


@pytest.mark.parametrize("left_out", [{"remote"}, set()], ids=["here", "Spark Connect"])
@pytest.mark.parametrize("way", WAYS)
def test_a_session_starts_with_the_settings_of_the_project_file(
    way: str, left_out: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started_with: list[SparkConfig]
) -> None:
    example, start = WAYS[way]
    create(tmp_path, example)
    said = {field: SAID[field] for field in SparkConfig.model_fields if field not in left_out}
    config = SparkConfig.model_validate(said)
    assert all(getattr(config, field) != getattr(SparkConfig(), field) for field in said)
    text = (tmp_path / "odibi.yaml").read_text(encoding="utf-8")
    head, _, rest = text.partition("spark:\n")
    tail = rest[rest.index("pipelines:") :]
    (tmp_path / "odibi.yaml").write_text(f"{head}spark: {json.dumps(said)}\n{tail}", encoding="utf-8")
    for name in ("ODI_PROJECT", "ODI_ENV", "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    start(Project.load())
    assert started_with
    wanted = config.model_copy(update=HERE_ONLY.get(way, {}))
    assert all(one == wanted for one in started_with)


NOT_AS_IT_STANDS = {
    "cli/project/lineage.py": "the file's settings, but on this machine: it is among the ways above",
    "orchestration/resources.py": "the file's settings, and over them those that Dagster's own gives the resource",
    "streams/execution/definition.py": "the file's settings, but on this machine: it is among the ways above",
    "cli/checkpoint/place.py": "a checkpoint of no project has no settings: it is among the ways above",
    "checkpoints/reader.py": "a reader in Python, of whoever has no session and no project",
}
"""The files with a call that does not pass `….config.spark` as it stands, and why."""


@pytest.mark.slow
def test_every_place_that_starts_a_session_passes_settings_whole() -> None:
    """Settings that are put together field by field lack the next field."""
    others = set()
    for file in (ROOT / "odi_assets").rglob("*.py"):
        name = str(file.relative_to(ROOT / "odi_assets"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            given = [ast.unparse(one) for one in node.args]
            if node.func.id == "SparkConfig":
                assert not [*given, *node.keywords], f"{name}:{node.lineno}"
            if node.func.id in ("open_session", "session_beginning") and not "".join(given).endswith("config.spark"):
                others.add(name)
    assert others == set(NOT_AS_IT_STANDS)
