"""A home and an installation that cannot be written: commands work, and `doctor` says where kernels are compiled."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sketchselect
from sketchselect import _kernel_cache


@pytest.mark.slow
def test_commands_run_where_nothing_but_the_temporary_folder_can_be_written(tmp_path: Path) -> None:
    installed = tmp_path / "installed" / "sketchselect"
    source = Path(sketchselect.__file__).parent
    shutil.copytree(source, installed, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in {path.parent for path in installed.rglob("*.py")}:
        # A file in the place of the folder stops everybody, also the superuser.
        (folder / "__pycache__").touch()
    (tmp_path / "home").touch()
    (tmp_path / "tmp").mkdir()
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).standard_normal((50, 4)))
    environment = {
        name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")
    }
    environment |= {"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {"PYTHONPATH": str(installed.parent)}

    def command(*words: object) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "sketchselect", *map(str, words)],
            env=environment,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    command("summarize", "rows.npy", "-o", "rows.sks", "--moments", "--cluster", "serial")
    [folder] = (tmp_path / "tmp").glob("sketchselect-numba-*")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert any(folder.rglob("*.nbi"))
    told = command("doctor")
    assert f"kernel folder: compiled kernels are kept in {folder}" in told
    assert "NUMBA_CACHE_DIR" in told


def test_a_folder_that_others_can_write_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever writes there could run code in this process."""
    monkeypatch.setattr(_kernel_cache.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(_kernel_cache.tempfile, "tempdir", str(tmp_path))
    expected = tmp_path / f"sketchselect-numba-{os.getuid()}"
    assert _kernel_cache._private_folder() == str(expected)
    assert _kernel_cache._private_folder() == str(expected)
    expected.chmod(0o777)
    other = _kernel_cache._private_folder()
    assert other is not None
    assert other != str(expected)
    shutil.rmtree(other)
    expected.rmdir()
    expected.symlink_to(tmp_path)
    assert _kernel_cache._private_folder() != str(expected)


def test_a_choice_of_the_user_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/somewhere")
    _kernel_cache.ensure_writable()
    assert os.environ["NUMBA_CACHE_DIR"] == "/somewhere"
    assert _kernel_cache.description() == "compiled kernels are kept in /somewhere (NUMBA_CACHE_DIR)"


def test_a_user_without_a_home_gets_a_temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unknown(_: int) -> None:
        raise KeyError("no such user")

    pwd = pytest.importorskip("pwd")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(_kernel_cache, "_is_writable", lambda _: False)
    for name in ("HOME", "XDG_CACHE_HOME", _kernel_cache.VARIABLE):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    _kernel_cache.ensure_writable()
    assert os.path.isabs(os.environ[_kernel_cache.VARIABLE])
    assert not list(tmp_path.iterdir())
