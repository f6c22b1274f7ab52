"""The Kubernetes manifests: schemas, what they promise, and their commands run as processes on this machine."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
import zarr
from tests.deploy.conftest import ROOT, PlainCluster
from tests.deploy.kubernetes import BUILT, CUSTOM, FOLDER, built, container, crd_schema, expanded, of_kind, variables

pytest.importorskip("kubernetes_validate")
pytest.importorskip("dask_kubernetes")
if shutil.which("kubectl") is None:
    pytest.skip("kubectl is not installed", allow_module_level=True)

POD = (("job", "spec"), ("cluster", "spec", "worker", "spec"), ("cluster", "spec", "scheduler", "spec"))


def documents() -> list[tuple[str, dict[str, Any]]]:
    found = [(overlay, document) for overlay in BUILT for document in built(overlay)]
    return [*found, ("cluster/job.yaml", yaml.safe_load((FOLDER / "cluster/job.yaml").read_text(encoding="utf-8")))]


def complaints(document: dict[str, Any]) -> list[str]:
    """Return what the schema of a document's kind has to say against it."""
    import jsonschema
    import kubernetes_validate

    if document["apiVersion"] == CUSTOM:
        found = jsonschema.Draft202012Validator(crd_schema(document["kind"])).iter_errors(document)
        return [f"{error.json_path}: {error.message}" for error in found]
    try:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as error:
        return [str(error)]
    return []


@pytest.mark.parametrize(
    ("place", "document"), documents(), ids=lambda v: v if isinstance(v, str) else v.get("kind", "?")
)
def test_documents_follow_their_schemas(place: str, document: dict[str, Any]) -> None:
    assert complaints(document) == []


@pytest.mark.parametrize("damage", [("replica", 2), ("spec", {"containers": []})])
def test_a_misspelt_or_missing_field_is_found(damage: tuple[str, Any]) -> None:
    document = json.loads(json.dumps(of_kind(built("cluster"), "DaskCluster")))
    name, value = damage
    document["spec"]["worker"][name] = value
    if name == "spec":
        del document["spec"]["scheduler"]["service"]
    assert complaints(document)


@pytest.mark.parametrize("overlay", BUILT[:3])
@pytest.mark.parametrize("pod", POD, ids=lambda p: p[-2])
def test_pods_pass_the_restricted_security_standard(overlay: str, pod: tuple[str, ...]) -> None:
    spec: Any = of_kind(built(overlay), "DaskJob")["spec"]
    for name in pod:
        spec = spec[name]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for one in spec["containers"]:
        rules = one["securityContext"]
        assert (rules["allowPrivilegeEscalation"], rules["capabilities"]) == (False, {"drop": ["ALL"]})
        assert rules["readOnlyRootFilesystem"] is True
        assert one["image"] == "sketchselect:0.1.0"
        assert set(one["resources"]["limits"]) == {"memory"}
        # Nothing but volumes can be written: data, scratch and caches are all mounted.
        assert "/tmp" in {m["mountPath"] for m in one["volumeMounts"]}


def test_user_of_the_pods_is_the_user_of_the_image() -> None:
    dockerfile = (ROOT / "deploy/docker/Dockerfile").read_text(encoding="utf-8")
    spec = of_kind(built(BUILT[0]), "DaskJob")["spec"]["job"]["spec"]
    assert f"USER {spec['securityContext']['runAsUser']}\n" in dockerfile


@pytest.mark.parametrize("overlay", BUILT)
def test_a_worker_is_ended_by_its_nanny_before_the_kernel_does_it(overlay: str) -> None:
    from sketchselect.readers import parse_bytes

    custom = next(d for d in built(overlay) if d["kind"] in ("DaskJob", "DaskCluster"))
    worker = container(custom, *(("cluster", "spec") if custom["kind"] == "DaskJob" else ()), "worker", "spec")
    told = parse_bytes(variables(worker)["SKETCHSELECT_WORKER_MEMORY"])
    limit = worker["resources"]["limits"]["memory"]
    # Kubernetes writes the same units without the B.
    assert told < parse_bytes(f"{limit}B")
    assert worker["resources"]["requests"]["memory"] == limit


