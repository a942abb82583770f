"""System files that are right; tests make mistakes in them."""

from __future__ import annotations

from pathlib import Path

USED = """\
name = "staging"
behaves_like = "3.9.1"
bootstrap = "10.0.0.5:9092, broker-2.example.org:9093"
[client]
"security.protocol" = "SASL_PLAINTEXT"
"sasl.password" = "hunter2-hunter2"
"""
MANAGED = """\
name = "mine"
behaves_like = "3.9.1-kraft"
[environment]
KAFKA_OPTS = "-Dsome.password=hunter2-hunter2"
[[brokers]]
ids = [1, 2, 3]
properties = "broker.properties"
prepare = ["sh", "{here}/format.sh", "{properties}"]
start = ["./start.sh", "{properties}", "-Dssl.key.password=hunter2-hunter2"]
log_dir = "data-{id}"
[[controllers]]
id = 100
properties = "controller.properties"
start = ["./start.sh", "{properties}"]
kill = ["./start.sh", "{pid}"]
"""
BROKER = """\
node.id={id}
listeners=CLIENT://{client_listen},REPLICATION://{replication_listen}
ssl.truststore.password=${file:/etc/kafka/secrets:password}
"""


def written(directory: Path, text: str) -> Path:
    file = directory / "system.toml"
    file.write_text(text, encoding="utf-8")
    return file
