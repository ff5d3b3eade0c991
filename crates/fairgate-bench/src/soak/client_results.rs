//! Results that the clients recorded themselves, to be compared with the ledger.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

/// Result of a request whose answer arrived to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndedAnswer {
    /// Index of the tenant that sent the request.
    pub(super) tenant: usize,
    pub(super) status: u16,
    /// Error code in the answer, or in an event of a streamed answer.
    pub(super) code: Option<String>,
    pub(super) at: Instant,
}

impl EndedAnswer {
    /// Returns whether the gateway refused the request because it could not keep a row or check a
    /// budget.
    pub(super) fn is_store_unavailable(&self) -> bool {
        self.code.as_deref() == Some("store_unavailable")
    }

    /// Formats the answer's status and error code.
    pub(super) fn describe(&self) -> String {
        match &self.code {
            Some(code) => format!("{} {code}", self.status),
            None => self.status.to_string(),
        }
    }

    /// Returns whether the request succeeded, with status 200 and without an error code.
    pub(super) fn is_good(&self) -> bool {
        self.status == 200 && self.code.is_none()
    }
}

/// Result of one request.
#[derive(Debug)]
pub(super) enum SoakRequestResult {
    /// The answer arrived completely. Contains the request id and the answer's result.
    End(String, EndedAnswer),
    /// A lease was granted, held and settled. Contains the lease's id, the index of its tenant and
    /// the time of the settlement.
    LeaseSettled(String, usize, Instant),
    /// The answer arrived completely but without a request id, which should not happen.
    WithoutId,
    /// The client left, or the connection broke, after the request id had arrived.
    CutAfterId(String),
    /// The client left, or the connection broke, before the request id had arrived.
    CutBeforeId,
    /// The connection was refused, so there was no request.
    ConnectionRefused,
}

/// Results of all clients.
#[derive(Debug, Default)]
pub(super) struct SoakResults {
    /// Results of complete answers, by request id.
    pub(super) ended: HashMap<String, EndedAnswer>,
    pub(super) cut: Vec<String>,
    /// The settled leases, each with the index of its tenant and the time of its settlement.
    pub(super) leases: Vec<(usize, Instant)>,
    pub(super) unknown: u64,
    pub(super) nameless: u64,
    /// Request ids that more than one answer had.
    pub(super) doubled: Vec<String>,
}

impl SoakResults {
    /// Records the result of one request.
    pub(super) fn note(&mut self, result: SoakRequestResult) {
        match result {
            SoakRequestResult::End(id, ended) => {
                if self.ended.insert(id.clone(), ended).is_some() {
                    self.doubled.push(id);
                }
            }
            SoakRequestResult::LeaseSettled(id, tenant, at) => {
                self.cut.push(id);
                self.leases.push((tenant, at));
            }
            SoakRequestResult::WithoutId => self.nameless += 1,
            SoakRequestResult::CutAfterId(id) => self.cut.push(id),
            SoakRequestResult::CutBeforeId => self.unknown += 1,
            SoakRequestResult::ConnectionRefused => {}
        }
    }

    /// Adds the results of another client.
    pub(super) fn add(&mut self, other: Self) {
        other
            .ended
            .into_iter()
            .for_each(|(id, ended)| self.note(SoakRequestResult::End(id, ended)));
        self.cut.extend(other.cut);
        self.leases.extend(other.leases);
        self.unknown += other.unknown;
        self.nameless += other.nameless;
        self.doubled.extend(other.doubled);
    }

    /// Returns the times of a tenant's successful answers and settled leases.
    pub(super) fn good_answers(&self, tenant: usize) -> impl Iterator<Item = Instant> {
        let answers = self.ended.values().filter(move |ended| ended.tenant == tenant);
        let answers = answers.filter(|ended| ended.is_good()).map(|ended| ended.at);
        let leases = self.leases.iter().filter(move |(owner, _)| *owner == tenant);
        answers.chain(leases.map(|(_, at)| *at))
    }

    /// Summarises the numbers of results in words.
    pub(super) fn describe(&self) -> String {
        let by_status = statuses_of(self.ended.values());
        format!(
            "{} answers ended ({by_status}), {} were cut off in the middle, {} before they began",
            self.ended.len(),
            self.cut.len(),
            self.unknown
        )
    }
}

/// Formats the number of answers for each status and error code.
pub(super) fn statuses_of<'a>(ended: impl Iterator<Item = &'a EndedAnswer>) -> String {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for one in ended {
        *counts.entry(one.describe()).or_default() += 1;
    }
    let words = counts.iter().map(|(statuses_of, count)| format!("{count} with {statuses_of}"));
    words.collect::<Vec<_>>().join(", ")
}

/// Returns the error code in an answer's body, or in the last event of a streamed body; `None`
/// without an error.
pub(super) fn error_code(body: &[u8]) -> Option<String> {
    // An error is short and at the end of the body. Text of a model cannot be mistaken for an
    // error, because the quotes in the text are escaped.
    let end = &body[body.len().saturating_sub(2048)..];
    let end = String::from_utf8_lossy(end);
    let error = &end[end.rfind("\"error\":")?..];
    let (_, rest) = error.split_once("\"code\":\"")?;
    Some(rest.split_once('"')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_an_error_is_found_in_documents_and_streams() {
        let document =
            br#"{"error":{"message":"No.","type":"x","param":null,"code":"queue_full"}}"#;
        assert_eq!(error_code(document).as_deref(), Some("queue_full"));
        let stream = b"data: {\"choices\":[]}\n\ndata: {\"error\":{\"message\":\"No.\",\"code\":\"store_unavailable\"}}\n\n";
        assert_eq!(error_code(stream).as_deref(), Some("store_unavailable"));
        assert_eq!(error_code(b"data: {\"choices\":[]}\n\ndata: [DONE]\n\n"), None);
        assert_eq!(error_code(br#"{"choices":[{"text":"\"error\": {\"code\":\"x\"}"}]}"#), None);
    }
}
