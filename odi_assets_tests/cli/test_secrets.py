"""No secret of a project is written down: a project with each kind of store, database and queue, run by ``odi``.

What Spark Connect's server writes down is in ``cluster/test_secrets.py``.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from odi_assets.config.models import S3Connection
from odi_assets.connections import resolve
from odi_assets_tests.cli.shop import environment, odi
from odi_assets_tests.jars import s3a_jars
from odi_assets_tests.jdbc import jdbc_jars
from odi_assets_tests.sources.sql.servers import PASSWORD, Server, mariadb, mariadbd, postgres, postgres_program
from odi_assets_tests.state.clouds.clouds import Cloud, s3

FOREIGN = "option-hunter2"
SECRETS = {
    "AZURE_KEY": "YXp1cmUtaHVudGVyMg==",
    "AZURE_SAS": "sv=2024&sig=sas-hunter2",
    "GCS_KEY": json.dumps({"client_email": "me", "private_key_id": "id-hunter2", "private_key": "gcs-hunter2"}),
    "DB_PASSWORD": PASSWORD,
    "KAFKA_PASSWORD": "kafka-hunter2",
    "KAFKA_OPTION": "kafka-option-hunter2",
    "OPTION": FOREIGN,
    "HOOK": "https://hooks.shop.example/hook-hunter2",
    "MAIL_PASSWORD": "mail-hunter2",
}
WRONG = {"DB_PASSWORD": "wrong-hunter2", "S3_SECRET": "wrong-s3-hunter2"}

PROJECT = """\
project: secrets
retry: {{retries: 0}}
connections:
  landing: {{type: local, base_path: landing}}
  lake: {{type: local, base_path: lake}}
  bucket: {s3}
  azure: {{type: azure_blob, account_name: me, container: c, endpoint: "http://127.0.0.1:1/me",
           auth: {{mode: account_key, account_key: "${{AZURE_KEY}}"}}}}
  azure_sas: {{type: azure_blob, account_name: you, container: c, endpoint: "http://127.0.0.1:1/you",
               auth: {{mode: sas, sas_token: "${{AZURE_SAS}}"}}}}
  google: {{type: gcs, bucket: g, endpoint: "http://127.0.0.1:1", service_account_key: '${{GCS_KEY}}'}}
  queue: {{type: kafka, bootstrap_servers: "127.0.0.1:1", user: me, password: "${{KAFKA_PASSWORD}}", timeout: 1,
           options: {{security.protocol: SASL_SSL, sasl.mechanism: PLAIN, ssl.key.password: "${{KAFKA_OPTION}}"}}}}
{databases}
system: {{connection: lake, path: system}}
alerts:
  - {{type: slack, url: "${{HOOK}}"}}
  - {{type: email, host: mail.shop.example, user: odi, password: "${{MAIL_PASSWORD}}", from: odi@shop.example,
      to: ops@shop.example}}
spark:
  master: local[2]
  conf:
    spark.driver.memory: 1g
    spark.sql.shuffle.partitions: "1"
    spark.eventLog.enabled: "true"
    spark.eventLog.compress: "false"
    spark.eventLog.dir: "file:{folder}/events"
    spark.driver.extraClassPath: "{jars}"
pipelines:
  - pipeline: p
    nodes:
      - name: options
        read:
          {{connection: landing, format: csv, path: "*.csv", schema: "id INT", options: {{header: "true",
            fs.azure.account.key.them.dfs.core.windows.net: "${{OPTION}}",
            fs.gs.auth.service.account.private.key: "${{OPTION}}"}}}}
        write: {{connection: lake, path: options}}
      - name: streamed
        read:
          {{connection: landing, format: csv, path: "*.csv", schema: "id INT", options: {{header: "true",
            fs.azure.account.key.them.dfs.core.windows.net: "${{OPTION}}", apiToken: "${{OPTION}}"}}}}
        stream: {{}}
        write: {{connection: lake, path: streamed, mode: append}}
{nodes}
"""
NODE = "      - {{name: {name}, read: {{connection: {on}, {read}}}, write: {{connection: {to}, path: {name}}}}}"
DATABASE = (
    '  {name}: {{type: {type}, host: 127.0.0.1, port: {port}, database: odi, user: odi, password: "${{DB_PASSWORD}}"'
    "{log}}}"
)
LOGS = {"pg": ", log: {slot: odi_secrets, create: true}", "my": ""}
CAPTURED = {"pg": "public.events", "my": "odi.events"}
FILES = 'format: csv, path: "*.csv", schema: "id INT"'


@dataclass
class Project:
    """The project, and all that was said about it."""

    folder: Path
    env: dict[str, str] = field(repr=False)
    said: list[str] = field(default_factory=list)

    def odi(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        done = odi(*arguments, cwd=self.folder, env={**self.env, **more})
        self.said += [done.stdout, done.stderr]
        return done

    def places_of(self, secret: str) -> list[str]:
        """Where a secret stands, as it is or as URLs and JSON have it: in the folder's files, or in what was said."""
        spelled = {text.encode() for text in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1])}
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        found = [str(path) for path in files if any(text in path.read_bytes() for text in spelled)]
        return found + [text for text in self.said if any(one.decode() in text for one in spelled)]


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[dict[str, Server], Cloud | None]]:
    """The databases that are installed, each with a table, and a store that speaks S3 if Spark can reach one."""
    with ExitStack() as stack:
        found: dict[str, Server] = {}
        for name, start, program in (("pg", postgres, postgres_program("initdb")), ("my", mariadb, mariadbd())):
            if program is not None and jdbc_jars():
                # A server gives up being root, and folders of pytest are closed to others.
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{name}-"))
                found[name] = stack.enter_context(start(Path(folder)))
                found[name].execute("CREATE TABLE events (id INT PRIMARY KEY)", "INSERT INTO events VALUES (1)")
        store = stack.enter_context(s3(strict=True)) if s3a_jars() else None
        if store is not None:
            bucket = resolve(S3Connection.model_validate(store.resolved("key")), "events", Path())
            write_deltalake(bucket.uri, pa.table({"id": [1]}), storage_options=dict(bucket.storage_options))
        yield found, store


