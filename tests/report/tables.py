"""Tables as the pipeline writes them, written without Spark: one small shop, in which everything goes wrong once.

`write_tables`   rows of any tables into a folder, committed as the warehouse commits them
`shop`           rows: nodes shop, store, bank and one that nobody captured; names are as hostile as they can be
`is_system`      a condition in SQL: whether a column names a type of nodes or tools
`crowd`          rows: more nodes than a graph can show
`with_ids`       the same rows, with ids of flows as nodes make them: of 36 letters
"""

import random
import shutil
import uuid
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from hopline.spark.runs import RUNS
from hopline.spark.state import State, write_state
from hopline.spark.tables import TABLES

START = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)
SCHEMAS = {table.name: to_arrow_schema(table.schema, timezone="UTC") for table in (*TABLES, RUNS)}
EVIL = "<script>window.hacked=1</script><img src=x onerror=window.hacked=2>\"'&\u202e\x00"
"""A name that would like to be more than a name."""


def is_system(column):
    is_answer = f"{column} in ('KINO.EXCEPTION', 'KINO.RCPTCONFIRM', 'HOPLINE.HANDLED')"
    return f"coalesce(regexp_matches({column}, '^(KINO|HOPLINE)[.]') and not {is_answer}, false)"


def at(ms: float) -> datetime:
    return START + timedelta(milliseconds=ms)


def write_tables(folder, rows, *, made=None, run="20261116T000000-abcdef", reasons=None):
    """Write tables, each day in its folder, and the state that names them.

    Args:
        folder: where.
        rows: of each table, dictionaries; a column that is left out is null. A table without rows is empty.
        made: the tables that the state names; all of them if it is None.
        run: its name.
        reasons: what `runs` says of tables that are empty.
    """
    folder = Path(folder)
    named = {}
    for name in SCHEMAS if made is None else made:
        if name != "runs":
            named[name] = dict(_write_days(folder / name, name, rows.get(name, []), run))
    for name, days in named.items():
        if name != "routes":  # a day of messages is one of all tables, also of those that have nothing to say of it
            named[name] = dict.fromkeys(named.get("messages", {}), 0) | days
    if reasons:
        lines = [
            {"run_id": run, "started_at": START, "table": table, "empty_reason": said} for table, said in reasons.items()
        ]
        (folder / "runs").mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(lines, SCHEMAS["runs"]), folder / "runs" / "part-20261116.parquet")
    (folder / "_hopline").mkdir(parents=True, exist_ok=True)
    (folder / "_hopline" / "state.json").write_bytes(write_state(State(run=run, made=named)))
    return folder


def _write_days(folder, name, rows, run):
    schema = SCHEMAS[name]
    days = defaultdict(list)
    for row in rows:
        days[day_of(name, row)].append(row)
    if "date" not in schema.names:
        days.setdefault("", [])
    for day, lines in days.items():
        place = folder / f"date={day}" if day else folder
        shutil.rmtree(place, ignore_errors=True)  # a run replaces days as a whole
        place.mkdir(parents=True)
        kept = pa.schema([field for field in schema if field.name not in ("date", "body")])
        pq.write_table(pa.Table.from_pylist(lines, kept), place / f"part-{run}-00000.parquet")
        yield day, len(lines)


def day_of(name, row):
    if "date" not in SCHEMAS[name].names:
        return ""
    for column in ("seen_at", "sent_at", "received_at", "requested_at", "resolved_at", "started_at", "minute", "hour"):
        if row.get(column) is not None:
            return f"{row[column]:%Y-%m-%d}"
    return f"{START:%Y-%m-%d}"


