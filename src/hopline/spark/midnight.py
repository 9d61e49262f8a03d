"""Midnight: what of two days belongs together, and which of the days counts it.

Theory. Each day is made for itself, of a window: the day, and `reach` on both sides (`days.py`). What is on both sides of a
midnight is seen when either day is made, so both must come to the same, though neither sees all that the other one does.

Whatever belongs together - the sightings of a flow, of a request and its answers, of one move, of one message - is joined at
a midnight or cut there. It is joined if the first sighting after midnight follows the last one before within `reach`: then
what comes in the `reach` after midnight is still of the day before. Everything else is of its own day:

    day D        |..............a.......b......|..c.......|..d.....           c - b <= reach: joined, a to c are of D
    day D + 1                        |..b......|..c.......|..d.....           d is of D + 1

Both days see all that decides it, `reach` on both sides of midnight, so they come to the same; and every sighting is of one
of them. That takes a `reach` of half a day at the most: else the last sightings before a midnight could be of the day before
that day.

Equal messages cannot be told apart so: what was seen twice at one place near a midnight is neither joined nor cut there.
Both days look at all of it, and a row is of the day on which it began.

What is joined has rows that began after midnight: by its own clock a request left on the next day, and somebody else's clock
saw it come the day before. So such sightings say which day they are of (`of_day`).

This file knows no rule of any table.
"""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from hopline.spark.keeping import Keep
from hopline.spark.parts import Span

_FLOW: Final = "correlation_key"

OF_DAY: Final = "of_day_ns"
"""A column of sightings, where their time may say another day than the one that they are of: the last moment of that day."""

_FIRST_NS, _LAST_NS = -(2**63), 2**63 - 1


def of_day(rows: DataFrame) -> Column:
    """The latest time that a row may begin at, to be of the day that its sightings are of; null where their times say it."""
    return (sf.col(OF_DAY) if OF_DAY in rows.columns else sf.lit(None).cast("bigint")).alias(OF_DAY)


@dataclass(frozen=True)
class Midnights:
    """The two midnights of a day.

    Attributes:
        day: from when to when the day is.
        reach_ns: how far apart things on two days may be to be put together; half a day at the most.
        has_before: whether there are sightings of days before it.
        has_after: whether there are sightings of days after it.
    """

    day: Span
    reach_ns: int
    has_before: bool
    has_after: bool

    def near(self, sightings: DataFrame, kind: Column, name: str, keep: Keep, place: Column | None = None) -> DataFrame:
        """Sightings, but for those that are of another day than the rest of their kind that is of this one.

        Kinds of which all is on one side of both midnights stay as they are, whichever day that is. All others say which
        day they are of: then there is the column `of_day_ns`.

        Args:
            sightings: of the window, with `seen_ns`.
            kind: says which of them belong together; null if a sighting belongs to no other.
            name: of the kinds.
            keep: keeps what is looked at more than once.
            place: where a kind is seen once, or it is of equal messages; null for sightings that do not tell.
        """
        if not (self.has_before or self.has_after):
            return sightings
        start, end = self.day
        seen = sf.col("seen_ns")
        is_over = sf.lit(col=False)
        for midnight in (start, end + 1):
            is_over |= (sf.min(seen) < midnight) & (sf.max(seen) >= midnight)
        kinds = sightings.where(kind.isNotNull()).groupBy(kind.alias("_kind"))
        found = kinds.agg(is_over.alias("is_over"), *self._bounds()).where("is_over").drop("is_over")
        over = keep(f"over-{name}", found.withColumn(OF_DAY, sf.lit(end)))
        if over.isEmpty():  # almost always
            return sightings
        rows = sightings.withColumn("_kind", kind)
        if place is not None:
            over = keep(f"cut-{name}", self._uncut(over, rows.withColumn("_place", place)))
        rows = rows.join(over, "_kind", "left")
        is_mine = sf.col("_from_ns").isNull() | seen.between(sf.col("_from_ns"), sf.col("_to_ns"))
        return rows.where(is_mine).drop("_kind", "_from_ns", "_to_ns")

    def _uncut(self, over: DataFrame, rows: DataFrame) -> DataFrame:
        """Kinds over a midnight, with no bound where they are of equal messages, as was seen on both sides near it."""
        start, end = self.day
        places = rows.where("_place is not null").join(over, "_kind", "left_semi").groupBy("_kind", "_place")
        again = places.agg(
            *((sf.count_if(self._is_near(at)) > 1).alias(name) for name, at in (("_before", start), ("_after", end + 1)))
        )
        again = again.groupBy("_kind").agg(sf.max("_before").alias("_before"), sf.max("_after").alias("_after"))
        found = over.join(again, "_kind", "left").withColumns(
            {
                "_from_ns": sf.when(sf.col("_before"), _FIRST_NS).otherwise(sf.col("_from_ns")),
                "_to_ns": sf.when(sf.col("_after"), _LAST_NS).otherwise(sf.col("_to_ns")),
                OF_DAY: sf.when(sf.coalesce("_after", sf.lit(col=False)), None).otherwise(sf.col(OF_DAY)),
            }
        )
        return found.drop("_before", "_after")

    def joined(self, sightings: DataFrame, keep: Keep) -> DataFrame | None:
        """Flows that are joined at one of the midnights: `correlation_key`, and from when to when they are of the day.

        None if there are none, which is then true of all flows from the beginning of the day to its end.
        """
        if not (self.has_before or self.has_after):
            return None
        start, end = self.day
        zones = sf.lit(col=False)
        for midnight in (start, end + 1):
            zones |= self._is_near(midnight)
        found = sightings.where(zones).groupBy(_FLOW).agg(*self._bounds())
        found = found.where((sf.col("_from_ns") != start) | (sf.col("_to_ns") != end))
        kept = keep("joined", found)
        return None if kept.isEmpty() else kept

    def _is_near(self, midnight: int) -> Column:
        """Whether both days look at a sighting."""
        return sf.col("seen_ns").between(midnight - self.reach_ns, midnight + self.reach_ns - 1)

    def _bounds(self) -> tuple[Column, Column]:
        """Of sightings that belong together, from when to when they are of the day."""
        start, end = self.day
        from_ns = sf.when(self._is_joined(start), start + self.reach_ns).otherwise(start)
        to_ns = sf.when(self._is_joined(end + 1), end + self.reach_ns).otherwise(end)
        return from_ns.alias("_from_ns"), to_ns.alias("_to_ns")

    def _is_joined(self, midnight: int) -> Column:
        """Whether sightings that belong together are joined at a midnight; null if there are none on one side of it."""
        seen = sf.col("seen_ns")
        last = sf.max(sf.when(seen.between(midnight - self.reach_ns, midnight - 1), seen))
        first = sf.min(sf.when(seen.between(midnight, midnight + self.reach_ns - 1), seen))
        return first - last <= self.reach_ns

    def mine(self, rows: DataFrame, at_ns: Column, joined: DataFrame | None) -> DataFrame:
        """Of rows that tell of flows those that are of the day, by when they were; `joined` is of `joined`."""
        if not (self.has_before or self.has_after):
            return rows
        if joined is None:
            return rows.where(at_ns.between(*self.day))
        first, last = sf.coalesce("_from_ns", sf.lit(self.day.first)), sf.coalesce("_to_ns", sf.lit(self.day.last))
        return rows.join(joined, _FLOW, "left").where(at_ns.between(first, last)).drop("_from_ns", "_to_ns")
