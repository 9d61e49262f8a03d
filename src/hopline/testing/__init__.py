"""What the authors test with, for your tests: a clock that is moved by hand, a network in memory that can fail."""

from hopline.testing.clock import ManualClock
from hopline.transport.memory import MemoryNetwork, MemoryTransport

__all__ = ["ManualClock", "MemoryNetwork", "MemoryTransport"]
