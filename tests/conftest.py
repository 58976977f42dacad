"""How the tests share the processors (pytest-xdist), and what hypothesis may not judge: time.

Tests of one file stay together, as they share fixtures; so do files that share one of a session. A
worker that waits for a cluster of processes leaves its processor to the others, so clusters come
first, the longest before all, and what keeps every processor busy by itself comes last.
"""

import os
import time

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

SHARED = {  # fixture of the session -> who has it
    "one cluster": [
        f"tests/compatibility/test_{name}.py"
        for name in ("admin", "codecs", "confluent_kafka", "java_tools", "kafka_python", "seek")
    ],
    "one closed cluster": [
        f"tests/security/test_{name}.py" for name in ("handshakes_and_sasl", "http", "requests")
    ],
    "one Spark": [
        f"tests/unit/audit/{name}.py"
        for name in (
            "engines/test_spark_engine",
            "selftest/test_self_test",
            "sources/test_data_source",
        )
    ],
}
LONGEST = (
    "one cluster",
    "tests/compatibility/test_groups_confluent.py",
    "tests/integration/test_faults_under_load.py",
    "tests/integration/test_local_mode.py",
    "tests/compatibility/test_groups.py",
)
LAST = "tests/simulation/test_fresh_seeds.py"
SCOPES = {path: fixture for fixture, paths in SHARED.items() for path in paths}

# How long an example takes says how busy the machine is.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

FIRST_SEED = "SIM_SEED"  # of tests/simulation/test_fresh_seeds.py


def pytest_configure() -> None:
    """Before workers are started: all of them take the same seeds."""
    os.environ[FIRST_SEED] = os.environ.get(FIRST_SEED) or str(int(time.time()))


def pytest_report_header() -> str:
    return f"simulator: new seeds from {os.environ[FIRST_SEED]} on (SIM_SEED=n repeats them)"


def scope_of(nodeid: str) -> str:
    path = nodeid.split("::", 1)[0]
    return SCOPES.get(path, path)


def turn_of(item: pytest.Item) -> int:
    scope = scope_of(item.nodeid)
    if scope in LONGEST:
        return LONGEST.index(scope)
    if scope == LAST:
        return len(LONGEST) + 2
    return len(LONGEST) + (item.get_closest_marker("cluster") is None)


class ByScope(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=turn_of)


@pytest.hookimpl
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling:
    config.option.loadscopereorder = False  # else by their number, and clusters are few
    return ByScope(config, log)
