//! Snapshots, and the change to another generation.
//!
//! A member looks at the row of the cluster every 2 s, and every 200 ms while a generation ends. When its protocol needs
//! another generation, it writes its report beside the row. Two seconds later, or as soon as all members that are live
//! in its replica have reported, the process whose state is chosen begins the next generation. If that process does not
//! do it within 3 s, its report no longer counts, and another one is chosen. The row decides if two try.

use std::time::Duration;

use fairgate_replica::{GenerationReport, LogPosition, SnapshotError, choose_base, snapshot_hash};
use tokio::time::Instant;

use super::MemberTask;
use super::row_calls::{RowAnswer, RowCall};
use crate::cluster_log::{ClusterLogError, GenerationState, StoredReport, StoredSnapshot};

/// Time between two looks at the row of the cluster.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Time between two looks while a generation ends, or after a call that has failed.
const LOOK_SOON: Duration = Duration::from_millis(200);

/// Time after which the next generation begins without the reports of some live members.
const REPORTS_PATIENCE: Duration = Duration::from_secs(2);

/// State of the change to another generation.
pub(super) struct GenerationChange {
    next_look: Instant,
    is_looking: bool,
    is_loading: bool,
    /// State that this member offers as the base; `None` if no generation ends.
    report: Option<GenerationReport>,
    log_end: LogPosition,
}

impl GenerationChange {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            next_look: now + LOOK_EVERY,
            is_looking: false,
            is_loading: false,
            report: None,
            log_end: LogPosition(0),
        }
    }

    pub(super) fn is_ending(&self) -> bool {
        self.report.is_some()
    }

    pub(super) fn next_look(&self) -> Instant {
        self.next_look
    }

    /// Returns the end of the log, as it was read last.
    pub(super) fn log_end(&self) -> LogPosition {
        self.log_end
    }
}

impl MemberTask {
    /// Notes the generation in force. Returns false if records of an answer do not concern this member now.
    pub(super) fn take_generation(&mut self, in_force: u64, is_ending: bool) -> bool {
        let own = self.protocol.replica().machine().generation();
        if in_force > own {
            self.load_snapshot(None);
        } else if in_force == own && is_ending && !self.generation.is_ending() {
            self.protocol.suspend("another member asks for the next generation".to_owned());
        }
        in_force == own && !self.generation.is_loading
    }

    pub(super) fn note_log_end(&mut self, end: LogPosition) {
        self.generation.log_end = end;
    }

    /// Offers the state of this member as the base of the next generation.
    pub(super) fn begin_to_end(&mut self, report: GenerationReport, reason: &str) {
        let (generation, position) = (report.generation, report.position.0);
        tracing::warn!(
            generation,
            position,
            "nothing is granted until the cluster's next generation: {reason}"
        );
        self.generation.report = Some(report);
        self.generation.next_look = Instant::now();
    }

    /// Looks at the row of the cluster if it is time.
    pub(super) fn look_at_generation(&mut self) {
        let now = Instant::now();
        if now < self.generation.next_look {
            return;
        }
        let pause = if self.generation.is_ending() { LOOK_SOON } else { LOOK_EVERY };
        self.generation.next_look = now + pause;
        if self.generation.is_looking {
            return;
        }
        if let Some(report) = self.generation.report {
            let process = self.process.to_string();
            self.call_rows(RowCall::Report(StoredReport { process, report }));
        }
        self.generation.is_looking = self.call_rows(RowCall::State);
    }

    fn look_soon(&mut self) {
        self.generation.next_look = Instant::now() + LOOK_SOON;
    }

    pub(super) fn take_row_answer(&mut self, answer: RowAnswer) {
        match answer {
            RowAnswer::State(state) => {
                self.generation.is_looking = false;
                match state {
                    Ok(state) => self.take_state(&state),
                    Err(error) => self.row_failed(&error),
                }
            }
            RowAnswer::Begun(Ok(_)) => self.generation.next_look = Instant::now(),
            RowAnswer::Stored { snapshot, stored } => match stored {
                Ok(true) => {
                    let StoredSnapshot { position, hash, generation, .. } = snapshot;
                    if generation == self.protocol.replica().machine().generation() {
                        self.protocol.snapshot_stored(position, hash);
                    }
                }
                Ok(false) => {}
                Err(error) => self.row_failed(&error),
            },
            RowAnswer::Loaded(loaded) => {
                self.generation.is_loading = false;
                match loaded {
                    Ok(Some(snapshot)) => self.restore(snapshot),
                    Ok(None) => self.fail(
                        "no snapshot of the cluster can be used: stop all of its gateways, then remove the cluster \
                         from the database"
                            .to_owned(),
                    ),
                    Err(error) => self.row_failed(&error),
                }
            }
            RowAnswer::Begun(Err(error)) | RowAnswer::Failed(error) => self.row_failed(&error),
        }
    }

