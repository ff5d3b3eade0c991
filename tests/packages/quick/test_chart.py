"""The Helm chart: rendered for ten files of values, checked as Kubernetes does, and read by Fairgate itself."""

import copy
import warnings

import pytest
import yaml

from conftest import PACKAGING, run

CHART = PACKAGING / "chart/fairgate"
VALUES = sorted((PACKAGING.parent / "tests/packages/values").glob("*.yaml"))
KUBERNETES = "1.37"
CUSTOM = {"ServiceMonitor", "PrometheusRule"}


def render(helm, *options, check=True):
    done = run(helm, "template", "gw", CHART, "--namespace", "llm", *options, check=check)
    if not check:
        return done
    text = done.stdout[done.stdout.index("---"):]
    return [item for item in yaml.safe_load_all(text) if item]


def kinds(objects):
    return sorted(item["kind"] for item in objects)


def one(objects, kind):
    return next(item for item in objects if item["kind"] == kind)


def sets(**values):
    return [word for name, value in values.items() for word in ("--set", f"{name.replace('__', '.')}={value}")]


def test_there_are_ten_files_of_values():
    assert len(VALUES) == 10


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_the_chart_renders_what_kubernetes_and_fairgate_accept(helm, fairgate, tmp_path, values):
    run(helm, "lint", "--strict", CHART, "--values", values)
    objects = render(helm, "--values", values)
    names = [(item["kind"], item["metadata"]["name"]) for item in objects]
    assert len(set(names)) == len(names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import kubernetes_validate
    for item in objects:
        if item["kind"] not in CUSTOM:
            kubernetes_validate.validate(copy.deepcopy(item), KUBERNETES, strict=True)
    config = one(objects, "ConfigMap")["data"]["fairgate.yaml"]
    for folder in ("/data", "/etc/fairgate/tls"):
        config = config.replace(folder, str(tmp_path))
    file = tmp_path / "fairgate.yaml"
    file.write_text(config)
    if "tls:" in config:
        run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
            "-subj", "/CN=gw", "-keyout", tmp_path / "tls.key", "-out", tmp_path / "tls.crt")
    environment = {
        "FAIRGATE_ADMIN_TOKEN": "a-token-of-16-characters-or-more",
        "FAIRGATE_STORE_URL": "postgres://fairgate:secret@db/fairgate",
        "OPENAI_API_KEY": "sk-a-secret-of-16-characters",
    }
    run(fairgate, "check", file, env=environment)


def test_the_pod_is_restricted(helm):
    pod = one(render(helm), "Deployment")["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == 65532
    assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    security = container["securityContext"]
    assert security == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }
    assert pod["automountServiceAccountToken"] is False
    assert container["image"] == "fairgate:0.1.0"


def test_objects_are_there_when_they_are_wanted(helm):
    assert kinds(render(helm)) == [
        "ConfigMap", "Deployment", "PersistentVolumeClaim", "Secret", "Service", "Service", "ServiceAccount",
    ]
    one_address = render(helm, *sets(admin__separate="false"))
    assert kinds(one_address).count("Service") == 1
    assert "listen" not in yaml.safe_load(one(one_address, "ConfigMap")["data"]["fairgate.yaml"])["admin"]
    existing = render(helm, *sets(secret__existing="mine", persistence__existing="claim"))
    assert not {"Secret", "PersistentVolumeClaim"} & set(kinds(existing))
    container = one(existing, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert container["envFrom"] == [{"secretRef": {"name": "mine"}}]
    rules = one(render(helm, *sets(prometheusRule__enabled="true")), "PrometheusRule")
    assert rules["spec"] == yaml.safe_load((PACKAGING / "prometheus/rules.yml").read_text())


def test_a_change_is_a_reload_unless_it_needs_a_restart(helm, tmp_path):
    def checksum(**config):
        values = yaml.safe_load((CHART / "values.yaml").read_text())["config"] | config
        file = tmp_path / "values.yaml"
        token = {"secret": {"values": {"FAIRGATE_ADMIN_TOKEN": "a-token-of-16-characters"}}}
        file.write_text(yaml.safe_dump({"config": values} | token))
        template = one(render(helm, "--values", file), "Deployment")["spec"]["template"]
        return template["metadata"]["annotations"]["checksum/restart"]

    before = checksum()
    upstreams = [{"name": "vllm", "url": "http://vllm:8000", "slots": 99}]
    pools = [{"name": "default", "models": ["default", "more"], "workers": ["vllm"]}]
    for live in [{"upstreams": upstreams}, {"pools": pools}, {"drain_grace": "9s"}, {"store": {"keep_days": 7}}]:
        assert checksum(**live) == before, live
    longer = [pools[0] | {"max_queue": 5}]
    for fixed in [{"journal": {}}, {"metrics": {"tenants": 5}}, {"store": {"spool_size_max": "2GiB"}}, {"store": {"clickhouse": {"url": "http://clickhouse:8123"}}}, {"fleet": {"lease": "9s"}}, {"pools": longer}]:
        assert checksum(**fixed) != before, fixed
    args = one(render(helm), "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--watch" in args


WRONG = [
    (sets(replicas=2), "each gateway process orders its own queue"),
    (sets(replica=1), "replica"),
    (sets(service__port=0), "port"),
    (sets(service__type="Balancer"), "type"),
    (sets(image__repository="Fair Gate"), "repository"),
    (sets(persistence__size="ten"), "size"),
    (sets(config__listen="0.0.0.0:1"), "config"),
    (["--set", "config.pools=null"], "pools"),
    (sets(podDisruptionBudget__maxUnavailable=2), "maxUnavailable"),
]


@pytest.mark.parametrize(("options", "named"), WRONG, ids=lambda value: value if isinstance(value, str) else "")
def test_a_wrong_value_is_named(helm, options, named):
    linted = run(helm, "lint", "--strict", CHART, *options, check=False)
    assert linted.returncode != 0 and named in linted.stdout, linted.stdout
