"""A ChaosExperiment from its creation to its end, over the real SQLite store."""

from pathlib import Path

from tidemark_operator.api.chaos_experiment import FINALIZER
from tidemark_operator.api.kinds import JOB

from tests.unit.operator.reconcile.chaos.chaos_world import (
    NOW,
    ChaosCluster,
    experiment_object,
    in_cluster,
)

PASSED = {"verdict": "PASSED", "sentence": "none lost", "lost": 0, "finishedAt": NOW}
FAILED = {"verdict": "FAILED", "sentence": "2 lost", "reasons": ["chaos-0: offset 7 is lost"]}


async def begun(cluster: ChaosCluster) -> None:
    await cluster.make_allowing_pool()
    await cluster.apply(experiment_object())
    await cluster.turn()


def test_an_experiment_runs_as_a_job_and_its_verdict_is_in_conditions(tmp_path: Path) -> None:
    async def scenario(cluster: ChaosCluster) -> None:
        await begun(cluster)
        assert await cluster.jobs() == ["one-run"]
        assert await cluster.finalizers() == [FINALIZER]
        assert (await cluster.status())["phase"] == "Running"
        assert (await cluster.conditions())["Healed"] == ("False", "Pending")
        await cluster.runner_writes(rounds=1, currentFault="1: kill leader of partition 0")
        await cluster.turn()
        assert "1: kill leader of partition 0" in await cluster.said("Completed")
        await cluster.runner_writes(**PASSED)
        await cluster.turn()
        assert await cluster.finalizers() == [FINALIZER]  # its Job has not ended
        assert (await cluster.status())["phase"] == "Healing"
        await cluster.job_ends("one-run")
        await cluster.turn()
        assert await cluster.conditions() == {
            "Accepted": ("True", "Accepted"),
            "Completed": ("True", "Passed"),
            "Passed": ("True", "Passed"),
            "Healed": ("True", "Healed"),
        }
        assert (await cluster.status())["phase"] == "Passed"
        assert await cluster.finalizers() == []
        assert await cluster.jobs() == ["one-run"]  # its log

    in_cluster(tmp_path, scenario)


def test_a_failure_is_told_with_its_reasons(tmp_path: Path) -> None:
    async def scenario(cluster: ChaosCluster) -> None:
        await begun(cluster)
        await cluster.runner_writes(**FAILED)
        await cluster.job_ends("one-run")
        await cluster.turn()
        assert (await cluster.conditions())["Passed"] == ("False", "Failed")
        assert await cluster.said("Passed") == "2 lost; chaos-0: offset 7 is lost"
        assert (await cluster.status())["phase"] == "Failed"

    in_cluster(tmp_path, scenario)


def test_a_pool_without_the_label_is_not_struck_until_it_has_it(tmp_path: Path) -> None:
    async def scenario(cluster: ChaosCluster) -> None:
        await cluster.apply(experiment_object())
        assert await cluster.turn() == 3_000
        assert (await cluster.conditions())["Accepted"] == ("False", "PoolNotFound")
        await cluster.make_pool(**{"tidemark.dev/chaos": "no"})
        await cluster.turn()
        assert (await cluster.conditions())["Accepted"] == ("False", "PoolNotLabelled")
        command = "kubectl --namespace shop label brokerpool default tidemark.dev/chaos=allowed"
        assert command in await cluster.said("Accepted")
        assert (await cluster.jobs(), await cluster.finalizers()) == ([], [])
        assert (await cluster.status())["phase"] == "Waiting"
        await cluster.make_allowing_pool()
        await cluster.turn()
        assert await cluster.jobs() == ["one-run"]

    in_cluster(tmp_path, scenario)


def test_one_experiment_of_a_pool_runs_at_a_time(tmp_path: Path) -> None:
    async def scenario(cluster: ChaosCluster) -> None:
        await begun(cluster)
        await cluster.apply(experiment_object("two"))
        assert await cluster.turn("two") == 3_000
        assert (await cluster.conditions("two"))["Accepted"] == ("False", "PoolBusy")
        await cluster.runner_writes(**PASSED)
        await cluster.turn("two")
        assert await cluster.jobs() == ["one-run"]  # the first one may not be healed yet
        await cluster.job_ends("one-run")
        await cluster.turn()
        await cluster.turn("two")
        assert await cluster.jobs() == ["one-run", "two-run"]

    in_cluster(tmp_path, scenario)


