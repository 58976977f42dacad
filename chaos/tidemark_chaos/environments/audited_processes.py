"""Run a chaos experiment on this machine under a Prometheus, and audit its samples."""

from pathlib import Path

from tidemark_chaos.environments.chaos_environment import Notify
from tidemark_chaos.environments.chaos_processes import ChaosProcesses
from tidemark_chaos.environments.processes import BROKERS, PortRange
from tidemark_chaos.environments.prometheus import AuditResponse, Scraper
from tidemark_chaos.heal_journal import HealJournal
from tidemark_chaos.spec import ExperimentSpec
from tidemark_chaos.verification import VerifyReport


class AuditedProcesses(ChaosProcesses):
    def __init__(
        self, spec: ExperimentSpec, *, out: Path, journal: HealJournal, audit_report: Path
    ) -> None:
        """Create it; `audit_report` gets the report of the audit."""
        super().__init__(spec, out=out, journal=journal)
        self._audit_report = audit_report
        self._scraper = Scraper(self._directory, log=self._log("prometheus"))
        self._own_port: PortRange | None = None
        self._tell: Notify = lambda _: None
        self.audited: AuditResponse | str = "the run ended before it"

    async def set_up(self, tell: Notify) -> None:
        self._tell = tell
        await super().set_up(tell)
        assert self._port_range is not None
        first = self._port_range.first
        tell("starting Prometheus, which scrapes them twice a second")
        self._own_port = PortRange(1)
        # Brokers' HTTP ports follow the controller's.
        targets = [f"127.0.0.1:{first + number}" for number in range(1 + BROKERS)]
        await self._scraper.start(self._own_port.first, targets)
        await self._scraper.begin()

    async def verify(self) -> VerifyReport:
        """Verify all records, and audit while brokers still run: the last events are scraped."""
        verified = await super().verify()
        self._tell("auditing the samples of Prometheus")
        response = await self._scraper.audit(self._audit_report)
        self.audited = self._scraper.missing if response is None else response
        return verified

    async def tear_down(self) -> None:
        await self._scraper.stop()
        if self._own_port is not None:
            self._own_port.close()
        await super().tear_down()
