"""What the fixture `neaptide` is: clusters, runs and checks for one test.

One Spark session a process judges all tests of it.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.place import Place, check_place
from neaptide.clusters.security import ClientSecurity, parse_client_security
from neaptide.harness.checking.check import SparkStart, check_and_report
from neaptide.harness.live.left_behind import SCRATCH_PREFIX
from neaptide.harness.play.scenario import Played, play
from neaptide.harness.scenarios.systems import (
    DEFAULT_SYSTEM,
    System,
    check_client_security,
    check_system_on,
    fetch,
    parse_system,
    place_of,
)
from neaptide.harness.testing.cluster import ClusterAsked, LiveCluster, check_asked
from neaptide.harness.testing.findings import Judged, NeaptideFailure, failure_text
from neaptide.harness.testing.loop import Loop
from neaptide.nemesis.scenario import Scenario, load_scenario
from neaptide.results.errors import NeaptideError
from neaptide.results.report import REPORT_FILE, write_report
from neaptide.results.run import read_run

_RATE: Final = 2000.0
OwnChecks = Callable[[Path], Iterable[str]]


class Judge:
    """The Spark session of this process. It starts when it is first asked to."""

    def __init__(self, own_checks: OwnChecks) -> None:
        self._own_checks = own_checks
        self._spark: SparkStart | None = None

    def start(self) -> None:
        """Spark's Java takes seconds to start: meanwhile a cluster can."""
        if self._spark is None:
            self._spark = SparkStart()

    def judge(self, runs: Sequence[Path]) -> list[Judged]:
        """In one Spark job, in the order of the runs."""
        self.start()
        assert self._spark is not None
        verdicts = check_and_report(self._spark.session(), runs)
        return [
            Judged(
                run,
                verdict.verdict,
                verdict.outcome,
                dict(verdict.anomalies),
                verdict.reasons,
                tuple(self._own_checks(run)),
                dict(verdict.allowed),
            )
            for run, verdict in zip(runs, verdicts, strict=True)
        ]

    def stop(self) -> None:
        if self._spark is not None:
            with suppress(Exception):  # whatever its start failed with was raised to a test
                self._spark.stop()
            self._spark = None


