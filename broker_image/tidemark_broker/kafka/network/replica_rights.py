"""Say who may fetch as a follower on a listener."""

from enum import Enum


class ReplicaRights(Enum):
    ANY = "any"  # followers say themselves who they are
    NONE = "none"  # a listener for clients
    CERTIFIED = "certified"  # a client, as the broker that its certificate names
