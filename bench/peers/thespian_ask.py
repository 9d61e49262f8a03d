"""Thespian: an actor in a process of its own (`multiprocTCPBase`), asked from outside of its actor system."""

import os

from thespian.actors import Actor, ActorAddress, ActorSystem  # type: ignore[import-not-found]

from bench.peers.rules import PAYLOAD, Figures, Options, free_address, one_at_a_time, play, window

PATIENCE = 10  # seconds; an answer that takes longer is lost, and the assertion of the rules says so


class Echo(Actor):  # type: ignore[misc]
    def receiveMessage(self, message: object, sender: ActorAddress) -> None:  # noqa: N802 - Thespian's name
        if isinstance(message, bytes):
            self.send(sender, message)


def measure(options: Options) -> Figures:
    os.environ["THESPIAN_BASE_IPADDR"] = "127.0.0.1"
    port = int(free_address().rpartition(":")[2])
    system = ActorSystem("multiprocTCPBase", {"Admin Port": port}, logDefs={"version": 1})
    try:
        echo = system.createActor(Echo)
        return Figures(
            *one_at_a_time(lambda: system.ask(echo, PAYLOAD, PATIENCE), options.seconds),
            *window(lambda: system.tell(echo, PAYLOAD), lambda: system.listen(PATIENCE), options.seconds),
        )
    finally:
        system.shutdown()


if __name__ == "__main__":
    play(measure)
