"""What an API server of Kubernetes takes: the schema of 1.20.2, from `api/openapi-spec/swagger.json` of its source.

Beside this file are the definitions that pods, deployments, services and secrets are made of, without descriptions.
"""

import json
from pathlib import Path

DEFINITIONS = json.loads(Path(__file__).with_suffix(".json").read_text())
#: apiVersion and kind -> definition
KINDS = {
    ("v1", "Pod"): "io.k8s.api.core.v1.Pod", ("v1", "Secret"): "io.k8s.api.core.v1.Secret",
    ("v1", "Service"): "io.k8s.api.core.v1.Service", ("apps/v1", "Deployment"): "io.k8s.api.apps.v1.Deployment",
}  # fmt: skip
_TYPES = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}


def problems(manifest):
    """What is wrong with a manifest: a line for each field that is unknown, missing, or of another type."""
    kind = KINDS[manifest["apiVersion"], manifest["kind"]]
    return list(_look(manifest, {"$ref": kind}, manifest["kind"]))


def _look(value, schema, where):
    if "$ref" in schema:
        schema = DEFINITIONS[schema["$ref"]]
    kind = schema.get("type")
    wanted = (int, str) if schema.get("format") == "int-or-string" else _TYPES.get(kind, object)
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind in ("integer", "number")):
        yield f"{where} is {value!r}, not of type {kind}"
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _look(each, schema["items"], f"{where}[{number}]")
    elif isinstance(value, dict):
        fields, other = schema.get("properties", {}), schema.get("additionalProperties")
        for name, each in value.items():
            if name in fields or other is not None:
                yield from _look(each, fields.get(name, other), f"{where}.{name}")
            elif fields:
                yield f"{where}.{name} is not known"
        yield from (f"{where}.{name} is missing" for name in schema.get("required", ()) if name not in value)
