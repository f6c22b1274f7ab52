"""Dask clusters: one of our own on this machine, reachable from this machine only, or a running one.

A scheduler's port is checked before a client is made, which with the wrong certificates would only time out.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import ctypes
import fcntl
import functools
import gc
import itertools
import json
import logging
import multiprocessing
import multiprocessing.resource_tracker
import os
import re
import shutil
import signal
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from distributed.diagnostics.plugin import WorkerPlugin

from sketchselect._byte_sizes import format_bytes, parse_bytes
from sketchselect._progress import Progress
from sketchselect._text import counted, first_names
from sketchselect.errors import BadCluster, BadParameter, NoScheduler, WillNotFit
from sketchselect.execution.dask_engine import DaskEngine
from sketchselect.execution.engine import available_cores
from sketchselect.execution.watch import WORKER_TTL
from sketchselect.location import is_scheduler_file, is_url, scheduler_fault

_ONE_HEAP = "MALLOC_ARENA_MAX"

HANDSHAKE_SECONDS = 3.0
"""Seconds to wait for a scheduler's first byte; the client waits for one that takes longer."""


_NOT_NOW = (9, 10)
"""OpenSSL's codes of certificates that are not valid yet, or not any more."""
_RENEW = "make new certificates and start the cluster with them, or set the clock of this machine right"


def require_understood(
    address: str, security: Any = None, timeout: float = 30.0, progress: Progress | None = None
) -> None:
    """Raise `BadCluster` at once if no client can ever connect to an address in this way.

    That is: TLS on one side only, a certificate that the other side's authority has not signed, or certificate files
    that cannot be used. Schemes other than tcp and tls, and addresses where nothing listens yet, are not checked; the
    latter are noted in `progress`, as a client waits for them.
    `security` is that of the client; by default that of Dask's configuration. `ValueError` is for what is no address,
    `TimeoutError` for what says nothing in `timeout` seconds: a client would wait for it for ever.
    """
    parts = urlsplit(address)
    if parts.scheme not in ("tcp", "tls") or not parts.hostname or not parts.port:
        return
    context = _context(address, security) if parts.scheme == "tls" else None
    try:
        plain = socket.create_connection((parts.hostname, parts.port), timeout=HANDSHAKE_SECONDS)
    except OSError as error:
        if progress is not None:
            why = type(error).__name__
            progress.note(f"{address}: nothing listens there yet ({why}); waiting up to {timeout:g} s for a scheduler")
        return
    with plain:
        if context is not None:
            _require_tls(address, plain, context)
        elif _is_silent(plain):
            if _speaks_tls(parts.hostname, parts.port):
                raise BadCluster(
                    f"{address}: this scheduler wants TLS; write tls:// and set execution.tls_ca, tls_cert and tls_key "
                    "to the certificates of its cluster"
                )
            plain.settimeout(timeout)
            plain.recv(1)
        elif _must_be_encrypted(security):
            raise BadCluster(
                f"{address}: this scheduler has no TLS, which execution.tls_ca, or distributed.comm.require-encryption "
                "of Dask's configuration, asks for; start it with SKETCHSELECT_TLS, or leave these keys out"
            )


def _must_be_encrypted(security: Any) -> bool:
    from distributed.security import Security

    return bool((security or Security()).require_encryption)


def _context(address: str, security: Any) -> ssl.SSLContext:
    from distributed.security import Security

    security = security or Security()
    try:
        if _is_locked(security.tls_client_key):
            raise BadCluster(
                f"{address}: {security.tls_client_key} is locked with a passphrase, which nobody is asked for; give "
                "a key without one (openssl pkey -in LOCKED.pem -out key.pem)"
            )
        context = security.get_connection_args("client").get("ssl_context")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        raise BadCluster(
            f"{address}: the certificate files cannot be used ({reason}); tls_ca, tls_cert and tls_key are PEM files, "
            "and the key belongs to the certificate"
        ) from error
    if not isinstance(context, ssl.SSLContext):
        raise BadCluster(f"{address}: tls:// needs certificates; set execution.tls_ca, tls_cert and tls_key")
    return context


