"""`hopline status`: how is a running node?"""

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
    """Show the statistics and dead letters of a running node.

    The node must have been started with `hopline node`, or have Control among its actors. Where it has domains, one of
    them must hold HOPLINE.STATUS and HOPLINE.STATUSREPORT.

    Example:  hopline status tcp://127.0.0.1:5101
    """
    from hopline.node.control import Status, StatusReport

    report = visit(
        address,
        ["HOPLINE.STATUS", "HOPLINE.STATUSREPORT"],
        lambda node, identity, seconds: node.ask(Status(), StatusReport, node=identity, timeout=seconds),
        cluster=cluster,
        config=config,
        timeout=timeout,
        bind=bind,
        plain_tcp=plain_tcp,
    )
    put(report, show_status, as_json=as_json)


def show_status(console: "Console", report: dict[str, Any]) -> None:
    """Show a report to a person: who, the counters, and the dead letters if there are any."""
    from rich.table import Table
    from rich.text import Text

    if "node" in report:
        console.print(Text(f"node {report['node']} at {report['address']}", style="bold"))
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(justify="left")
    table.add_column(justify="right")
    for name, count in report["statistics"].items():
        table.add_row(name, str(count), style=None if count else "dim")
    for code, count in report["dead_letters"].items():
        table.add_row(Text(f"dead letters {code}"), str(count), style="red")
    for name, value in (report.get("capture") or {}).items():
        if isinstance(value, dict):
            for point, count in value.items():
                table.add_row(Text(f"capture {name} {point}"), str(count), style="red")
        elif value != "":
            table.add_row(Text(f"capture {name}"), str(value), style="red" if name == "last_error" else None)
    console.print(table)
