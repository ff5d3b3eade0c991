"""Real servers for the tests of the export. `cargo xtask test clickhouse` sets the variables."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

HERE = Path(__file__).parent
KEY = "a-key-for-the-tests-of-the-export"
TOKEN = "an-admin-token-for-the-tests"
CREDENTIAL = "fairgate:s3cret"


def variable(name):
    value = os.environ.get(name)
    if not value:
        pytest.exit(f"{name} is not set: run these tests with `cargo xtask test clickhouse`", returncode=4)
    return value


def until(what, attempt, seconds=30):
    """Tries until the result is true, and returns it."""
    end = time.monotonic() + seconds
    while True:
        result = attempt()
        if result:
            return result
        assert time.monotonic() < end, what() if callable(what) else what
        time.sleep(0.1)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def post(url, body, headers=None, seconds=20):
    request = urllib.request.Request(url, data=body, headers=headers or {}, method="POST")
    with urllib.request.urlopen(request, timeout=seconds) as response:
        return response.read().decode()


class Process:
    """A program that a test started, with its output in a file."""

    def __init__(self, words, log, **options):
        self.log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [str(word) for word in words], stdin=subprocess.DEVNULL, stdout=out, stderr=out, **options
            )

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()


class ClickHouse:
    """A server with a folder of its own, which is started on the same port after a kill."""

    user = ("default", "")

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = None

    def start(self):
        self.process = self.launch()
        until(lambda: self.process.log.read_text()[-2000:], self.answers)

    def answers(self):
        try:
            return self.query("SELECT 1", database=None).strip() == "1"
        except OSError:
            return False

    def query(self, sql, database="usage"):
        path = f"/?database={database}" if database else "/"
        headers = {"X-ClickHouse-User": self.user[0], "X-ClickHouse-Key": self.user[1]}
        return post(self.url + path, sql.encode(), headers)

    def sums(self):
        """Rows, tokens and money by day, by a statement that is not the export's."""
        return self.query(
            "SELECT toString(day), sum(1), sum(i), sum(o), sum(p), sum(m) FROM (SELECT day, tenant, request, attempt, "
            "argMax(input_tokens, version) AS i, argMax(output_tokens, version) AS o, "
            "argMax(provider_tokens, version) AS p, argMax(money_micro, version) AS m, argMax(removed, version) AS r "
            "FROM fairgate_attempts GROUP BY day, tenant, request, attempt) WHERE r = 0 GROUP BY day ORDER BY day "
            "FORMAT TabSeparated"
        ).strip()

    def kill(self):
        self.process.kill()

    def stop(self):
        if self.process:
            self.process.stop()


class Debian(ClickHouse):
    """Debian's clickhouse-server, version 18.16, with a configuration of ten lines."""

    user = tuple(CREDENTIAL.split(":"))

    def launch(self):
        tools = Path(variable("FAIRGATE_TOOLS")) / "clickhouse"
        (self.folder / "config.xml").write_text(f"""<yandex>
  <logger><level>warning</level><log>{self.folder}/log</log><errorlog>{self.folder}/errors</errorlog></logger>
  <http_port>{self.port}</http_port><tcp_port>{free_port()}</tcp_port><listen_host>127.0.0.1</listen_host>
  <path>{self.folder}/data/</path><tmp_path>{self.folder}/tmp/</tmp_path>
  <mark_cache_size>5368709</mark_cache_size><users_config>users.xml</users_config>
  <default_profile>default</default_profile><default_database>default</default_database>
</yandex>""")
        user, password = self.user
        (self.folder / "users.xml").write_text(f"""<yandex><profiles><default/></profiles><quotas><default/></quotas><users>
  <{user}><password>{password}</password><networks><ip>127.0.0.1</ip></networks>
    <profile>default</profile><quota>default</quota></{user}>
</users></yandex>""")
        libraries = [tools / part / "x86_64-linux-gnu" for part in ("usr/lib", "lib")]
        environment = os.environ | {"LD_LIBRARY_PATH": ":".join(map(str, libraries))}
        program = tools / "usr/sbin/clickhouse-server"
        words = [program, f"--config-file={self.folder}/config.xml"]
        return Process(words, self.folder / "output", env=environment, cwd=self.folder)

    def start(self):
        super().start()
        self.query("CREATE DATABASE IF NOT EXISTS usage", database=None)


class Today(ClickHouse):
    """Today's ClickHouse, as chdb-core has it."""

    def launch(self):
        words = [sys.executable, HERE / "today.py", self.folder / "data", self.port]
        return Process(words, self.folder / "output", cwd=self.folder)

    def start(self):
        super().start()
        self.query("CREATE DATABASE IF NOT EXISTS usage ENGINE = Atomic", database=None)


