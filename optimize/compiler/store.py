"""Where a record keeps its entries: a SQLite file of this machine, or a database that several hosts share.

Beside the entries it holds which calls are on their way, and what each study has spent. Every change is one statement
that counts or changes nothing, so that any number of processes may use it at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, InterfaceError, OperationalError
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from program.errors import RecordError, SettingsError

PATIENCE = 60.0  # seconds for which a database that is locked or away is tried again
PAUSE = 0.5
LEASE = 120.0  # seconds after which a call that another process began, and no longer answers for, is taken for lost
SHARED = "ragc_"
"""What the names of the tables begin with in a database that holds other things too."""
_PASSING = ("locked", "busy", "unable to open")  # of a SQLite file; a full disk is told at once
_DAMAGED = ("not a database", "malformed")
_MANY = 500  # keys looked up in one statement
_THREADS = 32
KEPT_FOR = 30 * 86400.0  # seconds for which a run is kept: those of older code or knowledge are of no use
_MOMENT = 1e-6  # seconds between runs that are added together: their times tell them apart

T = TypeVar("T")
Row = tuple[bytes, bytes, float, int, int, float]
"""Of an entry its key, its value, seconds, tokens in and out, US dollars."""
Made = tuple[bytes, float, bytes]
"""Of a run its key, when it was added (`time.time`), its value."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a study has spent: calls, US dollars (with the most that calls on their way may cost) and seconds.

    `underway` counts calls begun and not yet settled, those of processes that were killed for good; `at` is when one
    was last begun or settled (`time.time`).
    """

    calls: int = 0
    usd: float = 0.0
    seconds: float = 0.0
    underway: int = 0
    at: float = 0.0


class Store:
    """Entries, calls on their way and spending. A path is a file of its own, a text the URL of a database.

    Safe from many threads and processes. What is locked or away is tried again, up to PATIENCE. Raises `RecordError`
    when it cannot be used, `SettingsError` when the URL names no database that can be opened.
    """

    def __init__(self, place: Path | str) -> None:
        if isinstance(place, Path):
            place.parent.mkdir(parents=True, exist_ok=True)
            self._name, prefix = str(place), ""
            self._engine = sa.create_engine(
                sa.URL.create("sqlite", database=str(place)), connect_args={"timeout": PATIENCE}, pool_size=_THREADS
            )
            sa.event.listen(self._engine, "connect", _quickly)
        else:
            try:
                self._name, prefix = sa.make_url(place).render_as_string(hide_password=True), SHARED
                self._engine = sa.create_engine(place, pool_pre_ping=True, pool_size=_THREADS)
            except (ImportError, ValueError, ArgumentError) as error:
                raise unopenable(error) from error
        self._swept = False
        tables = sa.MetaData()
        self._key = sa.LargeBinary().with_variant(sa.VARBINARY(16), "mysql", "mariadb")
        self._evidence = self._table(
            f"{prefix}evidence",
            tables,
            sa.Column("value", sa.LargeBinary(2**24), nullable=False),
            sa.Column("seconds", sa.Double, nullable=False),
            *(sa.Column(name, sa.Integer, nullable=False) for name in ("tokens_in", "tokens_out")),
            sa.Column("usd", sa.Double, nullable=False),
        )
        self._begun = self._table(
            f"{prefix}begun",
            tables,
            sa.Column("owner", sa.String(191), nullable=False),
            sa.Column("at", sa.Double, nullable=False),
        )
        self._runs = self._table(
            f"{prefix}runs",
            tables,
            sa.Column("at", sa.Double, primary_key=True),
            sa.Column("value", sa.LargeBinary(2**24), nullable=False),
        )
        self._spent = sa.Table(
            f"{prefix}spent",
            tables,
            sa.Column("study", sa.String(191), primary_key=True),
            *(sa.Column(name, sa.Integer, nullable=False) for name in ("calls", "underway")),
            *(sa.Column(name, sa.Double, nullable=False) for name in ("usd", "seconds", "at")),
        )
        self._do(lambda c: [c.execute(sa.schema.CreateTable(t, if_not_exists=True)) for t in tables.sorted_tables])

    def read(self, keys: Sequence[bytes]) -> list[Row]:
        """The rows of those keys that it holds."""
        columns = [self._evidence.c[name] for name in ("key", "value", "seconds", "tokens_in", "tokens_out", "usd")]
        wanted = sa.select(*columns).where(self._evidence.c.key.in_(sa.bindparam("keys", expanding=True)))

        def looked_up(c: sa.Connection) -> list[Row]:
            rows = _by_key(c, wanted, keys)
            return [(bytes(row[0]), bytes(row[1]), row[2], row[3], row[4], row[5]) for row in rows]

        return self._do(looked_up)

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Adds rows, all or none; what is held already stays. Their calls are no longer on their way."""
        ordered = sorted(rows, key=lambda row: row["key"])  # the same order for all, so that none waits for another

        def insert(c: sa.Connection) -> None:
            c.execute(self._unless_there(self._evidence), ordered)
            done = sa.delete(self._begun).where(self._begun.c.key == sa.bindparam("done"))
            c.execute(done, [{"done": row["key"]} for row in ordered])

        self._do(insert)

    def runs(self, keys: Sequence[bytes], after: float) -> list[Made]:
        """The runs of those keys added past a moment, by the clock of who added them: one that is missed for that is
        but made again."""
        c = self._runs.c
        wanted = sa.select(c.key, c.at, c.value).where(c.key.in_(sa.bindparam("keys", expanding=True)), c.at > after)

        def looked_up(connection: sa.Connection) -> list[Made]:
            return [(bytes(row[0]), row[1], bytes(row[2])) for row in _by_key(connection, wanted, keys)]

        return self._do(looked_up, once=True)

    def add_runs(self, runs: Sequence[tuple[bytes, bytes]]) -> None:
        """Adds runs, each a key and a value, all or none. The first time, those past KEPT_FOR are taken out."""
        now = time.time()
        rows = [{"key": key, "at": now + n * _MOMENT, "value": value} for n, (key, value) in enumerate(runs)]

        def insert(c: sa.Connection) -> None:
            if not self._swept:
                c.execute(sa.delete(self._runs).where(self._runs.c.at < now - KEPT_FOR))
            c.execute(self._unless_there(self._runs), rows)

        self._do(insert, once=True)
        self._swept = True

    def take(self, key: bytes, owner: str, alive: Callable[[str], bool]) -> bool:
        """True when the call is `owner`'s to make: it is not answered, and no other that is `alive` is at it."""
        begun, evidence = self._begun, self._evidence

        def one(c: sa.Connection) -> bool:
            now = time.time()
            mark = self._unless_there(begun).execution_options(preserve_rowcount=True)
            if not c.execute(mark, {"key": key, "owner": owner, "at": now}).rowcount:
                held = c.execute(sa.select(begun.c.owner, begun.c.at).where(begun.c.key == key)).one_or_none()
                if held is None or (held.owner != owner and abs(now - held.at) < LEASE and alive(held.owner)):
                    return False
                mine = sa.update(begun).where(begun.c.key == key, begun.c.owner == held.owner, begun.c.at == held.at)
                if not c.execute(mine.values(owner=owner, at=now)).rowcount:
                    return False
            if c.execute(sa.select(evidence.c.key).where(evidence.c.key == key)).first() is not None:
                c.execute(sa.delete(begun).where(begun.c.key == key, begun.c.owner == owner))
                return False
            return True

        return self._do(one)

    def give_up(self, key: bytes, owner: str) -> None:
        """Says that the call is not on its way any more."""
        gone = sa.delete(self._begun).where(self._begun.c.key == key, self._begun.c.owner == owner)
        self._do(lambda c: c.execute(gone))

    def renew(self, owner: str) -> None:
        """Says that the owner is still at the calls that it began."""
        again = sa.update(self._begun).where(self._begun.c.owner == owner)
        self._do(lambda c: c.execute(again.values(at=time.time())))

    def reserve(self, study: str, most: float, calls: int | None, usd: float | None) -> bool:
        """Counts a call that will cost at most `most` US dollars, unless it would pass a cap on the study's total."""
        spent = self._spent
        change = sa.update(spent).where(spent.c.study == study)
        if calls is not None:
            change = change.where(spent.c.calls < calls)
        if usd is not None:
            change = change.where(spent.c.usd + most <= usd)
        counted = change.values(
            calls=spent.c.calls + 1, underway=spent.c.underway + 1, usd=spent.c.usd + most, at=time.time()
        )

        def one(c: sa.Connection) -> bool:
            c.execute(self._unless_there(spent), {"study": study, **_NOTHING})
            return bool(c.execute(counted).rowcount)

        return self._do(one)

    def book(self, study: str, calls: int = 0, usd: float = 0.0, seconds: float = 0.0, landed: int = 0) -> None:
        """Adds to what the study has spent; `landed` calls are no longer on their way."""
        spent = self._spent
        change = sa.update(spent).where(spent.c.study == study)
        added = change.values(
            calls=spent.c.calls + calls,
            usd=spent.c.usd + usd,
            seconds=spent.c.seconds + seconds,
            underway=spent.c.underway - landed,
            at=time.time(),
        )

        def one(c: sa.Connection) -> None:
            c.execute(self._unless_there(spent), {"study": study, **_NOTHING})
            c.execute(added)

        self._do(one)

    def spent(self, study: str) -> Spent:
        """What the study has spent so far, in all processes."""
        c = self._spent.c
        wanted = sa.select(c.calls, c.usd, c.seconds, c.underway, c.at).where(c.study == study)
        row = self._do(lambda connection: connection.execute(wanted).one_or_none())
        return Spent(*row) if row is not None else Spent()

    def close(self) -> None:
        """Lets go of every connection; the next use opens anew."""
        self._engine.dispose()

    def _table(self, name: str, tables: sa.MetaData, *columns: sa.Column[Any]) -> sa.Table:
        return sa.Table(name, tables, sa.Column("key", self._key, primary_key=True), *columns, sqlite_with_rowid=False)

    def _unless_there(self, table: sa.Table) -> sa.Insert:
        """An insertion that leaves what is there as it is."""
        if self._engine.dialect.name in {"mysql", "mariadb"}:
            return sa.insert(table).prefix_with("IGNORE")
        if self._engine.dialect.name == "sqlite":
            from sqlalchemy.dialects import sqlite

            return sqlite.insert(table).on_conflict_do_nothing()
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table).on_conflict_do_nothing()

    def _do(self, action: Callable[[sa.Connection], T], once: bool = False) -> T:
        """The action's result, in a transaction of its own; what is not worth waiting for is tried `once`."""

        def whole() -> T:
            try:
                with self._engine.begin() as connection:
                    return action(connection)
            except DBAPIError:
                self.close()
                raise

        try:
            return whole() if once else patiently(whole, self._passes)
        except DBAPIError as error:
            mend = "Free space or mend access to it, then go on with: ragc compile PROJECT --resume"
            if any(word in str(error.orig) for word in _DAMAGED):
                mend = "Delete it: what it held is asked anew. Then begin anew: ragc compile PROJECT"
            raise RecordError(f"The record of calls {self._name} cannot be used: {error.orig}.", mend) from error

    def _passes(self, error: BaseException) -> bool:
        """True for what time may mend. Two that make the same tables at once trip over each other, once."""
        if not isinstance(error, DBAPIError):
            return False
        if self._engine.dialect.name == "sqlite":
            return any(word in str(error.orig) for word in _PASSING)
        return error.connection_invalidated or isinstance(error, OperationalError | InterfaceError | IntegrityError)


