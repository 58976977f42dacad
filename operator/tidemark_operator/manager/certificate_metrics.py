"""Export when certificates and certificate authorities end."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidemark_operator.manager.operator_tls import OperatorTls


class CertificateCollector(Collector):
    def __init__(self, tls: OperatorTls) -> None:
        self._tls = tls

    def collect(self) -> Iterator[Metric]:
        authority_s, certificate_s = self._tls.controller_ends_s
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
        for pool, found in sorted(self._tls.pools.items()):
            if found.issuer:
                pools.add_metric([pool], found.ends_s)
        yield pools
