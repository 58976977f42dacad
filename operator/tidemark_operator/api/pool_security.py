"""Define `spec.security` of a BrokerPool, and the steps by which it may change.

A pool changes while it runs, broker by broker, so that brokers of two neighbouring steps have to
work together (decision 0180).
"""

import msgspec

TLS_STEPS = ("Disabled", "Optional", "Required")
AUTHENTICATION_STEPS = ("none", "optional", "kubernetes")


class SecretRef(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    secret_name: str


class TlsSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    mode: str = ""  # of TLS_STEPS; "": not said
    authority: SecretRef | None = None  # None: the operator creates one


class ClientAuthority(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where the authorities of clients' certificates are: one of the two."""

    config_map_name: str = ""
    secret_name: str = ""


class SecuritySpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    authentication: str = ""  # of AUTHENTICATION_STEPS; "": not said
    tls: TlsSpec = TlsSpec()
    client_authority: ClientAuthority | None = None

    @property
    def has_tls(self) -> bool:
        """Return whether brokers have certificates."""
        return self.tls.mode in ("Optional", "Required")

    @property
    def authenticates(self) -> bool:
        """Return whether clients can say who they are."""
        return self.authentication in ("optional", "kubernetes")

    @property
    def has_replication_port(self) -> bool:
        return self.has_tls or self.authenticates

    @property
    def is_said(self) -> bool:
        """Return whether all fields are set."""
        return bool(self.authentication and self.tls.mode)

    @property
    def state(self) -> str:
        """Return Closed, Migrating or Open."""
        if security(self.tls.mode, self.authentication) == CLOSED:
            return "Closed"
        return "Migrating" if self.has_replication_port else "Open"

    def completed_by(self, other: "SecuritySpec") -> "SecuritySpec":
        """Return the steps of these fields, and of `other` where one is not said."""
        return security(
            self.tls.mode or other.tls.mode, self.authentication or other.authentication
        )

    def with_steps_of(self, other: "SecuritySpec") -> "SecuritySpec":
        """Return this, with the mode of TLS and the authentication of `other`."""
        tls = msgspec.structs.replace(self.tls, mode=other.tls.mode)
        return msgspec.structs.replace(self, authentication=other.authentication, tls=tls)


class TlsStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    mode: str = ""


class SecurityStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The steps that brokers have, as the status records them."""

    authentication: str = ""
    tls: TlsStatus = TlsStatus()

    @property
    def steps(self) -> SecuritySpec:
        return security(self.tls.mode, self.authentication)


def status_of(steps: SecuritySpec) -> SecurityStatus:
    return SecurityStatus(authentication=steps.authentication, tls=TlsStatus(mode=steps.tls.mode))


def security(mode: str, authentication: str) -> SecuritySpec:
    return SecuritySpec(authentication=authentication, tls=TlsSpec(mode=mode))


OPEN = security("Disabled", "none")
CLOSED = security("Required", "kubernetes")


def is_one_step(one: SecuritySpec, other: SecuritySpec) -> bool:
    """Return whether brokers of both work together: no field differs by more than a step."""
    return not skipped_steps(one, other)


def skipped_steps(old: SecuritySpec, new: SecuritySpec) -> tuple[str, ...]:
    """Return a sentence for each field that skips a step; a field that is not said skips none."""
    return tuple(
        f"{name} cannot change from {former} to {wanted} in one step: set {steps[1]} first"
        for name, steps, former, wanted in (
            ("spec.security.tls.mode", TLS_STEPS, old.tls.mode, new.tls.mode),
            (
                "spec.security.authentication",
                AUTHENTICATION_STEPS,
                old.authentication,
                new.authentication,
            ),
        )
        if {former, wanted} == {steps[0], steps[2]}
    )