def _is_locked(key: str | None) -> bool:
    """Return whether OpenSSL would ask the terminal for the passphrase of a key; Dask takes its text, too."""
    return key is not None and "\n" not in key and b"ENCRYPTED" in Path(key).read_bytes()


def _require_tls(address: str, plain: socket.socket, context: ssl.SSLContext) -> None:
    try:
        with context.wrap_socket(plain) as secure:
            # Only the first byte, which the scheduler sends, shows whether it accepted our certificate.
            secure.recv(1)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in _NOT_NOW:
            raise BadCluster(
                f"{address}: the scheduler's certificate is not valid now ({error.verify_message}); {_RENEW}"
            ) from error
        raise BadCluster(
            f"{address}: the scheduler's certificate is not one of execution.tls_ca ({error.verify_message}); use the "
            "ca.pem of its cluster"
        ) from error
    except ssl.SSLError as error:
        reason = (error.reason or type(error).__name__).replace("_", " ").lower()
        if "alert" in reason:
            cure = _RENEW if "expired" in reason else "use cert.pem and key.pem of its cluster, which are valid now"
            text = f"the scheduler refuses our certificate ({reason}); {cure}"
        else:
            text = f"what listens there does not speak TLS ({reason}); write tcp://, or start it with SKETCHSELECT_TLS"
        raise BadCluster(f"{address}: {text}") from error
    except OSError:
        return


def _is_silent(plain: socket.socket) -> bool:
    """Return whether no byte came in time: a scheduler without TLS sends first."""
    try:
        return not plain.recv(1)
    except OSError as error:
        return isinstance(error, TimeoutError)