def test_what_the_job_rejects_is_not_accepted(tmp_path: Path) -> None:
    async def scenario(cluster: ChaosCluster) -> None:
        await begun(cluster)
        reasons = ["spec.faults[0].kind: disk-full is not possible in a cluster"]
        await cluster.runner_writes(phase="Rejected", reasons=reasons)
        await cluster.turn()
        assert (await cluster.conditions())["Accepted"] == ("False", "Rejected")
        assert await cluster.said("Accepted") == reasons[0]
        assert await cluster.finalizers() == []
        await cluster.job_ends("one-run")
        await cluster.turn()
        assert (await cluster.status())["phase"] == "Rejected"

    in_cluster(tmp_path, scenario)


def test_a_run_whose_pod_crashes_is_aborted_and_healed(tmp_path: Path) -> None:
    async def scenario(cluster: ChaosCluster) -> None:
        await begun(cluster)
        terminated = {"exitCode": 137, "reason": "OOMKilled"}
        container = {"name": "chaos", "state": {"terminated": terminated}}
        await cluster.make_run_pod({"phase": "Failed", "containerStatuses": [container]})
        await cluster.job_ends("one-run", is_good=False)
        await cluster.turn()
        status = await cluster.status()
        assert (status["verdict"], status["phase"]) == ("ABORTED", "Healing")
        assert "exit code 137 (OOMKilled)" in status["sentence"]
        assert status["finishedAt"] == NOW
        assert await cluster.jobs() == ["one-heal", "one-run"]
        assert await cluster.finalizers() == [FINALIZER]
        await cluster.job_ends("one-heal")
        await cluster.turn()
        assert (await cluster.conditions())["Healed"] == ("True", "Healed")
        assert (await cluster.conditions())["Passed"] == ("False", "Aborted")
        assert (await cluster.status())["phase"] == "Aborted"
        assert (await cluster.jobs(), await cluster.finalizers()) == (["one-run"], [])

    in_cluster(tmp_path, scenario)


def test_a_job_that_was_deleted_by_hand_aborts_the_experiment(tmp_path: Path) -> None:
    async def scenario(cluster: ChaosCluster) -> None:
        await begun(cluster)
        await cluster.make_run_pod({"phase": "Running"})
        await cluster.store.delete(JOB, "shop", "one-run")
        assert await cluster.turn() == 1_000
        assert "Job one-run was deleted" in (await cluster.status())["sentence"]
        assert await cluster.jobs() == []  # its pod is ending: it might strike once more
        await cluster.delete_run_pod()
        await cluster.turn()
        assert await cluster.jobs() == ["one-heal"]

    in_cluster(tmp_path, scenario)


def test_a_verdict_of_a_run_that_could_not_heal_stays_and_another_job_heals(
    tmp_path: Path,
) -> None:
    async def scenario(cluster: ChaosCluster) -> None:
        await begun(cluster)
        await cluster.runner_writes(**PASSED)
        await cluster.job_ends("one-run", is_good=False)
        await cluster.turn()
        assert await cluster.jobs() == ["one-heal", "one-run"]
        await cluster.job_ends("one-heal", is_good=False)
        await cluster.turn()
        assert "one-heal" in await cluster.said("Healed")
        assert await cluster.jobs() == ["one-heal", "one-run"]  # a new one
        assert "conditions" not in (await cluster.job("one-heal")).get("status", {})
        await cluster.job_ends("one-heal")
        await cluster.turn()
        assert (await cluster.status())["phase"] == "Passed"
        assert await cluster.finalizers() == []

    in_cluster(tmp_path, scenario)


def test_a_deletion_during_the_run_stops_it_and_heals_before_the_object_goes(
    tmp_path: Path,
) -> None:
    async def scenario(cluster: ChaosCluster) -> None:
        await cluster.make_namespace()
        await begun(cluster)
        await cluster.make_run_pod({"phase": "Running"})
        await cluster.delete()
        assert await cluster.turn() == 1_000
        assert await cluster.jobs() == []  # its pod is ending: it might strike once more
        assert await cluster.finalizers() == [FINALIZER]
        await cluster.delete_run_pod()
        await cluster.turn()
        assert await cluster.jobs() == ["one-heal"]
        assert (await cluster.status())["phase"] == "Healing"
        await cluster.job_ends("one-heal")
        await cluster.turn()
        assert (await cluster.jobs(), await cluster.finalizers()) == ([], [])

    in_cluster(tmp_path, scenario)


