"""The chart for Kubernetes: what it renders is valid, and starts nodes that find each other."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from quorumlog.server.config.settings import Settings, load
from tests.support.package_tools import tool
from tests.support.readme_tour import ROOT
from tests.test_documents import COMMAND

CHART = ROOT / "packaging/helm/quorumlog"
#: The oldest that the chart takes, and a later one.
KUBERNETES = ("1.27.0", "1.34.0")
#: Ways to install it, each as values.
WITH_TLS: dict[str, Any] = {"tls": {"secret": "certificates"}}
PLAIN: dict[str, Any] = {"insecure": True, "antiAffinity": "preferred", "podLabels": {"team": "logs"}}
#: With a mirror, whose options are its own.
MIRRORED: dict[str, Any] = WITH_TLS | {
    "mirror": {"from": "kafka://kafka.shop:9092", "secret": "files", "options": ["--topic", "shop-*"]}
}


def rendered(folder: Path, values: dict[str, Any], kubernetes: str = KUBERNETES[0]) -> subprocess.CompletedProcess[str]:
    """Returns what the chart renders from values."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    command = [tool("helm"), "template", "shop", str(CHART), "--namespace", "logs", "--kube-version", kubernetes]
    return subprocess.run([*command, "--values", str(file)], capture_output=True, text=True, timeout=60, check=False)