def _speaks_tls(host: str, port: int) -> bool:
    """Return whether the other side understands a TLS handshake; nothing secret is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), timeout=HANDSHAKE_SECONDS) as plain, context.wrap_socket(plain):
            return True
    except ssl.SSLError as error:
        # An alert, for example about a missing certificate, is TLS too.
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


LEAST_TCP_SECONDS = 11
"""Seconds that Dask divides by ten probes of a connection, and one more; with fewer its connections fail."""

IDLE_WORKER_NBYTES = 192 * 2**20
"""Memory of a worker that has imported the libraries and done nothing yet."""

LOOPBACK = "127.0.0.1"
START_ATTEMPTS = 3
PR_SET_PDEATHSIG = 1
_DURATION = re.compile(r"\d+ ?(?:ms|s|seconds?|minutes?|hours?|days?)")
_MARKER = "SKETCHSELECT_CLUSTER_START"
_SCRATCH, _OWNER = "sketchselect-workers-", "owner"
_OWN_SETTINGS = {"distributed.deploy.lost-worker-timeout": "1 day"}

_GUARD = """\
the script starts a cluster while it is being imported by that cluster's own workers. Put what it does under
    if __name__ == "__main__":
        main()"""


@contextmanager
def local_cluster(
    n_workers: int | None = None,
    memory_limit: int | str | None = None,
    *,
    threads_per_worker: int = 1,
    worker_timeout: float = 60.0,
    worker_ttl: float | None = None,
) -> Iterator[DaskEngine]:
    """Start worker processes on this machine, yield their engine, and stop them again.

    One process per core by default, which share the machine's memory equally. Nothing listens beyond the loopback
    interface, and there is no dashboard. A worker that is frozen for `worker_ttl` seconds (30) is replaced. Raises
    `BadCluster` if it does not start in three attempts, in a daemonic process, in a script without a main guard, and in
    one that is no file; `WillNotFit` if the limit is below what an idle worker takes.
    """
    import dask

    count = n_workers or available_cores()
    if count < 1 or threads_per_worker < 1:
        raise BadParameter("n_workers and threads_per_worker must be at least 1")
    require_main_guard()
    is_daemonic = multiprocessing.current_process().daemon
    method = multiprocessing.get_start_method(allow_none=True)  # joblib's is of no name that a new process knows
    if is_daemonic or method not in (None, *multiprocessing.get_all_start_methods()):
        which = "a daemonic process (a task of Celery, of Airflow's or Prefect's subprocesses)"
        raise BadCluster(
            f"{which if is_daemonic else f'a process of joblib ({method})'} cannot start worker processes; use "
            'cluster = "threads", or the address of a running cluster'
        )
    _require_program()
    limit = "auto" if memory_limit is None else parse_bytes(memory_limit)
    if isinstance(limit, int) and limit < IDLE_WORKER_NBYTES:
        raise WillNotFit(
            f"memory_limit = {format_bytes(limit)}: an idle worker alone takes up to "
            f"{format_bytes(IDLE_WORKER_NBYTES)}; raise it"
        )
    _require_open_files(count)
    _require_threads(count)
    _require_semaphores()
    environment = dict(os.environ)
    from distributed import Client  # its settings must be there before ours are put in, or they go when ours do

    _require_settings()

    # A worker that is restarted twice within this time would count as lost, and not be restarted.
    patient = dask.config.set(_OWN_SETTINGS)
    with quiet_logs(), patient, contextlib.ExitStack() as closing:
        closing.callback(_restore, environment)
        scratch = closing.enter_context(_scratch_folder())
        cluster = _start(count, threads_per_worker, limit, scratch)
        _restore(environment)
        nannies = list(cluster.workers.values())
        # On a busy machine closing may time out before the workers have ended.
        closing.callback(_kill_workers, nannies)
        closing.callback(_close, cluster)
        try:
            client = Client(cluster, set_as_default=False)
            closing.callback(_close, client)
            ttl = worker_ttl or WORKER_TTL
            engine = DaskEngine(client, worker_timeout=worker_timeout, worker_ttl=ttl, nannies=nannies)
            with contextlib.suppress(OSError):  # a worker that dies now gets it when it is started again
                client.register_plugin(StayWithDriver())
            yield engine
        except BaseException:
            # For what is asked of the workers, which end now, nobody waits any more.
            cluster.loop.asyncio_loop.set_exception_handler(lambda *_: None)
            _kill_workers(nannies)
            raise


@contextmanager
def connect(
    address: Any,
    *,
    security: Any = None,
    timeout: float = 30.0,
    worker_timeout: float = 60.0,
    worker_ttl: float | None = None,
    progress: Progress | None = None,
) -> Iterator[DaskEngine]:
    """Yield the engine of a cluster that runs already, by its address, "env", scheduler file or object; it stays up.

    Raises `BadCluster` if the scheduler cannot be reached or used, `NoWorkers` if it has no workers. `timeout` and
    `worker_timeout` are the seconds to wait for scheduler and workers; a worker that is silent for `worker_ttl` seconds
    is given up, by default when the scheduler does so. `progress` is told of waiting for workers.
    """
    where = os.environ.get("DASK_SCHEDULER_ADDRESS", "") if address == "env" else address
    if not where:
        raise BadParameter('cluster "env" needs the address of a scheduler in DASK_SCHEDULER_ADDRESS, which is not set')
    if isinstance(where, str) and is_scheduler_file(where):
        where = _address_in(where)
    if isinstance(where, str) and (fault := scheduler_fault(where)) is not None:
        raise BadParameter(fault)
    scheduler = where if isinstance(where, str) else str(getattr(where, "scheduler_address", ""))
    if not is_url(scheduler) or scheduler.startswith(("tcp:", "tls:")):  # others, such as inproc:, do without
        _require_settings()
    with quiet_logs():
        try:
            if isinstance(where, str):
                require_understood(where, security, timeout, progress)
            client = _client(where, security=security, timeout=timeout)
        except (OSError, TimeoutError, ValueError, TypeError, ImportError, RuntimeError, MemoryError) as error:
            # The first bytes of a web server, as the length of a message, are exabytes.
            why = "something else answers" if isinstance(error, MemoryError) else type(error).__name__
            raise NoScheduler(
                f"{where}: no scheduler can be reached there ({why}); check the address, that `dask scheduler` runs, "
                "and for tls:// the certificates"
            ) from error
        try:
            yield DaskEngine(client, worker_timeout=worker_timeout, worker_ttl=worker_ttl, progress=progress)
        finally:
            _close(client)


def _client(address: str, **options: Any) -> Any:
    """Return a client of a scheduler, closed where it cannot start.

    Otherwise a garbage collection closes it, under a lock that whoever it interrupts may hold: then both stand still.
    """
    from distributed import Client

    class ClosedOnFailure(Client):  # type: ignore[misc]
        def start(self, **kwargs: Any) -> None:
            try:
                super().start(**kwargs)
            except BaseException:
                self.close()
                raise

    return ClosedOnFailure(address, set_as_default=False, **options)


def _address_in(scheduler_file: str) -> str:
    """Return the address that a scheduler has written to its scheduler file."""
    try:
        return str(json.loads(Path(scheduler_file).read_text(encoding="utf-8"))["address"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadCluster(
            f"{scheduler_file}: not the scheduler file of a running scheduler ({type(error).__name__}); start it with "
            "`dask scheduler --scheduler-file FILE`"
        ) from None


class StayWithDriver(WorkerPlugin):  # type: ignore[misc]
    """Leaves Ctrl-C to the process that started the job, and ends the worker when that process is gone."""

    name = "sketchselect-stay-with-driver"

    def setup(self, worker: Any) -> None:
        """Ignore SIGINT, which a terminal sends to the workers as well; die with the parent, on Linux; end fast."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # A worker that is stopped, or in native code, does not notice that its driver's pipe is closed.
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # The driver waits for its end, of which a last search for cycles takes more than half a second.
        atexit.register(gc.freeze)


