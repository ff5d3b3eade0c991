"""The export against ClickHouse itself: what the ledger has is what ClickHouse has, whatever is killed."""

import os
import signal
import sqlite3
import subprocess
import threading
import time

import pytest

from conftest import Debian, Gateway, Load, Postgres, Today, until

SUMS = (
    "SELECT day, COUNT(*), SUM(input_tokens), SUM(output_tokens), SUM(provider_tokens), SUM(money) FROM (SELECT {day} AS day, "
    "attempts.* FROM attempts) AS rows GROUP BY day ORDER BY day"
)


def sqlite_sums(file):
    """Sums of the ledger by day, read from its file."""
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as ledger:
        rows = ledger.execute(SUMS.format(day="date(started_at / 1000000, 'unixepoch')")).fetchall()
    return "\n".join("\t".join(map(str, row)) for row in rows)


def postgres_sums(postgres):
    day = "to_char(to_timestamp(started_at / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD')"
    return postgres.sql(SUMS.format(day=day))


def compared(gateway, seconds):
    """Waits until everything was sent and compared, and returns the table of `export check`."""

    def attempt():
        done = gateway.cli("export", "check", "--days", "2")
        return done if done.returncode == 0 and "not compared" not in done.stdout else None

    def last():
        done = gateway.cli("export", "check", "--days", "2")
        return f"{done.stdout}{done.stderr}\n{gateway.process.log.read_text()[-3000:]}"

    table = until(last, attempt, seconds).stdout
    assert "differ" not in table
    return table


def outcomes(clickhouse):
    sql = "SELECT outcome, sum(1) FROM fairgate_attempts FINAL WHERE removed = 0 GROUP BY outcome ORDER BY outcome FORMAT TabSeparated"
    return dict(line.split("\t") for line in clickhouse.query(sql).splitlines())


def killed_rounds(gateway, clickhouse, rounds):
    """Kills the gateway and ClickHouse in turn while requests are under way, and starts them again."""
    load = Load(gateway)
    for number in range(rounds):
        time.sleep(1.5 + 0.3 * (number % 4))
        victim = (gateway, clickhouse)[number % 2]
        victim.kill()
        time.sleep(0.2 * (number % 3))
        victim.start()
    load.stop()
    assert load.served > 20 * rounds / 4, (load.asked, load.served)
    return load


@pytest.mark.parametrize("server", [Debian, Today])
def test_sums_are_equal_after_kills_of_each_on_sqlite(server, started, model, tmp_path):
    clickhouse = started(server(tmp_path / "clickhouse"))
    gateway = started(Gateway(tmp_path / "gateway", model, {}, clickhouse))
    rounds = 12 if server is Debian else 4
    load = killed_rounds(gateway, clickhouse, rounds)
    table = compared(gateway, 60)
    gateway.stop()
    ledger = sqlite_sums(tmp_path / "gateway/data/fairgate.db")
    assert clickhouse.sums() == ledger and ledger
    found = outcomes(clickhouse)
    print(f"{server.__name__}: {rounds} kills, {load.served} answers, outcomes {found}\n{ledger}\n{table}")
    assert int(found["lost"]) > 0, "some requests were under way when the gateway was killed"


def test_sums_are_equal_after_kills_and_replaced_guesses_on_postgresql(started, model, tmp_path):
    postgres = started(Postgres(tmp_path / "postgres"))
    clickhouse = started(Debian(tmp_path / "clickhouse"))
    store = {"url": postgres.url}
    first = started(Gateway(tmp_path / "first", model, store, clickhouse))
    killed_rounds(first, clickhouse, 4)
    # A second gateway is stopped in the middle of answers, for longer than its lease. The first takes its requests for
    # lost, and exports the guesses; then the second wakes up and writes what really was.
    until("the first one exports", lambda: first.metric("fairgate_export_active") == 1)
    second = started(Gateway(tmp_path / "second", model, store, clickhouse))
    assert second.metric("fairgate_export_active") == 0
    # What the killed processes had reserved is resolved when their leases have run out.
    reserved, lost = "SELECT COUNT(*) FROM reservations", "SELECT COUNT(*) FROM attempts WHERE outcome = 'lost'"
    until("leases have run out", lambda: int(postgres.sql(reserved)) == 0, 90)
    before = int(postgres.sql(lost))
    until("guesses are exported", lambda: int(outcomes(clickhouse).get("lost", 0)) == before)
    asked = [threading.Thread(target=ask_slowly, args=(second, number)) for number in range(5)]
    for thread in asked:
        thread.start()
    until("they are under way", lambda: int(postgres.sql(reserved)) >= 5)
    second.process.signal(signal.SIGSTOP)
    until("they are taken for lost, and exported", lambda: int(outcomes(clickhouse).get("lost", 0)) >= before + 5, 120)
    second.process.signal(signal.SIGCONT)
    for thread in asked:
        thread.join(60)
    until("the guesses are replaced", lambda: int(postgres.sql(lost)) == before, 60)
    table = compared(first, 240)
    ledger = postgres_sums(postgres)
    assert clickhouse.sums() == ledger and ledger
    found = outcomes(clickhouse)
    print(f"outcomes {found}, lost before {before}\n{ledger}\n{table}")
    assert int(found.get("lost", 0)) == int(postgres.sql(lost))


