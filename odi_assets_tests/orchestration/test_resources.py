"""Resources: what they start they stop, and what they show holds no secret."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import dagster as dg
import pytest
from dagster_deltalake import AzureConfig, GcsConfig, LocalConfig, S3Config
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import ConfigError
from odi_assets.nodes.project import Project
from odi_assets.orchestration.definitions import build_definitions
from odi_assets.orchestration.resources import SparkResource, StateResource
from odi_assets.orchestration.table_resource import delta_table_resource
from odi_assets_tests.orchestration.small_project import PROJECT_FILE, make_project

SECRET = "c2VjcmV0LWtleS1vZi10aGUtYWNjb3VudA=="


def test_the_spark_resource_stands_where_dagster_pysparks_is_expected(spark: SparkSession) -> None:
    @dg.asset
    def counted(spark: LazyPySparkResource) -> None:
        assert spark.spark_session.range(3).count() == 3
        assert spark.spark_context.applicationId
        assert spark.spark_config == {"spark.a": "b"}

    done = dg.materialize([counted], resources={"spark": SparkResource(spark_config={"spark.a": "b"})})
    assert done.success
    face = {name for name in {*vars(LazyPySparkResource), *LazyPySparkResource.model_fields} if name[0] != "_"}
    assert (
        {"spark_session", "spark_context", "spark_config"} <= face <= {*dir(SparkResource), *SparkResource.model_fields}
    )
    with dg.build_resources({"spark": SparkResource()}) as resources:
        assert resources.spark.spark_session is spark
    assert spark.range(2).count() == 2, "a session that was there before is left running"


@pytest.mark.usefixtures("jvm")
def test_a_session_that_the_resource_started_ends_with_it(tmp_path: Path) -> None:
    text = (
        PROJECT_FILE + 'spark: {master: "local[1]", conf: {"spark.sql.shuffle.partitions": "7", "spark.a": "file"}}\n'
    )
    project = make_project(tmp_path, text=text)
    code = f"""
        import json
        import dagster as dg
        from pyspark import SparkContext
        from odi_assets.orchestration.resources import SparkResource
        resource = SparkResource(project_file={str(project.path)!r}, spark_config={{"spark": {{"a": "resource"}}}})
        with dg.build_resources({{"spark": resource}}) as resources:
            before = SparkContext._active_spark_context is None
            spark = resources.spark.spark_session
            names = ("spark.master", "spark.sql.shuffle.partitions", "spark.a", "spark.sql.session.timeZone")
            conf = [spark.conf.get(name) for name in names]
            same = resources.spark.spark_session is spark
        print(json.dumps([before, conf, same, SparkContext._active_spark_context is None]))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120, check=True
    )
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer == [True, ["local[1]", "7", "resource", "UTC"], True, True]


def test_the_state_resource_opens_the_projects_state(project: Project) -> None:
    project.open_state().set_hwm("shop.raw_sales", 41)
    with dg.build_resources({"state": StateResource(project_file=str(project.path))}) as resources:
        assert resources.state.backend.get_hwm("shop.raw_sales") == 41
        assert resources.state.manager.get_hwm("shop.raw_sales") == 41


CLOUD = """
project: cloud
connections:
  lake:
    type: azure_blob
    account_name: acme
    container: lake
    auth: {{mode: account_key, account_key: "{secret}"}}
  bucket: {{type: s3, bucket: data, region: eu-central-1, access_key_id: "{secret}", secret_access_key: "{secret}"}}
  storage: {{type: gcs, bucket: data, service_account_key: '{{"private_key": "{secret}"}}'}}
  here: {{type: local, base_path: ./here}}
spark:
  conf: {{"spark.hadoop.fs.azure.account.key.acme.dfs.core.windows.net": "{secret}"}}
alerts:
  - {{type: slack, url: "https://hooks.shop.example/{secret}", on_events: [on_failure, on_lag]}}
  - {{type: email, host: mail.shop.example, user: odi, password: {secret}, from: odi@shop.example, to: a@shop.example}}
pipelines:
  - pipeline: copy
    nodes:
      - name: blob
        read: {{connection: bucket, format: parquet, path: in}}
        write: {{connection: lake, path: blob}}
      - name: object
        read: {{connection: storage, format: parquet, path: in}}
        write: {{connection: bucket, path: object}}
      - name: thing
        read: {{connection: lake, format: parquet, path: in}}
        write: {{connection: storage, path: thing}}
      - name: file
        read: {{connection: lake, format: parquet, path: in}}
        write: {{connection: here, path: file}}
"""


@pytest.fixture
def cloud(tmp_path: Path) -> Project:
    """A project on clouds, with secrets in each connection and in Spark's settings."""
    return make_project(tmp_path / "cloud", text=CLOUD.format(secret=SECRET))


@pytest.mark.parametrize(
    ("node", "kind"), [("blob", AzureConfig), ("object", S3Config), ("thing", GcsConfig), ("file", LocalConfig)]
)
def test_a_tables_resource_has_dagster_deltalakes_types_and_no_secret(cloud: Project, node: str, kind: type) -> None:
    resource = delta_table_resource(cloud, f"copy.{node}")
    assert isinstance(resource.storage_options, kind)
    assert SECRET not in repr(resource)
    assert SECRET not in json.dumps(resource.model_dump(mode="json"))


def test_an_unknown_table_is_named(cloud: Project) -> None:
    with pytest.raises(ConfigError, match=r"copy\.files"):
        delta_table_resource(cloud, "copy.files")


def test_nothing_that_dagster_stores_or_shows_of_a_project_holds_a_secret(cloud: Project) -> None:
    from dagster._core.remote_representation.external_data import RepositorySnap
    from dagster._serdes import serialize_value

    assert SECRET in str(dict(cloud.target(NodeKey("copy", "blob")).storage_options)), "there is a secret to be shown"
    shown = serialize_value(RepositorySnap.from_def(build_definitions(cloud).get_repository_def()))
    assert "copy" in shown
    assert "_alerts" in shown
    assert SECRET not in shown
