"""A plain cluster with TLS, as `deploy/README.md` describes it: separate processes, certificates made by the script."""

import os
import shutil
import signal
import ssl
import stat
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest
from distributed import Client
from tests.deploy.cluster_jobs import assert_same_result, command, run, run_interrupted, write_selection_job
from tests.deploy.conftest import PLAIN, PlainCluster

from sketchselect.errors import BadCluster
from sketchselect.execution.clusters import require_understood, tls_security

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="the recipe is for POSIX shells"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed"),
]


def make_certificates(folder: Path, *hosts: str, **settings: str) -> subprocess.CompletedProcess[str]:
    command = [str(PLAIN / "certificates.sh"), str(folder), *hosts]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, env={**os.environ, **settings}
    )


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates") / "tls"
    done = make_certificates(folder, "10.1.2.3", "node7.example.org", "fd00::5")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def other_certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates") / "other"
    assert make_certificates(folder).returncode == 0
    return folder


@dataclass
class TlsCluster(PlainCluster):
    """The same scripts, with SKETCHSELECT_TLS set."""

    tls: Path = Path()

    def address_at(self, port: int) -> str:
        return f"tls://127.0.0.1:{port}"

    def start(self, *command: str, **settings: str) -> subprocess.Popen[bytes]:
        return super().start(*command, **{"SKETCHSELECT_TLS": str(self.tls), **settings})


