//! What the clients saw: their own books, to hold against the ledger.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

/// How an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// The index of the tenant that asked.
    pub(super) tenant: usize,
    pub(super) status: u16,
    /// The code of an error, also of one in a stream.
    pub(super) code: Option<String>,
    pub(super) at: Instant,
}

impl Ended {
    /// Whether the gateway had nowhere to keep a row, or could not ask for a budget, and said so instead of giving an answer.
    pub(super) fn is_store_unavailable(&self) -> bool {
        self.code.as_deref() == Some("store_unavailable")
    }

    /// Its status and code, in words.
    pub(super) fn told(&self) -> String {
        match &self.code {
            Some(code) => format!("{} {code}", self.status),
            None => self.status.to_string(),
        }
    }

    /// Whether somebody got what he asked for.
    pub(super) fn is_good(&self) -> bool {
        self.status == 200 && self.code.is_none()
    }
}

/// What one request came to.
#[derive(Debug)]
pub(super) enum Sight {
    /// Its answer came to its end.
    End(String, Ended),
    /// The same, without a request id: none should be so.
    Nameless,
    /// The client left, or the connection broke, when it knew the id.
    Cut(String),
    /// The same before it knew the id.
    Unknown,
    /// Nobody took the connection, so there was no request.
    Nobody,
}

/// What all clients saw.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Every answer that ended, by request id.
    pub(super) ended: HashMap<String, Ended>,
    pub(super) cut: Vec<String>,
    pub(super) unknown: u64,
    pub(super) nameless: u64,
    /// Ids that two answers had.
    pub(super) doubled: Vec<String>,
}

impl Seen {
    /// Takes in one request.
    pub(super) fn note(&mut self, sight: Sight) {
        match sight {
            Sight::End(id, ended) => {
                if self.ended.insert(id.clone(), ended).is_some() {
                    self.doubled.push(id);
                }
            }
            Sight::Nameless => self.nameless += 1,
            Sight::Cut(id) => self.cut.push(id),
            Sight::Unknown => self.unknown += 1,
            Sight::Nobody => {}
        }
    }

    /// Takes in what another saw.
    pub(super) fn add(&mut self, other: Self) {
        other.ended.into_iter().for_each(|(id, ended)| self.note(Sight::End(id, ended)));
        self.cut.extend(other.cut);
        self.unknown += other.unknown;
        self.nameless += other.nameless;
        self.doubled.extend(other.doubled);
    }

    /// The numbers in words.
    pub(super) fn told(&self) -> String {
        let by_status = told(self.ended.values());
        format!(
            "{} answers ended ({by_status}), {} were cut off in the middle, {} before they began",
            self.ended.len(),
            self.cut.len(),
            self.unknown
        )
    }
}

/// How many ended how, in words.
pub(super) fn told<'a>(ended: impl Iterator<Item = &'a Ended>) -> String {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for one in ended {
        *counts.entry(one.told()).or_default() += 1;
    }
    let words = counts.iter().map(|(told, count)| format!("{count} with {told}"));
    words.collect::<Vec<_>>().join(", ")
}

/// The code of an error in an answer's body, or of the last event of a stream.
pub(super) fn error_code(body: &[u8]) -> Option<String> {
    // An error is short, and nothing comes after it. The text of a model is never taken for one: quotes in it are escaped.
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
