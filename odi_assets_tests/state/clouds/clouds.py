"""Object stores for tests: real servers in processes of their own, and the connections that lead to them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import boto3
import pytest
from filelock import FileLock

AZURITE = "3.37.0"
"""Older ones ignore `startFrom` when they list blobs, which deltalake relies on."""
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "odi_assets_tests"
ACCOUNT, BOX = "shop", "lake"
SECRET = "hunter2" * 7
ACCOUNT_KEY = base64.b64encode(SECRET.encode()).decode()


@dataclass(frozen=True)
class Cloud:
    """A running server, and connections to it by how they prove who asks; secrets as a project file would name them.

    Attributes:
        connections: as in a project file, with ``${…}`` in the place of secrets.
        secrets: the environment variables that the connections name.
    """

    connections: dict[str, dict[str, Any]]
    secrets: dict[str, str] = field(repr=False)

    def resolved(self, how: str) -> dict[str, Any]:
        """A connection with its secrets put in."""
        text = json.dumps(self.connections[how])
        for name, value in self.secrets.items():
            text = text.replace(f'"${{{name}}}"', json.dumps(value))
        found: dict[str, Any] = json.loads(text)
        return found


# -- Azure -------------------------------------------------------------------------------------------------------------


def azurite_program() -> Path:
    """Azurite's blob server, installed by npm into the user's cache the first time; skips if it cannot be had."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("Azurite needs Node.js and npm, and they are not installed")
    home = CACHE / f"azurite-{AZURITE}"
    program = home / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    CACHE.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{home}.lock", timeout=600):
        if not (home / "installed").exists():
            options = [
                "--no-audit",
                "--no-fund",
                "--no-package-lock",
                "--ignore-scripts",
                "--omit=dev",
                "--fetch-retries=1",
            ]
            command = [npm, "install", "--prefix", str(home), *options, f"azurite@{AZURITE}"]
            home.mkdir(exist_ok=True)
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            except subprocess.TimeoutExpired:
                pytest.skip("npm did not install Azurite within 300 s")
            if done.returncode:
                pytest.skip(f"npm could not install Azurite {AZURITE}: {done.stderr.strip()[-300:]}")
            (home / "installed").touch()
    return program


def sas(*, valid_for: timedelta = timedelta(hours=1), rights: str = "racwdl") -> str:
    """A shared access signature of the account, as the Azure documentation says to sign one."""
    version, services, kinds, protocols = "2021-12-02", "b", "sco", "https,http"
    expires = f"{datetime.now(UTC) + valid_for:%Y-%m-%dT%H:%M:%SZ}"
    signed = "\n".join([ACCOUNT, rights, services, kinds, "", expires, "", protocols, version, "", ""])
    digest = hmac.new(base64.b64decode(ACCOUNT_KEY), signed.encode(), hashlib.sha256).digest()
    parts = {"sv": version, "ss": services, "srt": kinds, "sp": rights, "se": expires, "spr": protocols}
    return urlencode({**parts, "sig": base64.b64encode(digest).decode()})


@contextmanager
def azure() -> Iterator[Cloud]:
    """Azurite with one account and one container."""
    options = ["--blobHost", "127.0.0.1", "--blobPort", "0", "--inMemoryPersistence", "--disableTelemetry", "--silent"]
    command = ["node", str(azurite_program()), *options, "--skipApiVersionCheck"]
    accounts = {**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{ACCOUNT_KEY}"}
    with _running(command, env=accounts, said="successfully listens on ") as address:
        endpoint = f"{address}/{ACCOUNT}"
        _ask("PUT", f"{endpoint}/{BOX}?restype=container&{sas()}")
        common = {"type": "azure_blob", "account_name": ACCOUNT, "container": BOX, "endpoint": endpoint}
        yield Cloud(
            {
                "key": {**common, "auth": {"mode": "account_key", "account_key": "${AZURE_KEY}"}},
                "sas": {**common, "auth": {"mode": "sas", "sas_token": "${AZURE_SAS}"}},
            },
            {"AZURE_KEY": ACCOUNT_KEY, "AZURE_SAS": sas()},
        )


# -- S3 and GCS --------------------------------------------------------------------------------------------------------


@contextmanager
def s3(*, strict: bool = False) -> Iterator[Cloud]:
    """moto's server with one bucket. A strict one knows its user and checks each signature."""
    env = {**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": "4"} if strict else dict(os.environ)
    with _running([sys.executable, "-m", "odi_assets_tests.state.clouds.store_server", "s3"], env=env) as port:
        endpoint = f"http://127.0.0.1:{port}"
        client("s3", endpoint).create_bucket(Bucket=BOX)
        key = _user(endpoint) if strict else {"AccessKeyId": "someone", "SecretAccessKey": SECRET}
        common = {"type": "s3", "bucket": BOX, "region": "us-east-1", "endpoint": endpoint}
        secrets = {"access_key_id": "${S3_KEY}", "secret_access_key": "${S3_SECRET}"}
        yield Cloud({"key": {**common, **secrets}}, {"S3_KEY": key["AccessKeyId"], "S3_SECRET": key["SecretAccessKey"]})


def fail(connection: dict[str, Any], how: str, times: int) -> None:
    """Let the server behind ``connection`` fail; see :mod:`odi_assets_tests.state.clouds.store_server`."""
    _ask("PUT", f"{connection['endpoint']}/-/fail/{how}/{times}")


def _user(endpoint: str) -> dict[str, str]:
    iam = client("iam", endpoint)
    iam.create_user(UserName="someone")
    everything = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [everything]})
    iam.put_user_policy(UserName="someone", PolicyName="all", PolicyDocument=document)
    key: dict[str, str] = iam.create_access_key(UserName="someone")["AccessKey"]
    return key


def client(service: str, endpoint: str) -> Any:
    return boto3.client(
        service, endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="s"
    )


@contextmanager
def gcs() -> Iterator[Cloud]:
    """Google's XML protocol, as far as object_store speaks it, with one bucket."""
    command = [sys.executable, "-m", "odi_assets_tests.state.clouds.store_server", "gcs"]
    with _running(command, env=dict(os.environ)) as port:
        endpoint = f"http://127.0.0.1:{port}"
        client("s3", endpoint).create_bucket(Bucket=BOX)
        key = {"client_email": "me", "private_key": SECRET, "private_key_id": SECRET, "disable_oauth": True}
        connection = {"type": "gcs", "bucket": BOX, "endpoint": endpoint, "service_account_key": "${GCS_KEY}"}
        yield Cloud({"key": connection}, {"GCS_KEY": json.dumps(key)})


# -- processes ---------------------------------------------------------------------------------------------------------


@contextmanager
def _running(command: list[str], *, env: dict[str, str], said: str = "") -> Iterator[str]:
    """Run a server, and yield the rest of the first line that holds ``said``: where it listens."""
    server = subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert server.stdout is not None
    try:
        heard = next((line for line in server.stdout if said in line), None)
        assert heard is not None, f"{command[0]} ended with {server.wait()}"
        yield heard.partition(said)[2].strip() if said else heard.strip()
    finally:
        server.terminate()
        server.communicate(timeout=30)


def _ask(method: str, url: str) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=30):
        pass
