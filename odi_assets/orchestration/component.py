"""A Dagster component: the pipelines of a project file in somebody's Dagster project, by a ``defs.yaml``.

There is no ``from __future__ import annotations`` here: Dagster makes the component's schema of its annotations.
"""

import os
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from pydantic import BaseModel, Field

from odi_assets.config.graph import NodeKey
from odi_assets.config.json_schema import SCHEMA_FILE, schema_text
from odi_assets.config.models.durations import parse_duration
from odi_assets.errors import ConfigError
from odi_assets.nodes.project import DEFAULT_PROJECT_FILE, Project
from odi_assets.orchestration.definitions import build_definitions

_EXAMPLE = """
# yaml-language-server: $schema={schema}
# The pipelines of this component. `odi plan` says what a run would read, `odi config check` whether this file is right.
project: {name}
connections:
  landing: {{type: local, base_path: landing}}   # where files arrive; beside this file
  lake: {{type: local, base_path: lake}}         # where the tables are
system: {{connection: lake, path: system}}       # how far each node has read, and what ran
pipelines:
  - pipeline: shop
    nodes:
      - name: raw_orders
        read:
          connection: landing
          format: csv
          path: orders/*.csv
          schema: "id BIGINT, customer STRING, amount DOUBLE"
          options: {{header: "true"}}
          incremental: files
        write: {{connection: lake, path: raw_orders, mode: append}}
      - name: customers
        inputs: [raw_orders]
        transform:
          sql: SELECT customer, count(*) AS orders, sum(amount) AS amount FROM raw_orders GROUP BY customer
        write: {{connection: lake, path: customers, mode: overwrite}}
"""
_ORDERS = "id,customer,amount\n1,Ada,10.5\n2,Grace,20\n3,Ada,4.5\n"


class PipelinesScaffoldParams(BaseModel):
    """What ``dg scaffold defs odi_assets.PipelinesComponent`` asks."""

    project: str | None = Field(default=None, description="A project file that is there already, as a path from here.")


class PipelinesScaffolder(dg.Scaffolder[PipelinesScaffoldParams]):
    """Writes ``defs.yaml``, with prefixes of the component's own, so that a project may have several; and, unless one
    is named, a small project file with a landed file that runs as it is."""

    @classmethod
    def get_scaffold_params(cls) -> type[PipelinesScaffoldParams]:
        return PipelinesScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[PipelinesScaffoldParams]) -> None:
        """Write the files of a new component."""
        params = request.params
        try:
            named = _from_component(request.target_path, params.project) if params and params.project else None
        except ConfigError:
            # `dg` has made the folder, and refuses to scaffold into one that is there.
            if request.target_path.is_dir() and not any(request.target_path.iterdir()):
                request.target_path.rmdir()
            raise
        name = _name(request.target_path)
        attributes = {"project": named or DEFAULT_PROJECT_FILE, "key_prefix": name, "resource_prefix": f"{name}_"}
        dg.scaffold_component(request, attributes)
        file = request.target_path / DEFAULT_PROJECT_FILE
        if named is None and not file.exists():
            text = _EXAMPLE.format(name=name, schema=SCHEMA_FILE)
            file.write_text(textwrap.dedent(text).lstrip(), encoding="utf-8")
            (request.target_path / SCHEMA_FILE).write_text(schema_text(), encoding="utf-8")
            landing = request.target_path / "landing" / "orders"
            landing.mkdir(parents=True, exist_ok=True)
            (landing / "1.csv").write_text(_ORDERS, encoding="utf-8")


def _from_component(folder: Path, project: str) -> str:
    """The path of a project file from the folder of a component. It may be given as one already."""
    file = next((file for file in (Path.cwd() / project, folder / project) if file.is_file()), None)
    if file is None:
        raise ConfigError(f"--project {project}: there is no such file in {Path.cwd()}", fix="give the path from here")
    return project if Path(project).is_absolute() else Path(os.path.relpath(file, folder)).as_posix()