class Shop:
    """Rows of all tables, put together flow by flow."""

    def __init__(self):
        self.rows = {name: [] for name in SCHEMAS}
        self.flows = 0

    def see(self, ms, node, tap, identity, flow, format_="v6", *, encoded=True):
        self.rows["messages"].append(
            {
                "event_id": f"segment:{len(self.rows['messages'])}",
                "seen_at": at(ms),
                "node_key": node,
                "tap": tap,
                "identity_key": identity,
                "correlation_key": flow,
                "format": format_,
                "variant": "",
                "encoded": encoded,
                "is_system": identity.startswith(("KINO.", "HOPLINE.")),
            }
        )

    def move(self, ms, took_ms, source, target, identity, flow, uid, **more):
        """A message from node to node; `took_ms` None: it did not arrive, or nobody saw it."""
        arrived = None if took_ms is None else at(ms + took_ms)
        hop = {
            "message_uid": uid,
            "occurrence": 0,
            "correlation_key": flow,
            "identity_key": identity,
            "kind": "network",
            "from_node_key": source,
            "to_node_key": target,
            "sent_at": at(ms),
            "received_at": arrived,
            "latency_ms": took_ms,
            "skew_ms": None if took_ms is None else 0.0,
            "matched_by": "uid",
            "lost": False,
        }
        self.rows["hops"].append(hop | more)
        self.see(ms, source, "scaleout_out", identity, flow)
        if took_ms is not None:
            self.see(ms + took_ms, target, "scaleout_in", identity, flow)
        self.rows["edges"].append(
            {
                "minute": at(ms).replace(second=0, microsecond=0),
                "level": "node",
                "source_key": source,
                "target_key": target,
                "identity_key": identity,
                "messages": 1,
                "bytes": 100,
                "expired": 0,
                "errors": int(identity == "KINO.EXCEPTION"),
                "lost": int(bool(more.get("lost"))),
                "exemplars": [flow],
                "p50_ms": took_ms,
                "p95_ms": took_ms,
                "p99_ms": took_ms,
            }
        )

    def tell(self, ms, left_ms, took_ms, *, identity="STOCK.COUNT", **more):
        """A message to the store that nobody waits for. It stays in the shop until `left_ms`."""
        self.flows += 1
        flow, uid = f"flow-{self.flows:04}", self.flows.to_bytes(16)
        self.see(ms, "shop", "hub_out", identity, flow, encoded=False)
        self.move(ms + left_ms, took_ms, "shop", "store", identity, flow, uid, **more)
        self.rows["flows"].append(
            {
                "correlation_key": flow,
                "started_at": at(ms),
                "ended_at": at(ms + left_ms + took_ms),
                "duration_ms": float(left_ms + took_ms),
                "root_identity_key": identity,
                "root_node_key": "shop",
                "messages": 1,
                "sightings": 3,
                "nodes": 2,
                "errors": 0,
                "expired": 0,
                "completeness": 1.0,
            }
        )
        return flow

    def ask(
        self,
        ms,
        took_ms,
        *,
        request="ORDER.PLACE",
        response="ORDER.PLACED",
        outcome="ok",
        error=(None, None),
        node="store",
        asker_captured=True,
    ):
        """A request from the shop to a node, and its answer. `asker_captured` None: as in tables that do not say it."""
        self.flows += 1
        flow, uid, half = f"flow-{self.flows:04}", self.flows.to_bytes(16), took_ms * 0.2
        self.see(ms, "shop", "hub_out", request, flow, encoded=False)
        is_lost = outcome == "pending"
        self.move(ms, None if is_lost or node is None else half, "shop", node, request, flow, uid, lost=is_lost)
        if outcome in ("ok", "exception", "late"):
            self.move(ms + took_ms - half, half, node, "shop", response, flow, uid + b"r")
            self.see(ms + took_ms, "shop", "hub_in", response, flow, encoded=False)
        is_answered = outcome in ("ok", "exception", "late")
        self.rows["callbacks"].append(
            {
                "correlation_key": flow,
                "callback_key": 1,
                "request_uid": uid,
                "request_identity_key": request,
                "hub_key": "hub:shop",
                "requested_at": at(ms),
                "outcome": outcome,
                "response_identity_key": response if is_answered else None,
                "wait_ms": took_ms if is_answered else None,
                "resolved_at": at(ms + took_ms) if is_answered else None,
                "responses": int(is_answered),
                "error_type": error[0],
                "error_message": error[1],
                "asker_captured": asker_captured,
            }
        )
        self.rows["edges"].append(
            {
                "minute": at(ms).replace(second=0, microsecond=0),
                "level": "message",
                "source_key": request,
                "target_key": response if is_answered else None,
                "identity_key": response if is_answered else request,
                "messages": 1,
                "bytes": 100,
                "errors": int(outcome == "exception"),
                "lost": int(outcome == "pending"),
                "expired": int(outcome in ("late", "expired")),
                "exemplars": [flow],
            }
        )
        self.rows["flows"].append(
            {
                "correlation_key": flow,
                "started_at": at(ms),
                "ended_at": at(ms + took_ms),
                "duration_ms": float(took_ms),
                "root_identity_key": request,
                "root_node_key": "shop",
                "messages": 1 + is_answered,
                "sightings": 4,
                "nodes": 2,
                "errors": int(outcome == "exception"),
                "expired": 0,
                "completeness": 0.5 if is_lost else 1.0,
            }
        )
        return flow


def crowd(*, nodes=25, moves=600):
    """Many nodes with long names, of which each talks to each, and to itself."""
    made, rng = Shop(), random.Random(1)
    names = [
        f"order-service-{number:02}.eu-central-1" if number % 3 else f"{rng.getrandbits(128):032x}"
        for number in range(nodes)
    ]
    types = ("ORDER.PLACE", "ORDER.PLACED", "PAY", "PAID", "KINO.PING", "KINO.EXCEPTION")
    for number in range(moves):
        one, other = rng.sample(names, 2) if rng.random() < 0.9 else names[:1] * 2
        took_ms, is_lost = rng.lognormvariate(2, 1), rng.random() < 0.1
        made.move(number * 137.0, None if is_lost else took_ms, one, other, rng.choice(types), "flow", b"uid", lost=is_lost)
    return made.rows


