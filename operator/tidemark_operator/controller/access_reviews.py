"""Answer brokers that ask what their clients may do."""

from tidemark_protocol.access_messages import (
    MAX_ACCESSES,
    REVIEW_ACCESS_PATH,
    ReviewAccessRequest,
    ReviewAccessResponse,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.topic_messages import RequestingBroker

from tidemark_operator.controller.broker_call import BrokerCall, broker_call
from tidemark_operator.controller.service import ControllerService
from tidemark_operator.security.operator_token import OPERATOR, operator_accesses
from tidemark_operator.security.subject_access_review import (
    ReviewUnavailable,
    SubjectAccessReviews,
)


class AccessReviews:
    def __init__(self, reviews: SubjectAccessReviews, controller: ControllerService) -> None:
        self._reviews = reviews
        self._controller = controller

    async def review(self, request: ReviewAccessRequest) -> ReviewAccessResponse:
        """Review the accesses of one client; never raise for a broker's request."""
        if not self._controller.is_leading:
            return ReviewAccessResponse(ErrorCode.NOT_CONTROLLER)
        epoch = self._controller.controller_epoch
        if not self._is_registered(request.broker):
            return ReviewAccessResponse(ErrorCode.STALE_BROKER_EPOCH, epoch, "register first")
        if len(request.accesses) > MAX_ACCESSES:
            message = f"expected at most {MAX_ACCESSES} accesses, found {len(request.accesses)}"
            return ReviewAccessResponse(ErrorCode.INVALID_REQUEST, epoch, message)
        if request.principal == OPERATOR:
            allowed = operator_accesses(request.accesses)
            return ReviewAccessResponse(ErrorCode.NONE, controller_epoch=epoch, allowed=allowed)
        namespace = request.broker.pool.partition("/")[0]
        try:
            allowed, age_ms = await self._reviews.all_of(
                request.principal, request.accesses, namespace
            )
        except ReviewUnavailable as error:
            return ReviewAccessResponse(ErrorCode.UNKNOWN_SERVER_ERROR, epoch, str(error))
        return ReviewAccessResponse(
            ErrorCode.NONE, controller_epoch=epoch, allowed=allowed, age_ms=age_ms
        )

    def _is_registered(self, broker: RequestingBroker) -> bool:
        life = (broker.broker_id, broker.broker_epoch)
        views = self._controller.brokers(broker.pool)
        return any((view.broker_id, view.broker_epoch) == life for view in views)


def access_calls(reviews: AccessReviews) -> dict[str, BrokerCall]:
    return {REVIEW_ACCESS_PATH: broker_call(ReviewAccessRequest, reviews.review)}