def _require_program() -> None:
    """Raise `BadCluster` where the program that runs is no file: a new process imports it before it does anything."""
    from multiprocessing import spawn

    path = spawn.get_preparation_data("worker").get("init_main_from_path")
    is_frozen = getattr(sys, "frozen", False)  # of PyInstaller, say: the name of its program is no file, nor imported
    if path is not None and not is_frozen and not os.path.exists(path):
        name = os.path.basename(path)
        where = "was read from standard input" if name == "<stdin>" else f"is no file any more ({path})"
        raise BadCluster(
            f"the program {where}, and worker processes import it when they start; save it as a file and run that, or "
            'use cluster = "threads"'
        )


def _require_open_files(n_workers: int) -> None:
    """Raise `BadCluster` where a process may have fewer files open than a cluster takes: it would start for ever."""
    if sys.platform == "win32":
        return
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 40 + 14 * n_workers  # about 20 and 13 are pipes and connections, and some are for what is read
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise BadCluster(
            f"a cluster of {counted(n_workers, 'worker')} takes some {needed} open files, and this process may have "
            f'{limit}; raise the limit (ulimit -n {needed}), or use cluster = "threads"'
        )


def _require_threads(n_workers: int) -> None:
    """Raise `BadCluster` where a user may have fewer threads than a cluster takes: a worker without stands still."""
    if sys.platform == "win32" or os.geteuid() == 0:  # for root there is no limit
        return
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    needed = 12 + 8 * n_workers  # some 3 and 6 before there is work
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise BadCluster(
            f"a cluster of {counted(n_workers, 'worker')} takes some {needed} processes and threads, but this user is "
            f'limited to {limit}; raise the limit (ulimit -u), or use cluster = "threads"'
        )


