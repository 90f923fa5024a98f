"""A step that fails shows what is wrong and what to do before any stack."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

from odi_assets.nodes.project import Project
from odi_assets.orchestration.assets.io_manager import IO_MANAGER
from odi_assets.orchestration.definitions import build_definitions
from odi_assets_tests.orchestration.small_project import PROJECT_FILE, make_project

PLANNED = PROJECT_FILE.replace("path: sales/*.csv", "path: none/*.csv").replace(
    "incremental: files", "incremental: null"
)
COMPUTED = PROJECT_FILE.replace("amount FROM raw_sales", "amount FROM raw_sales JOIN no_such_table USING (id)")
WRITTEN = PROJECT_FILE.replace("SELECT id, CAST(day AS DATE)", "SELECT id, CAST(concat(day, 'x') AS DATE)")


def failure_of(project: Project, *assets: dg.AssetsDefinition, only: str | None = None) -> dg.DagsterEvent:
    """The event of the first step that fails in a run of the pipeline, or of the assets beside it."""
    definitions = build_definitions(project, executor=dg.in_process_executor)
    if assets:
        resources = definitions.resources
        result = dg.materialize([*assets], resources=resources, selection=only, raise_on_error=False)
    else:
        result = definitions.resolve_job_def("shop").execute_in_process(raise_on_error=False)
    assert not result.success
    return next(event for event in result.all_events if event.is_step_failure)


def shown(event: dg.DagsterEvent) -> tuple[list[str], dict[str, str]]:
    """The lines of the failure that Dagster shows first, and the metadata beside them."""
    failure = event.step_failure_data.user_failure_data
    assert failure is not None
    assert failure.description is not None
    values = {name: str(value.value) for name, value in failure.metadata.items()}
    assert event.step_failure_data.error is not None
    assert failure.description in event.step_failure_data.error.message
    return failure.description.splitlines(), values


@pytest.mark.parametrize(
    ("text", "node", "kind", "wrong", "source"),
    [
        (PLANNED, "raw_sales", "NothingThereError", "no file matches none/*.csv", None),
        (COMPUTED, "sales", "TransformError", "no_such_table", "shop.raw_sales"),
        (WRITTEN, "sales", "TransformError", "2024-01-01x", "shop.raw_sales"),
    ],
    ids=["planned", "computed", "written"],
)
@pytest.mark.slow
def test_a_failed_node_shows_what_is_wrong_and_what_to_do_first(
    text: str, node: str, kind: str, wrong: str, source: str | None, tmp_path: Path
) -> None:
    event = failure_of(make_project(tmp_path, "2024-01-01", text=text))
    lines, metadata = shown(event)
    assert wrong in lines[0]
    assert lines[1] == f"→ {metadata['remedy']}"
    assert not any(line.lstrip().startswith(("at org.", "File ")) for line in lines)
    assert (metadata["asset"], metadata["error"]) == (f"shop/{node}", kind)
    assert metadata.get("sources") == source
    assert metadata.get("hwm") == (None if source is None else "none")


@pytest.mark.slow
def test_the_stack_of_the_error_is_kept_behind_it(tmp_path: Path) -> None:
    error = failure_of(make_project(tmp_path, "2024-01-01", text=COMPUTED)).step_failure_data.error
    assert error is not None
    assert error.cause is not None
    assert "no_such_table" in error.cause.message
    assert error.cause.stack


def test_an_asset_that_is_no_node_fails_with_its_own_remedy(tmp_path: Path) -> None:
    project = make_project(tmp_path)

    @dg.asset(io_manager_key=IO_MANAGER, metadata={"connection": "lake", "mode": "swap"})
    def prices() -> pa.Table:
        return pa.table({"id": [1]})

    lines, metadata = shown(failure_of(project, prices))
    assert "asset prices has the write mode `swap`" in lines[0]
    assert metadata == {"asset": "prices", "error": "ConfigError", "remedy": metadata["remedy"]}
    assert "overwrite" in metadata["remedy"]


def test_an_input_that_cannot_be_loaded_says_what_to_materialize(tmp_path: Path) -> None:
    project = make_project(tmp_path)

    @dg.asset(io_manager_key=IO_MANAGER, metadata={"connection": "lake"})
    def prices() -> pa.Table:
        return pa.table({"id": [1]})

    @dg.asset(io_manager_key=IO_MANAGER, metadata={"connection": "lake"})
    def counted(prices: pa.Table) -> pa.Table:
        return prices

    _, metadata = shown(failure_of(project, prices, counted, only="counted"))
    assert metadata["asset"] == "prices"
    assert "materialize the asset that writes it first" in metadata["remedy"]
