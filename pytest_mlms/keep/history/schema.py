"""Tables of the history, by SQLAlchemy Core.

The lines of results.jsonl are kept whole in ``line``; all other tables can be made from them. So
there are no migrations: another version of the schema is a reason to rebuild.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
)

SCHEMA_VERSION = 1

metadata = MetaData()

_ID = BigInteger().with_variant(Integer, "sqlite")  # SQLite counts up INTEGER keys only

about = Table(
    "about",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
"""Facts of the database itself: ``schema`` is the version of its tables."""

run = Table(
    "run",
    metadata,
    Column("id", Text, primary_key=True),  # the name of the run's folder when it began
    Column("started", Text, nullable=False),  # ISO 8601, UTC
    Column("host", Text),
    Column("machine_class", Text),
    Column("plugin", Text),
    Column("git_sha", Text),
    Column("dirty", Boolean),
    Column("branch", Text),
    Column("ci_url", Text),
    Column("exit_status", Integer),  # null while the run is being written, or was killed
)

line = Table(
    "line",
    metadata,
    Column("run", Text, ForeignKey("run.id"), primary_key=True),
    Column("number", Integer, primary_key=True),  # of the whole lines of the file, from 0
    Column("type", Text, nullable=False),
    Column("nodeid", Text),
    Column("seconds", Float),  # of an item that ran
    Column("json", Text, nullable=False),
)
"""The lines of results.jsonl as they are."""

stack = Table(
    "stack",
    metadata,
    Column("lock_sha256", Text, primary_key=True),
    Column("framework", Text),
    Column("python", Text),
    Column("driver", Text),
)

package = Table(
    "package",
    metadata,
    Column("lock_sha256", Text, ForeignKey("stack.lock_sha256"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("version", Text, nullable=False),
)

series = Table(
    "series",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("key", Text, nullable=False, unique=True),  # a digest of the parts
    Column("parts", JSON, nullable=False),
    Column("name", Text, nullable=False),  # what expressions select by: Series.name
    Column("quantity", Text, nullable=False),
    Column("unit", Text, nullable=False),
    Column("better", Text, nullable=False),  # "lower" or "higher"
    Column("control", Boolean, nullable=False),  # of a host's control item
)

point = Table(
    "point",
    metadata,
    Column("series", _ID, primary_key=True),
    Column("started", Text, primary_key=True),  # that of the run: points are read in its order
    Column("run", Text, primary_key=True),
    Column("number", Integer, primary_key=True),  # of the item's line
    Column("host", Text),  # a run may have several
    Column("stack", Text),
    Column("value", Float, nullable=False),
    Column("low", Float),
    Column("high", Float),
    Column("replicates", Integer),
    Column("verdict", Text, nullable=False),  # of the item
    sqlite_with_rowid=False,  # the table is the index of its primary key
)
"""Points, without foreign keys to series, run and stack.

Those rows are made in the transaction that adds the points of a run. There may be 100,000 of them,
and checking each takes longer than adding it.
"""

change = Table(
    "change",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("series", _ID, ForeignKey("series.id"), nullable=False),
    Column("kind", Text, nullable=False),  # "step", "drift" or "named"
    Column("first_run", Text, nullable=False),  # the first run after the change
    Column("found_run", Text, nullable=False),  # the newest run when it was found
    Column("undone_run", Text),  # the first run at the old level again
    Column("before", Float, nullable=False),  # levels when it was found, in the quantity's unit
    Column("after", Float, nullable=False),
    Column("ratio", Float, nullable=False),  # new level over old level
    Column("low", Float),
    Column("high", Float),
    Column("cause", Text),  # software, machine, method or noise, once it is known
    Column("status", Text, nullable=False),  # open, confirmed, dismissed, accepted or undone
    Column("confirmed_by", Text),  # the run of the gate
    Column("reason", Text),
    Column("decided", Text),  # when it was accepted, ISO 8601, UTC
    Column("decided_by", Text),  # the user who accepted it
    Index("change_of_series", "series", "first_run", unique=True),
)
"""Changes, and what people and the gate said of them: the only rows that no line can restore.

``export`` and ``rebuild`` carry them over.
"""

scanned = Table(
    "scanned",
    metadata,
    Column("series", _ID, ForeignKey("series.id"), primary_key=True),
    Column("points", Text, nullable=False),  # their number, and the sum of their lines' numbers
)
"""The points of each series that were searched for changes."""