def _name(folder: Path) -> str:
    """The name of a component: the way from the folder ``defs`` to its own. No other component has it."""
    above = [i for i, part in enumerate(folder.parts[:-1]) if part == "defs"]
    parts = folder.parts[above[-1] + 1 :] if above else folder.parts[-1:]
    return re.sub(r"\W", "_", "_".join(parts), flags=re.ASCII) or "pipelines"


def _fresh_within(span: str) -> dg.FreshnessPolicy:
    return dg.FreshnessPolicy.time_window(parse_duration(span))


@dataclass(frozen=True)
class PipelineNode:
    """A node, as ``translation`` and ``get_asset_spec`` get it.

    Attributes:
        pipeline, name: of the node.
        tags: of the node and of its pipeline.
        spec: its asset as the project file has it.
    """

    pipeline: str
    name: str
    tags: Sequence[str]
    spec: dg.AssetSpec


@dg.scaffold_with(PipelinesScaffolder)
class PipelinesComponent(dg.Component, dg.Model, dg.Resolvable):
    """The pipelines of a project file as assets: a node each, with jobs, schedules and sensors.

    Spark computes the nodes, Delta stores them, and each remembers exactly how far it has read.
    """

    project: Annotated[
        str,
        dg.Resolver.default(
            description="The project file, relative to this folder.", examples=["odibi.yaml", "../../odibi.yaml"]
        ),
    ] = DEFAULT_PROJECT_FILE
    environment: Annotated[
        str | None,
        dg.Resolver.default(
            description="Which of the file's `environments`; $ODI_ENV unless given.", examples=["prod"]
        ),
    ] = None
    key_prefix: Annotated[
        str | list[str],
        dg.Resolver.default(
            description="Comes before the keys of the assets and the names of jobs, schedules and sensors. Two "
            "components in one code location need different ones.",
            examples=["sales"],
        ),
    ] = []  # noqa: RUF012  pydantic copies it
    resource_prefix: Annotated[
        str,
        dg.Resolver.default(
            description="Comes before the keys of the resources `spark`, `state`, `run_history` and "
            "`delta_io_manager`, where others have these names.",
            examples=["odi_"],
        ),
    ] = ""
    max_retries: Annotated[
        int,
        dg.Resolver.default(description="How often Dagster tries the step of a node again that failed, in any run."),
    ] = 0
    retry_delay: Annotated[
        float | None,
        dg.Resolver.default(description="Seconds before each of these retries; none unless given."),
    ] = None

    translation: Annotated[
        TranslationFn[PipelineNode] | None,
        TranslationFnResolver[PipelineNode](lambda node: {"node": node}),
    ] = None
    """How the assets of nodes are shown: key, group, owners, tags, automation condition, freshness policy …"""

    @classmethod
    def get_additional_scope(cls) -> Mapping[str, Any]:
        """What ``{{ … }}`` may use besides Dagster's own: ``fresh_within('26h')``, a freshness policy."""
        return {**super().get_additional_scope(), "fresh_within": _fresh_within}

    def get_asset_spec(self, node: PipelineNode) -> dg.AssetSpec:
        """The asset of a node as Dagster shows it: ``node.spec``, with what ``translation`` says. A class derived from
        this one may give another; what a node reads, its partitions and its code version are the project file's."""
        return node.spec if self.translation is None else self.translation(node.spec, node)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The definitions of the project file.

        Raises:
            ConfigErrors: all mistakes of the project file.
        """
        loaded = Project.load(context.path / self.project, self.environment)

        def shown(key: NodeKey, spec: dg.AssetSpec) -> dg.AssetSpec:
            tags = (*loaded.pipelines[key.pipeline].tags, *loaded.graph.node(key).tags)
            return self.get_asset_spec(PipelineNode(key.pipeline, key.node, tags, spec))

        own = type(self).get_asset_spec is PipelinesComponent.get_asset_spec
        return build_definitions(
            loaded,
            key_prefix=self.key_prefix,
            resource_prefix=self.resource_prefix,
            retry_policy=dg.RetryPolicy(self.max_retries, self.retry_delay) if self.max_retries else None,
            asset_spec=None if own and self.translation is None else shown,
        )
