"""server.json, the manifest for the MCP Registry: its form, and that what it names is there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from airlock.gateway.variables import VARIABLES

ROOT = Path(__file__).resolve().parents[2]
MANIFEST: dict[str, Any] = json.loads((ROOT / "server.json").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
(PACKAGE,) = MANIFEST["packages"]

INPUT: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "type": {"enum": ["named", "positional"]},
        "description": {"type": "string", "minLength": 1},
        "value": {"type": "string"},
        "default": {"type": "string"},
        "placeholder": {"type": "string"},
        "valueHint": {"type": "string"},
        "format": {"enum": ["string", "number", "boolean", "filepath"]},
        "isRequired": {"type": "boolean"},
        "isSecret": {"type": "boolean"},
        "isRepeated": {"type": "boolean"},
        "choices": {"type": "array", "items": {"type": "string"}},
        "variables": {"type": "object", "additionalProperties": {"$ref": "#/definitions/input"}},
    },
}
ARGUMENT = {
    "allOf": [{"$ref": "#/definitions/input"}, {"required": ["type"]}],
    "if": {"properties": {"type": {"const": "named"}}},
    "then": {"required": ["name"]},
    "else": {"anyOf": [{"required": ["value"]}, {"required": ["valueHint"]}]},
}
NAMED = {"allOf": [{"$ref": "#/definitions/input"}, {"required": ["name"]}]}
VERSION = {"type": "string", "pattern": r"^[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.-]+)?$"}
SCHEMA: dict[str, Any] = {
    "definitions": {"input": INPUT, "argument": ARGUMENT, "named": NAMED},
    "type": "object",
    "additionalProperties": False,
    "required": ["$schema", "name", "description", "version", "packages"],
    "properties": {
        "$schema": {"const": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"},
        "name": {"type": "string", "minLength": 3, "maxLength": 200, "pattern": "^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$"},
        "title": {"type": "string", "minLength": 1, "maxLength": 100},
        "description": {"type": "string", "minLength": 1, "maxLength": 100},
        "version": VERSION,
        "packages": {"type": "array", "minItems": 1, "items": {
            "type": "object",
            "additionalProperties": False,
            "required": ["registryType", "identifier", "version", "transport"],
            "properties": {
                "registryType": {"enum": ["npm", "pypi", "oci", "nuget", "mcpb"]},
                "identifier": {"type": "string", "minLength": 1},
                "version": VERSION,
                "runtimeHint": {"enum": ["uvx", "npx", "docker", "dnx"]},
                "runtimeArguments": {"type": "array", "items": {"$ref": "#/definitions/argument"}},
                "packageArguments": {"type": "array", "items": {"$ref": "#/definitions/argument"}},
                "environmentVariables": {"type": "array", "items": {"$ref": "#/definitions/named"}},
                "transport": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["type", "url"],
                    "properties": {
                        "type": {"enum": ["streamable-http", "sse"]},
                        "url": {"type": "string", "pattern": r"^https?://[^\s]+$"},
                        "headers": {"type": "array", "items": {"$ref": "#/definitions/named"}},
                    },
                },
            },
        }},
    },
}  # fmt: skip
"""What the registry asks of a manifest, as far as ours uses it."""


def test_the_manifest_has_the_form_the_registry_asks_for():
    jsonschema = pytest.importorskip(
        "jsonschema", reason="needs the wheel kubernetes-validate: uv sync --group deploy"
    )
    faults = jsonschema.Draft7Validator(SCHEMA).iter_errors(MANIFEST)
    assert [f"{list(fault.path)}: {fault.message}" for fault in faults] == []


def test_the_manifest_is_about_this_version_of_this_distribution():
    assert {MANIFEST["version"], PACKAGE["version"]} == {PROJECT["version"]}
    assert PACKAGE["identifier"] == PROJECT["name"]
    assert PACKAGE["identifier"] in PROJECT["scripts"], (
        "uvx runs the command that is called like the distribution"
    )
    extras = [argument["value"] for argument in PACKAGE["runtimeArguments"]]
    assert extras == [f"{PROJECT['name']}[all]=={PROJECT['version']}"]


def test_the_name_is_the_same_wherever_the_registry_looks_for_it():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"<!-- mcp-name: (\S+) -->", readme) == [MANIFEST["name"]]
    label = re.findall(
        r'io\.modelcontextprotocol\.server\.name="([^"]+)"', (ROOT / "Dockerfile").read_text(encoding="utf-8")
    )
    assert label == [MANIFEST["name"]]


def test_the_command_of_the_manifest_is_one_of_the_program_with_its_flags():
    words = [item["value"] for item in PACKAGE["packageArguments"] if item["type"] == "positional"]
    flags = [item["name"] for item in PACKAGE["packageArguments"] if item["type"] == "named"]
    command = [sys.executable, "-c", "from airlock.cli.main import main; main()", *words, "--help"]
    helped = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert words == ["gateway", "serve"]
    assert [flag for flag in flags if f"{flag} " not in helped] == []
    needed = {item["name"] for item in PACKAGE["packageArguments"] if item.get("isRequired")}
    assert needed == {"--policy", "--upstream"}


def test_the_variables_of_the_manifest_are_known_and_the_secret_ones_are_marked():
    named = {item["name"]: item for item in PACKAGE["environmentVariables"]}
    known = {name for name, _, _ in VARIABLES}
    assert named.keys() - known == set()
    secret = {name for name, item in named.items() if item.get("isSecret")}
    shapes = re.compile(r"_(SECRET|DSN|AUTH|WEBHOOK)$")
    assert secret == {name for name in named if shapes.search(name)}


def test_the_address_of_the_manifest_is_where_the_gateway_listens():
    assert PACKAGE["transport"]["url"] == "http://127.0.0.1:9000/mcp"
