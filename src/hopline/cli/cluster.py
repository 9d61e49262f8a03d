"""`hopline cluster`: who is in a cluster, who leads it, and how are they?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from hopline.cli.client import BindOption, PlainTcpOption, check_cluster, missing_identities
from hopline.cli.terminal import JsonOption, complaint, put
from hopline.errors import HoplineError

if TYPE_CHECKING:
    from rich.console import Console

    from hopline.assembly import Node, Settings
    from hopline.cluster.membership import Membership
    from hopline.cluster.survey import Asked
    from hopline.node.control import RoutesReport

EXIT_CODES = """
Exit codes: 0 all is well, 1 no rendezvous is heard, 2 wrong usage, 130 interrupted.
"""

_SURVEY_S: Final = 1.0
"""How long a rendezvous may take to say how it is."""

_MOST_ASKED: Final = 8
"""Nodes that are asked at once whom they know."""

_ANSWER_S: Final = 0.5
"""How long they may take. One without Control never answers."""

_REACH_S: Final = 1.0
"""How long it may take to connect to nodes."""

_LOOK_S: Final = 0.02
"""How often we look whether that was done."""

_MOST_SHOWN: Final = 4
"""Nodes of a type that a person is shown."""

_DRAIN_SECONDS: Final = 1.0

app = typer.Typer(name="cluster", help="Look at a cluster.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _cluster() -> None:
    """Look at a cluster."""


@app.command("status", epilog=EXIT_CODES)
def status(
    cluster: Annotated[
        list[str],
        typer.Option("--cluster", metavar="ADDRESS", help="A rendezvous: tcp://HOST:PORT[+PORT]; again for more."),
    ],
    wait: Annotated[float, typer.Option("--wait", min=0.1, max=3600, help="Seconds to wait for nodes at most.")] = 3.0,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Domains and keys, as the nodes have them (hopline.toml)."),
    ] = None,
    bind: BindOption = "",
    plain_tcp: PlainTcpOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show the rendezvous and the nodes of a cluster: who leads, who takes what, who can be reached, who is silent.

    It joins as a node without actors and asks all others for their routes. It has seen all when for one second nobody has
    told anything new, at the latest after --wait seconds: a node that takes longer is missing, and "complete" is false if
    the time was over first. Then it has up to two seconds more to connect to all of them, and to ask who is known.

    Health: a node is reachable if we can connect to it. Silent are those that other nodes know and that did not answer us;
    only nodes started with `hopline node` tell whom they know, and where there are domains one of them must hold
    HOPLINE.ROUTES and HOPLINE.ROUTESREPORT. A node without that notes the question as a dead letter.

    Example:  hopline cluster status --cluster tcp://127.0.0.1:8011
    """
    import asyncio

    from msgspec.structs import replace

    from hopline.assembly import Node, Settings, read_settings
    from hopline.cli.joining import visitor
    from hopline.transport.address import check_to_bind

    try:
        check_cluster(cluster)
        if bind:
            check_to_bind(bind)
        settings = visitor(read_settings(config) if config is not None else Settings())
        own = replace(settings.node, peers=[], plain_tcp=plain_tcp or settings.node.plain_tcp)
        settings = replace(settings, node=own)
        Node(cluster=cluster, config=settings, bind=bind)  # made to be checked
        report = asyncio.run(_look(settings, cluster, bind, wait))
    except HoplineError as error:
        raise complaint(str(error)) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if not any(row["state"] != "not reached" for row in report["rendezvous"]):
        raise complaint(f"NO_ROUTE: no rendezvous can be reached at {', '.join(cluster)}", code=1)
    put(report, _show, as_json=as_json)
    if report["joined"] is None:
        raise complaint(f"NO_ROUTE: no rendezvous that leads is heard within {wait:g} s", code=1)


