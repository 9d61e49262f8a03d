"""Midnight: what of two days belongs together, and which of the days counts it.

Theory. Each day is made for itself, of a window: the day, and `reach` on both sides (`days.py`). What is on both sides of a
midnight is seen when either day is made, so both must come to the same, though neither sees all that the other one does.

Requests and moves are rows of the day of their first sighting. What comes on a later day belongs to them if it comes within
`reach` of that one: just then the later day sees it too, and leaves the row to the day before. Else neither of the two days
puts them together, whichever of them it sees:

    day D        |.....a.......................|......b...........|      b - a > reach: b is left out
    day D + 1                        |.........|......b...........|      a is not seen, and would be left out too

Flows go on for any time, so it is their sightings that are shared out. At a midnight a flow is either joined - the first
sighting after it follows the last one before within `reach` - or cut. If it is joined, what comes in the `reach` after
midnight is still of the day before; everything else is of its own day. There is a row for each day on which a flow has
sightings that are its own, and every sighting is counted in one of them. Both days can tell whether a flow is joined, if the
last sighting before midnight is always of the day before: so half a day is the most that a day gets of the next one.

This file knows no rule of any table.
"""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from hopline.spark.keeping import Keep
from hopline.spark.parts import Span

_HALF_A_DAY_NS: Final = 43_200_000_000_000
_FLOW: Final = "correlation_key"


@dataclass(frozen=True)
class Midnights:
    """The two midnights of a day.

    Attributes:
        day: from when to when the day is.
        reach_ns: how far apart things on two days may be to be put together.
        has_before: whether there are sightings of days before it.
        has_after: whether there are sightings of days after it.
    """

    day: Span
    reach_ns: int
    has_before: bool
    has_after: bool

    def near(self, sightings: DataFrame, kind: Column, name: str, keep: Keep) -> DataFrame:
        """Sightings but for those of other days that are too far from the first of their kind on this one.

        Args:
            sightings: of the window, with `seen_ns`.
            kind: says which of them belong together; null if a sighting belongs to no other.
            name: of the kinds.
            keep: keeps what is looked at more than once.
        """
        if not (self.has_before or self.has_after):
            return sightings
        start, end = self.day
        seen, first = sf.col("seen_ns"), sf.col("_first_ns")
        spans = (
            sightings.where(kind.isNotNull())
            .groupBy(kind.alias("_kind"))
            .agg(
                sf.min(sf.when(seen >= start, seen)).alias("_first_ns"),
                sf.min("seen_ns").alias("least"),
                sf.max("seen_ns").alias("most"),
            )
        )
        is_far = (first <= end) & ((first - sf.col("least") > self.reach_ns) | self._is_far_after(sf.col("most")))
        far = keep(f"far-{name}", spans.where(is_far).select("_kind", "_first_ns"))
        if far.isEmpty():  # almost always
            return sightings
        found = sightings.withColumn("_kind", kind).join(sf.broadcast(far), "_kind", "left")
        is_left_out = (first - seen > self.reach_ns) | self._is_far_after(seen)
        return found.where(~sf.coalesce(is_left_out, sf.lit(col=False))).drop("_kind", "_first_ns")

    def _is_far_after(self, seen: Column) -> Column:
        return (seen > self.day.last) & (seen - sf.col("_first_ns") > self.reach_ns)

    def joined(self, sightings: DataFrame, keep: Keep) -> DataFrame | None:
        """Flows that are joined at one of the midnights: `correlation_key`, and from when to when they are of the day.

        None if there are none, which is then true of all flows from the beginning of the day to its end.
        """
        if not (self.has_before or self.has_after):
            return None
        reach_ns = min(self.reach_ns, _HALF_A_DAY_NS)
        seen, (start, end) = sf.col("seen_ns"), self.day
        ends: dict[str, Column] = {}
        zones = sf.lit(col=False)
        for name, midnight, is_there in (("before", start, self.has_before), ("after", end + 1, self.has_after)):
            if is_there:
                zone = seen.between(midnight - reach_ns, midnight + reach_ns - 1)
                zones |= zone
                last, first = (
                    sf.max(sf.when(zone & (seen < midnight), seen)),
                    sf.min(sf.when(zone & (seen >= midnight), seen)),
                )
                ends[name] = sf.coalesce(first - last <= self.reach_ns, sf.lit(col=False))
            else:
                ends[name] = sf.lit(col=False)
        found = sightings.where(zones).groupBy(_FLOW).agg(*(is_joined.alias(name) for name, is_joined in ends.items()))
        found = found.where("before or after").select(
            _FLOW,
            sf.when(sf.col("before"), start + reach_ns).otherwise(start).alias("_from_ns"),
            sf.when(sf.col("after"), end + reach_ns).otherwise(end).alias("_to_ns"),
        )
        kept = keep("joined", found)
        return None if kept.isEmpty() else kept

    def mine(self, rows: DataFrame, at_ns: Column, joined: DataFrame | None) -> DataFrame:
        """Of rows that tell of flows those that are of the day, by when they were; `joined` is of `joined`."""
        if not (self.has_before or self.has_after):
            return rows
        if joined is None:
            return rows.where(at_ns.between(*self.day))
        first, last = sf.coalesce("_from_ns", sf.lit(self.day.first)), sf.coalesce("_to_ns", sf.lit(self.day.last))
        return rows.join(joined, _FLOW, "left").where(at_ns.between(first, last)).drop("_from_ns", "_to_ns")
