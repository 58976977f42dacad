"""Define the types of ids and of the four epochs (docs/design/architecture.md, Epochs).

An unknown epoch is -1, as in Kafka.
"""

from typing import NewType

BrokerId = NewType("BrokerId", int)
TopicId = NewType("TopicId", str)  # the UID of the Topic object: a UUID with dashes, lower case
Offset = NewType("Offset", int)

ControllerEpoch = NewType("ControllerEpoch", int)
BrokerEpoch = NewType("BrokerEpoch", int)
LeaderEpoch = NewType("LeaderEpoch", int)
PartitionEpoch = NewType("PartitionEpoch", int)

NO_BROKER = BrokerId(-1)
NO_EPOCH = -1

# Whoever may produce can write any producer id into a batch. One from here on was never handed out
# (at a block each millisecond that takes 140 years) and must not push the counter out of 64 bits.
FORGED_PRODUCER_IDS_FROM = 2**62
