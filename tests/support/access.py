"""Answer a broker's questions about accesses from the roles of local mode, without a network."""

from tidemark_broker.security.authorizer import Authorizer
from tidemark_operator.security.local_roles import Roles, is_allowed, parse_roles
from tidemark_protocol.access_messages import Access, Principal, ReviewAccessResponse
from tidemark_protocol.error_codes import ErrorCode

ALICE = Principal("alice", ("system:authenticated",))
POOL = "local/default"


class Reviews:
    """What a controller with these roles responds; `is_away`: an error."""

    def __init__(self, roles: str = "") -> None:
        self.roles: Roles = parse_roles(roles)
        self.is_away = False
        self.asked: list[tuple[Access, ...]] = []

    def grant(self, *rules: str, principal: Principal = ALICE) -> None:
        """Replace the rules of a user, each as one line of YAML."""
        self.roles = parse_roles(f"users: {{{principal.name}: [{', '.join(rules)}]}}")

    async def review(
        self, principal: Principal, accesses: tuple[Access, ...]
    ) -> ReviewAccessResponse:
        self.asked.append(accesses)
        if self.is_away:
            return ReviewAccessResponse(ErrorCode.UNKNOWN_SERVER_ERROR, message="away")
        allowed = tuple(is_allowed(self.roles, principal, access) for access in accesses)
        return ReviewAccessResponse(ErrorCode.NONE, allowed=allowed)

    def authorizer(self) -> Authorizer:
        return Authorizer(self.review, pool=POOL)