    fn row_failed(&mut self, error: &ClusterLogError) {
        self.note_trouble(error);
        self.look_soon();
    }

    fn take_state(&mut self, state: &GenerationState) {
        let is_ending = state.ending_for.is_some();
        if state.generation < self.protocol.replica().machine().generation() {
            return self.replace_generation(state.generation);
        }
        if !self.take_generation(state.generation, is_ending) || !self.generation.is_ending() {
            return;
        }
        let machine = self.protocol.replica().machine();
        let own = machine.generation();
        let live = machine.members().filter(|it| it.is_live()).count().max(1);
        let is_due = state.reports.len() >= live
            || state.ending_for.is_some_and(|since| since >= REPORTS_PATIENCE);
        if is_due && chosen_process(own, &state.reports) == Some(&*self.process) {
            let base = self.protocol.base_for(own + 1);
            tracing::warn!(generation = own + 1, "this member's state begins the next generation");
            self.call_rows(RowCall::Begin { ended: own, next: own + 1, base });
        }
    }

    /// Begins a generation with this member's state, because the database has gone back to an earlier one, such as by
    /// the failover to a standby that lacks the last change. Nobody can report about a generation that is gone, so the
    /// first member that notices it begins the next one.
    fn replace_generation(&mut self, in_force: u64) {
        let own = self.protocol.replica().machine().generation();
        self.protocol.suspend(format!(
            "generation {own} is gone from the database, which has generation {in_force}"
        ));
        let base = self.protocol.base_for(own + 1);
        self.call_rows(RowCall::Begin { ended: in_force, next: own + 1, base });
    }

    /// Stores a snapshot of this member, whose turn it is.
    pub(super) fn store_snapshot(&mut self, position: LogPosition, bytes: Vec<u8>) {
        let generation = self.protocol.replica().machine().generation();
        let hash = snapshot_hash(&bytes);
        let snapshot = StoredSnapshot { generation, position, hash, bytes };
        if !self.call_rows(RowCall::StoreSnapshot(snapshot)) {
            tracing::warn!(position = position.0, "a snapshot of the cluster is left out");
        }
    }

    /// Loads the newest snapshot, or the newest one before a place.
    pub(super) fn load_snapshot(&mut self, before: Option<LogPosition>) {
        if !self.generation.is_loading {
            self.generation.is_loading = self.call_rows(RowCall::LoadSnapshot { before });
        }
    }

    /// Begins again from a snapshot, of this generation or of a later one.
    fn restore(&mut self, snapshot: StoredSnapshot) {
        let StoredSnapshot { generation, position, hash, bytes } = snapshot;
        let own = self.protocol.replica().machine().generation();
        let restored = if snapshot_hash(&bytes) != hash {
            Err(SnapshotError::Bad { line: 1, problem: "the hash is not that of the bytes".into() })
        } else if generation > own {
            self.protocol.begin_generation(bytes, self.clock.now())
        } else {
            self.protocol.restart(bytes)
        };
        match restored {
            Ok(()) => {
                if generation > own {
                    tracing::warn!(generation, "the cluster's next generation has begun");
                    self.generation.report = None;
                }
                self.observer.restored(self.protocol.replica().machine());
                self.move_cursor(true);
            }
            Err(error @ SnapshotError::UnknownVersion { .. }) => self.fail(error.to_string()),
            Err(error @ SnapshotError::Bad { .. }) => {
                tracing::error!(position = position.0, "a snapshot cannot be used: {error}");
                self.load_snapshot(Some(position));
            }
        }
    }
}

/// Returns the process whose state begins the next generation. If several processes have the same number, it is the one
/// of these that has applied the most, and among those the first by id.
fn chosen_process(generation: u64, reports: &[StoredReport]) -> Option<&str> {
    let states: Vec<GenerationReport> = reports.iter().map(|it| it.report).collect();
    let base = choose_base(generation, &states)?;
    let of_base =
        reports.iter().filter(|it| it.report.generation == generation && it.report.member == base);
    let first = of_base.min_by_key(|it| (std::cmp::Reverse(it.report.position), &it.process))?;
    Some(&first.process)
}

#[cfg(test)]
mod tests {
    use fairgate_replica::{MemberNumber, ShortHash};

    use super::*;

    fn report(process: &str, member: u64, position: u64) -> StoredReport {
        let report = GenerationReport {
            member: MemberNumber(member),
            generation: 4,
            position: LogPosition(position),
            hash: ShortHash([0; 8]),
        };
        StoredReport { process: process.to_owned(), report }
    }

    #[test]
    fn one_process_is_chosen_even_among_those_without_a_number() {
        let reports = [report("b", 0, 7), report("c", 0, 7), report("a", 0, 3), report("d", 2, 6)];
        assert_eq!(chosen_process(4, &reports), Some("b"));
        assert_eq!(chosen_process(5, &reports), None);
        assert_eq!(chosen_process(4, &reports[2..]), Some("d"));
    }
}
