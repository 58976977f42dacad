"""Mutants of who speaks: identities of brokers and replicas, and what is known of accesses."""

from tests.mutation.edits import at, test, value
from tests.mutation.mutant import Mutant

NO_ACCESSES = "simulated clients need no permission"

MUTANTS = (
    Mutant("a broker speaks as another one", "S33",
           (at("broker-speaks-for-itself", test(False)),),
           "tests/unit/operator/security/test_broker_identity.py::"
           "test_a_message_as_another_broker_or_of_another_pool_is_rejected",
           "brokers are impersonated"),
    Mutant("a known token counts after its expiry", "S33",
           (at("known-token-ends-with-its-expiry", test(False)),),
           "tests/unit/operator/security/test_token_review.py::"
           "test_without_the_api_server_a_known_token_is_valid_until_it_expires",
           "brokers are impersonated"),
    Mutant("an address counts although its pod sent a token", "S33",
           (at("address-counts-before-token", test("len(at_it) != 1")),),
           "tests/unit/operator/security/test_broker_identity.py::"
           "test_a_broker_without_a_token_is_known_by_its_address_until_it_sends_one",
           "brokers are impersonated"),
    Mutant("a token is of whatever pod has the name of its pod now", "S33",
           (at("token-is-of-present-pod", test("found is None")),),
           "tests/unit/operator/security/test_broker_identity.py::"
           "test_the_pod_that_follows_is_another_one",
           why_no_seed="the API server rejects the token of a pod that is gone"),
    Mutant("a replica is who it says", "S33",
           (at("replica-is-who-its-certificate-names", test(False)),),
           "tests/unit/broker/security/test_tls.py::"
           "test_follower_fetches_only_as_its_certificate_names_it",
           why_no_seed="TLS is not simulated"),
    Mutant("an unknown access is allowed while the controller is away", "S34",
           (at("unknown-access-is-none",
               value("None if self._failed_ms is None else True")),),
           "tests/unit/broker/security/test_authorizer.py::"
           "test_known_clients_go_on_without_a_controller_and_unknown_ones_are_denied",
           why_no_seed=NO_ACCESSES),
    Mutant("a review counts for an hour, with a controller too", "S34",
           (at("review-is-stale-in-time", value("GRACE_MS")),),
           "tests/unit/broker/security/test_authorizer.py::"
           "test_a_revoked_access_is_denied_after_thirty_seconds",
           why_no_seed=NO_ACCESSES),
)  # fmt: skip
