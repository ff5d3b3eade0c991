use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use super::*;

const BEGIN: &str = "<!-- table of refusal codes: begin -->\n";
const END: &str = "<!-- table of refusal codes: end -->\n";

/// Returns the table of codes for `docs/gateway.md`, ordered by status.
fn table() -> String {
    let mut codes = RefusalCode::ALL.to_vec();
    codes.sort_by_key(|code| code.status_number());
    let mut table = String::from("| status | code | meaning | try again |\n|--:|---|---|---|\n");
    for code in codes {
        let again = match code.retry() {
            RetryRule::Pointless => "no".to_owned(),
            RetryRule::PointlessBefore => format!("no; {}", code.wait()),
            RetryRule::Unstated => "not stated".to_owned(),
            RetryRule::After(time) => format!("{} s", time.as_secs()),
            RetryRule::Computed => code.wait().to_owned(),
        };
        let (status, text) = (code.status_number(), code.as_str());
        writeln!(table, "| {status} | `{text}` |{} | {again} |", code.meaning()).unwrap();
    }
    table
}

#[test]
fn the_table_in_the_documentation_is_made_from_the_codes() {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/gateway.md"));
    let document = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = document.split_once(BEGIN).expect("the table's begin");
    let (shown, after) = rest.split_once(END).expect("the table's end");
    let table = table();
    if shown == table {
        return;
    }
    if std::env::var_os("FAIRGATE_UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
        return;
    }
    let (shown, made): (HashSet<&str>, HashSet<&str>) =
        (shown.lines().collect(), table.lines().collect());
    panic!(
        "docs/gateway.md differs from RefusalCode; make its table again with\n\
         FAIRGATE_UPDATE_DOCS=1 cargo test -p fairgate-proxy --lib refusal::code\n\
         only in the documentation: {:#?}\nmissing there: {:#?}",
        shown.difference(&made).collect::<Vec<_>>(),
        made.difference(&shown).collect::<Vec<_>>()
    );
}

#[test]
fn a_computed_wait_is_described_and_no_other() {
    for code in RefusalCode::ALL {
        let computed = matches!(code.retry(), RetryRule::Computed | RetryRule::PointlessBefore);
        assert_eq!(!code.wait().is_empty(), computed, "{code:?}");
    }
}

#[test]
fn codes_with_one_text_differ_in_status_or_retry_rule() {
    let mut seen = HashSet::new();
    for code in RefusalCode::ALL {
        let rule = format!("{:?}", code.retry());
        assert!(seen.insert((code.as_str(), code.status_number(), rule)), "{code:?}");
        assert_eq!(code.status().as_u16(), code.status_number(), "{code:?} has a valid status");
    }
}

#[test]
fn clients_retry_after_server_errors_and_limits_only() {
    for code in RefusalCode::ALL {
        let status = code.status_number();
        let own = matches!(
            code,
            RefusalCode::BudgetExhausted
                | RefusalCode::ProjectBudgetExhausted
                | RefusalCode::TaskCapReached
                | RefusalCode::ProviderOut
                | RefusalCode::NoWorkerAsChosen
                | RefusalCode::DeadlinePassed
        );
        let lasting = (400..500).contains(&status) && !matches!(status, 408 | 429);
        assert_eq!(code.is_retry_pointless(), lasting || own, "{code:?}");
    }
}

#[test]
fn codes_of_other_crates_keep_their_text() {
    for reason in RejectionReason::ALL {
        assert_eq!(RefusalCode::from(reason).as_str(), reason.code());
    }
    for code in InvalidRequestCode::ALL {
        assert_eq!(RefusalCode::from(code).as_str(), code.as_str());
    }
    let (expected_wait, field, problem) = (None, "id", "long");
    let (waited, retry_after) = (Duration::ZERO, Duration::ZERO);
    let others = [
        AdmitError::Expired { waited, limit: waited, expected_wait, retry_after },
        AdmitError::Invalid { field, problem },
        AdmitError::Draining,
        AdmitError::Gone,
    ];
    for error in others {
        assert_eq!(RefusalCode::from(&error).as_str(), error.code());
    }
}

#[test]
fn codes_without_a_response_are_documented() {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/gateway.md"));
    let document = std::fs::read_to_string(path).unwrap();
    let ends = [
        EndCode::ClientLeft,
        EndCode::Drained,
        EndCode::UpstreamStatus,
        EndCode::UpstreamFailed,
        EndCode::InternalError,
        EndCode::LeaseFailed,
    ];
    for end in ends {
        let row = format!("| ledger | `{}` |", end.as_str());
        assert!(document.contains(&row), "{row}");
    }
    let row = format!("| `/metrics` | `{}` |", EndCode::ConnectionBroken.as_str());
    assert!(document.contains(&row), "{row}");
}