@pytest.fixture(scope="module")
def project(servers: tuple[dict[str, Server], Cloud | None], tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The project after runs with the right secrets, with wrong ones, and after commands that show much."""
    folder = tmp_path_factory.mktemp("secrets")
    for name in ("landing", "events", "home"):
        (folder / name).mkdir()
    (folder / "landing" / "a.csv").write_text("id\n1\n", encoding="utf-8")
    databases, store = servers
    of_stores = [(name, FILES) for name in ("azure", "azure_sas", "google")]
    reads = [*of_stores, *((name, "format: sql, table: events") for name in databases)]
    reads.append(("queue", 'format: debezium, topics: ["*"]'))
    nodes = [NODE.format(name=f"from_{name}", on=name, read=read, to="lake") for name, read in reads]
    for name in databases:
        read = f"format: cdc, tables: [{CAPTURED[name]}]"
        nodes.append(NODE.format(name=f"changes_{name}", on=name, read=read, to="lake"))
    secrets, bucket = dict(SECRETS), "{type: s3, bucket: none, secret_access_key: s, access_key_id: a}"
    if store is not None:
        secrets |= store.secrets
        bucket = json.dumps(store.connections["key"])
        nodes.append(NODE.format(name="from_bucket", on="bucket", read="format: delta, path: events", to="lake"))
    connections = [
        DATABASE.format(name=name, type=one.type, port=one.port, log=LOGS[name]) for name, one in databases.items()
    ]
    jars = os.pathsep.join(map(str, [*jdbc_jars(), *s3a_jars()]))
    text = PROJECT.format(s3=bucket, databases="\n".join(connections), folder=folder, jars=jars, nodes="\n".join(nodes))
    (folder / "odibi.yaml").write_text(text, encoding="utf-8")
    made = Project(folder, environment(DAGSTER_HOME=str(folder / "home"), **secrets))
    first = made.odi("run")
    done = {"options", "streamed", *(f"{kind}_{name}" for kind in ("from", "changes") for name in databases)}
    done |= {"from_bucket"} if store else set()
    assert {path.name for path in (folder / "lake").iterdir()} - {"system"} == done, first.stderr
    made.odi("--debug", "run", **WRONG)
    for command in ("config check", "ls --json", "plan", "doctor", "runs last p --json", "state list --json"):
        made.odi(*command.split())
    made.odi("plan", **WRONG)
    return made


def test_the_events_of_spark_were_written(project: Project) -> None:
    assert any("SparkListenerSQLExecutionStart" in path.read_text(encoding="utf-8") for path in _events(project))


@pytest.mark.parametrize("name", [*SECRETS, "S3_SECRET", "the wrong password", "the wrong key"])
def test_a_secret_stands_nowhere(name: str, project: Project) -> None:
    wrong = {"the wrong password": WRONG["DB_PASSWORD"], "the wrong key": WRONG["S3_SECRET"]}
    secret = wrong.get(name) or project.env.get(name)
    if secret is None:
        pytest.skip("Hadoop's connector for S3 is not there and cannot be fetched")
    parts = {"AZURE_SAS": "sas-hunter2", "GCS_KEY": "gcs-hunter2", "HOOK": "hook-hunter2"}
    assert project.places_of(parts.get(name, secret)) == []


def _events(project: Project) -> list[Path]:
    return [path for path in (project.folder / "events").rglob("events_*") if path.is_file()]
