"""Checks the files of ``deploy/`` with the field's own tools: ``make check-deploy``.

The schema of compose files comes with compose-go, from Go's module proxy, and dockerfile-utils from
the npm registry. What the files say beyond that is tested in ``deployment/``.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import jsonschema
import yaml

DEPLOY = Path(__file__).parents[1] / "deploy"
COMPOSE_GO = "github.com/compose-spec/compose-go/v2@v2.16.2"
DOCKERFILE_UTILS = "dockerfile-utils@0.16.3"


def main() -> None:
    """Prints what is wrong, and fails if something is."""
    problems = [*_compose(), *_dockerfile()]
    print("\n".join(problems) or f"{DEPLOY.name}: no problem found")
    sys.exit(1 if problems else 0)


def _compose() -> list[str]:
    done = subprocess.run(
        ["go", "mod", "download", "-json", COMPOSE_GO], capture_output=True, text=True
    )
    module = json.loads(done.stdout or "{}")
    if "Dir" not in module:
        sys.exit(f"no schema of compose files: {module.get('Error', done.stderr)}")
    schema = json.loads(Path(module["Dir"], "schema", "compose-spec.json").read_text())
    checker = jsonschema.validators.validator_for(schema)(schema)
    document = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    errors = checker.iter_errors(document)
    return [f"compose.yaml: {'.'.join(map(str, error.path))}: {error.message}" for error in errors]


def _dockerfile() -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["npm", "install", "--silent", "--no-save", DOCKERFILE_UTILS], cwd=folder, check=True
        )
        program = Path(folder, "node_modules", ".bin", "dockerfile-utils")
        done = subprocess.run(
            [program, "lint", DEPLOY / "Dockerfile"], capture_output=True, text=True
        )
    said = (done.stdout + done.stderr).strip()
    return [f"Dockerfile: {said}"] if said or done.returncode else []


if __name__ == "__main__":
    main()
