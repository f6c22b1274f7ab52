"""Scripts as users run them: interrupted, without a main guard, from daemonic processes."""

import os
import re
import signal
import subprocess
import sys
import textwrap

import numpy as np
import psutil
import pytest

pytestmark = pytest.mark.slow

LEAVES = """
    import sys, time
    import numpy as np
    from sketchselect.errors import SketchSelectError
    from sketchselect.execution import Checkpoint, PassOptions, Source, local_cluster, open_engine, summarize_source
    from sketchselect.readers import open_matrix
    from sketchselect.summaries import Moments

    class SlowMoments(Moments):
        def projected_nbytes(self, n_features, n_targets=0):
            return 8
        def from_block(self, X, y=None, **options):
            time.sleep(0.06)
            return super().from_block(X, y, **options)

    class Lines:
        def start(self, *what): print("started", flush=True)
        def advance(self, nbytes): print("partition", flush=True)
        def note(self, text): print("note", text, flush=True)
        def finish(self, stage): print("finished", flush=True)

    def summarise(engine, folder):
        kept = Checkpoint(folder, min_bytes=0, state_ratio=0) if folder else None
        source = Source(open_matrix(np.arange(2400.0).reshape(600, 4)))
        return summarize_source(source, SlowMoments(), PassOptions(engine, 320, kept, Lines()))
"""

JOB = """
    if __name__ == "__main__":
        try:
            with local_cluster(2) as engine:
                reduced = summarise(engine, sys.argv[1])
                print("resumed", reduced.stats.n_resumed, reduced.value.mean.tolist(), flush=True)
        except SketchSelectError as error:
            print(type(error).__name__, error, flush=True)
            sys.exit(error.exit_code)
"""


def script(tmp_path, *parts):
    path = tmp_path / "job.py"
    path.write_text("".join(textwrap.dedent(part) for part in parts))
    return path


def start(path, *args, **options):
    return subprocess.Popen(
        [sys.executable, str(path), *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        **options,
    )


def until(process, word, count=1):
    lines = []
    for line in process.stdout:
        lines.append(line)
        count -= line.startswith(word)
        if not count:
            return lines
    raise AssertionError("".join(lines))


def finished(process):
    """Output, once the process and all that it started are gone."""
    children = psutil.Process(process.pid).children(recursive=True)
    output, _ = process.communicate(timeout=600)
    _, alive = psutil.wait_procs(children, timeout=600)
    assert alive == []
    return output


def test_ctrl_c_ends_a_job_quickly_and_it_resumes(tmp_path):
    job = script(tmp_path, LEAVES, JOB)
    process = start(job, tmp_path / "nodes")
    until(process, "partition", 20)
    os.killpg(process.pid, signal.SIGINT)
    output = finished(process)
    assert process.returncode == 130
    assert re.search(r"Interrupted interrupted; summarize: [1-9]\d* of \d+ partitions are in checkpoints", output)
    assert "Traceback" not in output
    again = start(job, tmp_path / "nodes")
    output = finished(again)
    assert again.returncode == 0, output
    assert "note summarize: resuming" in output
    assert "resumed 0" not in output
    assert "[1198.0, 1199.0, 1200.0, 1201.0]" in output


def test_a_script_without_a_main_guard_is_told_the_cure(tmp_path):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).standard_normal((400, 6)))
    unguarded = f"""
    import sketchselect as sks
    try:
        sks.run({{
            "input": {{"url": {str(tmp_path / "rows.npy")!r}}},
            "select": {{"method": "variance", "n_features": 2}},
            "execution": {{"cluster": "local", "n_workers": 2}},
            "output": {{"dir": {str(tmp_path / "out")!r}}},
        }})
    except sks.errors.SketchSelectError as error:
        print(type(error).__name__, error)
    """
    output = finished(start(script(tmp_path, unguarded)))
    assert output.count("BadCluster") == 1
    assert 'if __name__ == "__main__":' in output
    assert "Traceback" not in output


def test_a_program_from_standard_input_is_told_to_be_a_file():
    program = """
from sketchselect.execution import local_cluster
try:
    with local_cluster(1):
        print("impossible")
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable], input=program, capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("BadCluster the program was read from standard input"), done
    assert "Traceback" not in done.stderr


def test_a_process_of_joblib_is_told_what_to_use_instead(tmp_path):
    parallel = """
    def child():
        with local_cluster(1):
            print("impossible")

    if __name__ == "__main__":
        from joblib import Parallel, delayed
        try:
            Parallel(2)(delayed(child)() for _ in range(2))
        except SketchSelectError as error:
            print(type(error).__name__, error, flush=True)
    """
    output = finished(start(script(tmp_path, LEAVES, parallel)))
    assert "BadCluster a process of joblib (loky) cannot start worker processes" in output
    assert "Traceback" not in output


def test_a_cluster_of_a_daemon_thread_leaves_no_folder(tmp_path, monkeypatch):
    """Python ends without the thread, which never comes to its end."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    daemon = """
    import threading
    def hold():
        with local_cluster(1):
            runs.set()
            time.sleep(600)

    if __name__ == "__main__":
        runs = threading.Event()
        threading.Thread(target=hold, daemon=True).start()
        print(runs.wait(60))
    """
    output = finished(start(script(tmp_path, LEAVES, daemon)))
    assert output.splitlines()[-1] == "True"
    assert "Traceback" not in output
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_daemonic_process_is_told_what_to_use_instead(tmp_path):
    daemonic = """
    def child():
        try:
            with local_cluster(1):
                print("impossible")
        except SketchSelectError as error:
            print(type(error).__name__, error, flush=True)
        with open_engine("threads") as engine:
            print(engine.kind, summarise(engine, None).stats.rows_read, flush=True)

    if __name__ == "__main__":
        import multiprocessing
        process = multiprocessing.get_context("fork").Process(target=child, daemon=True)
        process.start()
        process.join()
    """
    process = start(script(tmp_path, LEAVES, daemonic))
    output = finished(process)
    assert "BadCluster a daemonic process" in output
    assert 'cluster = "threads"' in output
    assert "threads 600" in output