def with_ids(rows):
    def named(flow):
        return str(uuid.uuid5(uuid.NAMESPACE_OID, flow)) if flow else flow

    def renamed(row):
        own = {"correlation_key": named(row["correlation_key"])} if "correlation_key" in row else {}
        return row | own | ({"exemplars": [named(flow) for flow in row["exemplars"]]} if "exemplars" in row else {})

    return {table: [renamed(row) for row in lines] for table, lines in rows.items()}


def _add_system(made):
    """What nodes and tools do: registrations that are paired with others, a watcher who waits, and one lost ping."""
    for took_ms in (15_000.0, -30_000.0):
        made.move(40_000.0, took_ms, "bank", "store", "KINO.REGEXTROUTE", "", b"registration")
        made.move(40_000.0, took_ms, "shop", "store", "KINO.REGEXTROUTE", "", b"registration")
    made.move(3000.0, None, "bank", "store", "KINO.PING", "", b"ping", lost=True)
    made.ask(15_000.0, 40_000.0, request="HOPLINE.WATCH", response="HOPLINE.SEEN")
    made.ask(16_000.0, 900.0, request="HOPLINE.ROUTES", outcome="expired", node=None)


def shop(*, orders=40):
    """The rows of the shop."""
    made = Shop()
    for number in range(orders):
        made.ask(number * 1500.0, 20.0 + number % 7 * 5)
    for number in range(orders // 4):
        made.ask(number * 4000.0 + 300, 12.0, request="PRICE.GET", response="PRICE", node="bank")
    for number in range(6):
        broken = ("ValueError", f"{9000 + number} is above the limit of 5000")
        made.ask(number * 9000.0 + 700, 30.0, response="KINO.EXCEPTION", outcome="exception", error=broken)
    made.ask(20_000.0, 30.0, request=EVIL, response="KINO.EXCEPTION", outcome="exception", error=(EVIL, EVIL))
    for number in range(3):
        made.ask(number * 11_000.0 + 900, 1000.0, outcome="pending")
    made.ask(31_000.0, 2400.0, outcome="late")
    made.ask(40_000.0, 900.0, request="PRICE.GET", outcome="expired", node=None)
    for number in range(12):
        made.see(number * 5000.0, "store", "scaleout_out", "KINO.HEARTBEAT", "", "v5")
    made.see(100.0, EVIL, "wire_in", "KINO.HEARTBEAT", "", "v3")
    _add_system(made)
    made.ask(50_000.0, 8.0, request="NEWS.TELL", response="KINO.RCPTCONFIRM")
    hour = START
    made.rows["expiries"] = [
        {"hour": hour, "identity_key": "ORDER.PLACE", "ttl_ms": 2000.0, "sent": 40, "in_time": 35, "late": 1}
        | {"expired_in_flight": 3, "budget_used_p95": 1.2},
        {"hour": hour, "identity_key": EVIL, "ttl_ms": 50.0, "sent": 2, "in_time": 2, "late": 0, "expired_in_flight": 0},
        *(
            {"hour": hour, "identity_key": "PRICE.GET", "ttl_ms": ttl_ms, "sent": 1, "in_time": 1, "budget_used_p95": used}
            for ttl_ms, used in ((4968.0, 0.2), (4971.0, 0.4), (4974.0, 0.3))
        ),
    ]
    verdicts = {"valid": 90, "unsigned": 20, "invalid": 4, "unknown-domain": 2, "replayed": 1, "unchecked": 3}
    made.rows["signatures"] = [
        {
            "hour": hour,
            "domain": "" if status == "unsigned" else "orders",
            "node_key": "store",
            "status": status,
            "messages": messages,
            "covered": ["identity", "body"],
            "uncovered": ["ttl"],
            "exemplars": ["segment:7"],
        }
        for status, messages in verdicts.items()
    ]
    made.rows["signatures"].append(made.rows["signatures"][2] | {"domain": EVIL, "messages": 1, "exemplars": [EVIL]})
    reasons = ("none of the formats fits", "none of the formats fits", EVIL)
    made.rows["rejects"] = [
        {"event_id": f"segment:{900 + number}", "seen_at": at(50), "node_key": "bank", "tap": "wire_in", "reason": reason}
        | {"code": "WIRE_UNKNOWN_FORMAT", "excerpt": "deadbeef -"}
        for number, reason in enumerate(reasons)
    ]
    return made.rows
