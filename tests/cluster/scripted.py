"""A rendezvous that does what a test says, to see what nodes do."""

from hopline.cluster.lease import TICKS_PER_SECOND
from hopline.cluster.messages import control_frames
from hopline.payload.service import HeartBeat, Pong
from hopline.wire import decode, encode


class Scripted:
    """A pull and a publisher. It writes down what comes; it relays nothing by itself."""

    def __init__(self, cluster, name="r", *, bind=("8011", "8001")):
        self._channels = cluster.network.channels(f"tcp://{name}:8011")
        self.heard = []
        self._pull = self._channels.pull(f"tcp://{name}:{bind[0]}", self._on_frames)
        self._publisher = self._channels.publish(f"tcp://{name}:{bind[1]}")
        self.formats = ("v6",)
        self.sources = []

    def _on_frames(self, frames):
        self.sources.append(frames[0])
        self.heard.append(decode(frames[1:]))

    def identities(self, format=None):
        return [one.message.identity for one in self.heard if format in (None, one.format)]

    def publish(self, frames):
        self._publisher.publish(frames)

    def say(self, payload, format="v6"):
        self.publish(control_frames(payload, format))

    def reply(self, payload):
        """Answer the last one who sent something."""
        return self._pull.reply(self.sources[-1], control_frames(payload))

    def relay(self, message, format="v6"):
        self.publish(encode(message, format))

    def beat(self, seconds=1.0):
        for format in self.formats:
            self.say(HeartBeat(int(seconds * TICKS_PER_SECOND)), format)

    def pong(self, format="v6"):
        self.say(Pong(), format)

    async def close(self):
        await self._channels.close()


async def welcomed(cluster, scripted, *nodes):
    """Let nodes hear a scripted rendezvous."""

    def greet():
        scripted.pong()
        return all(node.membership.is_joined for node in nodes)

    await cluster.until(greet)
    await cluster.run(1)