def _require_semaphores() -> None:
    """Raise `BadCluster` where processes can share no semaphores, with which Dask starts its workers."""
    filters = os.environ.get("PYTHONWARNINGS")
    try:
        # Python's process that removes them after a driver that was killed would tell its terminal of each.
        os.environ["PYTHONWARNINGS"] = ",".join([*filter(None, [filters]), "ignore:resource_tracker"])
        multiprocessing.resource_tracker.ensure_running()
        multiprocessing.get_context("spawn").Lock()
    except (OSError, ImportError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadCluster(
            f"a cluster of processes needs semaphores of the system, which cannot be made ({reason}); on Linux they "
            'are files in /dev/shm: mount a tmpfs there that this user may write to, or use cluster = "threads"'
        ) from error
    finally:
        os.environ.pop("PYTHONWARNINGS", None)
        os.environ.update({} if filters is None else {"PYTHONWARNINGS": filters})


def _require_settings() -> None:
    """Raise `BadCluster` for durations in Dask's settings with which nothing starts or connects, after minutes."""
    import dask
    import distributed  # noqa: F401 - its settings
    from dask.utils import parse_timedelta

    for defaults in dask.config.defaults:
        _require_durations(defaults)
    value = dask.config.get("distributed.comm.timeouts.tcp")
    if int(parse_timedelta(value) or 0) < LEAST_TCP_SECONDS:
        raise BadCluster(
            f"Dask's setting distributed.comm.timeouts.tcp is {value!r:.60}, and with less than {LEAST_TCP_SECONDS} s "
            "nothing connects; raise it in the environment (DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP) or in Dask's "
            "configuration"
        )


def _require_durations(defaults: Mapping[str, Any], above: str = "") -> None:
    """Raise `BadCluster` where a duration among Dask's settings is none: a cluster would try to start for minutes."""
    import dask
    from dask.utils import parse_timedelta

    for name, default in defaults.items():
        key = f"{above}{name}"
        if isinstance(default, Mapping):
            _require_durations(default, f"{key}.")
        elif isinstance(default, str) and _DURATION.fullmatch(default):
            value = dask.config.get(key, None)
            try:
                parse_timedelta(value)
            except (KeyError, ValueError, TypeError):
                variable = "DASK_" + key.replace(".", "__").replace("-", "_").upper()
                raise BadCluster(
                    f"Dask's setting {key} is {value!r:.60}, which is not a duration such as {default!r}; correct it "
                    f"in the environment ({variable}) or in Dask's configuration"
                ) from None


def local_memory_limit() -> int | None:
    """Return the bytes that each worker of `local_cluster`, of one thread, may take where no limit is given."""
    from distributed.worker_memory import parse_memory_limit

    limit: int | None = parse_memory_limit("auto", 1, logger=logging.getLogger("distributed"))
    return limit


@functools.cache
def _cluster_class() -> type[Any]:
    """Return Dask's class of clusters on this machine, changed where Ctrl-C comes while the workers start."""
    from distributed import LocalCluster, Nanny
    from distributed.core import Status

    class ShieldedNanny(Nanny):  # type: ignore[misc]
        async def instantiate(self) -> Any:
            # A terminal sends SIGINT to workers as well. They begin with the mask of this thread, the event loop's.
            if sys.platform != "win32":
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            return await super().instantiate()

    class InterruptibleCluster(LocalCluster):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            try:
                super().__init__(worker_class=ShieldedNanny, **options)
            except BaseException:
                try:
                    with contextlib.suppress(Exception):
                        # What the nannies raise, whose start ends here, nobody waits for any more.
                        self.loop.asyncio_loop.set_exception_handler(lambda *_: None)
                        self.sync(self._end_starting, callback_timeout=1)
                    _close(self)
                finally:
                    self.status = Status.closed  # or Dask closes it once more at exit, and fails
                raise

        async def _end_starting(self) -> None:
            self.workers.update(enumerate(self._created))  # an interrupted start has not listed them
            for nanny in self.workers.values():
                nanny.auto_restart = False
                if nanny.process is not None and nanny.process.process is not None:
                    await nanny.process.process.kill()  # after its start, where that is still to come

    return InterruptibleCluster


@contextmanager
def _scratch_folder() -> Iterator[Path]:
    """Make a folder for the workers' files and, at the end, remove it, as those of processes that were killed.

    Dask's own, which all programs share, is never without lock files.
    """
    import dask

    folder = None
    try:
        place = Path(dask.config.get("temporary-directory", None) or tempfile.gettempdir())
        place.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(place)
        folder = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=place))
        owner = (folder / "starting").open("w")
    except OSError as error:
        if folder is not None:
            folder.rmdir()
        where = f"in {error.filename} " if error.filename else ""
        raise BadCluster(
            f"workers need a folder for their files, and none can be made {where}({error.strerror}); set TMPDIR, or "
            "Dask's temporary-directory, to a folder with room that this user may write to"
        ) from error
    remove = functools.partial(_remove_scratch, folder, os.getpid())
    with owner:
        try:
            atexit.register(remove)  # a daemon thread never comes to the end of this function
            with contextlib.suppress(OSError):  # a file system without flock: nobody takes it for abandoned
                fcntl.flock(owner, fcntl.LOCK_EX)
                os.rename(folder / "starting", folder / _OWNER)
            yield folder
        finally:
            atexit.unregister(remove)
            remove()


