"""Export when certificates and certificate authorities end."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidemark_operator.broker_runtime.broker_runtime import PoolCertificates


class CertificateCollector(Collector):
    def __init__(
        self,
        controller_ends_s: Callable[[], tuple[float, float]],
        pools: Callable[[], Mapping[str, PoolCertificates]],
    ) -> None:
        """Create it; the ends are those of the controller's authority and certificate (0: none)."""
        self._controller_ends_s = controller_ends_s
        self._pools = pools

    def collect(self) -> Iterator[Metric]:
        authority_s, certificate_s = self._controller_ends_s()
        for name, help_text, end_s in (
            ("authority", "End of the controller's certificate authority", authority_s),
            ("certificate", "End of this operator's certificate", certificate_s),
        ):
            family = GaugeMetricFamily(
                f"tidemark_controller_{name}_expiry_timestamp_seconds", help_text
            )
            if end_s:
                family.add_metric([], end_s)
                yield family
        pools = GaugeMetricFamily(
            "tidemark_pool_authority_expiry_timestamp_seconds",
            "End of the certificate authority that issues to a pool's brokers",
            labels=["pool"],
        )
        for pool, found in sorted(self._pools().items()):
            if found.issuer:
                pools.add_metric([pool], found.ends_s)
        yield pools
