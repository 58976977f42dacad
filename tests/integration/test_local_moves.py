"""Moves, drains and smaller pools with real broker processes, while records are written."""

import subprocess
from pathlib import Path
from typing import Any

from tests.integration.test_local_mode import produce_one, values
from tests.support.local_cluster import LocalCluster, run_command, running
from tests.support.waiting import wait_for


def replicas(cluster: LocalCluster, partition: int) -> list[int]:
    return list(cluster.partition(partition)["replicas"])


def is_settled_on(cluster: LocalCluster, partition: int, brokers: list[int]) -> bool:
    state: dict[str, Any] = cluster.partition(partition)
    in_sync = sorted(member["id"] for member in state["isr"])
    return (
        state["replicas"] == brokers
        and not state["adding"]
        and not state["removing"]
        and in_sync == sorted(brokers)
        and state["leader"] in brokers
    )


def is_stored(cluster: LocalCluster, value: str) -> bool:
    """The broker may not know the topic yet, or the leader be moving: the caller asks again."""
    try:
        produce_one(cluster, 0, value)
    except (AssertionError, OSError):
        return False
    return True


def succeed(cluster: LocalCluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = run_command(cluster, *arguments)
    assert done.returncode == 0, done.stderr + done.stdout
    return done


def logs_of(cluster: LocalCluster, broker_id: int) -> list[str]:
    found = []
    for path in cluster.data_dir.rglob("orders-*"):
        if path.is_dir() and f"broker-{broker_id}" in str(path) and "." not in path.name:
            found.append(path.name)
    return sorted(found)


def test_partitions_move_and_a_smaller_pool_empties_its_last_broker_first(tmp_path: Path) -> None:
    with running(tmp_path, brokers=4) as cluster:
        cluster.wait_until_in_sync()
        wait_for("broker 3", lambda: cluster.broker(3)["state"] == "Active")
        sent = [f"value-{number}" for number in range(20)]
        for value in sent[:10]:
            wait_for(f"{value} to be stored", lambda value=value: is_stored(cluster, value))
        elsewhere = [b for b in range(4) if b not in replicas(cluster, 0)]
        target = [*elsewhere, *replicas(cluster, 0)[1:]]
        succeed(cluster, "move", "orders", "0", "--to", ",".join(map(str, target)))
        for value in sent[10:]:
            wait_for(f"{value} to be stored", lambda value=value: is_stored(cluster, value))
        wait_for("the move", lambda: is_settled_on(cluster, 0, target), seconds=60)
        assert set(values(cluster, 0)) == set(sent)

        refused = run_command(cluster, "move", "orders", "0", "--to", "1")
        assert refused.returncode != 0
        assert "must list replicationFactor brokers" in refused.stderr
        for unknown in (("move", "orders", "0", "--to", "7,1,2"), ("drain", "7")):
            refused = run_command(cluster, *unknown)
            assert refused.returncode == 1
            assert "found:      7" in refused.stderr
        topic = "apiVersion: tidemark.dev/v1alpha1\nkind: Topic\nmetadata: {name: wide}\n"
        (tmp_path / "wide.yaml").write_text(topic + "spec: {replicationFactor: 5}\n")
        succeed(cluster, "apply", "-f", str(tmp_path / "wide.yaml"))
        wait_for(
            "status to tell why the topic waits",
            lambda: (
                "topic/wide: not Ready: replicationFactor 5" in succeed(cluster, "status").stdout
            ),
        )

        # Partition 0 is where placement says; the others leave broker 3 by themselves.
        succeed(cluster, "move", "orders", "0", "--to", "1,2,0")
        wait_for("the move back", lambda: is_settled_on(cluster, 0, [1, 2, 0]), seconds=60)
        pool = "apiVersion: tidemark.dev/v1alpha1\nkind: BrokerPool\nmetadata: {name: default}\n"
        (tmp_path / "pool.yaml").write_text(pool + "spec: {replicas: 3}\n")
        succeed(cluster, "apply", "-f", str(tmp_path / "pool.yaml"))
        wait_for("broker 3 gone", lambda: cluster.broker(3)["state"] == "Gone", seconds=60)
        assert all(3 not in replicas(cluster, number) for number in range(3))
        assert set(values(cluster, 0)) == set(sent)
        assert logs_of(cluster, 3) == []