class Postgres:
    """A PostgreSQL server on a socket."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True)
        programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1]
        # PostgreSQL does not run as root.
        self.user = {"user": "postgres", "group": "postgres"} if os.getuid() == 0 else {}
        if self.user:
            shutil.chown(folder, "postgres", "postgres")
            for parent in folder.parents[:-1]:
                if parent.stat().st_mode & 0o001 == 0:
                    parent.chmod(parent.stat().st_mode | 0o011)
        self.data = folder / "data"
        initdb = [programs / "initdb", "-D", self.data, "-U", "postgres", "--auth=trust", "--no-sync"]
        subprocess.run([str(word) for word in initdb], check=True, stdout=subprocess.DEVNULL, cwd="/", **self.user)
        self.port = free_port()
        words = [programs / "postgres", "-D", self.data, "-p", self.port, "-c", "listen_addresses=127.0.0.1",
                 "-c", f"unix_socket_directories={folder}", "-c", "fsync=off"]
        self.process = Process(words, folder.parent / "postgres.log", cwd="/", **self.user)
        self.programs = programs
        until("PostgreSQL answers", lambda: self.sql("SELECT 1", check=False) == "1")
        self.url = f"postgres://postgres@127.0.0.1:{self.port}/postgres"

    def sql(self, sql, check=True):
        words = [self.programs / "psql", "-h", "127.0.0.1", "-p", self.port, "-U", "postgres", "-AtX", "-F", "\t", "-c", sql]
        done = subprocess.run([str(word) for word in words], text=True, capture_output=True)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout.strip()

    def stop(self):
        # SIGTERM waits for sessions.
        self.process.signal(signal.SIGINT)
        self.process.process.wait(20)


class Gateway:
    """A gateway that exports, and the simulated model behind it."""

    def __init__(self, folder, model_url, store, clickhouse, credential=CREDENTIAL, **more):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        config = {
            "listen": f"127.0.0.1:{self.port}",
            "data_dir": str(folder / "data"),
            "store": store | {
                "clickhouse": {"url": clickhouse.url, "database": "usage", "credential": {"env": "CLICKHOUSE_CREDENTIAL"}},
            } | more,
            "admin": {"token": {"env": "FAIRGATE_ADMIN_TOKEN"}},
            "upstreams": [{"name": "sim", "url": model_url, "slots": 32}],
            "pools": [{"name": "sim", "models": ["sim"], "workers": ["sim"]}],
            "prices": {"currency": "EUR", "models": [{"model": "sim", "input": 1.37, "output": 7.913}]},
            "groups": [{"name": "people"}],
            "tenants": [{"name": "chat", "group": "people", "limits": {"tokens_per_day": 1_000_000_000}}],
            "keys": [{"name": "k", "tenant": "chat", "secret": {"env": "TENANT_KEY"}}],
        }
        self.config = folder / "fairgate.yaml"
        self.config.write_text(json.dumps(config))
        self.environment = os.environ | {
            "FAIRGATE_ADMIN_TOKEN": TOKEN, "TENANT_KEY": KEY, "CLICKHOUSE_CREDENTIAL": credential, "FAIRGATE_URL": self.url,
        }
        self.process = None

    def start(self):
        words = [Path(variable("FAIRGATE_PROGRAMS")) / "fairgate", "serve", "--config", self.config]
        self.process = Process(words, self.folder / "log", env=self.environment, cwd=self.folder)
        until(lambda: self.process.log.read_text()[-3000:], self.answers)

    def answers(self):
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as response:
                return json.load(response)["ready"]
        except OSError:
            return False

    def readiness(self):
        with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as response:
            return json.load(response)

    def metric(self, name):
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=5) as response:
            lines = response.read().decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))

    def cli(self, *words):
        program = Path(variable("FAIRGATE_PROGRAMS")) / "fairgate"
        words = [str(program), *map(str, words)]
        return subprocess.run(words, text=True, capture_output=True, env=self.environment, cwd=self.folder, timeout=120)

    def ask(self, text, tokens=None, seconds=20):
        body = {"model": "sim", "messages": [{"role": "user", "content": text}], "stream": bool(len(text) % 2)}
        if tokens:
            body["max_tokens"] = tokens
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        return post(f"{self.url}/v1/chat/completions", json.dumps(body).encode(), headers, seconds)

    def kill(self):
        self.process.kill()

    def stop(self):
        if self.process:
            self.process.stop()


class Load:
    """Clients that send requests until they are stopped, whatever happens to the gateway."""

    def __init__(self, gateway, clients=6):
        self.gateway, self.asked, self.served, self.stopped = gateway, 0, 0, False
        self.threads = [threading.Thread(target=self.run, args=(number,), daemon=True) for number in range(clients)]
        for thread in self.threads:
            thread.start()

    def run(self, client):
        number = 0
        while not self.stopped:
            number += 1
            self.asked += 1
            try:
                self.gateway.ask(f"client {client} asks {number}: " + "word " * (number % 40))
                self.served += 1
            except OSError:
                time.sleep(0.05)
            except Exception:  # A response that was cut off by a kill.
                time.sleep(0.05)

    def stop(self):
        self.stopped = True
        for thread in self.threads:
            thread.join(30)


@pytest.fixture
def started(tmp_path):
    """Stops what a test has started, the last one first."""
    processes = []

    def start(process):
        processes.append(process)
        if hasattr(process, "start"):
            process.start()
        return process

    yield start
    for process in reversed(processes):
        process.stop()


@pytest.fixture
def model(started, tmp_path):
    """The URL of a simulated model, whose answers take about a third of a second."""
    port = free_port()
    program = Path(variable("FAIRGATE_PROGRAMS")) / "fairgate-sim"
    words = [program, "--listen", f"127.0.0.1:{port}", "--slots", "32", "--decode-us-per-token", "4000", "--steering"]
    started(Process(words, tmp_path / "model.log"))
    url = f"http://127.0.0.1:{port}"

    def answers():
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        except OSError:
            return False

    until("the simulated model answers", answers)
    return url