async def _look(settings: "Settings", cluster: list[str], bind: str, wait: float) -> dict[str, Any]:
    """Join, see who is there, and ask the rendezvous."""
    import asyncio

    from hopline.assembly import Node, survey
    from hopline.cli.joining import be_quiet, until_joined, until_quiet
    from hopline.cluster.endpoints import read_endpoint
    from hopline.cluster.membership import Membership

    be_quiet()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait
    report: dict[str, Any] = {
        "joined": None,
        "leader": None,
        "complete": False,
        "formats": [],
        "rendezvous": [],
        "nodes": [],
        "routes": [],
        "silent": [],
    }
    points = [*map(read_endpoint, cluster)]
    are_ours: bool | None = None
    node = Node(cluster=cluster, config=settings, bind=bind)
    await node.start()
    try:
        membership = node.membership
        if await until_joined(node, deadline) and isinstance(membership, Membership):
            report["complete"] = await until_quiet(node, deadline)
            report["joined"] = membership.endpoints.current.unicast
            report["formats"] = list(membership.formats)
            report["nodes"] = [_node_row(node, membership, identity) for identity in sorted(node.routes())]
            report["routes"] = _route_rows(node)
            await _see_who_is_reached(node, report["nodes"])
            report["silent"] = _silent(node, await _ask_whom_they_know(node, settings))
            points += membership.endpoints.all
            are_ours = membership.is_ours
    finally:
        await node.stop(_DRAIN_SECONDS)
    asked = await survey(settings, points, _SURVEY_S, are_ours=are_ours)
    report["rendezvous"] = [_rendezvous_row(one) for one in asked]
    report["leader"] = next((one.name for one in asked if one.leads), None)
    _note_leader(report)
    return report


# Rendezvous.


def _rendezvous_row(asked: "Asked") -> dict[str, Any]:
    report = asked.report
    row: dict[str, Any] = {"unicast": asked.name, "broadcast": asked.endpoint.broadcast, "state": "not reached"}
    if report is None or report.node is None:
        row["state"] = "no report" if asked.is_reached else "not reached"
        return row
    leader = report.leader.unicast_uri if report.leader is not None else None
    row["broadcast"] = report.node.broadcast_uri or ""
    row["state"] = "leads" if asked.leads else "follows" if leader else "no leader"
    row["leader"] = leader
    row["formats"] = [name.decode(errors="replace") for name in report.formats]
    for name in ("received", "relayed", "answered", "not_leading", "refused", "relayed_bytes"):
        row[name] = getattr(report, name)
    return row


def _note_leader(report: dict[str, Any]) -> None:
    """One that gives no report leads if we hear it: only the leader is heard."""
    if report["leader"] is None and report["joined"] is not None:
        report["leader"] = report["joined"]
        for row in report["rendezvous"]:
            if row["unicast"] == report["joined"] and row["state"] == "no report":
                row["state"] = "leads"


# Nodes.


def _node_row(node: "Node", membership: "Membership", identity: bytes) -> dict[str, Any]:
    from hopline.node.control import as_text

    routes, spoken = node.routes()[identity], node.speaks(identity)
    return {
        "node": as_text(identity),
        "address": routes.uri,
        "kind": "hopline" if spoken is not None and spoken.takes_bundles else "other",
        "format": membership.format_of(identity) or "",
        "actors": len(routes.actors),
        "types": len({kind for kinds in routes.actors.values() for kind in kinds}),
        "hubs": len(routes.hubs),
        "health": "not reached",
    }


def _route_rows(node: "Node") -> list[dict[str, Any]]:
    """Each type, and the nodes that take it."""
    from hopline.node.control import as_text, type_rows

    takers: dict[tuple[str, str, str], dict[str, Any]] = {}
    for identity, routes in node.routes().items():
        kinds = {kind for handled in routes.actors.values() for kind in handled}
        for row in type_rows(kinds):
            key = row.identity, str(row.version), row.partition
            names = {"identity": row.identity, "version": row.version, "partition": row.partition}
            takers.setdefault(key, {**names, "nodes": []})["nodes"].append(as_text(identity))
    return [{**row, "nodes": sorted(row["nodes"])} for _, row in sorted(takers.items())]


