"""An object store on this machine: S3 by moto's server, and what Spark needs to read from it.

It listens on 127.0.0.1 only, and is a thread of this process: it ends with the `with`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import boto3
from moto.server import ThreadedMotoServer

from tests.spark_jars import jars_beside_spark

BUCKET: Final = "histories"
_KEYS: Final = {"AWS_ACCESS_KEY_ID": "user", "AWS_SECRET_ACCESS_KEY": "secret"}
_SDK: Final = "2.35.4"  # that hadoop-aws of this version names
HADOOP: Final = "3.5.0"  # that Spark has
# Of the SDK only what S3 needs: the bundle, which users get, has 650 MB.
_COORDINATES: Final = (
    f"org.apache.hadoop:hadoop-aws:{HADOOP}",
    *(f"software.amazon.awssdk:{name}:{_SDK}"
      for name in ("s3-transfer-manager", "sts", "apache-client")),
)  # fmt: skip
_BUNDLE: Final = "software.amazon.awssdk:bundle"


def jars() -> list[Path]:
    """Of hadoop-aws. Raises MissingPartError."""
    return jars_beside_spark(*_COORDINATES, without=[_BUNDLE])


@dataclass(frozen=True)
class ObjectStore:
    """One bucket."""

    endpoint: str

    @property
    def client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=_KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=_KEYS["AWS_SECRET_ACCESS_KEY"],
        )

    def put(self, directory: Path) -> str:
        """Copy a directory; the URI by which Spark has it."""
        for file in sorted(path for path in directory.rglob("*") if path.is_file()):
            key = f"{directory.name}/{file.relative_to(directory)}"
            self.client.put_object(Bucket=BUCKET, Key=key, Body=file.read_bytes())
        return f"s3a://{BUCKET}/{directory.name}"

    def keys(self, prefix: str) -> list[str]:
        """Names of objects that begin so."""
        found = self.client.list_objects_v2(Bucket=BUCKET, Prefix=prefix)
        return [each["Key"] for each in found.get("Contents", [])]

    def configure(self, directory: Path, **more: str) -> dict[str, str]:
        """Write `spark-defaults.conf` into a directory; the environment of a command that uses
        it."""
        settings = {
            "spark.jars": ",".join(map(str, jars())),
            "spark.hadoop.fs.s3a.endpoint": self.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
            **more,
        }
        directory.mkdir(parents=True, exist_ok=True)
        lines = [f"{name} {value}\n" for name, value in settings.items()]
        (directory / "spark-defaults.conf").write_text("".join(lines), encoding="utf-8")
        return {**_KEYS, "SPARK_CONF_DIR": str(directory)}


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        store = ObjectStore(f"http://{host}:{port}")
        store.client.create_bucket(Bucket=BUCKET)
        yield store
    finally:
        server.stop()
