"""The image: its steps lead to a server without a root's rights, that says whether it is well.

With RAGC_CONTAINER=1 it is built and run where a Docker daemon is; elsewhere its steps are run in a fresh folder. Either
takes minutes.
"""

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
import yaml

from tests.serving import serving
from tests.support.postgres import find_user

ROOT = Path(__file__).parents[1]
KEY = "a-key-of-the-tests-1"


def read_steps():
    """The instructions of the Dockerfile with what they say, continued lines joined."""
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())
    return [line.split(None, 1) for line in text.splitlines() if line.strip() and not line.startswith("#")]


STEPS = read_steps()
CHECK = json.loads(re.search(r"CMD (\[.*\])", dict(STEPS)["HEALTHCHECK"])[1])
COMMAND = json.loads(dict(STEPS)["CMD"])


def test_it_runs_as_a_user_without_rights_from_its_last_step_on():
    names = [name for name, _ in STEPS]
    assert names.count("USER") == 1 and dict(STEPS)["USER"] not in ("root", "0")
    assert names.index("USER") > max(at for at, name in enumerate(names) if name == "RUN")


def test_nothing_must_be_set_for_a_service_that_is_not_used():
    text = (ROOT / "docker-compose.yml").read_text()
    assert [one for one in re.findall(r"\$\{[^}]*\}", text) if ":-" not in one] == []
    served = yaml.safe_load(text)["services"]["ragc"]
    assert served["build"] == "." and not served["user"].endswith(":0}")


def test_the_check_of_its_health_tells_a_server_that_answers_from_none(shop, tmp_path):
    folder = shutil.copytree(shop, tmp_path / "shop")
    with serving(folder) as address:
        port = address.rpartition(":")[2]
        check = [sys.executable, *(one.replace(":8000", f":{port}") for one in CHECK[1:])]
        assert subprocess.run(check, capture_output=True).returncode == 0
    assert subprocess.run(check, capture_output=True).returncode != 0


needs_time = pytest.mark.skipif(not os.environ.get("RAGC_CONTAINER"), reason="RAGC_CONTAINER is not set")
HAS_DOCKER = shutil.which("docker") and subprocess.run(["docker", "info"], capture_output=True).returncode == 0


def wait_for(answers, seconds=300):
    ends = time.monotonic() + seconds
    while not answers():
        assert time.monotonic() < ends
        time.sleep(1)


def ask(port):
    asked = {"model": "tallowgate", "messages": [{"role": "user", "content": "What does Home Plus cost a month?"}]}
    reply = httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=asked, auth=("", KEY), timeout=60)
    return reply.json()["choices"][0]["message"]["content"]


@needs_time
@pytest.mark.skipif(not HAS_DOCKER, reason="there is no Docker daemon")
def test_the_image_is_built_and_answers():
    subprocess.run(["docker", "build", "-t", "ragc-test", str(ROOT)], check=True)
    run = ["docker", "run", "--rm", "-d", "-p", "127.0.0.1:8971:8000", "-e", f"RAGC_SERVE_KEYS={KEY}", "ragc-test"]
    name = subprocess.run(run, check=True, capture_output=True, text=True).stdout.strip()
    show = ["docker", "inspect", "-f", "{{.State.Health.Status}}", name]
    try:
        wait_for(lambda: subprocess.run(show, capture_output=True, text=True).stdout.strip() == "healthy")
        assert "4.50" in ask(8971)
    finally:
        subprocess.run(["docker", "stop", name], check=True)


@needs_time
@pytest.mark.skipif(bool(HAS_DOCKER), reason="the image itself is built")
def test_the_steps_of_the_image_lead_to_a_server_in_a_fresh_folder(tmp_path_factory):
    folder = Path(tmp_path_factory.mktemp("image", numbered=True)) / "ragc"
    ignored = [line.removeprefix("**/") for line in (ROOT / ".dockerignore").read_text().split()]
    skip = lambda _, names: [n for n in names if any(fnmatch.fnmatch(n, one) for one in ignored)]  # noqa: E731
    shutil.copytree(ROOT, folder, ignore=skip)
    place, user = folder.parent, {"user": find_user()} if os.getuid() == 0 else {}
    subprocess.run([sys.executable, "-m", "venv", place / "venv"], check=True)
    arguments = dict(value.split("=", 1) for name, value in STEPS if name == "ARG")
    index = os.environ.get("RAGC_CONTAINER_TORCH", arguments["TORCH_INDEX"])
    env = {
        **os.environ,
        **arguments,
        "TORCH_INDEX": index,
        "PATH": f"{place}/venv/bin:{os.environ['PATH']}",
        "HOME": str(place),
    }
    env = {name: value for name, value in env.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    for name, step in STEPS:
        if name == "RUN" and not step.startswith("useradd"):  # the user is one of this machine's
            subprocess.run(["sh", "-c", step], check=True, cwd=folder, env=env)
    if user:
        for path in (place, *place.parents[:2], *folder.rglob("*"), folder):
            shutil.chown(path, user["user"]) if path.is_relative_to(place) else path.chmod(0o755)
    size = subprocess.run(["du", "-sm", place / "venv"], capture_output=True, text=True).stdout.split()[0]
    print(f"{size} MB of packages; {shlex.join(COMMAND)}")
    port = "8972"
    command = [*COMMAND, "--port", port]
    with subprocess.Popen(command, cwd=folder, env={**env, "RAGC_SERVE_KEYS": KEY}, **user) as process:
        try:
            check = [f"{place}/venv/bin/python", *(one.replace(":8000", f":{port}") for one in CHECK[1:])]
            wait_for(lambda: subprocess.run(check, capture_output=True, env=env).returncode == 0)
            status = Path(f"/proc/{process.pid}/status").read_text()
            assert not user or "Uid:\t0" not in status
            assert "4.50" in ask(port)
        finally:
            process.terminate()
