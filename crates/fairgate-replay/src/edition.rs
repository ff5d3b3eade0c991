//! Journals that were written with another version of the scheduling rules, called edition. The replay uses this
//! program's edition, and says so.

use fairgate_journal::EDITION;
use serde::Serialize;

/// The edition of the scheduling rules that wrote a journal, which differs from this program's edition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OtherEdition {
    /// Edition in the journal's first line; null if the line has none, because the first two editions did not write it.
    machine: Option<u64>,
    /// Edition of the scheduling rules of this program.
    replayed_by: u64,
}

impl OtherEdition {
    /// Records the edition that a journal names, which is not this program's.
    pub(crate) fn new(machine: Option<u64>) -> Self {
        Self { machine, replayed_by: EDITION }
    }

    /// Returns the line for standard error that names both editions.
    pub fn note(self, journal: &str) -> String {
        let writer = match self.machine {
            Some(machine) => format!("decided by edition {machine} of the rules"),
            None => "decided by an earlier edition of the rules, as its first line names none"
                .to_owned(),
        };
        let replayed_by = self.replayed_by;
        format!(
            "fairgate: {journal}: its writer {writer}; this replay decides by edition {replayed_by}, so decisions may differ \
             from those that were made"
        )
    }
}
