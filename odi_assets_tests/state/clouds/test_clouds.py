"""The system tables in object stores: the whole contract, several processes at once, and stores that refuse."""

from __future__ import annotations

import base64
import json
import logging
import os
import subprocess
import sys
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml
from pydantic import TypeAdapter

from odi_assets.config.models import Connection
from odi_assets.connections import resolve
from odi_assets.delta.errors import StoreAccessError, StoreUnreachableError
from odi_assets.delta.retry import Retry
from odi_assets.errors import StateError, Transient
from odi_assets.state import StateBackend
from odi_assets.state.delta.backend import CatalogStateBackend
from odi_assets.store.provider import StateStoreProvider
from odi_assets_tests.state import test_hwm_contract, test_runs_contract, writers
from odi_assets_tests.state.clouds import clouds
from odi_assets_tests.state.clouds.clouds import SECRET, Cloud
from odi_assets_tests.state.conftest import CLOUD, Reopen, open_cloud
from odi_assets_tests.state.test_runs_contract import run
from odi_assets_tests.state.values import test_values

STORES = ["azure.key", "azure.sas", "s3.key", "gcs.key"]
# What a backend does with many keys or many writes does not depend on the store, and takes long on one.
CONTRACT = [
    *("a_key_never_set_is_none", "an_entry_tells_who_wrote_it_when_and_for_which_commit"),
    *("a_stale_writer_cannot_move_a_value_back", "compare_and_set_wants_the_revision_it_saw"),
    *(
        "a_batch_sets_all_keys_and_of_two_updates_of_one_key_the_last",
        "a_batch_with_one_refused_update_changes_nothing",
    ),
    *("deleting_one_key_touches_no_other", "history_shows_every_revision_newest_first_with_tombstones"),
    *("environments_share_no_keys", "a_run_comes_back_whole", "runs_are_listed_newest_first_and_filtered"),
    *("every_example_comes_back_from_a_backend", "compare_and_set_takes_a_deleted_key_for_one_not_set"),
    *("no_runs_are_no_rows", "environments_share_no_runs", "a_pipeline_run_is_saved_from_a_mapping"),
]
for name in CONTRACT:
    globals()[f"test_{name}"] = next(
        getattr(module, f"test_{name}")
        for module in (test_hwm_contract, test_runs_contract, test_values)
        if hasattr(module, f"test_{name}")
    )


