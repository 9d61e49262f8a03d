"""`hopline ask`: one question to a running node, and its answer."""

import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from hopline.cli.client import (
    BindOption,
    ClusterOption,
    ConfigOption,
    PlainTcpOption,
    TimeoutOption,
    until_known,
    visit,
)
from hopline.cli.terminal import JsonOption, complaint, put
from hopline.errors import PayloadError
from hopline.identity import MessageType

if TYPE_CHECKING:
    from rich.console import Console

    from hopline.assembly import Node

BodyEncoding = Literal["msgpack", "json"]

WordsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="[ADDRESS] IDENTITY [JSON|-]",
        help="Where the node is, such as tcp://127.0.0.1:5101, but not with --cluster; the message identity, such as "
        "ORDER.PLACE; the body in JSON, or - to read it from standard input, {} if not said.",
        show_default=False,
    ),
]
VersionOption = Annotated[
    int, typer.Option("--version", min=0, max=0xFFFF, help="The version of the message, and of an answer.")
]
PartitionOption = Annotated[str, typer.Option("--partition", help="The partition of the message.")]
EncodingOption = Annotated[BodyEncoding, typer.Option("--encoding", help="What bodies are on the wire.")]


class Body:
    """A body of any shape: bytes when it is sent, a value when it has come."""

    def __init__(self, value: Any) -> None:  # noqa: ANN401 - whatever JSON or msgpack can say
        self.value = value


def run(
    words: WordsArgument,
    *,
    reply: Annotated[str, typer.Option("--reply", metavar="IDENTITY", help="The identity of the answer.")],
    version: VersionOption = 1,
    partition: PartitionOption = "",
    timeout: TimeoutOption = 5.0,
    encoding: EncodingOption = "msgpack",
    cluster: ClusterOption = None,
    config: ConfigOption = None,
    bind: BindOption = "",
    plain_tcp: PlainTcpOption = False,
    as_json: JsonOption = False,
) -> None:
    """Send a request to a running node, or to any node of a cluster, and print the body of the answer as JSON.

    An answer that does not come is one line on standard error with its code: NO_ROUTE, EXPIRED, REMOTE_ERROR and so on.

    Example:  hopline ask tcp://127.0.0.1:5101 ORDER.PLACE '{"order_id": "42"}' --reply ORDER.PLACED
    """
    address, identity, body = said(words, cluster)
    question = declared_body(identity, version, partition, encoding)
    answer = declared_body(reply, version, "", encoding)
    request = question(encoded_body(body, encoding))

    async def do(node: "Node", there: bytes, seconds: float) -> Any:  # noqa: ANN401
        if there:
            kind = MessageType(identity.encode(), version, partition.encode())
            await until_known(node, there, kind, min(seconds / 2, 1.0))
        return (await node.ask(request, answer, node=there, timeout=seconds)).value

    value = visit(
        address,
        [identity, reply],
        do,
        cluster=cluster,
        is_anybody=bool(cluster),
        config=config,
        timeout=timeout,
        bind=bind,
        plain_tcp=plain_tcp,
    )
    try:
        put(value, _show, as_json=as_json)
    except (TypeError, ValueError) as error:
        raise complaint(f"PAYLOAD_BROKEN: the answer cannot be shown as JSON: {error}", code=1) from None


def said(words: list[str], cluster: list[str] | None) -> tuple[str, str, str]:
    """The address, the identity and the body that stand on the command line; with a cluster no address does."""
    most = 2 if cluster else 3
    if not most - 1 <= len(words) <= most:
        rule = "with --cluster write IDENTITY and perhaps JSON" if cluster else "write ADDRESS, IDENTITY and perhaps JSON"
        raise complaint(f"{rule}; got {len(words)} of these")
    address, identity, body = (["", *words] if cluster else words) + ["{}"] * (most - len(words))
    return address, identity, body


def declared_body(identity: str, version: int, partition: str, encoding: BodyEncoding) -> type[Body]:
    """A payload class of its own for a message type of which we know nothing else."""
    from hopline.payload.registry import declare

    payload_class: type[Body] = type("Body", (Body,), {})
    read = msgspec.json.decode if encoding == "json" else msgspec.msgpack.decode

    def decode(body: bytes) -> Body:
        try:
            return payload_class(read(body))
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise PayloadError("PAYLOAD_BROKEN", f"the body is not {encoding}: {error}") from None

    kind = MessageType(identity.encode(), version, partition.encode())
    declare(payload_class, kind, lambda payload: bytes(payload.value), decode)
    return payload_class


def encoded_body(text: str, encoding: BodyEncoding) -> bytes:
    """The bytes of a body given in JSON; ends the command if it is none."""
    try:
        value = msgspec.json.decode(sys.stdin.buffer.read() if text == "-" else text)
        return msgspec.json.encode(value) if encoding == "json" else msgspec.msgpack.encode(value)
    except (msgspec.MsgspecError, RecursionError, UnicodeError, OverflowError) as error:
        raise complaint(f"INPUT_BAD_JSON: the body is not JSON that can be sent: {error}") from None


def _show(console: "Console", value: object) -> None:
    console.print_json(msgspec.json.encode(value).decode())
