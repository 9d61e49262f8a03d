"""Pykka: an actor in a thread of the same process; nothing leaves it. A thousand in flight are futures that are kept."""

from collections import deque

import pykka  # type: ignore[import-not-found]

from bench.peers.rules import PAYLOAD, Figures, Options, one_at_a_time, play, window


class Echo(pykka.ThreadingActor):  # type: ignore[misc]
    def on_receive(self, message: bytes) -> bytes:
        return message


def measure(options: Options) -> Figures:
    actor = Echo.start()
    sent: deque[pykka.Future[bytes]] = deque()
    try:
        return Figures(
            *one_at_a_time(lambda: actor.ask(PAYLOAD), options.seconds),
            *window(lambda: sent.append(actor.ask(PAYLOAD, block=False)), lambda: sent.popleft().get(), options.seconds),
        )
    finally:
        actor.stop()


if __name__ == "__main__":
    play(measure)
