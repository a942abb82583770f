"""Messages for tests: any that kio's types allow, for every API and version that is spoken here."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from kio.static.primitive import Records, i64Timedelta

from neaptide.clusters.broker.server.apis.table import client_apis, replication_apis
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import request_class, response_class
from tests.storage.batches import batch

CLIENT_APIS = client_apis("4.0")  # the newest generation speaks all that the others do
REPLICATION_APIS = replication_apis("4.0")
SPOKEN = [
    (api, version)
    for api, versions in REPLICATION_APIS.items()
    for version in range(versions.lowest, versions.highest + 1)
]
OLDEST_AND_NEWEST = {
    (api, version)
    for api, versions in REPLICATION_APIS.items()
    for version in (versions.lowest, versions.highest)
}
NAMES = [f"{api.name} v{version}" for api, version in SPOKEN]

# Batches that are sound, and bytes that are none.
BATCHES = [batch(0, [b"a"]), batch(5, [b"a", None]), batch(0, [b"a"]) * 2]
st.register_type_strategy(
    Records, st.one_of(st.sampled_from(BATCHES), st.binary(max_size=100)).map(Records)
)
# kio writes longer ones than it reads: a commit's retention time is one (OffsetCommit v2 to v4).
LONGEST_MS = 1 << 50
st.register_type_strategy(
    i64Timedelta,
    st.integers(-1, LONGEST_MS).map(lambda ms: i64Timedelta.parse(timedelta(milliseconds=ms))),
)


def requests(api: Api, version: int) -> st.SearchStrategy[Any]:
    return st.from_type(request_class(api, version))


def responses(api: Api, version: int) -> st.SearchStrategy[Any]:
    return st.from_type(response_class(api, version))