class Lab:
    """For one test. `close` ends what it has started, and judges what was not judged."""

    def __init__(
        self,
        judge: Judge,
        name: str,
        system: str,
        seed: int,
        place: Place,
        workloads: Mapping[str, str] | None = None,
    ) -> None:
        self._judge = judge
        self._name = name
        self._seed = seed
        self._place = place
        self._workloads = workloads or {}
        self._loop: Loop | None = None
        self._clusters: list[LiveCluster] = []
        self.judged: list[tuple[str, Judged]] = []  # with the system of each
        self.system = system  # what --neaptide-system says

    def cluster(
        self,
        system: str | None = None,
        *,
        brokers: int = 3,
        topics: Mapping[str, int] | None = None,
        settings: Mapping[str, Any] | None = None,
        topic_settings: Mapping[str, Any] | None = None,
        idempotence: bool = False,
        min_acked: int = 1,
        client: Mapping[str, str] | None = None,
    ) -> LiveCluster:
        """Starts one; returns when its partitions are led and their replicas fetch.

        `topics`: partitions by name. `settings`: of brokers. `client`: what clients come in by,
        librdkafka's `security.protocol`, `sasl.mechanism`, `sasl.username` and `sasl.password`:
        brokers are set up for it. Raises UsageError for what cannot be.
        """
        scratch = Path(tempfile.gettempdir()) / f"{SCRATCH_PREFIX}{secrets.token_hex(8)}"
        security = parse_client_security(client or {}, scratch)
        chosen = self._find(system, security)
        if self._place.name == "simulation":
            raise UsageError("A cluster of real processes needs another --neaptide-host.")
        asked = check_asked(
            ClusterAsked(
                self._name,
                chosen,
                self._seed,
                brokers,
                dict(topics or {"t": 1}),
                _texts(settings),
                _texts(topic_settings),
                idempotence,
                min_acked,
                self._place,
            )
        )
        self._judge.start()
        if self._loop is None:
            self._loop = Loop()
        cluster = LiveCluster(self._loop, asked)
        self._clusters.append(cluster)
        return cluster

    def run(
        self,
        workload: str = "append",
        system: str | None = None,
        *,
        nemesis: str = "none",
        time_s: float = 20,
        **asked: Any,
    ) -> Judged:
        """`neaptide run`, judged. `workload`: its name, or what pytest_neaptide_workloads names.

        `asked`: fields of RandomRun, as rate, acks, partitions.
        """
        from neaptide.harness.play.random_asked import RandomRun, check, parse_nemesis, rate_for
        from neaptide.harness.play.random_run import run_random
        from neaptide.workloads.catalog import find_workload

        chosen = self._find(system)
        found = find_workload(self._workloads.get(workload, workload))
        faults, saved = parse_nemesis(nemesis, chosen)
        options = found.parse_options(_texts(asked.pop("options", {})))
        full = check(
            RandomRun(
                found.name,
                chosen,
                faults,
                time_s,
                rate_for(chosen, _RATE, asked.pop("rate", None)),
                asked.pop("seed", self._seed),
                place=self._place,
                saved=saved,
                options=options,
                **asked,
            )
        )
        self._judge.start()
        return self.check(asyncio.run(run_random(full, lambda *_: None)))

    def play(self, scenario: str | Path, system: str | None = None) -> Judged:
        """A scenario file, or one that ships, on a system; judged."""
        from neaptide.harness.scenarios.catalog import scenario_files

        name = str(scenario)
        file = scenario_files().get(name, Path(name))
        loaded, chosen = load_scenario(file), self._find(system)
        self._judge.start()
        played = self.play_loaded(loaded, name, chosen)
        judged = self.check(played.run)
        return replace(judged, own=(*judged.own, *played.disagreements))

    def play_loaded(self, scenario: Scenario, where: str, system: System) -> Played:
        return asyncio.run(play(scenario, system, self._seed, where, lambda *_: None, self._place))

    def check(self, run: Path | LiveCluster) -> Judged:
        """The verdict of a run. A cluster is ended for it: healed, read to its end, judged."""
        directory = run.finish() if isinstance(run, LiveCluster) else run
        [judged] = self._judge.judge([directory])
        self.judged.append((read_run(directory).system, judged))
        return judged

    def assert_valid(self, run: Path | LiveCluster | Judged) -> Judged:
        """Raises NeaptideFailure, which says which record was lost, and how."""
        judged = run if isinstance(run, Judged) else self.check(run)
        if not judged.valid:
            raise NeaptideFailure(failure_text(judged), judged.run, unknown=judged.unknown)
        return judged

    def close(self, *, failed: bool = False) -> None:
        """A cluster to which something was sent, and that nobody has checked, is checked now.

        `failed`: the test has failed already; then nothing is judged. Raises NeaptideFailure.
        """
        try:
            for cluster in self._clusters:
                if not failed and not cluster.is_over and cluster.has_sends:
                    self.assert_valid(cluster)
        finally:
            for cluster in self._clusters:
                cluster.drop()
                if cluster.waited_in_vain and not (cluster.run / REPORT_FILE).exists():
                    with suppress(NeaptideError):  # it is the failure's, which stands
                        write_report(cluster.run)
            self._clusters.clear()
            if self._loop is not None:
                self._loop.close()
                self._loop = None

    def _find(self, system: str | None, security: ClientSecurity | None = None) -> System:
        chosen = replace(parse_system(system or self.system), security=security)
        check_client_security(chosen, self._place)
        check_system_on(chosen, self._place)
        check_place(place_of(chosen, self._place), lambda _: None)
        fetch(chosen)
        return chosen


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line and the ini file say."""

    systems: tuple[str, ...]
    place: Place
    seed: int
    batch: int
    retries_unknown: int
    judge: Judge
    workloads: Mapping[str, str] = field(default_factory=dict)  # of one's own: module:NAME

    def lab(self, name: str, system: str | None = None) -> Lab:
        chosen = system or (self.systems[0] if self.systems else DEFAULT_SYSTEM)
        return Lab(self.judge, name, chosen, self.seed, self.place, self.workloads)


def _texts(settings: Mapping[str, Any] | None) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in (settings or {}).items()
    }