def test_a_deletion_before_and_after_a_run_needs_no_healing(tmp_path: Path) -> None:
    async def scenario(cluster: ChaosCluster) -> None:
        await cluster.make_namespace()
        await cluster.apply(experiment_object("waiting"))
        await cluster.turn("waiting")
        await cluster.delete("waiting")
        await cluster.turn("waiting")
        await begun(cluster)
        await cluster.runner_writes(**PASSED)
        await cluster.job_ends("one-run")
        await cluster.turn()
        await cluster.delete()
        await cluster.turn()
        assert await cluster.jobs() == ["one-run"]
        assert await cluster.finalizers() == await cluster.finalizers("waiting") == []

    in_cluster(tmp_path, scenario)


def test_a_controller_that_starts_again_goes_on_at_every_step(tmp_path: Path) -> None:
    async def scenario(cluster: ChaosCluster) -> None:
        await begun(cluster)
        cluster.restart_controller()
        await cluster.turn()
        assert await cluster.jobs() == ["one-run"]
        await cluster.job_ends("one-run", is_good=False)
        cluster.restart_controller()
        await cluster.turn()
        cluster.restart_controller()
        await cluster.job_ends("one-heal")
        await cluster.turn()
        assert (await cluster.status())["phase"] == "Aborted"
        assert (await cluster.jobs(), await cluster.finalizers()) == (["one-run"], [])

    in_cluster(tmp_path, scenario)


def test_finalizers_of_others_stay(tmp_path: Path) -> None:
    async def scenario(cluster: ChaosCluster) -> None:
        item = experiment_object()
        item["metadata"]["finalizers"] = ["example.org/keep"]
        await cluster.make_allowing_pool()
        await cluster.apply(item)
        await cluster.turn()
        assert await cluster.finalizers() == ["example.org/keep", FINALIZER]
        await cluster.runner_writes(**PASSED)
        await cluster.job_ends("one-run")
        await cluster.turn()
        assert await cluster.finalizers() == ["example.org/keep"]

    in_cluster(tmp_path, scenario)


def test_a_job_of_an_earlier_experiment_of_the_name_is_not_taken_for_its_own(
    tmp_path: Path,
) -> None:
    async def scenario(cluster: ChaosCluster) -> None:
        await begun(cluster)
        await cluster.job_ends("one-run", is_good=False)
        await cluster.make_again()
        await cluster.turn()
        assert (await cluster.conditions())["Accepted"] == ("False", "NameTaken")
        assert "verdict" not in await cluster.status()
        await cluster.store.delete(JOB, "shop", "one-run")  # by the collector
        await cluster.turn()
        assert (await cluster.status())["phase"] == "Running"
        # Healing by a Job of the earlier one would be none.
        heal = {**await cluster.job("one-run")}
        labels = {**heal["metadata"]["labels"], "tidemark.dev/chaos-uid": "earlier"}
        heal["metadata"] = {"name": "one-heal", "namespace": "shop", "labels": labels}
        await cluster.store.create(JOB, heal)
        await cluster.job_ends("one-heal")
        await cluster.job_ends("one-run", is_good=False)
        await cluster.turn()
        assert (await cluster.status())["phase"] == "Healing"
        assert (await cluster.conditions())["Healed"] == ("False", "Pending")
        await cluster.job_ends("one-heal")
        await cluster.turn()
        assert (await cluster.status())["phase"] == "Aborted"

    in_cluster(tmp_path, scenario)


def test_a_namespace_that_is_deleted_is_not_held_by_its_experiment(tmp_path: Path) -> None:
    async def scenario(cluster: ChaosCluster) -> None:
        await begun(cluster)
        await cluster.make_namespace(is_going=True)
        await cluster.delete()
        await cluster.turn()
        assert await cluster.finalizers() == []
        assert await cluster.jobs() == ["one-run"]  # the namespace takes it along

    in_cluster(tmp_path, scenario)