async def _see_who_is_reached(node: "Node", rows: list[dict[str, Any]]) -> None:
    import asyncio

    from hopline.node.control import as_text

    loop = asyncio.get_running_loop()
    deadline = loop.time() + _REACH_S
    waiting = {as_text(identity): identity for identity in node.routes()}
    while waiting and loop.time() < deadline:
        waiting = {name: identity for name, identity in waiting.items() if not node.reaches(identity)}
        await asyncio.sleep(_LOOK_S)
    for row in rows:
        row["health"] = "not reached" if row["node"] in waiting else "reachable"


async def _ask_whom_they_know(node: "Node", settings: "Settings") -> "list[RoutesReport]":
    """What nodes say of others, of those that can be asked."""
    import asyncio

    from hopline.node.control import Routes, RoutesReport

    if missing_identities(settings.domains, ["HOPLINE.ROUTES", "HOPLINE.ROUTESREPORT"]):
        return []
    turns = asyncio.Semaphore(_MOST_ASKED)

    async def ask(identity: bytes) -> RoutesReport | None:
        async with turns:
            try:
                return await node.ask(Routes(), RoutesReport, node=identity, timeout=_ANSWER_S)
            except HoplineError:
                return None

    kin = [identity for identity in node.routes() if (spoken := node.speaks(identity)) and spoken.takes_bundles]
    reached = [identity for identity in kin if node.reaches(identity)]
    return [report for report in await asyncio.gather(*map(ask, reached)) if report is not None]


def _silent(node: "Node", told: "list[RoutesReport]") -> list[dict[str, Any]]:
    """Those that others know, and that did not tell us about themselves."""
    from hopline.node.control import as_text

    heard = {as_text(identity) for identity in node.routes()} | {as_text(node.identity)}
    rows: dict[str, dict[str, Any]] = {}
    for report in told:
        for known in report.nodes:
            if known.node not in heard:
                row = rows.setdefault(known.node, {"node": known.node, "address": known.address, "known_by": 0})
                row["known_by"] += 1
    return [row for _, row in sorted(rows.items())]


# For people.


def _show(console: "Console", report: dict[str, Any]) -> None:
    from rich.text import Text

    console.print(
        Text(f"leader {report['leader'] or 'unknown'}; formats {', '.join(report['formats']) or 'unknown'}", "bold")
    )
    points = [row | {"formats": " ".join(row.get("formats", ()))} for row in report["rendezvous"]]
    _table(console, "rendezvous", ["unicast", "broadcast", "state", "formats", "relayed", "refused"], points)
    kept = ["node", "address", "kind", "format", "actors", "types", "hubs", "health"]
    _table(console, "nodes", kept, report["nodes"])
    if report["silent"]:
        _table(console, "silent", ["node", "address", "known_by"], report["silent"])
    routes = [row | {"nodes": _brief(row["nodes"])} for row in report["routes"]]
    _table(console, "routes", ["identity", "version", "partition", "nodes"], routes)
    if report["joined"] is not None and not report["complete"]:
        console.print("the time was over before all was quiet: there may be more; see --wait", style="yellow")


def _brief(nodes: list[str]) -> str:
    return ", ".join(nodes[:_MOST_SHOWN]) + (f" and {len(nodes) - _MOST_SHOWN} more" if len(nodes) > _MOST_SHOWN else "")


def _table(console: "Console", title: str, names: list[str], rows: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    console.print(Text(f"{len(rows)} {title}", style="bold"))
    if not rows:
        return
    table = Table(box=None)
    for name in names:
        table.add_column(name.replace("_", " "), overflow="fold")
    for row in rows:
        is_bad = row.get("state", row.get("health")) in ("not reached", "no leader") or title == "silent"
        table.add_row(*(Text(str(row.get(name, ""))) for name in names), style="red" if is_bad else None)
    console.print(table)
