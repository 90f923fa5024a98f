"""Versions of Dagster's packages: of this environment, and of the webserver and the code servers that run."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, distributions
from typing import Any

import dagster as dg
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import NormalizedName, canonicalize_name

from odi_assets.orchestration.deployment.look import Look, not_looked_at, right, wrong

VERSIONS, SERVERS = "versions", "servers"
_SECONDS = 20
_FAMILY = "dagster"
_START_AGAIN = (
    "start its code server again (its service, container or pod; `odi dev` does so itself), whose log says why it "
    "ended; then press Reload beside the location in the UI's Deployment page"
)


def look_at_packages() -> Iterator[Look]:
    """Whether the packages of Dagster that are installed here go together, by the versions that they ask for."""
    installed = {canonicalize_name(package.name): package for package in distributions() if package.name}
    family = {name: package for name, package in installed.items() if name.split("-")[0] == _FAMILY}
    apart = [
        f"{name} {package.version} asks for {need}"
        for name, package in sorted(family.items())
        for need in _unmet(package, family)
    ]
    if apart:
        yield wrong(
            VERSIONS, "; ".join(apart), "install all of Dagster's packages in one version, as constraints.txt has"
        )
    else:
        yield right(VERSIONS, f"{len(family)} packages of Dagster go together, dagster {dg.__version__} among them")
    yield not_looked_at(VERSIONS, "the daemon's version, which it does not say", "install it from the same image")


def _unmet(package: Distribution, family: Mapping[NormalizedName, Distribution]) -> Iterator[str]:
    for text in package.requires or ():
        try:
            need = Requirement(text)
        except InvalidRequirement:
            continue
        other = family.get(canonicalize_name(need.name))
        if other is not None and need.marker is None and not need.specifier.contains(other.version, prereleases=True):
            yield f"{need.name}{need.specifier}, and {other.version} is installed"


def look_at_servers(instance: dg.DagsterInstance, address: str) -> Iterator[Look]:
    """What the webserver at ``address`` says of itself and of the code servers, and whether it has this instance."""
    try:
        said = _answer(f"{address.rstrip('/')}/server_info")
        known = _graphql(address, _LOCATIONS)
        its_last = _graphql(address, _LAST_RUN)["runsOrError"]["results"]
    except (OSError, ValueError, KeyError) as error:
        yield wrong(SERVERS, f"the webserver at {address} does not answer: {error}", "start it, or correct the address")
        return
    here = {"dagster": dg.__version__}
    yield _compared("the webserver", {"dagster": str(said["dagster_version"])}, here)
    for entry in known["workspaceOrError"]["locationEntries"]:
        yield _location(entry, here)
    yield _same_instance(instance, address, [run["id"] for run in its_last])


def _location(entry: dict[str, Any], here: dict[str, str]) -> Look:
    loaded, name = entry["locationOrLoadError"] or {}, f"code location {entry['name']}"
    if "message" in loaded or not loaded:
        why = str(loaded.get("message", "it is not loaded yet")).strip().splitlines()[0]
        return wrong(SERVERS, f"{name} is not loaded: {why}", _START_AGAIN)
    return _compared(
        name, {library["name"]: library["version"] for library in loaded["dagsterLibraryVersions"] or ()}, here
    )


def _compared(what: str, there: dict[str, str], here: dict[str, str]) -> Look:
    apart = [
        f"{name} {there[name]}, and {version} here" for name, version in here.items() if there.get(name) != version
    ]
    if apart:
        return wrong(SERVERS, f"{what} has {'; '.join(apart)}", "start all of them from one image")
    return right(SERVERS, f"{what} has {', '.join(f'{name} {version}' for name, version in sorted(there.items()))}")


def _same_instance(instance: dg.DagsterInstance, address: str, its_last: list[str]) -> Look:
    own_last = [run.run_id for run in instance.get_runs(limit=1)]
    if not its_last and not own_last:
        return not_looked_at(SERVERS, f"whether {address} has this instance: neither has a run", "run something")
    unknown = [run_id for run_id in its_last if not instance.has_run(run_id)]
    unknown += [run_id for run_id in own_last if not _graphql(address, _RUN, run=run_id)["runOrError"].get("id")]
    if unknown:
        return wrong(
            SERVERS,
            f"the webserver at {address} has another instance: run {unknown[0]} is in one of the two alone",
            "give all processes the same DAGSTER_HOME, or the same dagster.yaml",
        )
    return right(SERVERS, f"the webserver at {address} has this instance")


def _graphql(address: str, query: str, **variables: str) -> dict[str, Any]:
    body = json.dumps({"query": query, "variables": variables}).encode()
    data = _answer(f"{address.rstrip('/')}/graphql", body)["data"]
    if not isinstance(data, dict):
        raise ValueError("its API refused a query")
    return data


def _answer(url: str, body: bytes | None = None) -> dict[str, Any]:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=_SECONDS) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


_LOCATIONS = (
    "{ workspaceOrError { ... on Workspace { locationEntries { name locationOrLoadError { "
    "... on RepositoryLocation { dagsterLibraryVersions { name version } } ... on PythonError { message } } } } } }"
)
_LAST_RUN = "{ runsOrError(limit: 1) { ... on Runs { results { id } } } }"
_RUN = "query($run: ID!) { runOrError(runId: $run) { ... on Run { id } } }"
