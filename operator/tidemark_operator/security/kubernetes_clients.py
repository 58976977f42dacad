"""Know clients by Kubernetes: the API server reviews tokens, labelled Secrets have passwords."""

from tidemark_protocol.access_messages import pool_audience

from tidemark_operator.security.clients import PasswordUser, ReviewedClient, ReviewUnavailable
from tidemark_operator.security.credentials import CredentialSecrets
from tidemark_operator.security.rejections import Reason, SenderRejected
from tidemark_operator.security.token_review import TokenReviews


class KubernetesClients:
    """Implements ClientDirectory."""

    def __init__(self, tokens: TokenReviews, credentials: CredentialSecrets) -> None:
        self._tokens = tokens
        self._credentials = credentials

    async def review_token(self, pool: str, token: str, *, source: str) -> ReviewedClient:
        try:
            found = await self._tokens.review(token, pool_audience(pool), source=source)
        except SenderRejected as rejected:
            if rejected.reason is Reason.NOT_REVIEWED:
                raise ReviewUnavailable(str(rejected)) from rejected
            return ReviewedClient(None, reason=str(rejected))
        return ReviewedClient(found.principal, int(found.expires_at_s * 1000))

    async def find_user(self, pool: str, name: str) -> PasswordUser | None:
        return await self._credentials.find(pool.partition("/")[0], name)