class Servers:
    """The servers of this session, each started when it is first asked for."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._started: dict[str, Cloud | pytest.skip.Exception] = {}
        self._starts = {"azure": clouds.azure, "s3": clouds.s3, "gcs": clouds.gcs}
        self._starts["s3 strict"] = lambda: clouds.s3(strict=True)

    def __getitem__(self, name: str) -> Cloud:
        if name not in self._started:
            try:
                self._started[name] = self._stack.enter_context(self._starts[name]())
            except pytest.skip.Exception as cannot:
                # Asking npm again for each test would take minutes.
                self._started[name] = cannot
        found = self._started[name]
        if isinstance(found, pytest.skip.Exception):
            pytest.skip(str(found))
        return found


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack)


@pytest.fixture(params=["azure.sas", "s3.key", "gcs.key"])
def kind(request: pytest.FixtureRequest, servers: Servers, monkeypatch: pytest.MonkeyPatch) -> str:
    """Not which backend, as elsewhere, but which store: the environment tells it to this process and to writers."""
    server, _, how = request.param.partition(".")
    monkeypatch.setenv(CLOUD, json.dumps(servers[server].resolved(how)))
    return "cloud"


@pytest.fixture
def folder() -> Path:
    return Path("tests") / uuid.uuid4().hex


@pytest.fixture
def reopen(kind: str, folder: Path) -> Callable[..., StateBackend]:
    def opened(environment: str | None = None) -> StateBackend:
        return writers.open_backend(kind, folder, environment)

    return opened


@pytest.mark.parametrize("kind", STORES, indirect=True)
def test_many_small_files_are_folded_and_what_nothing_refers_to_goes(reopen: Reopen) -> None:
    backend = reopen()
    for number in range(6):
        backend.set_hwm(f"k{number % 2}", number)
    reopen("dev").set_hwm("k0", "dev")
    backend.record_runs([run(1)])
    backend.record_runs([run(2)])
    assert backend.maintain()["files_folded"] == 9
    assert {entry.key: entry.value for entry in reopen().list_hwms()} == {"k0": 4, "k1": 5}
    assert [entry.revision for entry in reopen().history("k0")] == [3, 2, 1]
    assert reopen("dev").get_hwm("k0") == "dev"
    assert reopen().get_last_run("flights", "raw") == run(2)
    assert backend.set_hwm("k0", 9).revision == 4


@pytest.mark.parametrize("kind", ["azure.key", "s3.key", "gcs.key"], indirect=True)
def test_two_writer_processes_lose_nothing_and_never_wait(kind: str, folder: Path, reopen: Reopen) -> None:
    """Their first writes make the table, at once."""
    running = writers.start(kind, folder, "set_own_keys", 6, ["a", "b"])
    writers.go(running)
    assert [len(told) for told in writers.acknowledged(running)] == [6, 6]
    found = {entry.key: (entry.value, entry.revision) for entry in reopen().list_hwms()}
    assert found == {f"{name}.{n % 5}": (n, 2 if n == 6 else 1) for name in "ab" for n in range(2, 7)}


@pytest.mark.parametrize("kind", ["azure.key", "s3.key", "gcs.key"], indirect=True)
def test_two_writer_processes_count_exactly_by_compare_and_set(kind: str, folder: Path, reopen: Reopen) -> None:
    running = writers.start(kind, folder, "increment_shared", 5, ["a", "b"])
    writers.go(running)
    won = Counter(value for told in writers.acknowledged(running) for value in told)
    assert won == Counter(range(1, 11))
    assert reopen().get_hwm("shared") == 10


# -- stores that refuse ------------------------------------------------------------------------------------------------


def fault(servers: Servers, name: str) -> dict[str, Any]:
    """A connection with one thing wrong."""
    found = servers[name.split(":")[0]].resolved("sas" if "signature" in name else "key")
    if name == "azure: another account key":
        found["auth"]["account_key"] = base64.b64encode(b"wrong" + SECRET.encode()).decode()
    if name == "azure: a key that is no key":
        found["auth"]["account_key"] = SECRET + "!"
    if name == "azure: a signature that has expired":
        found["auth"]["sas_token"] = clouds.sas(valid_for=timedelta(hours=-1))
    if name == "s3 strict: another secret key":
        found["secret_access_key"] = "wrong" + SECRET
    if name == "gcs: a key without a private key":
        found["service_account_key"] = json.dumps({"client_email": "me", "private_key": SECRET, "private_key_id": "1"})
    if "no such" in name:
        found["container" if found["type"] == "azure_blob" else "bucket"] = "nowhere"
    return found


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("azure: another account key", "repair the key"),
        ("azure: a key that is no key", "nothing could be asked"),
        ("azure: a signature that has expired", "has expired"),
        ("azure: no such container", "make the bucket or container"),
        ("s3 strict: another secret key", "repair the key"),
        ("s3: no such bucket", "make the bucket or container"),
        ("gcs: no such bucket", "make the bucket or container"),
        ("gcs: a key without a private key", "nothing could be asked"),
    ],
)
def test_a_store_that_refuses_is_told_at_once_with_its_connection_and_no_secret(
    servers: Servers, folder: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str],
    name: str, says: str,
) -> None:  # fmt: skip
    connection = fault(servers, name)
    caplog.set_level(logging.DEBUG)
    backend = open_cloud(connection, folder)
    for call in (lambda: backend.get_hwm("k"), lambda: backend.set_hwm("k", 1), lambda: backend.record_runs([run()])):
        with pytest.raises(StoreAccessError, match=r"lake|nowhere") as told:
            call()
        assert told.value.connection == "cloud"
        assert "connection `cloud`" in str(told.value)
        assert says in told.value.fix
        assert not isinstance(told.value, Transient)
        assert "\x1b" not in str(told.value)
        shown = "".join(traceback.format_exception(told.value)) + repr(told.value) + repr(vars(told.value))
        assert not leaked(connection, shown + repr(backend))
    assert "trying again" not in caplog.text
    assert not leaked(connection, caplog.text + "".join(capfd.readouterr()))


def test_a_signature_that_may_only_read_reads_and_is_told_when_it_writes(servers: Servers, folder: Path) -> None:
    connection = servers["azure"].resolved("sas")
    open_cloud(connection, folder).set_hwm("k", 1)
    connection["auth"]["sas_token"] = clouds.sas(rights="rl")
    backend = open_cloud(connection, folder)
    assert backend.get_hwm("k") == 1
    with pytest.raises(StoreAccessError, match="403") as told:
        backend.set_hwm("k", 2)
    assert "write" in told.value.fix
    assert not leaked(connection, "".join(traceback.format_exception(told.value)))


@pytest.mark.parametrize("name", ["azure", "s3", "gcs"])
def test_an_endpoint_that_does_not_answer_is_asked_again_and_then_told(
    servers: Servers, folder: Path, name: str
) -> None:
    connection = servers[name].resolved("key")
    connection["endpoint"] = "http://127.0.0.1:1/shop" if name == "azure" else "http://127.0.0.1:1"
    waits: list[float] = []
    location = resolve(TypeAdapter(Connection).validate_python(connection), folder.as_posix(), Path())
    backend = CatalogStateBackend(
        f"{location.uri}/meta_runs",
        f"{location.uri}/meta_state",
        storage_options={**location.storage_options, "max_retries": "0"},
        retry=Retry(sleep=waits.append, draw=lambda low, _high: low),
        connection="cloud",
    )
    with pytest.raises(StoreUnreachableError, match="tests/") as told:
        backend.get_hwm("k")
    assert waits == [1, 2, 4, 8, 16]
    assert "endpoint of connection `cloud`" in told.value.fix
    assert not leaked(connection, "".join(traceback.format_exception(told.value)))


def test_a_data_file_that_is_gone_is_told_and_not_asked_for_again(servers: Servers, folder: Path) -> None:
    connection = servers["s3"].resolved("key")
    backend = open_cloud(connection, folder)
    backend.set_hwm("k", 1)
    client = clouds.client("s3", connection["endpoint"])
    listed = client.list_objects_v2(Bucket="lake", Prefix=folder.as_posix())["Contents"]
    (gone,) = [item["Key"] for item in listed if item["Key"].endswith(".parquet")]
    client.delete_object(Bucket="lake", Key=gone)
    with pytest.raises(StateError, match="reading a system table failed") as told:
        backend.get_hwm("k")
    assert not isinstance(told.value, Transient | StoreAccessError)


def leaked(connection: dict[str, Any], text: str) -> list[str]:
    """The secrets of a connection that a text holds, and the signature of a token among them."""
    auth = connection.get("auth", connection)
    names = ("account_key", "sas_token", "access_key_id", "secret_access_key", "service_account_key")
    values = [auth[name] for name in names if name in auth]
    values += [unquote(value.rpartition("sig=")[2]) for value in values if "sig=" in value]
    return [value for value in [*values, SECRET] if value in text]


def test_a_scheme_that_no_store_has_is_not_taken_for_no_state() -> None:
    uri = "wasbs://lake@shop.blob.core.windows.net/meta"
    with pytest.raises(StateError, match="`wasbs` is no scheme") as told:
        CatalogStateBackend(uri, uri).get_hwm("k")
    assert "abfss://" in told.value.fix


@pytest.mark.parametrize(
    "uri", ["az://lake/", "abfs://lake/", "abfss://lake@shop.dfs.core.windows.net/", "s3a://lake/"]
)
def test_other_ways_to_write_a_uri_lead_to_the_same_state(servers: Servers, folder: Path, uri: str) -> None:
    connection = servers["s3" if uri.startswith("s3") else "azure"].resolved("key")
    open_cloud(connection, folder).set_hwm("k", 1)
    location = resolve(TypeAdapter(Connection).validate_python(connection), "", Path())
    at = f"{uri}{folder.as_posix()}"
    backend = CatalogStateBackend(f"{at}/meta_runs", f"{at}/meta_state", storage_options=location.storage_options)
    assert backend.set_hwm("k", 2).revision == 2


# -- the rest of the state room ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", STORES)
def test_the_state_store_keeps_its_versions_there(servers: Servers, folder: Path, store: str) -> None:
    server, _, how = store.partition(".")
    connection = TypeAdapter(Connection).validate_python(servers[server].resolved(how))
    location = resolve(connection, folder.as_posix(), Path())
    provider = StateStoreProvider(location.uri, storage_options=location.storage_options)
    with provider.get_store(0) as first:
        first.put(b"a", b"1")
        first.put(b"b", b"2")
        assert first.commit() == 1
    with provider.get_store(1) as second:
        second.remove(b"a")
        assert second.commit() == 2
    again = StateStoreProvider(location.uri, storage_options=location.storage_options)
    assert dict(again.get_store(1, read_only=True).iterator()) == {b"a": b"1", b"b": b"2"}
    assert dict(again.get_store(2, read_only=True).iterator()) == {b"b": b"2"}


@pytest.mark.parametrize("store", STORES)
def test_the_command_line_keeps_state_there_with_secrets_of_the_environment(
    servers: Servers, folder: Path, tmp_path: Path, store: str
) -> None:
    server, _, how = store.partition(".")
    cloud = servers[server]
    read = {"connection": "cloud", "format": "csv", "path": "n.csv", "schema": "id INT"}
    node = {"name": "n", "read": read, "write": {"connection": "cloud", "path": "n"}}
    project = {
        "project": "x",
        "connections": {"cloud": cloud.connections[how]},
        "system": {"connection": "cloud", "path": folder.as_posix()},
        "pipelines": [{"pipeline": "p", "nodes": [node]}],
    }
    (tmp_path / "odibi.yaml").write_text(yaml.safe_dump(project))

    def odi(*arguments: str, **secrets: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "odi_assets.cli", *arguments]
        env = {**os.environ, **cloud.secrets, **secrets}
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)

    assert odi("state", "set", "p.n", "2013-01-31", "--type", "date").returncode == 0
    shown = odi("state", "get", "p.n")
    assert "2013-01-31" in shown.stdout
    listed = odi("--debug", "state", "list", "--json")
    assert [entry["key"] for entry in json.loads(listed.stdout)] == ["p.n"]
    said = shown.stderr + listed.stderr
    if store == "azure.sas":
        refused = odi("state", "list", "--debug", AZURE_SAS=clouds.sas(valid_for=timedelta(hours=-1)))
        assert refused.returncode == 1
        assert refused.stdout == ""
        assert "connection `cloud`" in refused.stderr
        said += refused.stderr
    assert not leaked(cloud.resolved(how), said)


def test_opening_state_in_a_store_loads_no_sdk_of_a_cloud(servers: Servers, folder: Path) -> None:
    script = (
        "import os, json, sys\n"
        "from odi_assets.config.models import Connection\n"
        "from odi_assets.connections import resolve\n"
        "from odi_assets.state import CatalogStateBackend\n"
        "from pydantic import TypeAdapter\n"
        "from pathlib import Path\n"
        f"connection = TypeAdapter(Connection).validate_python(json.loads(os.environ[{CLOUD!r}]))\n"
        f"at = resolve(connection, {folder.as_posix()!r}, Path())\n"
        "state = CatalogStateBackend(f'{at.uri}/r', f'{at.uri}/s', storage_options=at.storage_options)\n"
        "state.set_hwm('k', 1)\n"
        "sdks = {'fsspec', 's3fs', 'adlfs', 'gcsfs', 'boto3', 'botocore', 'azure', 'google', 'pyspark', 'dagster'}\n"
        "print(sdks & set(sys.modules))\n"
    )
    env = {**os.environ, CLOUD: json.dumps(servers["s3"].resolved("key"))}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
