"""pyzmq by itself: DEALER and ROUTER, blocking calls, nothing read or checked: the floor.

`--variant 4` carries what a Hopline link does, as in bench/node.py: an empty frame, the payload, and as many bytes as a
signed metaframe; the routing id is the fourth. `--variant 1` carries the payload alone.
"""

import zmq

from bench.peers.processes import responder
from bench.peers.rules import PAYLOAD, ROOMY, Figures, Options, free_address, one_at_a_time, play, ready, window


def serve(options: Options) -> None:
    assert options.serve
    socket = zmq.Context().socket(zmq.ROUTER)
    socket.set_hwm(ROOMY)
    socket.bind(options.serve)
    ready()
    while True:
        socket.send_multipart(socket.recv_multipart())


def measure(options: Options) -> Figures:
    frames = {"4": [b"", PAYLOAD, b"m" * 250], "1": [PAYLOAD]}[options.variant]
    place = frames.index(PAYLOAD)
    with responder(f"tcp://{free_address()}") as address, zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.set_hwm(ROOMY)
        socket.connect(address)

        def send() -> None:
            socket.send_multipart(frames)

        def receive() -> bytes:
            return socket.recv_multipart()[place]

        def call() -> bytes:
            socket.send_multipart(frames)
            return socket.recv_multipart()[place]

        return Figures(*one_at_a_time(call, options.seconds), *window(send, receive, options.seconds))


if __name__ == "__main__":
    play(measure, serve)