def _remove_scratch(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # not a process that was forked from it
        shutil.rmtree(folder, ignore_errors=True)
        # Of a cluster that did not start Dask removes the rest when Python ends, and complains that it is gone.
        logging.getLogger("distributed.diskutils").addFilter(_is_of_others)


def _is_of_others(record: logging.LogRecord) -> bool:
    return _SCRATCH not in record.getMessage()


def _remove_abandoned(place: Path) -> None:
    """Remove the folders of `_scratch_folder` whose processes were killed: nobody holds the lock in them."""
    for lock in place.glob(f"{_SCRATCH}*/{_OWNER}"):
        with contextlib.suppress(OSError):
            if lock.parent.is_symlink() or lock.lstat().st_uid != os.geteuid():
                continue
            with open(os.open(lock, os.O_RDWR | os.O_NOFOLLOW), "r+") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)


def _start(n_workers: int, threads: int, limit: int | str, scratch: Path) -> Any:
    import dask

    settings = {
        # The engine replaces frozen workers; by the scheduler's clock all are silent when a machine wakes up again.
        "distributed.scheduler.worker-ttl": None,
        # It ends with the job, and while this process works between two passes it has nothing to do.
        "distributed.scheduler.idle-timeout": None,
        # States are small and rows can be read again: a full disk should not be able to stop a run.
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        # What fits is settled before a pass. A worker that Dask pauses may hold what others wait for, and what its
        # allocator keeps is never given back.
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": 1.0,
        "distributed.worker.profile.enabled": False,
        "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None,  # it has every block faulted in
        # What one thread has freed the next one takes, which in heaps of their own they do not.
        f"distributed.nanny.pre-spawn-environ.{_ONE_HEAP}": 1,
    }
    changed = sorted(key for defaults in dask.config.defaults for key in _changed_settings(defaults))
    with dask.config.set(settings):
        marker = scratch / "unguarded"
        os.environ[_MARKER] = str(marker)
        for attempt in itertools.count(1):
            try:
                return _cluster_class()(
                    n_workers=n_workers,
                    threads_per_worker=threads,
                    memory_limit=limit,
                    local_directory=str(scratch),
                    processes=True,
                    host=LOOPBACK,
                    dashboard_address=None,
                    # Health checks and metrics are served all the same: on any free port, of loopback.
                    scheduler_kwargs={
                        "dashboard": False,
                        "dashboard_address": f"{LOOPBACK}:0",
                        "local_directory": str(scratch),
                    },
                    silence_logs=logging.CRITICAL + 1,
                    # Else nannies share Dask's own, which is set back: a worker that is started again would be paused,
                    # for good, at eight tenths of its memory.
                    config={"distributed": copy.deepcopy(dask.config.get("distributed"))},
                )
            except Exception as error:
                if marker.exists():
                    raise BadCluster(_GUARD) from None
                if attempt == START_ATTEMPTS:
                    reason: BaseException = error
                    while reason.__cause__ is not None:
                        reason = reason.__cause__
                    keys = f"; Dask's settings differ from its defaults in {first_names(changed)}" if changed else ""
                    raise BadCluster(
                        f"the local cluster did not start in {START_ATTEMPTS} attempts "
                        f'({type(reason).__name__}: {reason}){keys}; use cluster = "threads" to run without one'
                    ) from error
                time.sleep(0.5 * attempt)


