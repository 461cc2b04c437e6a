"""MLflow's sqlite database of a projection: made by MLflow itself, then written by one connection of ours.

MLflow's stores write one object at a time (a run 20 ms, a thousand metrics 60 ms), and draw ids and times that a
rebuilt projection could not answer again. So MLflow makes the tables, once for this user, and the rows are written here,
into the tables and columns that :data:`COLUMNS` names. What is there is compared with what is written whenever a
database is opened, so another MLflow is refused before the first row instead of being given rows that it misreads.

Durability is nobody's concern here, the ledger has it: sqlite runs with a write-ahead log and without fsync.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sqlite3
import tempfile
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import mlflow
import mlflow.store.model_registry.sqlalchemy_store as registry_module
import mlflow.store.tracking.sqlalchemy_store as tracking_module
from mlflow.exceptions import MlflowException
from mlflow.store import db_migrations
from sqlalchemy.exc import OperationalError

from ledger import Locked, digest_bytes
from marin.errors import MarinError
from marin.process.cache import own_folder

SCHEME = "marin"
ARTIFACT_ROOT = f"{SCHEME}://mlflow"
BUSY_SECONDS = 20
CHECKED_WHOLE = 32 << 20
"""Databases up to so many bytes are checked page by page when they are opened: a tenth of a second."""
SHELF = "CREATE TABLE IF NOT EXISTS marin_shelf (id TEXT PRIMARY KEY, run TEXT, at INTEGER, mounts TEXT, pages TEXT)"

COLUMNS: dict[str, tuple[str, ...]] = {
    table: tuple(names.split())
    for table, names in {
        "experiments": "experiment_id name artifact_location lifecycle_stage creation_time last_update_time workspace",
        "experiment_tags": "experiment_id key value",
        "runs": "run_uuid name source_type source_name entry_point_name user_id status start_time end_time "
        "source_version lifecycle_stage artifact_uri experiment_id",
        "tags": "run_uuid key value",
        "params": "run_uuid key value",
        "metrics": "run_uuid key value timestamp step is_nan",
        "latest_metrics": "run_uuid key value timestamp step is_nan",
        "datasets": "dataset_uuid experiment_id name digest dataset_source_type dataset_source dataset_schema "
        "dataset_profile",
        "inputs": "input_uuid source_type source_id destination_type destination_id step",
        "input_tags": "input_uuid name value",
        "logged_models": "model_id experiment_id name artifact_location creation_timestamp_ms "
        "last_updated_timestamp_ms status lifecycle_stage model_type source_run_id",
        "logged_model_tags": "model_id experiment_id tag_key tag_value",
        "logged_model_params": "model_id experiment_id param_key param_value",
        "logged_model_metrics": "model_id metric_name metric_timestamp_ms metric_step metric_value experiment_id "
        "run_id dataset_uuid dataset_name dataset_digest",
        "registered_models": "name creation_time last_updated_time description workspace",
        "model_versions": "name version creation_time last_updated_time description current_stage source "
        "storage_location run_id run_link status workspace",
        "registered_model_tags": "name key value workspace",
        "model_version_tags": "name version key value workspace",
        "registered_model_aliases": "name alias version workspace",
    }.items()
}


def database_uri(folder: Path) -> str:
    """How MLflow and SQLAlchemy name the database of a projection."""
    return f"sqlite:///{folder / 'mlflow.db'}"


def connect(folder: Path, *, created: int = 0) -> sqlite3.Connection:
    """The database in ``folder``, made if there is none, in autocommit mode and usable from any one thread at a time.

    Raises:
        sqlite3.DatabaseError, MlflowException: it is damaged, or of another version of MLflow.
        Locked: somebody else writes to it.
    """
    path = folder / "mlflow.db"
    new = not path.exists() or path.stat().st_size == 0
    with explained(folder):
        if begun := not path.exists():  # before MLflow's engine is, which leaves an empty file
            _begin(folder)
        elif not new:
            _check_pages(path)
        dispose(folder)
        if not begun:
            make_tables(folder)
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        for setting in ("journal_mode=WAL", "synchronous=OFF", "cache_size=-65536", "temp_store=MEMORY"):
            connection.execute(f"PRAGMA {setting}")
        _check_columns(connection, path)
        connection.execute(SHELF)
        if new:
            times = "UPDATE experiments SET creation_time = ?1, last_update_time = ?1 WHERE experiment_id = 0"
            connection.execute(times, (created,))
    return connection


def _begin(folder: Path) -> None:
    """A new database: a copy of an empty one that this MLflow once made, whose migrations take two seconds. It lies in the cache,
    where nobody else writes, by the names of its migrations; one that is damaged is made again."""
    migrations = sorted(path.name for path in Path(db_migrations.__file__).parent.glob("versions/*.py"))
    kept = own_folder("mlflow") / f"{mlflow.__version__}-{digest_bytes(' '.join(migrations).encode())[-16:]}.db"
    with tempfile.TemporaryDirectory(dir=folder) as beside:
        made = Path(beside) / "mlflow.db"
        try:
            shutil.copyfile(kept, made)
            _check_pages(made)
        except (OSError, sqlite3.DatabaseError):
            made.unlink(missing_ok=True)
            make_tables(made.parent)
            dispose(made.parent)
            with contextlib.suppress(OSError):
                shutil.copyfile(made, saved := kept.with_name(f"{kept.name}.{os.getpid()}"))
                saved.replace(kept)
        try:  # never over one that another process begins meanwhile
            os.link(made, folder / "mlflow.db")
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            made.replace(folder / "mlflow.db")


def make_tables(folder: Path) -> None:
    """Have MLflow make its tables, or check that those that are there are of its own version."""
    levels = {name: logging.getLogger(name).level for name in ("mlflow.store.db.utils", "alembic")}
    try:
        for name in levels:
            logging.getLogger(name).setLevel(logging.WARNING)
        tracking_module.SqlAlchemyStore(database_uri(folder), ARTIFACT_ROOT)
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def dispose(folder: Path) -> None:
    """MLflow keeps one engine per address and process: the connections of a server in this process to a file that is
    gone by now are dropped, its next query connects anew."""
    for store in (tracking_module.SqlAlchemyStore, registry_module.SqlAlchemyStore):
        store._get_or_create_engine(database_uri(folder)).dispose()


def _check_pages(database: Path) -> None:
    """Raise sqlite's own error for a file that is damaged or is not a database: MLflow would retry on it for minutes. Of a
    large one only the size is compared with its header; damage inside is found when it is read (see
    :func:`damaged`)."""
    size = database.stat().st_size
    with contextlib.closing(
        sqlite3.connect(f"file:{urllib.parse.quote(str(database))}?mode=rw", uri=True)
    ) as connection:
        if size <= CHECKED_WHOLE:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        else:
            (pages,), (page,) = (
                connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size")
            )
            waiting = Path(f"{database}-wal").exists()
            verdict = "ok" if waiting or pages * page <= size else f"{size} bytes of {pages * page}"
    if verdict != "ok":
        raise sqlite3.DatabaseError(verdict)


def damaged(error: sqlite3.Error) -> bool:
    """Whether sqlite says that the file itself is broken."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _check_columns(connection: sqlite3.Connection, path: Path) -> None:
    for table, written in COLUMNS.items():
        known = {
            name: (not_null, default)
            for _, name, _, not_null, default, _ in connection.execute(f"SELECT * FROM pragma_table_info('{table}')")  # noqa: S608
        }
        missing = set(written) - set(known)
        needed = {name for name, (not_null, default) in known.items() if not_null and default is None} - set(written)
        if missing or needed:
            raise MarinError(
                "MLflow is of a version that the projection does not know",
                where=f"{path}: table {table}",
                expected=f"columns {', '.join(written)}",
                found=", ".join(known) or "no such table",
                cure="install the version of MLflow that requirements.lock pins",
            )


@contextlib.contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turns what sqlite says of a locked database into one line that says what to do.

    Raises:
        Locked: another process holds the projection.
    """
    try:
        yield
    except (sqlite3.OperationalError, OperationalError, MlflowException) as error:
        if "database is locked" not in str(error):
            raise
        raise Locked(
            what="the MLflow projection is held by another process",
            where=str(folder / "mlflow.db"),
            expected=f"to write within {BUSY_SECONDS} s",
            found="database is locked",
            cure="stop the other marin ui or MLflow, then run: marin sync",
        ) from error
