//! State of an export, for metrics and readiness.

/// State of an export, as one gateway knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportStatus {
    /// True if this gateway exports. If false, another gateway exports, or none.
    pub is_active: bool,
    /// Rows that were not sent yet. An upper bound, because some row numbers have no row.
    pub backlog_rows: u64,
    /// Age of the oldest row that was not sent yet, in seconds since the end of its attempt; 0 if there is none.
    pub backlog_seconds: u64,
    /// Rows that this gateway has sent and ClickHouse has accepted. A row that was sent again counts again.
    pub rows_sent: u64,
    /// Steps that failed and were tried again.
    pub failures: u64,
    /// Rows that left the ledger before they were sent, because they waited too long.
    pub rows_dropped: u64,
    /// Reason why nothing is exported now; `None` if the last step went well.
    pub problem: Option<&'static str>,
}

impl ExportStatus {
    /// Returns the warning of `/readyz`; `None` unless the last step failed.
    pub fn warning(&self) -> Option<String> {
        let problem = self.problem?;
        Some(format!(
            "the ledger is not exported: {problem}; rows wait in the ledger, about {} of them, the oldest for {} s (the log \
             has more)",
            self.backlog_rows, self.backlog_seconds
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_alone_is_no_warning() {
        let mut status =
            ExportStatus { backlog_rows: 7, backlog_seconds: 12, ..Default::default() };
        assert_eq!(status.warning(), None);
        status.problem = Some("ClickHouse does not answer");
        let warning = status.warning().unwrap_or_default();
        assert!(warning.contains("does not answer") && warning.contains("7 of them"), "{warning}");
    }
}
