"""The event log and its answers, of real processes: a kill, a frozen follower, a clean stop."""

import json
import os
import signal
from pathlib import Path
from typing import Any

from tests.support.local_cluster import LocalCluster, get_json, run_command, running
from tests.support.waiting import wait_for


def events(cluster: LocalCluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = get_json(cluster.controller_url + "/v1/events")["events"]
    return found


def why(cluster: LocalCluster, partition: int) -> dict[str, str]:
    done = run_command(cluster, "why", "orders", str(partition), "-o", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    return {each["question"]: each["answer"] for each in json.loads(done.stdout)["answers"]}


def led_by(cluster: LocalCluster, broker_id: int) -> list[int]:
    numbers = range(3)
    return [number for number in numbers if cluster.partition(number)["leader"] == broker_id]


def test_each_step_of_a_failure_is_an_event_with_its_reason(tmp_path: Path) -> None:
    with running(tmp_path) as cluster:
        cluster.wait_until_in_sync()
        leader = cluster.partition(0)["leader"]
        led = led_by(cluster, leader)
        before = events(cluster)[-1]["number"]
        cluster.kill(leader)
        wait_for("other leaders", lambda: not led_by(cluster, leader))
        new = [event for event in events(cluster) if event["number"] > before]
        kinds = [event["kind"] for event in new]
        assert kinds[:2] == ["BrokerSuspected", "BrokerFenced"]
        elected = [event for event in new if event["kind"] == "LeaderElected"]
        assert {event["partition"] for event in elected} >= set(led)
        assert all(f"broker {leader} passed over: fenced" in event["sentence"] for event in elected)
        fence = next(event for event in new if event["kind"] == "BrokerFenced")
        assert all(event["atMs"] - fence["atMs"] < 1000 for event in elected)
        answers = why(cluster, led[0])
        present = cluster.partition(led[0])["leader"]
        assert "chosen: in sync" in answers[f"Why is broker {present} the leader?"]


def test_a_frozen_majority_is_why_acks_all_is_rejected(tmp_path: Path) -> None:
    with running(tmp_path) as cluster:
        cluster.wait_until_in_sync()
        leader = int(cluster.partition(0)["leader"])
        frozen = [number for number in range(3) if number != leader]
        pids = [cluster.kill(number, signal.SIGSTOP) for number in frozen]
        try:
            wait_for("an ISR of one", lambda: len(cluster.partition(0)["isr"]) == 1)
            answers = why(cluster, 0)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        assert (
            "NOT_ENOUGH_REPLICAS: 1 of 3 replicas in sync" in answers["Why is acks=all rejected?"]
        )
        for number in frozen:
            assert "is fenced: session timeout" in answers[f"Why is broker {number} not in sync?"]
        assert "no leader can be elected" in answers[f"What if broker {leader} fails now?"]
        cluster.wait_until_in_sync()
        assert "3 of 3 replicas in sync" in why(cluster, 0)["Is acks=all accepted?"]
