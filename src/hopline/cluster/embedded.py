"""An embedded rendezvous: a node that is one itself as long as nobody else is at the address.

So the first node that somebody starts is enough, and when it ends another one on the same machine takes its place. Only the
address decides: a port can be bound once.
"""

import logging
from collections.abc import Callable

from hopline.cluster.rendezvous import Rendezvous
from hopline.errors import TransportError

logger = logging.getLogger("hopline.cluster")


class Embedded:
    """A rendezvous that may be running here.

    Args:
        make: makes a new one.
    """

    def __init__(self, make: Callable[[], Rendezvous]) -> None:
        self._make = make
        self.rendezvous: Rendezvous | None = None
        """The one that runs here, if one does."""

    async def start(self) -> None:
        """Be the rendezvous, unless somebody is."""
        if self.rendezvous is not None:
            return
        self.rendezvous = self._make()
        try:
            await self.rendezvous.start()
        except TransportError as error:
            self.rendezvous = None
            logger.info("no rendezvous here: %s", error)

    async def close(self) -> None:
        """Be it no longer."""
        rendezvous, self.rendezvous = self.rendezvous, None
        if rendezvous is not None:
            await rendezvous.close()
