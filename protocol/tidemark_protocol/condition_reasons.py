"""Define the reasons of a Topic's condition `Ready` that do not pass by themselves.

A change of the manifest, or of another object, must come first, so commands stop waiting.
"""

LASTING_REASONS = frozenset(
    {
        *("RetainedDataDiffers", "TopicNameTaken", "NotEnoughBrokers", "BrokerPoolNotFound"),
        *("InvalidSpec", "Refused", "SliceNameTaken", "PartitionsNeverShrink", "SliceMissing"),
    }
)
