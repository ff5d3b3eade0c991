//! A disk without room, then kill -9: what was acknowledged is there, and what cannot be kept is refused.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use fairgate_store::StoreError;

use crate::crash::{all_rows, say};
use crate::database::{Kind, open_next, options, run, run_alone};
use crate::rows::{after, attempt, budgets, day, tenant};

const URL: &str = "FAIRGATE_STORE_FULL_URL";
const REFUSED: u32 = 100;

/// The child: records until a hundred rows were refused.
#[test]
#[ignore = "the child process of the test below"]
fn child() {
    let Ok(url) = std::env::var(URL) else { return };
    run_alone(async {
        let store = open_next(&url, options()).await;
        let mut refused = 0;
        for number in 0_u32.. {
            let mut row = attempt(&format!("r{number}"), "chat", "k", 3);
            row.started_at = after(number.into());
            match store.record(row).await {
                Ok(()) => say(&format!("recorded r{number}")),
                Err(StoreError::Unrecorded(_)) if refused < REFUSED => refused += 1,
                Err(StoreError::Unrecorded(_)) => break,
                Err(other) => panic!("{other:?}"),
            }
        }
        say(&format!("full {}", store.can_record()));
        std::future::pending::<()>().await;
    });
}

#[test]
fn what_was_acknowledged_outlives_a_full_disk_and_a_kill() {
    run(Kind::Sqlite, |database| async move {
        let store = database.open().await;
        tenant(&store, "chat", budgets(Some(1_000_000), None)).await;
        store.close().await.unwrap();
        // No file of the child may be larger than 512 KiB: its writes fail beyond that, as on a full disk.
        let script = "trap '' XFSZ; ulimit -f 1024; exec \"$@\"";
        let mut child = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(std::env::current_exe().unwrap())
            .args(["full_disk::child", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(URL, &database.url)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut acknowledged = BTreeSet::new();
        let mut is_full = None;
        for line in BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap) {
            match line.split_once(' ') {
                Some(("recorded", request)) => drop(acknowledged.insert(request.to_owned())),
                Some(("full", can_record)) => {
                    is_full = Some(can_record == "false");
                    child.kill().unwrap();
                }
                _ => {}
            }
        }
        child.wait().unwrap();
        assert_eq!(
            is_full,
            Some(true),
            "who asks whether a row would be kept is told that it would not"
        );
        let store = database.open().await;
        let rows = all_rows(&store).await;
        let found: BTreeSet<_> = rows.iter().map(|row| row.request.clone()).collect();
        assert!(acknowledged.is_subset(&found), "{:?}", acknowledged.difference(&found));
        assert_eq!(found.len(), rows.len(), "none is there twice");
        assert_eq!(day(&store, "chat").await, (3 * rows.len() as u64, 0));
        println!("{} acknowledged, {} in the ledger", acknowledged.len(), rows.len());
        assert!(acknowledged.len() > 500);
    });
}
