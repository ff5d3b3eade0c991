//! What only PostgreSQL can be asked: several gateways on one database, and a server that goes away.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fairgate_store::{
    AttemptOutcome, AttemptRow, BudgetOwners, DirectoryLimits, Store, StoreError, StoreOptions,
};
use fairgate_testkit::postgres_server::shared_server;

use crate::database::number;
use crate::database::{Database, Kind, run};
use crate::ledger::of_request;
use crate::rows::{NOW, attempt, budgets, day, key, of_key, reservation, tenant};

/// Breaks all connections to a database, as a restart would.
async fn disconnect(database: &Database) {
    let sql = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}'",
        database.name
    );
    shared_server().run("postgres", &sql).await.unwrap();
}

async fn allow_connections(database: &Database, allow: bool) {
    let sql = format!("ALTER DATABASE {} ALLOW_CONNECTIONS {allow}", database.name);
    shared_server().run("postgres", &sql).await.unwrap();
}

#[test]
fn gateways_that_share_a_budget_never_get_over() {
    run(Kind::Postgres, |database| async move {
        let stores = [database.open().await, database.open().await, database.open().await];
        tenant(&stores[0], "chat", budgets(Some(2_000), None)).await;
        let keys = [
            key(&stores[0], "chat", budgets(Some(900), None)).await,
            key(&stores[0], "chat", DirectoryLimits::default()).await,
        ];
        let mut asked = Vec::new();
        for number in 0..600_usize {
            let (store, key) = (stores[number % 3].clone(), keys[number % 2].clone());
            asked.push(tokio::spawn(async move {
                let request = format!("r{number}");
                let held = reservation(&request, "chat", &key, 11);
                let yes = store.reserve(held).await.unwrap().is_ok();
                // Every third of those that got in ends at once, and uses a little.
                if yes && number % 3 == 0 {
                    store.record(attempt(&request, "chat", &key, 2)).await.unwrap();
                    return (2, 0);
                }
                (0, if yes { 11 } else { 0 })
            }));
        }
        let mut expected = (0, 0);
        for asked in asked {
            let (used, reserved) = asked.await.unwrap();
            expected = (expected.0 + used, expected.1 + reserved);
        }
        // Whoever reads brings in its own rows, not those of others.
        for store in &stores {
            day(store, "chat").await;
        }
        let standing = day(&stores[1], "chat").await;
        assert_eq!(standing, expected);
        assert!(standing.0 + standing.1 <= 2_000, "{standing:?}");
        let left = stores[2].budgets(of_key("chat", &keys[0]), NOW).await.unwrap();
        assert!(left[1].used + left[1].reserved <= 900);
        // What one of them changes, the others see.
        let version = stores[0].directory_version().await.unwrap();
        tenant(&stores[0], "new", DirectoryLimits::default()).await;
        assert!(stores[2].directory_version().await.unwrap() > version);
    });
}

#[test]
fn many_gateways_can_start_at_once() {
    run(Kind::Postgres, |database| async move {
        let starts: Vec<_> = (0..8)
            .map(|number| {
                let (url, spool) = (database.url.clone(), Some(database.spool(number)));
                let options = StoreOptions { spool, ..StoreOptions::default() };
                tokio::spawn(async move { Store::open(&url, options).await })
            })
            .collect();
        for start in starts {
            start.await.unwrap().unwrap().0.ping().await.unwrap();
        }
    });
}

#[test]
fn abandoned_reservations_are_resolved_once_and_the_paused_process_corrects_them() {
    run(Kind::Postgres, |database| async move {
        let paused = database.open().await;
        tenant(&paused, "chat", budgets(Some(100_000), None)).await;
        for number in 0..700 {
            let held = reservation(&format!("r{number}"), "chat", "k", 10);
            paused.reserve(held).await.unwrap().unwrap();
        }
        // As if it had given no sign of life for long.
        shared_server().run(&database.name, "DELETE FROM instances").await.unwrap();
        let (one, other) = tokio::join!(database.try_open(), database.try_open());
        let ((one, of_one), (other, of_other)) = (one.unwrap(), other.unwrap());
        assert_eq!(of_one.reservations + of_other.reservations, 700);
        assert_eq!(of_one.tokens + of_other.tokens, 7_000);
        assert_eq!(day(&one, "chat").await, (7_000, 0));
        // It comes back: what it settles is settled once, and as it really was.
        let real = attempt("r5", "chat", "k", 3);
        paused.record(real.clone()).await.unwrap();
        assert_eq!(day(&paused, "chat").await, (6_993, 0));
        assert_eq!(of_request(&one, "r5").await, [real]);
        let retried = crate::rows::retried("r6", "chat", "k", 1);
        let last = AttemptRow { attempt: 2, ..attempt("r6", "chat", "k", 4) };
        paused.record(retried).await.unwrap();
        paused.record(last).await.unwrap();
        assert_eq!(day(&paused, "chat").await, (6_988, 0));
        assert_eq!(day(&other, "chat").await, (6_988, 0));
        let rows = of_request(&one, "r6").await;
        assert!(rows.iter().map(|row| (row.attempt, row.last)).eq([(2, true), (1, false)]));
    });
}

