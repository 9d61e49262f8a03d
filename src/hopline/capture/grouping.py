"""Grouping more rows than one wants to hold: some at a time, and the groups of each time grouped again.

So what is held is as large as the answer, not as what it is made of. It knows Arrow, and nothing of captures.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import pyarrow as pa

Function = Literal["first", "min", "max", "sum"]
"""What of a group is kept: things that can be taken of groups again."""

_ROWS: Final = 200_000
"""Rows that are grouped at once: each time costs a millisecond, whatever there is to group."""


class Groups:
    """Groups rows by key columns.

    Args:
        schema: the columns of the rows; they may have more.
        keys: the columns that are equal in a group.
        values: for each column of the answer, which column it is made of, and how.
        order: columns of the answer, "first" ones: the first row of a group is the one that is least in them.

    >>> groups = Groups(pa.schema([("name", pa.string()), ("n", pa.int64())]), ["name"], {"total": ("n", "sum")})
    >>> for _ in range(2):
    ...     groups.add(pa.RecordBatch.from_pydict({"name": ["a", "b", "a"], "n": [1, 2, 3]}))
    >>> groups.result().to_pylist()
    [{'name': 'a', 'total': 8}, {'name': 'b', 'total': 4}]
    """

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        values: Mapping[str, tuple[str, Function]] | None = None,
        *,
        order: Sequence[str] = (),
    ) -> None:
        self._keys = list(keys)
        self._values = dict(values or {})
        self._order = list(order)
        names = dict.fromkeys([*self._keys, *(column for column, _ in self._values.values())])
        self._schema = pa.schema([schema.field(name) for name in names])
        self._rows: list[pa.RecordBatch] = []
        self._size = 0
        self._groups = self._grouped(self._schema.empty_table())
        self._new_groups: list[pa.Table] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows."""
        self._rows.append(rows.select(self._schema.names))
        self._size += len(rows)
        if self._size >= _ROWS:
            self._take_in()

    def result(self) -> pa.Table:
        """The groups of all rows so far: the key columns and those of the answer, as they came."""
        self._take_in()
        self._merge()
        return self._groups

    def _take_in(self) -> None:
        """Group the rows; and the groups too, when there are as many new ones as old: so each is grouped a few times."""
        if self._rows:
            self._new_groups.append(self._grouped(pa.Table.from_batches(self._rows, self._schema)))
        self._rows, self._size = [], 0
        if sum(map(len, self._new_groups)) > max(len(self._groups), _ROWS):
            self._merge()

    def _merge(self) -> None:
        if self._new_groups:
            again = {name: (name, function) for name, (_, function) in self._values.items()}
            self._groups = _group(pa.concat_tables([self._groups, *self._new_groups]), self._keys, again, self._order)
        self._new_groups = []

    def _grouped(self, rows: pa.Table) -> pa.Table:
        return _group(rows, self._keys, self._values, [self._values[name][0] for name in self._order])


def _group(rows: pa.Table, keys: list[str], values: Mapping[str, tuple[str, Function]], order: Sequence[str]) -> pa.Table:
    if order:
        rows = rows.sort_by([(name, "ascending") for name in order])
    # In one thread: only so rows stay in their order, and there is a first one.
    groups = rows.group_by(keys, use_threads=False).aggregate(list(values.values()))
    return groups.rename_columns([*keys, *values])
