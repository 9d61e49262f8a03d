"""`hopline routes`: who can take what?"""

from typing import TYPE_CHECKING, Any

from hopline.cli.client import (
    BindOption,
    ClusterOption,
    ConfigOption,
    MaybeAddressArgument,
    PlainTcpOption,
    TimeoutOption,
    visit,
)
from hopline.cli.terminal import JsonOption, put

if TYPE_CHECKING:
    from rich.console import Console


def run(
    address: MaybeAddressArgument = "",
    cluster: ClusterOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 5.0,
    bind: BindOption = "",
    plain_tcp: PlainTcpOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show the actors of a running node, and the nodes it knows with theirs; we are one of them while we ask.

    The node must have been started with `hopline node`, or have Control among its actors. Where it has domains, one of
    them must hold HOPLINE.ROUTES and HOPLINE.ROUTESREPORT.

    Example:  hopline routes tcp://127.0.0.1:5101
    """
    from hopline.node.control import Routes, RoutesReport

    report = visit(
        address,
        ["HOPLINE.ROUTES", "HOPLINE.ROUTESREPORT"],
        lambda node, identity, seconds: node.ask(Routes(), RoutesReport, node=identity, timeout=seconds),
        cluster=cluster,
        config=config,
        timeout=timeout,
        bind=bind,
        plain_tcp=plain_tcp,
    )
    put(report, _show, as_json=as_json)


def _show(console: "Console", report: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    for i, node in enumerate([report, *report["nodes"]]):
        title = f"{'this' if i == 0 else 'known'} node {node['node']} at {node['address']}"
        console.print(Text(title, style="bold"))
        table = Table(box=None)
        for name in ("actor", "identity", "version", "partition"):
            table.add_column(name, overflow="fold")
        for actor in node["actors"]:
            name = (actor["class_name"] or actor["actor"]) + (" (local only)" if actor["is_local_only"] else "")
            for kind in actor["types"]:
                table.add_row(*map(Text, (name, kind["identity"], str(kind["version"]), kind["partition"])))
                name = ""
        console.print(table if node["actors"] else Text(" no actors", style="dim"))
