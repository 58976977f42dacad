"""Reasons of a Topic's condition `Ready` that time does not mend. Pure.

A change of the manifest, or of another object, has to come first: whoever waits for a topic stops.
"""

LASTING_REASONS = frozenset(
    {
        *("RetainedDataDiffers", "TopicNameTaken", "NotEnoughBrokers", "BrokerPoolNotFound"),
        *("InvalidSpec", "Refused", "SliceNameTaken", "PartitionsNeverShrink", "SliceMissing"),
    }
)
