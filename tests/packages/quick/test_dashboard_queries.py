"""Each query of each dashboard gives a series, in Debian's Prometheus, in front of a gateway where everything happens:
answers, failures, refusals, money, a task of the fleet with calls of its agent, a question and a webhook."""

import json
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager

import pytest

from conftest import PACKAGING

BOARDS = sorted((PACKAGING / "grafana").glob("*.json"))
VARIABLES = {"$__rate_interval": "1m", "$pool|-": ".*", "$pool": ".*", "$tenant": ".*", "$project": ".*"}

CONFIG = """
listen: 127.0.0.1:{gateway}
data_dir: {data}
journal: {{folder: {data}/journal}}
metrics: {{tenants: 10}}
upstreams:
  - {{name: own, url: "http://127.0.0.1:{sim}", slots: 4}}
  - {{name: broken, url: "http://127.0.0.1:{closed}", slots: 4}}
pools:
  - {{name: sim, models: [sim], workers: [own]}}
  - {{name: broken, models: [broken], workers: [broken]}}
prices:
  currency: USD
  models:
    - {{model: sim, input: 1, output: 2}}
fleet:
  webhooks:
    - {{name: ops, url: "http://127.0.0.1:{closed}/", secret: {{file: {secret}}}}}
groups: [{{name: people}}]
tenants:
  - {{name: chat, group: people, weight: 300}}
  - {{name: batch, group: people, limits: {{requests_per_minute: 3}}}}
keys:
  - {{name: chat, tenant: chat, secret: {{file: {data}-chat}}}}
  - {{name: batch, tenant: batch, secret: {{file: {data}-batch}}}}
"""

PROMETHEUS = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: fairgate
    static_configs: [{{targets: ["127.0.0.1:{gateway}"]}}]
    authorization: {{credentials_file: {data}/admin-token}}
"""


def until(what, attempt, seconds=60):
    end = time.monotonic() + seconds
    while not (result := attempt()):
        assert time.monotonic() < end, what
        time.sleep(0.2)
    return result


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def call(url, token=None, body=None, method=None):
    """Returns the status and the body of an answer; status 0 if there is none."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


@contextmanager
def running(*words, log):
    """A program that runs until the end of the block."""
    with log.open("w") as out:
        process = subprocess.Popen([str(word) for word in words], stdout=out, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Gateway:
    """A gateway with a simulated model, and a Prometheus that reads its metrics every second."""

    def __init__(self, fairgate, folder):
        self.fairgate, self.data = fairgate, folder / "data"
        self.ports = {name: free_port() for name in ("gateway", "sim", "closed", "prometheus")}
        self.url = f"http://127.0.0.1:{self.ports['gateway']}"
        self.keys = {name: f"{name}-key-of-the-test-of-dashboards-0123456789" for name in ("chat", "batch")}
        for name, key in self.keys.items():
            (folder / f"data-{name}").write_text(key)
        secret = folder / "secret"
        secret.write_text("the secret of a webhook")
        (folder / "fairgate.yaml").write_text(CONFIG.format(data=self.data, secret=secret, **self.ports))
        (folder / "prometheus.yml").write_text(PROMETHEUS.format(data=self.data, **self.ports))

    def command(self, *words):
        """Runs an admin command and returns the JSON that it prints."""
        options = ["--url", self.url, "--token-file", self.data / "admin-token", "--json"]
        command = [self.fairgate, *words, *options]
        done = subprocess.run([str(word) for word in command], text=True, capture_output=True, timeout=60)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return json.loads(done.stdout)

    def chat(self, key, model="sim", stream=False):
        body = {"model": model, "stream": stream, "max_tokens": 20, "messages": [{"role": "user", "content": "Hello"}]}
        return call(f"{self.url}/v1/chat/completions", key, body)[0]

    def query(self, text):
        address = f"http://127.0.0.1:{self.ports['prometheus']}/api/v1/query"
        status, answer = call(f"{address}?{urllib.parse.urlencode({'query': text})}")
        assert status == 200, f"{text}: {status} {answer}"
        return json.loads(answer)["data"]["result"]


@pytest.fixture(scope="module")
def gateway(fairgate, programs, tools, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dashboards")
    gateway = Gateway(fairgate, folder)
    sim = [programs / "fairgate-sim", "--listen", f"127.0.0.1:{gateway.ports['sim']}", "--models", "sim", "--slots", "4"]
    serve = [fairgate, "serve", "--config", folder / "fairgate.yaml"]
    prometheus = [
        tools / "prometheus/usr/bin/prometheus", f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/series", f"--web.listen-address=127.0.0.1:{gateway.ports['prometheus']}",
    ]
    with running(*sim, log=folder / "sim.log"), running(*serve, log=folder / "serve.log") as server:
        def is_ready():
            assert server.poll() is None, (folder / "serve.log").read_text()
            return call(f"{gateway.url}/readyz")[0] == 200
        until("the gateway is ready", is_ready)
        with running(*prometheus, log=folder / "prometheus.log"):
            until("Prometheus has read the metrics", lambda: call_ok(gateway), 60)
            yield gateway


def call_ok(gateway):
    address = f"http://127.0.0.1:{gateway.ports['prometheus']}/-/ready"
    return call(address)[0] == 200 and gateway.query("fairgate_connections")


def make_traffic(gateway):
    """Sends requests that are answered, refused and fail, and those of an agent."""
    threads = [threading.Thread(target=gateway.chat, args=(gateway.keys["chat"], "sim", n % 2 == 0)) for n in range(12)]
    for thread in threads:
        thread.start()
    statuses = {gateway.chat(gateway.keys["batch"]) for _ in range(6)}
    assert statuses == {200, 429}, "three a minute are answered"
    assert gateway.chat(gateway.keys["chat"], "broken") >= 500
    for thread in threads:
        thread.join()
    gateway.command("project", "add", "web", "--tenant", "chat")
    agent = gateway.command("agent", "add", "ada")["token"]
    gateway.command("task", "add", "--project", "web", "Say hello")
    gateway.agent, gateway.agent_calls = agent, f"{gateway.url}/api/v1/agents/ada"
    status, text = call(f"{gateway.agent_calls}/claim", agent, {"wait_s": 20})
    assert status == 200, text
    gateway.claim = json.loads(text)
    assert gateway.chat(gateway.claim["key"]) == 200


def queries():
    for path in BOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                query = target["expr"]
                for variable, value in VARIABLES.items():
                    query = query.replace(variable, value)
                assert "$" not in query, query
                yield query


@pytest.fixture(scope="module")
def busy(gateway):
    make_traffic(gateway)
    # A rate needs two samples of a series; traffic goes on, so that it rises between them.
    time.sleep(2)
    for _ in range(3):
        gateway.chat(gateway.claim["key"])
        gateway.chat(gateway.keys["chat"])
        gateway.chat(gateway.keys["batch"])
        gateway.chat(gateway.keys["chat"], "broken")
    question = {"epoch": gateway.claim["epoch"], "question": "Which greeting?"}
    status, text = call(f"{gateway.agent_calls}/tasks/{gateway.claim['task']}/ask", gateway.agent, question)
    assert status == 200, text
    time.sleep(2)
    return gateway


def test_each_query_of_a_dashboard_gives_a_series(busy):
    assert len(list(queries())) > 50
    assert [query for query in queries() if not busy.query(query)] == []