@pytest.fixture
def tls_cluster(plain_cluster: PlainCluster, certificates: Path) -> TlsCluster:
    # Stopped by the fixture below it: the list of processes is the same one.
    return TlsCluster(
        plain_cluster.folder, plain_cluster.port, plain_cluster.http_port, plain_cluster.processes, certificates
    )


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of 50 partitions, and the job with its result on threads."""
    folder = tmp_path_factory.mktemp("job")
    write_selection_job(folder, seed=7, n_rows=8_000, chunk_rows=160, partition_bytes="128KiB")
    return folder


def with_files(tls: Path) -> list[str]:
    """Return the words of a command line that name the certificate files of a folder."""
    return [word for name in ("ca", "cert", "key") for word in ("--set", f"execution.tls_{name}={tls / name}.pem")]


def test_certificates_are_private_and_for_the_hosts_named(certificates: Path) -> None:
    x509 = pytest.importorskip("cryptography.x509")
    assert sorted(p.name for p in certificates.iterdir()) == ["ca.pem", "cert.pem", "key.pem"]
    for path in (certificates, *certificates.iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    authority, cert = (
        x509.load_pem_x509_certificate((certificates / f"{name}.pem").read_bytes()) for name in ("ca", "cert")
    )
    cert.verify_directly_issued_by(authority)
    names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "node7.example.org"]
    assert list(map(str, names.get_values_for_type(x509.IPAddress))) == ["127.0.0.1", "10.1.2.3", "fd00::5"]
    assert not cert.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    left = cert.not_valid_after_utc - datetime.now(UTC)
    assert timedelta(days=364) < left <= timedelta(days=365)
    # Key and certificate belong together.
    ssl.create_default_context().load_cert_chain(certificates / "cert.pem", certificates / "key.pem")


def test_certificates_are_never_overwritten(certificates: Path) -> None:
    before = (certificates / "key.pem").read_bytes()
    done = make_certificates(certificates)
    assert done.returncode == 1
    assert "is there already" in done.stderr
    assert (certificates / "key.pem").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "settings"), [(["two words"], {}), (["a,DNS:b"], {}), ([""], {}), ([], {"SKETCHSELECT_TLS_DAYS": "soon"})]
)
def test_certificates_refuse_what_is_no_host(tmp_path: Path, words: list[str], settings: dict[str, str]) -> None:
    done = make_certificates(tmp_path / "tls", *words, **settings)
    assert done.returncode == 2
    assert done.stderr.startswith("certificates.sh: ")
    assert not (tmp_path / "tls" / "key.pem").exists()


def test_job_over_tls_survives_a_killed_worker_with_the_bits_of_threads(tls_cluster: TlsCluster, job: Path) -> None:
    tls_cluster.start_scheduler()
    victim = tls_cluster.start_worker()
    tls_cluster.start_worker()
    tls = tls_cluster.tls
    security = tls_security(*(str(tls / f"{name}.pem") for name in ("ca", "cert", "key")))
    with Client(tls_cluster.address, security=security, timeout=600, set_as_default=False) as client:
        workers = client.scheduler_info(n_workers=-1)["workers"]
        assert len(workers) == 2
        assert all(address.startswith("tls://") for address in workers)
        group = {p.pid for p in psutil.Process(victim.pid).children(recursive=True)}
        (address,) = [a for a, pid in client.run(os.getpid).items() if pid in group]
        code, out = run_interrupted(
            command(job, tls_cluster.address, "killed", *with_files(tls)),
            halfway=lambda: bool(client.processing().get(address)),
            what="a task on the victim",
            interrupt=lambda: os.killpg(victim.pid, signal.SIGKILL),
        )
        assert code == 0, out
        assert "neither encrypted" not in out
        assert len(client.scheduler_info(n_workers=-1)["workers"]) == 1
    assert_same_result(job, "killed")


def test_strangers_are_refused_at_once_in_one_line(
    tls_cluster: TlsCluster, other_certificates: Path, job: Path, tmp_path: Path
) -> None:
    scheduler = tls_cluster.start_scheduler()
    mixed = tmp_path / "mixed"
    shutil.copytree(other_certificates, mixed)
    shutil.copy(tls_cluster.tls / "ca.pem", mixed / "ca.pem")
    plain = f"tcp://127.0.0.1:{tls_cluster.port}"
    attempts = [
        (plain, None, "wants TLS"),
        (tls_cluster.address, None, "needs certificates"),
        (tls_cluster.address, other_certificates, "certificate is not one of execution.tls_ca"),
        (tls_cluster.address, mixed, "refuses our certificate"),
    ]
    for address, tls, said in attempts:
        security = None
        if tls is not None:
            security = tls_security(*(str(tls / f"{name}.pem") for name in ("ca", "cert", "key")))
        with pytest.raises(BadCluster, match=said) as caught:
            require_understood(address, security)
        assert "\n" not in str(caught.value)
    # And what the user sees, once.
    done = run(job, tls_cluster.address, "stranger", *with_files(other_certificates))
    assert done.returncode == 1
    assert [line for line in done.stderr.splitlines() if line.startswith("error: ")] == done.stderr.splitlines()[-1:]
    assert "use the ca.pem of its cluster" in done.stderr
    # A worker with another authority's certificate does not get in either.
    stranger = tls_cluster.start(
        str(PLAIN / "worker.sh"),
        tls_cluster.address,
        SKETCHSELECT_TLS=str(other_certificates),
        SKETCHSELECT_DEATH_TIMEOUT="3",
    )
    assert stranger.wait(timeout=600) != 0
    assert "Registered to" not in tls_cluster.log(stranger)
    assert scheduler.poll() is None


def test_tls_client_of_a_plain_scheduler_is_told_so(plain_cluster: PlainCluster, certificates: Path) -> None:
    plain_cluster.start_scheduler()
    security = tls_security(*(str(certificates / f"{name}.pem") for name in ("ca", "cert", "key")))
    require_understood(plain_cluster.address)
    with pytest.raises(BadCluster, match="does not speak TLS"):
        require_understood(f"tls://127.0.0.1:{plain_cluster.port}", security)


def test_key_of_another_certificate_is_named(certificates: Path, other_certificates: Path) -> None:
    security = tls_security(
        str(certificates / "ca.pem"), str(certificates / "cert.pem"), str(other_certificates / "key.pem")
    )
    with pytest.raises(BadCluster, match="certificate files cannot be used"):
        require_understood("tls://127.0.0.1:1", security)


@pytest.mark.parametrize(
    ("script", "words", "tls"),
    [
        ("scheduler.sh", [], "/nowhere"),
        ("worker.sh", ["tls://127.0.0.1:1"], "/nowhere"),
        ("worker.sh", ["tls://127.0.0.1:1"], ""),
        ("worker.sh", ["tcp://127.0.0.1:1"], "/nowhere"),
    ],
)
def test_scripts_name_what_is_missing(script: str, words: list[str], tls: str) -> None:
    environment = {**os.environ, "SKETCHSELECT_TLS": tls}
    done = subprocess.run(
        [PLAIN / script, *words], capture_output=True, text=True, timeout=600, check=False, env=environment
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"{script}: ")
    assert "SKETCHSELECT_TLS" in done.stderr