def _changed_settings(defaults: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield the keys of Dask's settings that the user, and not `local_cluster`, has changed."""
    import dask

    for name, default in defaults.items():
        key = f"{above}{name}"
        if isinstance(default, Mapping) and default:
            yield from _changed_settings(default, f"{key}.")
        elif key not in _OWN_SETTINGS and dask.config.get(key, default) != default:
            yield key


def _renew_offloading() -> None:
    """Replace Dask's pool for messages that take long to pack: in a forked process its thread is not there."""
    from distributed import utils

    utils._offload_executor = type(utils._offload_executor)(max_workers=1, thread_name_prefix="Dask-Offload")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_offloading)


def require_main_guard() -> None:
    """Exit if this is a worker process that is importing the user's script, with a marker for its parent."""
    if not getattr(multiprocessing.current_process(), "_inheriting", False):
        return
    with contextlib.suppress(OSError, KeyError):
        Path(os.environ[_MARKER]).touch()
    sys.exit(1)


def _restore(environment: dict[str, str]) -> None:
    # Starting workers sets OMP_NUM_THREADS and its like in this process too, and would slow down what runs after.
    import dask

    for name in (*dask.config.get("distributed.nanny.pre-spawn-environ", {}), "PYTHONHASHSEED", _ONE_HEAP, _MARKER):
        os.environ.pop(name, None)
        os.environ.update({name: environment[name]} if name in environment else {})


def _close(client_or_cluster: Any) -> None:
    with contextlib.suppress(Exception):
        client_or_cluster.close(timeout=3)


def _kill_workers(nannies: list[Any]) -> None:
    """Kill the workers that still run: closing a cluster waits for what they are doing, or gives up waiting."""
    for nanny in nannies:
        with contextlib.suppress(Exception):
            nanny.auto_restart = False
            if nanny.pid:
                os.kill(nanny.pid, signal.SIGKILL)


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Keep the cluster libraries' log lines and tracebacks from the terminal; log files still get them."""
    import distributed  # noqa: F401 - installs the handlers

    silenced: list[tuple[logging.Handler, int]] = []
    for name in ("distributed", "distributed.client", "bokeh", "tornado", "tornado.application"):
        for handler in logging.getLogger(name).handlers:
            if isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler):
                silenced.append((handler, handler.level))
                handler.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for handler, level in silenced:
            handler.setLevel(level)


def tls_security(ca: str, cert: str, key: str) -> Any:
    """Return the `security` of `connect`: only encrypted connections, to holders of the authority's certificates.

    `ca`, `cert`, `key`: PEM files of the authority, our certificate, and its key. Raises `BadParameter` without one.
    """
    from distributed.security import Security

    for name, path in (("tls_ca", ca), ("tls_cert", cert), ("tls_key", key)):
        if not os.path.isfile(path):
            raise BadParameter(f"{name}: {path} is not a file")
    return Security(tls_ca_file=ca, tls_client_cert=cert, tls_client_key=key, require_encryption=True)
