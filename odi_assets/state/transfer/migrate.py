"""Moving a whole store of state into another: all environments, run history, and what Odibi left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from uuid import NAMESPACE_URL, uuid5

from odi_assets.errors import ConfigError
from odi_assets.state.backend import StateBackend
from odi_assets.state.local.backend import LocalJSONStateBackend
from odi_assets.state.records import RunRecord, records_of
from odi_assets.state.transfer import snapshot as snapshots
from odi_assets.state.transfer.load import Transfer, decide
from odi_assets.state.transfer.snapshot import EnvironmentState, StateSnapshot


def migration(
    source: StateBackend,
    target: StateBackend,
    *,
    renames: Mapping[str, str] | None = None,
    into: str | None = None,
    rename_environment: bool = False,
    force: bool = False,
) -> Transfer:
    """Decide what moving ``source`` into ``target`` would change. Changes nothing.

    Args:
        source: where the state is; it stays there.
        target: where it shall be.
        renames: new names of keys.
        into: with ``rename_environment``, the environment that the source's only one becomes.
        rename_environment: whether ``into`` counts; it may be None, the environment without a name.
        force: also move keys back that are further in ``target``, or were written later.

    Raises:
        ConfigError: both are one store, or the source holds nothing.
        StateError: one of them cannot be read, or the renames do not fit.
    """
    if repr(source) == repr(target):
        raise ConfigError("this would move state onto itself", fix="name two different places")
    snapshot = read(source)
    if not snapshot.environments:
        raise ConfigError(f"there is no state in {source!r}", fix="check its path; nothing was changed")
    if rename_environment:
        snapshot = snapshots.into(snapshot, into)
    return decide(snapshot, target, same_tables=True, renames=renames, force=force)


def read(source: StateBackend) -> StateSnapshot:
    """All that a store holds, with what Odibi noted in it."""
    snapshot = snapshots.take(source, project=None, history=True, runs=True)
    return replace(snapshot, environments=tuple(_with_odibis_runs(source, state) for state in snapshot.environments))


def _with_odibis_runs(source: StateBackend, state: EnvironmentState) -> EnvironmentState:
    if not isinstance(source, LocalJSONStateBackend) or state.environment is not None:
        return state
    known = {(record.pipeline_name, record.node_name) for record in state.runs}
    extra = [run for run in _odibis_runs(source) if (run.pipeline_name, run.node_name) not in known]
    return replace(state, runs=(*state.runs, *extra))


def _odibis_runs(source: LocalJSONStateBackend) -> Iterator[RunRecord]:
    """What Odibi noted of each pipeline's last run, under ids that are the same each time."""
    there = source.in_environment(None)
    for pipeline, data in there.odibi_pipelines().items():
        # A run without a time gets the time of the file: the same at each migration.
        ended = data.get("last_run") or datetime.fromtimestamp(source.path.stat().st_mtime, UTC).isoformat()
        run_id = str(uuid5(NAMESPACE_URL, f"odibi/{pipeline}/{ended}"))
        yield from records_of(pipeline, {**data, "last_run": ended, "run_id": run_id})
