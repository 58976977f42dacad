"""Seconds of hostile bytes at real brokers; `python -m tests.fuzz` does it for an hour."""

import random
from pathlib import Path

import pytest

from tests.fuzz.corpus import request_bodies
from tests.fuzz.java_peer import JavaPeer
from tests.fuzz.live import Report, attack, unharmed
from tests.support.kafka_cluster import kafka_cluster


@pytest.mark.cluster
def test_hostile_bytes_harm_neither_brokers_nor_other_clients(tmp_path: Path) -> None:
    with JavaPeer() as java:
        bodies = request_bodies(java, seed=1, count=1)
    with kafka_cluster(tmp_path) as cluster:
        report = Report()
        with unharmed(cluster, report):
            found = attack(cluster, bodies, random.Random(1), seconds=3.0)
        assert report.wrong == []
        assert found.closed > 10 and found.responded > 10
