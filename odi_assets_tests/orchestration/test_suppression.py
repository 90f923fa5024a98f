"""The private key that ``suppression.py`` leans on: these fail when a Dagster release changes what it does."""

from __future__ import annotations

from typing import Any

import dagster as dg

from odi_assets.orchestration.assets.suppress_materialization import PLANNED, suppress_materialization


class _Manager(dg.IOManager):
    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        if obj == "nothing":
            suppress_materialization(context)

    def load_input(self, context: dg.InputContext) -> Any:
        raise NotImplementedError


def _run(first_value: str) -> dg.ExecuteInProcessResult:
    @dg.asset
    def first() -> Any:
        yield dg.Output(first_value, metadata=PLANNED)

    @dg.asset(deps=[first])
    def second() -> Any:
        yield dg.Output("rows", metadata=PLANNED)

    job = dg.Definitions(
        assets=[first, second], jobs=[dg.define_asset_job("both")], resources={"io_manager": _Manager()}
    ).resolve_job_def("both")
    return job.execute_in_process()


def _materialized(result: dg.ExecuteInProcessResult) -> list[str]:
    return [event.asset_key.to_user_string() for event in result.get_asset_materialization_events() if event.asset_key]


def test_an_output_is_reported_as_a_materialization_unless_it_is_suppressed() -> None:
    assert _materialized(_run("rows")) == ["first", "second"]


def test_a_suppressed_output_is_not_a_materialization_and_does_not_keep_the_next_step_from_running() -> None:
    result = _run("nothing")
    assert result.success
    assert _materialized(result) == ["second"]
    assert result.output_for_node("first") == "nothing"
