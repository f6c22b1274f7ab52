"""The manifests as Kubernetes gets them, and the schemas they are held to."""

import importlib.util
import subprocess
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
BUILT = ("job/overlays/small", "job/base", "job/overlays/object-store", "cluster")
CUSTOM = "kubernetes.dask.org/v1"


@cache
def built(overlay: str) -> list[dict[str, Any]]:
    """Return the documents that ``kubectl apply -k`` would send."""
    done = subprocess.run(
        ["kubectl", "kustomize", str(FOLDER / overlay)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def of_kind(documents: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [d for d in documents if d["kind"] == kind]
    return found


@cache
def crd_schema(kind: str) -> dict[str, Any]:
    """Return the schema of a custom resource as the operator's own package ships it, unknown fields refused."""
    spec = importlib.util.find_spec("dask_kubernetes")
    assert spec is not None
    assert spec.origin is not None
    crds = Path(spec.origin).parent / "operator/deployment/helm/dask-kubernetes-operator/crds"
    text = (crds / f"{kind.lower()}.yaml").read_text(encoding="utf-8")
    definition = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    schema = strict(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    # What every Kubernetes object has; the definition leaves it to the API server.
    schema["properties"] |= {"apiVersion": {"const": CUSTOM}, "kind": {"const": kind}, "metadata": {"type": "object"}}
    return schema


def strict(schema: Any) -> Any:
    """Return an OpenAPI schema as JSON schema that refuses the fields it does not name."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: strict(value) for key, value in schema.items()}
    if out.get("x-kubernetes-int-or-string"):
        out.pop("type", None)
        out["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    open_ended = "additionalProperties" in out or out.get("x-kubernetes-preserve-unknown-fields")
    if isinstance(out.get("properties"), dict) and not open_ended:
        out["additionalProperties"] = False
    return out


def container(document: dict[str, Any], *path: str) -> dict[str, Any]:
    """Return the one container of the pod whose spec is at this path."""
    spec: Any = document["spec"]
    for name in path:
        spec = spec[name]
    (only,) = spec["containers"]
    return dict(deepcopy(only))


def expanded(words: list[str], environment: dict[str, str]) -> list[str]:
    """Return a container's arguments with ``$(NAME)`` replaced, as Kubernetes does."""
    out = []
    for word in words:
        for name, value in environment.items():
            word = word.replace(f"$({name})", value)
        assert "$(" not in word, word
        out.append(word)
    return out


def variables(of: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in of.get("env", [])}
