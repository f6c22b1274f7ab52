"""The systemd units of the plain cluster: what they refer to is there, and systemd accepts them where it is there."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.deploy.conftest import PLAIN

UNITS = ("sketchselect-scheduler.service", "sketchselect-worker@.service")
INSTALLED = "/opt/sketchselect/deploy/plain"


@pytest.mark.parametrize("name", UNITS)
def test_unit_refers_to_what_is_there(name: str) -> None:
    text = (PLAIN / name).read_text(encoding="utf-8")
    (command,) = re.findall(r"^ExecStart=(\S+) ", text, re.MULTILINE)
    assert (PLAIN / Path(command).relative_to(INSTALLED)).stat().st_mode & 0o111
    example = (PLAIN / "cluster.env.example").read_text(encoding="utf-8")
    given = set(re.findall(r"^([A-Z_]+)=", example, re.MULTILINE))
    assert set(re.findall(r"\$\{(\w+)\}", text)) <= given
    # Handed over by systemd under the names that the scripts look for.
    assert re.findall(r"^LoadCredential=(\S+?):", text, re.MULTILINE) == ["ca.pem", "cert.pem", "key.pem"]
    assert "SKETCHSELECT_TLS=%d" in text


@pytest.mark.parametrize("name", UNITS)
def test_unit_has_few_rights(name: str) -> None:
    lines = (PLAIN / name).read_text(encoding="utf-8").splitlines()
    assert {"NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=yes", "CapabilityBoundingSet="} <= set(lines)
    assert "DynamicUser=yes" in lines or "User=sketchselect" in lines


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    files = []
    for name in UNITS:
        # Commands are looked for at their place; here that is this repository.
        text = (PLAIN / name).read_text(encoding="utf-8").replace(INSTALLED, str(PLAIN))
        file = tmp_path / name.replace("@.", "@4.")
        file.write_text(text, encoding="utf-8")
        files.append(str(file))
    done = subprocess.run(
        ["systemd-analyze", "verify", *files], capture_output=True, text=True, timeout=600, check=False
    )
    said = [line for line in done.stderr.splitlines() if "sketchselect" in line]
    assert (done.returncode, said) == (0, []), done.stderr