def objects(folder: Path, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the rendered objects, by kind and name."""
    done = rendered(folder, values)
    assert done.returncode == 0, done.stderr
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in yaml.safe_load_all(done.stdout)}


def test_the_chart_is_of_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.mark.parametrize("values", [WITH_TLS, PLAIN, MIRRORED], ids=["tls", "plain", "mirror"])
def test_helm_and_kubernetes_find_nothing_wrong(values: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "lint.yaml"
    file.write_text(yaml.safe_dump(values))
    command = [tool("helm"), "lint", "--strict", str(CHART), "--values", str(file)]
    lint = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert lint.returncode == 0, lint.stdout
    for version in KUBERNETES:
        page = tmp_path / "rendered.yaml"
        page.write_text(rendered(tmp_path, values, version).stdout)
        checked = subprocess.run(
            [tool("kubernetes-validate"), "--strict", "--kubernetes-version", version, str(page)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "give tls.secret, or say insecure=true"),
        (WITH_TLS | {"insecure": True}, "contradict each other"),
        (PLAIN | {"nodes": 1}, "fewer nodes than controllers"),
        (PLAIN | {"controllers": 2}, "controllers"),
        (WITH_TLS | {"mirror": {"from": "kafka://kafka.shop:9092"}}, "give mirror.secret, with command.properties"),
        (PLAIN | {"mirror": {"from": "kafka.shop:9092"}}, "mirror.from"),
        (PLAIN | {"node": 3}, r"(?i)additional propert(y|ies) '?node'? (is )?not allowed"),
    ],
)
def test_wrong_values_are_refused_with_a_line_that_says_why(values: dict[str, Any], said: str, tmp_path: Path) -> None:
    done = rendered(tmp_path, values)
    assert done.returncode != 0
    assert re.search(said, done.stderr)


def started(folder: Path, values: dict[str, Any], pod: str) -> dict[str, str]:
    """The environment that the program has in a pod, after its start script has run here."""
    container = objects(folder, values)["StatefulSet/shop-quorumlog"]["spec"]["template"]["spec"]["containers"][0]
    (folder / "secrets").mkdir(exist_ok=True)
    (folder / "certificates").mkdir(exist_ok=True)
    for name in ("node-3.crt", "node-3.key", "node-ca.crt", "client-ca.crt"):
        (folder / "secrets" / name).write_text(name)
    program = folder / "quorumlog"
    program.write_text("#!/bin/bash\nenv\n")
    program.chmod(0o755)
    (script,) = container["args"]
    script = re.sub(r"(/secrets|/certificates)/", rf"{folder}\1/", script)
    environment = {each["name"]: each["value"] for each in container["env"]}
    done = subprocess.run(
        [*container["command"], script],
        env=environment | {"PATH": f"{folder}:{os.environ['PATH']}", "HOSTNAME": pod},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = (line.partition("=") for line in done.stdout.splitlines())
    return {name: value for name, _, value in lines if name.startswith("QUORUMLOG_")}


@pytest.mark.parametrize("values", [WITH_TLS, PLAIN], ids=["tls", "plain"])
def test_a_pod_starts_the_node_of_its_ordinal_at_the_address_that_the_others_dial(
    values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"max_request_bytes": 33_554_432, "feature_upgrade": "manual"}
    environment = started(tmp_path, values | {"settings": settings}, "shop-quorumlog-2")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    taken: Settings = load({}, None)
    assert taken.node_id == 3
    assert len(taken.controllers) == 3
    assert taken.address == taken.controllers[3]
    assert taken.node_options().limits.request_bytes == settings["max_request_bytes"]


def test_a_node_takes_a_certificate_of_its_own_and_a_key_that_nobody_else_may_read(tmp_path: Path) -> None:
    started(tmp_path, WITH_TLS, "shop-quorumlog-2")
    own = tmp_path / "certificates/own.key"
    assert own.read_text() == "node-3.key"
    assert own.stat().st_mode & 0o077 == 0
    assert (tmp_path / "certificates/own.crt").read_text() == "node-3.crt"


def test_nodes_have_names_before_they_serve_and_clients_find_only_those_that_do(tmp_path: Path) -> None:
    made = objects(tmp_path, WITH_TLS)
    nodes, clients = made["Service/shop-quorumlog-nodes"]["spec"], made["Service/shop-quorumlog"]["spec"]
    assert nodes["clusterIP"] == "None" and nodes["publishNotReadyAddresses"]
    assert not clients.get("publishNotReadyAddresses")
    stateful = made["StatefulSet/shop-quorumlog"]["spec"]
    assert stateful["serviceName"] == "shop-quorumlog-nodes"
    assert stateful["podManagementPolicy"] == "Parallel", "a cluster forms when all of its controllers are there"
    named = {port["name"] for port in stateful["template"]["spec"]["containers"][0]["ports"]}
    assert {port["targetPort"] for service in (nodes, clients) for port in service["ports"]} <= named


def test_one_node_at_a_time_is_taken_away_and_no_two_are_on_one_machine(tmp_path: Path) -> None:
    made = objects(tmp_path, WITH_TLS)
    assert made["PodDisruptionBudget/shop-quorumlog"]["spec"]["maxUnavailable"] == 1
    pod = made["StatefulSet/shop-quorumlog"]["spec"]["template"]
    affinity = pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (apart,) = affinity
    assert apart["topologyKey"] == "kubernetes.io/hostname"
    assert apart["labelSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()


def test_a_pod_may_do_little_and_hears_nothing_of_services(tmp_path: Path) -> None:
    pod = objects(tmp_path, WITH_TLS)["StatefulSet/shop-quorumlog"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsUser"] == 10001 and pod["securityContext"]["runAsNonRoot"]
    (container,) = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not pod["automountServiceAccountToken"]
    assert not pod["enableServiceLinks"], "QUORUMLOG_PORT of a service would be taken for a setting"


def mirror_pod(folder: Path, values: dict[str, Any]) -> dict[str, Any]:
    deployment: dict[str, Any] = objects(folder, values)["Deployment/shop-quorumlog-mirror"]["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"}), "a second one stops the first"
    pod: dict[str, Any] = deployment["template"]
    assert deployment["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    return pod


def test_a_mirror_runs_only_on_request(tmp_path: Path) -> None:
    assert not [name for name in objects(tmp_path, PLAIN) if name.startswith("Deployment")]
    assert mirror_pod(tmp_path, MIRRORED)


@pytest.mark.parametrize(
    "values", [MIRRORED, PLAIN | {"mirror": {"from": "kafka://kafka.shop:9092"}}], ids=["tls", "plain"]
)
def test_a_mirror_has_a_command_that_exists(values: dict[str, Any], tmp_path: Path) -> None:
    (container,) = mirror_pod(tmp_path, values)["spec"]["containers"]
    words = [*container["command"], *container["args"]]
    at = words.index("mirror")
    options = {name for option in COMMAND.commands["mirror"].params for name in option.opts}
    assert {word for word in words[at:] if word.startswith("--")} <= options
    # The name that is in the nodes' certificates.
    assert words[words.index("--bootstrap-servers") + 1] == "shop-quorumlog.logs.svc.cluster.local:19092"
    secured = ["quorumlog", "--command-config", "/mirror/command.properties", "mirror"]
    assert words[: at + 1] == (secured if values is MIRRORED else ["quorumlog", "mirror"])


def test_no_service_leads_to_a_mirror(tmp_path: Path) -> None:
    """It would get the requests of clients."""
    made = objects(tmp_path, MIRRORED)
    labels = mirror_pod(tmp_path, MIRRORED)["metadata"]["labels"]
    for each in made.values():
        if each["kind"] in ("Service", "PodDisruptionBudget"):
            selector = each["spec"]["selector"]
            assert not selector.get("matchLabels", selector).items() <= labels.items()


def test_a_mirror_may_do_little(tmp_path: Path) -> None:
    pod = mirror_pod(tmp_path, MIRRORED)["spec"]
    node = objects(tmp_path, MIRRORED)["StatefulSet/shop-quorumlog"]["spec"]["template"]["spec"]
    assert pod["securityContext"].items() <= node["securityContext"].items()
    assert pod["containers"][0]["securityContext"] == node["containers"][0]["securityContext"]
    assert not pod["automountServiceAccountToken"]
