"""The documented face of state: Odibi's ``StateManager``, on any backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odi_assets.state.backend import StateBackend
from odi_assets.state.local.backend import LocalJSONStateBackend
from odi_assets.state.records import HwmEntry, pipeline_data
from odi_assets.state.transfer.document import parse, to_document, to_text
from odi_assets.state.transfer.load import decide
from odi_assets.state.transfer.snapshot import take

if TYPE_CHECKING:
    from odi_assets.state.transfer.load import Transfer


class StateManager:
    """High-water marks and last runs of a project.

    Args:
        project_root: the project file's folder.
        backend: where the state is; without one, the JSON file ``.odibi/state.json`` of the project.
    """

    def __init__(self, project_root: str | Path = ".", backend: StateBackend | None = None) -> None:
        if backend is None:
            backend = LocalJSONStateBackend(Path(project_root) / ".odibi" / "state.json")
        self.backend = backend

    def get_hwm(self, key: str) -> Any:
        """The value of ``key``; None if it was never set."""
        return self.backend.get_hwm(key)

    def set_hwm(self, key: str, value: Any) -> None:
        """Move ``key`` forward to ``value``.

        Raises:
            StateError: ``value`` lies before the present one, or is of another type.
        """
        self.backend.set_hwm(key, value)

    def set_hwm_batch(self, updates: Sequence[Mapping[str, Any]]) -> None:
        """Move many keys forward, all or none; each update holds ``key`` and ``value``."""
        self.backend.set_hwm_batch(updates)

    def reset_hwm(self, key: str, value: Any) -> None:
        """Set ``key`` to ``value``, back or forward."""
        self.backend.reset_hwm(key, value)

    def delete_hwm(self, key: str) -> bool:
        """Delete ``key``; False if it was not set."""
        return self.backend.delete_hwm(key)

    def list_hwms(self) -> list[HwmEntry]:
        """Every key that is set."""
        return self.backend.list_hwms()

    def history(self, key: str) -> list[HwmEntry]:
        """The revisions of ``key``, newest first."""
        return self.backend.history(key)

    def export_state(self, *, history: bool = False, runs: bool = False) -> dict[str, Any]:
        """All high-water marks of the backend's environment, with their types, as one JSON-ready document.

        Args:
            history: with the revisions before the present one that are kept.
            runs: with run history.
        """
        environments = [self.backend.environment]
        snapshot = take(self.backend, project=None, environments=environments, history=history, runs=runs)
        return to_document(snapshot, history=history, runs=runs)

    def import_state(self, document: Mapping[str, Any], *, force: bool = False, dry_run: bool = False) -> Transfer:
        """Take over what :meth:`export_state` gave, all of an environment or nothing.

        Args:
            document: the document. Its marks go into the environments that it names.
            force: also move marks back that are further here, or were written later.
            dry_run: change nothing.

        Returns:
            What it did to each key.

        Raises:
            ConfigError: everything that is wrong with the document. Nothing was changed.
            StateError: marks would move back, and ``force`` was not said. Nothing was changed.
        """
        transfer = decide(parse(to_text(dict(document)), "the document"), self.backend, same_tables=True, force=force)
        transfer.require_none_kept()
        if not dry_run:
            transfer.apply()
        return transfer

    def get_last_run_status(self, pipeline_name: str, node_name: str) -> bool | None:
        """Whether the node's last run succeeded; None if it never ran."""
        return self.backend.get_last_run_status(pipeline_name, node_name)

    def get_last_run_info(self, pipeline_name: str, node_name: str) -> dict[str, Any] | None:
        """``success``, ``metadata`` and more of the node's last run; None if it never ran."""
        return self.backend.get_last_run_info(pipeline_name, node_name)

    def save_pipeline_run(self, pipeline_name: str, results: Any) -> None:
        """Record a pipeline's run: an Odibi results object (``node_results``), or a mapping of the same form."""
        self.backend.save_pipeline_run(pipeline_name, pipeline_data(results))
