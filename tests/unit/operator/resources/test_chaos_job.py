"""The Jobs of a ChaosExperiment: a run that is never repeated, and a healing that is."""

from dataclasses import replace
from typing import Any

from tidemark_operator.api.chaos_experiment import ChaosExperiment
from tidemark_operator.resources.chaos_job import (
    EXPERIMENT_LABEL,
    JOB_SELECTOR,
    RUN_PODS,
    ChaosJobSettings,
    experiment_of,
    heal_job,
    run_job,
)

from tests.support.api_objects import parsed

RESOURCES = {"requests": {"cpu": "500m"}}
SETTINGS = ChaosJobSettings("image:1", "Always", "tidemark-chaos-runner", "system", RESOURCES)


def experiment() -> ChaosExperiment:
    item = {
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": "ChaosExperiment",
        "metadata": {"name": "one", "namespace": "shop", "uid": "u1"},
        "spec": {"pool": "main", "rounds": 1, "faults": [{"kind": "kill"}]},
    }
    return parsed(ChaosExperiment, item)


def container_of(job: dict[str, Any]) -> dict[str, Any]:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = container
    return found


def test_a_run_is_tried_once_and_lives_as_long_as_its_experiment() -> None:
    job = run_job(experiment(), SETTINGS)
    assert (job["metadata"]["name"], job["spec"]["backoffLimit"]) == ("one-run", 0)
    assert [each["uid"] for each in job["metadata"]["ownerReferences"]] == ["u1"]
    assert container_of(job)["args"] == ["run", "one"]


def test_healing_is_tried_again_and_outlives_a_deletion_in_the_foreground() -> None:
    job = heal_job(experiment(), SETTINGS)
    assert (job["metadata"]["name"], job["spec"]["backoffLimit"]) == ("one-heal", 4)
    assert "ownerReferences" not in job["metadata"]
    assert job["spec"]["ttlSecondsAfterFinished"] > 0
    assert container_of(job)["args"] == ["heal", "one"]


def test_a_pod_has_the_runners_account_and_the_restricted_profile() -> None:
    job = run_job(experiment(), SETTINGS)
    pod, container = job["spec"]["template"]["spec"], container_of(job)
    assert pod["serviceAccountName"] == "tidemark-chaos-runner"
    assert (pod["restartPolicy"], pod["securityContext"]["runAsNonRoot"]) == ("Never", True)
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert (container["image"], container["imagePullPolicy"]) == ("image:1", "Always")
    assert container["resources"] == RESOURCES
    environment = {each["name"]: each.get("value") for each in container["env"]}
    assert environment == {
        "POD_NAMESPACE": None,
        "OPERATOR_NAMESPACE": "system",
        "TIDEMARK_TOKEN_FILE": "/var/run/secrets/tidemark/token",
        "TIDEMARK_CA_FILE": "/var/run/tidemark/trust/ca.crt",
    }


def test_run_has_a_token_for_its_pool_and_the_authorities_of_a_tls_pool() -> None:
    pod = run_job(experiment(), SETTINGS)["spec"]["template"]["spec"]
    volumes = {each["name"]: each for each in pod["volumes"]}
    (source,) = volumes["token"]["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == "tidemark/shop/main"
    assert volumes["trust"]["configMap"] == {"name": "main-trust", "optional": True}
    mounts = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    assert mounts.keys() == volumes.keys()


def test_healing_has_no_token_of_a_client() -> None:
    pod = heal_job(experiment(), SETTINGS)["spec"]["template"]["spec"]
    assert [each["name"] for each in pod["volumes"]] == ["tmp"]


def test_jobs_and_pods_are_found_by_labels() -> None:
    selected = {key: value for key, _, value in (e.partition("=") for e in JOB_SELECTOR.split(","))}
    for job in (run_job(experiment(), SETTINGS), heal_job(experiment(), SETTINGS)):
        assert selected.items() <= job["metadata"]["labels"].items()
        assert experiment_of(job) == "one"
    pods = run_job(experiment(), SETTINGS)["spec"]["template"]["metadata"]["labels"]
    assert {**RUN_PODS, EXPERIMENT_LABEL: "one"}.items() <= pods.items()
    healing = heal_job(experiment(), SETTINGS)["spec"]["template"]["metadata"]["labels"]
    assert not RUN_PODS.items() <= healing.items()


def test_a_pod_has_the_settings_of_the_chart() -> None:
    settings = replace(SETTINGS, image_pull_secrets=({"name": "registry"},), user_id=None)
    pod = run_job(experiment(), settings)["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert "runAsUser" not in pod["securityContext"]
    assert "imagePullSecrets" not in run_job(experiment(), SETTINGS)["spec"]["template"]["spec"]