#[test]
fn a_gateway_knows_how_many_others_have_the_database_open() {
    run(Kind::Postgres, |database| async move {
        let one = database.open().await;
        assert_eq!(one.other_gateways().await.unwrap(), 0);
        let (other, third) = (database.open().await, database.open().await);
        assert_eq!(one.other_gateways().await.unwrap(), 2);
        other.close().await.unwrap();
        assert_eq!(
            (one.other_gateways().await.unwrap(), third.other_gateways().await.unwrap()),
            (1, 1)
        );
    });
}

#[test]
fn those_who_live_find_those_who_died() {
    run(Kind::Postgres, |database| async move {
        let lease = Duration::from_millis(300);
        let (living, _) = database.open_with_lease(lease).await;
        tenant(&living, "chat", budgets(Some(100), None)).await;
        living.reserve(reservation("mine", "chat", "k", 1)).await.unwrap().unwrap();
        let sql = "INSERT INTO reservations (request, group_name, tenant, key_id, model, tokens, at, instance, provider_tokens) \
                   VALUES ('dead', 'staff', 'chat', 'k', 'llama', 7, 1794731400000000, 42, 7)";
        shared_server().run(&database.name, sql).await.unwrap();
        tokio::time::timeout(Duration::from_secs(20), async {
            while of_request(&living, "dead").await.is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .expect("the reservation is found");
        assert_eq!(of_request(&living, "dead").await[0].outcome, AttemptOutcome::Lost);
        // Its own are kept, longer than a lease.
        tokio::time::sleep(lease * 2).await;
        assert!(of_request(&living, "mine").await.is_empty());
        living.record(attempt("mine", "chat", "k", 1)).await.unwrap();
    });
}

#[test]
fn broken_connections_are_replaced() {
    run(Kind::Postgres, |database| async move {
        let store = database.open().await;
        tenant(&store, "chat", budgets(Some(1_000), None)).await;
        for round in 0..5 {
            disconnect(&database).await;
            let request = format!("r{round}");
            store.reserve(reservation(&request, "chat", "k", 10)).await.unwrap().unwrap();
            disconnect(&database).await;
            store.record(attempt(&request, "chat", "k", 5)).await.unwrap();
            disconnect(&database).await;
            assert_eq!(day(&store, "chat").await, (5 * (round + 1), 0));
        }
    });
}

#[test]
fn rows_survive_connections_that_break_under_load() {
    run(Kind::Postgres, |database| async move {
        let store = database.open().await;
        tenant(&store, "chat", budgets(Some(1_000_000), None)).await;
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let store = store.clone();
                tokio::spawn(async move {
                    for number in 0..60 {
                        let request = format!("w{writer}-{number}");
                        let held = reservation(&request, "chat", "k", 10);
                        // A reservation may fail: then the request is refused, and its row says so.
                        let held = store.reserve(held).await.is_ok_and(|held| held.is_ok());
                        let charged = if held { 7 } else { 0 };
                        store.record(attempt(&request, "chat", "k", charged)).await.unwrap();
                    }
                })
            })
            .collect();
        while writers.iter().any(|writer| !writer.is_finished()) {
            disconnect(&database).await;
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
        for writer in writers {
            writer.await.unwrap();
        }
        let by = fairgate_store::UsageGrouping::Tenant;
        let query = fairgate_store::UsageQuery {
            by,
            since: fairgate_store::UnixMicros(0),
            until: None,
            tenant: None,
            model: None,
            ..fairgate_store::UsageQuery::default()
        };
        let sum = &store.usage(query).await.unwrap().rows[0];
        assert_eq!(sum.requests, 480);
        // A reservation whose answer was lost is released on its own.
        tokio::time::timeout(Duration::from_secs(10), async {
            while day(&store, "chat").await != (sum.charged, 0) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .expect("nothing stays reserved");
    });
}

#[test]
fn a_server_that_is_away_is_told_and_rows_wait_for_it() {
    run(Kind::Postgres, |database| async move {
        let store = database.open().await;
        tenant(&store, "chat", budgets(Some(1_000), None)).await;
        allow_connections(&database, false).await;
        disconnect(&database).await;
        store.record(attempt("r", "chat", "k", 5)).await.unwrap();
        let away = |it: Result<(), StoreError>| match it {
            Err(StoreError::Database(problem)) => {
                assert!(problem.contains("PostgreSQL"), "{problem}")
            }
            other => panic!("{other:?}"),
        };
        away(store.ping().await);
        away(store.reserve(reservation("r2", "chat", "k", 5)).await.map(drop));
        away(store.directory().await.map(drop));
        let add = fairgate_store::DirectoryChange::AddGroup {
            name: "g".to_owned(),
            weight: 1,
            budgets: Vec::new(),
        };
        away(store.change("test", NOW, add).await.map(drop));
        assert!(matches!(database.try_open().await, Err(StoreError::Database(_))));
        assert_eq!(store.rows_waiting(), 1);
        allow_connections(&database, true).await;
        tokio::time::timeout(Duration::from_secs(10), async {
            while store.ping().await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .expect("it comes back");
        assert_eq!(day(&store, "chat").await, (5, 0));
    });
}

/// A row that the database refuses for what is in it holds up no other; where it refuses all, all are kept.
#[test]
fn a_row_that_is_refused_is_kept_apart() {
    run(Kind::Postgres, |database| async move {
        let store = database.open().await;
        tenant(&store, "chat", budgets(Some(1_000), None)).await;
        let check = |name: &str, what: &str| {
            format!("ALTER TABLE attempts ADD CONSTRAINT {name} CHECK ({what}) NOT VALID")
        };
        let run =
            async |sql: String| drop(shared_server().run(&database.name, &sql).await.unwrap());
        run(check("nothing", "false")).await;
        for request in ["a", "poison", "b"] {
            let mut row = attempt(request, "chat", "k", 1);
            row.model = request.to_owned();
            store.record(row).await.unwrap();
        }
        let refused = store.budgets(BudgetOwners::tenant("chat"), NOW).await;
        assert!(matches!(refused, Err(StoreError::Database(_))), "{refused:?}");
        assert_eq!(store.rows_waiting(), 3);
        run(check("no_poison", "model <> 'poison'")).await;
        run("ALTER TABLE attempts DROP CONSTRAINT nothing".to_owned()).await;
        tokio::time::timeout(Duration::from_secs(20), async {
            while store.rows_waiting() > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .expect("the other rows come in");
        assert_eq!(day(&store, "chat").await, (2, 0));
        assert!(of_request(&store, "poison").await.is_empty());
        let kept = std::fs::read_to_string(database.spool(0).join("rows-refused")).unwrap();
        assert!(kept.contains("\"poison\"") && kept.lines().count() == 1, "{kept}");
    });
}

#[test]
fn a_newer_database_is_left_alone() {
    run(Kind::Postgres, |database| async move {
        database.open().await.close().await.unwrap();
        shared_server()
            .run(&database.name, "INSERT INTO schema_version (version) VALUES (99)")
            .await
            .unwrap();
        let refused = database.try_open().await;
        assert!(matches!(refused, Err(StoreError::TooNew { found: 99, .. })));
    });
}

#[test]
fn bad_addresses_are_told_without_their_password() {
    run(Kind::Postgres, |database| async move {
        let open = async |url: &str| {
            let options =
                StoreOptions { spool: Some(database.spool(0)), ..StoreOptions::default() };
            Store::open(url, options).await.expect_err("no store").to_string()
        };
        let told = open("postgres://u:hunter2@localhost/db?sslmode=prefer").await;
        assert!(told.contains("verify-full") && !told.contains("hunter2"), "{told}");
        let told = open("mysql://u:hunter2@localhost/db").await;
        assert!(told.contains("sqlite:PATH") && !told.contains("hunter2"), "{told}");
        // Nobody listens there.
        let told = open("postgres://u:hunter2@127.0.0.1:1/db").await;
        assert!(told.contains("PostgreSQL") && !told.contains("hunter2"), "{told}");
    });
}

#[test]
fn over_tls_with_a_certificate_that_is_verified() {
    run(Kind::Postgres, |database| async move {
        let (name, port) = (&database.name, shared_server().port());
        let certificate = shared_server().certificate();
        let url =
            |host: &str, rest: &str| format!("postgres://fairgate@{host}:{port}/{name}?{rest}");
        let open = async |url: String| {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let spool = Some(database.spool(NEXT.fetch_add(1, Ordering::Relaxed)));
            Store::open(&url, StoreOptions { spool, ..StoreOptions::default() }).await
        };
        let trusted = format!("sslmode=verify-full&sslrootcert={}", certificate.display());
        let (store, _) = open(url("localhost", &trusted)).await.unwrap();
        store.ping().await.unwrap();
        let sql = "SELECT COUNT(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                   WHERE ssl AND application_name = 'fairgate' AND datname = current_database()";
        let answer = shared_server().run(name, sql).await.unwrap();
        assert!(number(&answer) >= Some(2), "{answer:?}");
        // Another name, or a certificate that nobody vouches for.
        for bad in [url("127.0.0.1", &trusted), url("localhost", "sslmode=require")] {
            assert!(matches!(open(bad).await, Err(StoreError::Database(_))));
        }
        let (plain, _) = open(url("127.0.0.1", "sslmode=disable")).await.unwrap();
        plain.ping().await.unwrap();
    });
}

#[test]
fn gateways_that_share_a_database_share_its_secrets() {
    run(Kind::Postgres, |database| async move {
        let stores = [database.open().await, database.open().await, database.open().await];
        let [a, b, c] = &stores;
        let asked = tokio::join!(
            a.installation_secret("salts"),
            b.installation_secret("salts"),
            c.installation_secret("salts"),
        );
        let first = asked.0.unwrap();
        assert_eq!((first, first), (asked.1.unwrap(), asked.2.unwrap()));
        for store in &stores {
            store.close().await.unwrap();
        }
    });
}
