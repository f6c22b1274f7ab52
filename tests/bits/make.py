"""Writes the reference digests of the environments that this machine can run.

``python tests/bits/make.py [--replace] [KERNEL ...]`` runs every case serially once for each kernel of OpenBLAS, in a
process of its own, and adds what environment it was to ``reference.json``. An environment that is there already is
only compared, and what differs is listed: a result may change by decision alone, which ``--replace`` states.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[2]
KERNELS = ("SkylakeX", "Haswell", "Sandybridge", "Nehalem")


def measure() -> dict[str, dict[str, str]]:
    """Return case -> artefact -> digest."""
    from tests.bits.cases import FITS, JOBS, placed, write_sources
    from tests.bits.digests import digests, of_job

    import sketchselect as sks

    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_sources(folder)
        found = {
            case: of_job(sks.run(placed(content, folder, folder / f"out {case}", "serial")))
            for case, content in JOBS.items()
        }
        return found | {case: digests(run(folder, "serial")) for case, run in FITS.items()}


def run_with(kernel: str) -> tuple[str, dict[str, dict[str, str]]]:
    """Return the environment with a kernel and its digests, from a process of its own."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    variables = {**os.environ, **threads, "OPENBLAS_CORETYPE": kernel}
    done = subprocess.run([sys.executable, __file__, "--child"], env=variables, stdout=subprocess.PIPE, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    return result["environment"], result["digests"]


def add(key: str, digests: dict[str, dict[str, str]], *, replace: bool) -> bool:
    """Add a set of digests for an environment; return whether it is, or now is, what the file says."""
    from tests.bits.reference import FILE, read

    environments, sets = read()
    before = sets[environments[key]] if key in environments else None
    if before is not None and before != digests:
        for case in sorted(before.keys() | digests.keys()):
            old, new = before.get(case, {}), digests.get(case, {})
            changed = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
            if changed:
                print(f"  {case!r}: {', '.join(changed)}")
        if not replace:
            return False
    # Environments of the same bits share a set.
    same = [name for name, one in sets.items() if one == digests]
    name = same[0] if same else str(max(map(int, sets), default=0) + 1)
    environments[key], sets[name] = name, digests
    used = {name: sets[name] for name in sorted(set(environments.values()), key=int)}
    content = {"environments": dict(sorted(environments.items())), "sets": used}
    FILE.write_text(json.dumps(content, indent=1, sort_keys=False) + "\n")
    return True


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", nargs="*", default=KERNELS, metavar="KERNEL")
    parser.add_argument("--replace", action="store_true", help="where an environment is there already")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        from tests.bits.reference import environment

        print(json.dumps({"digests": measure(), "environment": environment()}))
        return 0
    right = True
    for kernel in options.kernels:
        key, digests = run_with(kernel)
        print(key)
        if kernel not in key:
            print(f"  not {kernel}, which does not run here")
        else:
            right &= add(key, digests, replace=options.replace)
    return 0 if right else 1


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
