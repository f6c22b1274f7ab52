"""Run a job on workers that are batch jobs, as many as there is work for: on SLURM or PBS, through dask-jobqueue.

    pip install "sketchselect[jobqueue]"
    python deploy/slurm/run_on_queue.py JOB.toml --queue slurm --most 40

It runs on a login node (or in a small job of its own) and asks the queue for workers; see jobqueue.yaml for their size.
Others use that node too, so scheduler and workers speak TLS: its certificate lasts as long as this program, in files
beside the job file that only their owner may read. The exit codes are those of `sketchselect run`.
"""

import argparse
import sys
from pathlib import Path

import dask
import yaml


def main(words: list[str] | None = None) -> int:
    """Start a cluster on the queue, run the job on it, and return the exit code."""
    parser = argparse.ArgumentParser(description="Run a sketchselect job on workers from a batch queue.")
    parser.add_argument("job", help="a job file, TOML or YAML")
    parser.add_argument("--queue", choices=("slurm", "pbs"), default="slurm")
    parser.add_argument("--least", type=int, default=1, help="workers to keep, also while nothing is to do")
    parser.add_argument("--most", type=int, default=8, help="workers to ask for at most")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as for `sketchselect run`")
    given = parser.parse_args(words)

    defaults = yaml.safe_load((Path(__file__).parent / "jobqueue.yaml").read_text(encoding="utf-8"))
    # The user's own settings, in files or in the environment, win over those beside this script.
    dask.config.update(dask.config.config, defaults, priority="old")

    from dask_jobqueue import PBSCluster, SLURMCluster
    from distributed import Client

    from sketchselect.errors import BadParameter, SketchSelectError
    from sketchselect.workflow import run

    kind = SLURMCluster if given.queue == "slurm" else PBSCluster
    try:
        shared = str(Path(given.job).resolve().parent)
        with kind(security=True, shared_temp_directory=shared) as cluster, Client(cluster) as client:
            cluster.adapt(minimum=given.least, maximum=given.most)
            client.wait_for_workers(1, timeout=24 * 3600)
            print(run(given.job, client=client, overrides=given.set, progress=True).summary())
    except SketchSelectError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, BadParameter) else error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
