"""What messages carry. No I/O, no clock.

`registry.py` knows which Python class is which message type.
`read_service` reads the bodies of KINO.* messages; their classes live in `service.py`.
"""

from hopline.payload.registry import Kind, Payload, kind_of, message, type_of
from hopline.payload.service import (
    SERVICE_IDENTITIES,
    SERVICE_PREFIX,
    SERVICE_VERSION,
    ServicePayload,
    is_service,
    read_service,
)

__all__ = [
    "SERVICE_IDENTITIES",
    "SERVICE_PREFIX",
    "SERVICE_VERSION",
    "Kind",
    "Payload",
    "ServicePayload",
    "is_service",
    "kind_of",
    "message",
    "read_service",
    "type_of",
]
