"""`hopline tell`: one message to a running node."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hopline.cli.ask import (
    EncodingOption,
    PartitionOption,
    VersionOption,
    WordsArgument,
    declared_body,
    encoded_body,
    said,
)
from hopline.cli.client import (
    BindOption,
    ClusterOption,
    ConfigOption,
    PlainTcpOption,
    TimeoutOption,
    until_known,
    visit,
)
from hopline.cli.terminal import JsonOption, put
from hopline.identity import MessageType

if TYPE_CHECKING:
    from rich.console import Console

    from hopline.assembly import Node


def run(
    words: WordsArgument,
    *,
    until: Annotated[
        Literal["node", "handled"],
        typer.Option("--until", help="Wait until the message reached the node, or until its handler has ended well."),
    ] = "node",
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
    """Send a message to a running node, or to any node of a cluster, and wait for the receipt.

    A message that does not get there is one line on standard error with its code: NO_ROUTE, EXPIRED and so on.

    Example:  hopline tell tcp://127.0.0.1:5101 ORDER.CANCEL '{"order_id": "42"}'
    """
    address, identity, body = said(words, cluster)
    request = declared_body(identity, version, partition, encoding)(encoded_body(body, encoding))

    async def do(node: "Node", there: bytes, seconds: float) -> dict[str, str]:
        from hopline.node.control import as_text

        if there:
            kind = MessageType(identity.encode(), version, partition.encode())
            await until_known(node, there, kind, min(seconds / 2, 1.0))
        receipt = await node.deliver(request, until=until, node=there, timeout=seconds)
        return {"reached": receipt.reached, "node": as_text(receipt.node)}

    receipt = visit(
        address,
        [identity],
        do,
        cluster=cluster,
        is_anybody=bool(cluster),
        config=config,
        timeout=timeout,
        bind=bind,
        plain_tcp=plain_tcp,
    )
    put(receipt, _show, as_json=as_json)


def _show(console: "Console", receipt: dict[str, str]) -> None:
    text = "handled by" if receipt["reached"] == "handled" else "arrived at"
    console.print(f"{text} node {receipt['node']}", markup=False)