def test_services_and_policy_choose_the_pods_that_the_operator_makes() -> None:
    for overlay in BUILT:
        custom = next(d for d in built(overlay) if d["kind"] in ("DaskJob", "DaskCluster"))
        spec = custom["spec"]["cluster"]["spec"] if custom["kind"] == "DaskJob" else custom["spec"]
        name = custom["metadata"]["name"]
        assert spec["scheduler"]["service"]["selector"] == {
            "dask.org/cluster-name": name,
            "dask.org/component": "scheduler",
        }
        policy = of_kind(built(overlay), "NetworkPolicy")["spec"]
        assert policy["podSelector"] == {"matchLabels": {"dask.org/cluster-name": name}}


def test_credentials_reach_job_and_workers_by_secret_only() -> None:
    custom = of_kind(built("job/overlays/object-store"), "DaskJob")
    for pod in POD[:2]:
        assert container(custom, *pod)["envFrom"] == [{"secretRef": {"name": "sketchselect-store"}}]
    assert "envFrom" not in container(custom, *POD[2])


@pytest.mark.parametrize("overlay", BUILT)
def test_job_file_of_the_map_is_a_job(overlay: str, tmp_path: Path) -> None:
    from sketchselect.job.load import load_job

    (tmp_path / "job.toml").write_text(of_kind(built(overlay), "ConfigMap")["data"]["job.toml"], encoding="utf-8")
    assert load_job(tmp_path / "job.toml").execution.cluster == "env"


@pytest.mark.slow
def test_commands_of_the_pods_run_the_job(plain_cluster: PlainCluster, tmp_path: Path) -> None:
    """The containers' own words and variables, on this machine: only addresses and mounted paths are put in."""
    custom = of_kind(built("job/overlays/small"), "DaskJob")
    job, worker, scheduler = (container(custom, *pod) for pod in POD)
    rng = np.random.default_rng(3)
    store = zarr.create_array(tmp_path / "matrix.zarr", shape=(600, 40), chunks=(100, 40), dtype="float64")
    store[:] = rng.standard_normal((600, 40)) + 4 * rng.integers(3, size=(600, 1))
    settings = of_kind(built("job/overlays/small"), "ConfigMap")["data"]["job.toml"].replace("/data", str(tmp_path))
    (tmp_path / "job.toml").write_text(settings.replace("n_features = 200", "n_features = 20"), encoding="utf-8")

    def here(word: str) -> str:
        # In this order: the repository itself may be below /tmp.
        return word.replace("/tmp", str(tmp_path)).replace("/opt/deploy", str(ROOT / "deploy/plain"))

    def start(of: dict[str, Any], **extra: str) -> list[str]:
        environment = {name: here(value) for name, value in variables(of).items()} | extra
        os.environ.update(environment)
        return [here(word) for word in expanded(of["args"], environment)]

    before = dict(os.environ)
    try:
        words = start(scheduler)
        port, http = str(plain_cluster.port), f":{plain_cluster.http_port}"
        swaps = {"0.0.0.0": "127.0.0.1", "8786": port, ":8787": http}
        process = plain_cluster.start(*[swaps.get(word, word) for word in words])
        plain_cluster.wait_for(process, "Scheduler at:")
        told = {"DASK_SCHEDULER_ADDRESS": plain_cluster.address, "DASK_WORKER_NAME": "default-worker-1"}
        process = plain_cluster.start(*start(worker, **told))
        plain_cluster.wait_for(process, "Registered to:")
        words = [word.replace("/etc/sketchselect", str(tmp_path)) for word in start(job, **told)]
        path = f"{ROOT / 'deploy/docker'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            words, env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=600, check=False
        )
    finally:
        os.environ.clear()
        os.environ.update(before)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(json.loads((tmp_path / "out/selection.json").read_text(encoding="utf-8"))["support"]) == 20