def ask_slowly(gateway, number):
    try:
        gateway.ask(f"slowly {number} [sim:tokens=1500]", tokens=1500, seconds=100)
    except OSError:
        pass


def test_a_full_disk_of_clickhouse_delays_rows_and_loses_none(started, model, tmp_path):
    folder = tmp_path / "clickhouse"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"this machine mounts no tmpfs: {mounted.stderr.decode().strip()}")
    try:
        full_disk(started, model, tmp_path, folder)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def full_disk(started, model, tmp_path, folder):
    clickhouse = started(Debian(folder))
    gateway = started(Gateway(tmp_path / "gateway", model, {}, clickhouse))
    load = Load(gateway)
    until("rows arrive", lambda: gateway.metric("fairgate_export_rows_total") > 20)
    filler = folder / "filler"
    try:
        with filler.open("wb") as out:
            while True:
                out.write(bytes(1 << 16))
                out.flush()
    except OSError:
        pass
    until("the disk is full", lambda: os.statvfs(folder).f_bavail == 0)
    until("inserts are refused", lambda: gateway.metric("fairgate_export_failures_total") > 0, 60)
    served = load.served
    until("requests are served all the same", lambda: load.served > served + 20)
    warnings = " ".join(gateway.readiness()["warnings"])
    assert gateway.readiness()["ready"] and "the ledger is not exported" in warnings, warnings
    assert gateway.metric("fairgate_export_backlog_rows") > 0
    filler.unlink()
    load.stop()
    table = compared(gateway, 150)
    gateway.stop()
    ledger = sqlite_sums(tmp_path / "gateway/data/fairgate.db")
    assert clickhouse.sums() == ledger and ledger
    print(f"{ledger}\n{table}\n{warnings}")


def test_what_clickhouse_refuses_is_named(started, model, tmp_path):
    clickhouse = started(Debian(tmp_path / "clickhouse"))
    gateway = started(Gateway(tmp_path / "gateway", model, {}, clickhouse, credential="fairgate:not-s3cret-at-all"))
    gateway.ask("one")
    log = gateway.process.log.read_text
    until("the password is refused", lambda: "refuses the user or the password" in log())
    assert "s3cret" not in log(), "no password is logged"
    done = gateway.cli("export", "check")
    assert done.returncode == 1 and "refuses the user or the password" in done.stderr, done
    gateway.stop()
    clickhouse.query("CREATE TABLE fairgate_attempts (day Date, tenant String, charged UInt8) ENGINE = Memory")
    gateway = started(Gateway(tmp_path / "table", model, {}, clickhouse))
    gateway.ask("one")
    for part in ["its engine is Memory, not ReplacingMergeTree", "the column charged is UInt8, not UInt64",
                 "the column money_micro UInt64 is missing"]:
        until(lambda part=part: f"{part}: {log()}", lambda part=part: part in gateway.process.log.read_text())
    done = gateway.cli("export", "check")
    assert done.returncode == 1 and "money_micro UInt64 is missing" in done.stderr, done
    clickhouse.query("DROP TABLE fairgate_attempts")
    compared(gateway, 90)


@pytest.mark.parametrize("server", [Debian, Today])
def test_the_printed_statement_makes_the_table(server, started, model, tmp_path):
    clickhouse = started(server(tmp_path / "clickhouse"))
    gateway = Gateway(tmp_path / "gateway", model, {}, clickhouse)
    statement = gateway.cli("export", "table").stdout
    clickhouse.query(statement.strip().rstrip(";"))
    started(gateway)
    gateway.ask("one")
    table = compared(gateway, 30)
    assert " 1 " in table, table
    print(clickhouse.query("SELECT version()", database=None), table)
