"""What a project file may look like."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from odi_assets.config import load_config_from_file, load_project_file
from odi_assets.config.models import (
    AzureBlobConnection,
    FilesIncrement,
    LocalConnection,
    RollingWindowIncrement,
    StatefulIncrement,
    VersionIncrement,
    WriteMode,
)
from odi_assets_tests.config.support import SOURCE, load, node, project, write


def test_the_documented_node_loads_with_all_its_keys(tmp_path: Path) -> None:
    loaded = node(
        tmp_path,
        SOURCE,
        """\
        - name: typed
          description: typed flights
          owner: data@example.org
          tags: [silver]
          depends_on: [raw]
          read:
            connection: lake
            format: json
            path: weather/*.jsonl
            schema: "origin STRING, temp DOUBLE, day DATE"
            options: {multiLine: true, samplingRatio: 0.5, maxColumns: 20, mode: FAILFAST}
            incremental: {mode: files, state_key: weather}
          transform: {sql: SELECT * FROM df}
          partition: {column: day, every: day, start: 2013-01-01, end: 2014-01-01}
          write: {connection: lake, path: typed, mode: upsert, keys: [origin], partition_by: [day]}
        """,
    )
    assert loaded.name == "typed"
    assert loaded.owner == "data@example.org"
    assert loaded.read is not None
    assert loaded.read.schema_ddl == "origin STRING, temp DOUBLE, day DATE"
    assert loaded.read.options == {
        "multiLine": "true", "samplingRatio": "0.5", "maxColumns": "20", "mode": "FAILFAST",
    }  # fmt: skip
    assert loaded.read.incremental == FilesIncrement(mode="files", state_key="weather")
    assert loaded.partition is not None
    assert loaded.partition.start == date(2013, 1, 1)
    assert loaded.write.mode is WriteMode.UPSERT
    assert loaded.write.keys == ("origin",)


@pytest.mark.parametrize(
    ("incremental", "expected"),
    [
        ("files", FilesIncrement(mode="files")),
        ("{mode: files}", FilesIncrement(mode="files")),
        (
            "{mode: stateful, column: ts, fallback_column: made, state_key: k}",
            StatefulIncrement(mode="stateful", column="ts", fallback_column="made", state_key="k"),
        ),
        (
            "{mode: stateful, column: ts, watermark_lag: 1d12h}",
            StatefulIncrement(mode="stateful", column="ts", watermark_lag=timedelta(hours=36)),
        ),
        (
            "{mode: stateful, column: id, watermark_lag: 100}",
            StatefulIncrement(mode="stateful", column="id", watermark_lag=100),
        ),
        (
            "{mode: rolling_window, column: ts, lookback: 3, unit: hour}",
            RollingWindowIncrement(mode="rolling_window", column="ts", lookback=3, unit="hour"),
        ),
    ],
)
def test_each_increment_of_a_source_loads(tmp_path: Path, incremental: str, expected: object) -> None:
    loaded = node(
        tmp_path,
        f"""\
        - name: raw
          read: {{connection: lake, format: csv, path: in, incremental: {incremental}}}
          write: {{connection: lake, path: raw, mode: upsert, keys: [id]}}
        """,
    )
    assert loaded.read is not None
    assert loaded.read.incremental == expected


def test_inputs_can_be_a_list_named_after_the_nodes(tmp_path: Path) -> None:
    loaded = node(
        tmp_path,
        SOURCE,
        """\
        - name: joined
          inputs: [raw, {node: p.other, incremental: {mode: stateful, column: id}}, $p.third]
          transform: {sql: "SELECT 1"}
          write: {connection: lake, path: joined, mode: append}
        - {name: other, inputs: [raw], write: {connection: lake, path: other}}
        - {name: third, inputs: [raw], write: {connection: lake, path: third}}
        - {name: last, inputs: [joined], write: {connection: lake, path: last}}
        """,
    )
    assert list(loaded.inputs) == ["joined"]
    config = load(tmp_path, (tmp_path / "odibi.yaml").read_text()).config
    inputs = config.pipelines[0].nodes[1].inputs
    assert {view: given.node for view, given in inputs.items()} == {
        "raw": "raw",
        "other": "p.other",
        "third": "$p.third",
    }
    assert isinstance(inputs["other"].incremental, StatefulIncrement)


def test_inputs_can_be_views_and_the_nodes_behind_them(tmp_path: Path) -> None:
    loaded = node(
        tmp_path,
        SOURCE,
        """\
        - name: copy
          inputs:
            a: raw
            b: {node: raw, incremental: version}
          transform: {function: "os.path:join"}
          write: {connection: lake, path: copy, mode: append}
        """,
    )
    assert loaded.inputs["a"].node == "raw"
    assert loaded.inputs["a"].incremental is None
    assert loaded.inputs["b"].incremental == VersionIncrement(mode="version")


@pytest.mark.parametrize("keys", ["keys: [a, b]", "merge_keys: [a, b]", "options: {keys: [a, b]}"])
def test_keys_can_be_written_as_odibi_writes_them(tmp_path: Path, keys: str) -> None:
    loaded = node(
        tmp_path,
        f"""\
        - name: raw
          read: {{connection: lake, format: csv, path: in}}
          write: {{connection: lake, path: raw, format: delta, mode: upsert, {keys}}}
        """,
    )
    assert loaded.write.keys == ("a", "b")


@pytest.mark.parametrize(
    ("system", "paths"),
    [
        ("{connection: lake, path: sys}", ("sys", None, None)),
        ("{connection: lake}", ("_odibi_system", None, None)),
        ("{connection: lake, meta_runs_path: a, meta_state_path: b}", ("_odibi_system", "a", "b")),
    ],
)
def test_each_documented_form_of_system_loads(
    tmp_path: Path, system: str, paths: tuple[str, str | None, str | None]
) -> None:
    loaded = load(tmp_path, project().replace("system: {connection: lake}", f"system: {system}"))
    assert loaded.config.system is not None
    found = loaded.config.system
    assert (found.path, found.meta_runs_path, found.meta_state_path) == paths
    assert loaded.warnings == ()


@pytest.mark.parametrize("system", ["", "system:", "system: null"])
def test_a_project_without_system_keeps_local_state_and_says_so(tmp_path: Path, system: str) -> None:
    loaded = load(tmp_path, project().replace("system: {connection: lake}", system))
    assert loaded.config.system is None
    assert loaded.warnings == ("⚠️ No system catalog configured. Using local JSON state backend (local-only mode).",)


def test_the_documented_azure_connection_loads_with_its_braces_unquoted(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        project().replace(
            "  lake:",
            "  az: {type: azure_blob, account_name: acc, container: c, "
            "auth: {mode: account_key, account_key: ${AZURE_STORAGE_KEY}}}\n  lake:",
        ),
        env={"AZURE_STORAGE_KEY": "s3cr3t=="},
    )
    connection = loaded.config.connections["az"]
    assert isinstance(connection, AzureBlobConnection)
    assert connection.auth.mode == "account_key"
    assert connection.auth.account_key.get_secret_value() == "s3cr3t=="
    assert "s3cr3t" not in repr(loaded)


def test_keys_of_odibi_without_a_meaning_here_are_ignored_with_a_warning(tmp_path: Path) -> None:
    text = project(
        """\
        - name: raw
          explanation: what it is
          runbook_url: https://example.org/${NOT_SET_EITHER}
          read: {connection: lake, format: csv, path: in}
          write: {connection: lake, path: raw}
        """
    )
    loaded = load(tmp_path, "story: {connection: lake}\nsemantic:\n  - url: ${NOT_SET}\n" + text)
    end = "is an Odibi key that odi_assets does not use; it is ignored"
    assert loaded.warnings == (
        f"`story` {end}",
        f"`semantic` {end}",
        f"`pipelines[0].nodes[0].explanation` {end}",
        f"`pipelines[0].nodes[0].runbook_url` {end}",
    )


def test_a_key_without_a_value_is_a_key_left_out(tmp_path: Path) -> None:
    loaded = node(
        tmp_path,
        """\
        - name: raw
          description:
          tags:
          depends_on:
          inputs:
          read: {connection: lake, format: csv, path: in, options: , incremental: }
          write: {connection: lake, path: raw, mode: , keys: }
        """,
    )
    assert loaded.tags == ()
    assert loaded.write.mode is WriteMode.OVERWRITE


def test_yaml_words_that_are_booleans_elsewhere_are_text(tmp_path: Path) -> None:
    loaded = node(
        tmp_path,
        """\
        - name: on
          description: yes
          read: {connection: lake, format: csv, path: no, options: {nullValue: off}}
          write: {connection: lake, path: y}
        """,
    )
    assert (loaded.name, loaded.description, loaded.write.path) == ("on", "yes", "y")
    assert loaded.read is not None
    assert loaded.read.options == {"nullValue": "off"}


def test_anchors_and_merge_keys_spare_repetition(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        project(
            """\
            - name: a
              read: &read {connection: lake, format: csv, path: in, options: {header: true}}
              write: {connection: lake, path: a}
            - name: b
              read: {<<: *read, path: b/in}
              write: {connection: lake, path: table}
            """
        ),
    )
    first, second = loaded.config.pipelines[0].nodes
    assert first.read is not None
    assert second.read is not None
    assert second.read.path == "b/in"
    assert second.read.options == first.read.options


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "odibi.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + project().replace("\n", "\r\n").encode())
    assert load_config_from_file(file).project == "demo"


def test_the_loaded_project_knows_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, project())
    monkeypatch.chdir(tmp_path)
    assert load_config_from_file("odibi.yaml").connections["lake"] == LocalConnection(type="local", base_path="data")
    loaded = load(tmp_path, project())
    assert loaded.path == tmp_path / "odibi.yaml"
    assert loaded.root == tmp_path


def test_spark_settings_retry_and_schedule_load(tmp_path: Path) -> None:
    text = project().replace(
        "system: {connection: lake}",
        "system: {connection: lake, environment: prod, retry: {retries: 2, base_delay: 0.5}}\n"
        "spark: {master: 'local[2]', conf: {spark.sql.shuffle.partitions: 4, spark.ui.enabled: false}}",
    )
    config = load(tmp_path, text.replace("- pipeline: p", "- pipeline: p\n    schedule: 30 6 * * MON-FRI")).config
    assert config.spark.conf == {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "false"}
    assert config.system is not None
    assert config.system.retry.retries == 2
    assert config.pipelines[0].schedule == "30 6 * * MON-FRI"


def test_a_lag_as_a_variable_can_be_a_number(tmp_path: Path) -> None:
    loaded = node(
        tmp_path,
        """\
        - name: raw
          read:
            {connection: lake, format: csv, path: i, incremental: {mode: stateful, column: c, watermark_lag: ${LAG}}}
          write: {connection: lake, path: raw, mode: append_once, keys: [c]}
        """,
        env={"LAG": "1.50"},
    )
    assert loaded.read is not None
    assert isinstance(loaded.read.incremental, StatefulIncrement)
    assert loaded.read.incremental.watermark_lag == Decimal("1.50")


def test_a_schema_with_colons_is_rewritten_for_spark(tmp_path: Path) -> None:
    loaded = node(
        tmp_path,
        """\
        - name: raw
          read: {connection: lake, format: csv, path: in, schema: "id: BIGINT, s: STRUCT<a: INT>"}
          write: {connection: lake, path: raw}
        """,
    )
    assert loaded.read is not None
    assert loaded.read.schema_ddl == "id  BIGINT, s  STRUCT<a: INT>"


def test_the_projects_own_file_loads_without_a_warning() -> None:
    loaded = load_project_file(Path(__file__).parents[2] / "odibi.yaml", env={})
    assert loaded.warnings == ()
    assert loaded.config.pipelines


ODIBIS = "retry: {enabled: true, max_attempts: 3, backoff: linear}"


@pytest.mark.parametrize(
    ("line", "attempts", "waits"),
    [
        ("retry: {retries: 2, base_delay: 0.5}", 3, [0.5, 1.0]),
        (ODIBIS, 3, [1.0, 2.0]),
        ("retry: {backoff: constant, retries: 3}", 4, [1.0, 1.0, 1.0]),
        ("retry: {enabled: false}", 1, []),
        ("description: x", 6, [1.0, 2.0, 4.0, 8.0, 16.0]),
    ],
)
def test_one_retry_policy_is_set_at_the_top_of_the_file(
    tmp_path: Path, line: str, attempts: int, waits: list[float]
) -> None:
    retry = load(tmp_path, f"{line}\n{project()}").config.retry
    assert retry.attempts == attempts
    assert [retry.delay(attempt) for attempt in range(1, attempts)] == waits


def test_the_retry_policy_of_system_is_that_of_the_whole_project(tmp_path: Path) -> None:
    text = project().replace("{connection: lake}\n", "{connection: lake, retry: {retries: 2}}\n", 1)
    assert load(tmp_path, text).config.retry.attempts == 3
