"""The pure rules of a flow: callbacks, expiry, trail and fingerprint. No I/O, no clock.

The node, the command line and the pipeline all use these, so that what happened and what we say happened cannot differ.
"""

from hopline.flow.callbacks import is_answer, matching_point, register_callbacks
from hopline.flow.expiry import is_expired, remaining_ttl
from hopline.flow.fingerprint import message_uid
from hopline.flow.trail import (
    MAX_TRAIL,
    Sent,
    inherit_flow,
    inherited_trail,
    is_recorded,
    output_of,
    record_hop,
    sender,
)

__all__ = [
    "MAX_TRAIL",
    "Sent",
    "inherit_flow",
    "inherited_trail",
    "is_answer",
    "is_expired",
    "is_recorded",
    "matching_point",
    "message_uid",
    "output_of",
    "record_hop",
    "register_callbacks",
    "remaining_ttl",
    "sender",
]