def _by_key(connection: sa.Connection, wanted: sa.Select[Any], keys: Sequence[bytes]) -> list[Any]:
    """The rows of a statement over `keys`, put in parts: a database takes so many at once."""
    parts = [keys[at : at + _MANY] for at in range(0, len(keys), _MANY)]
    return [row for part in parts for row in connection.execute(wanted, {"keys": part})]


def patiently(action: Callable[[], T], passes: Callable[[BaseException], bool]) -> T:
    """The action's result; after an error that `passes` it is tried again, up to PATIENCE. Raises its last error."""
    tries = Retrying(
        retry=retry_if_exception(passes), stop=stop_after_delay(PATIENCE), wait=wait_fixed(PAUSE), reraise=True
    )
    return tries(action)


def unopenable(error: Exception) -> SettingsError:
    """For a URL that names no database, or one without its driver."""
    return SettingsError(
        f"The database of the study cannot be opened: {error}.",
        "Correct [study] storage in ragc.toml: an SQLAlchemy URL, its driver installed.",
    )


_NOTHING = {"calls": 0, "underway": 0, "usd": 0.0, "seconds": 0.0, "at": 0.0}


def _quickly(connection: Any, _: Any) -> None:
    """Readers beside a writer, and no wait for the disk at each commit: a file of this machine alone."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
