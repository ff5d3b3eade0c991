//! Meters an answer that is one JSON document. The document is read as it passes, and never stored.

use bytes::Bytes;

use super::answer_shape::AnswerShape;
use super::document::AnswerDocument;
use super::tally::UsageTally;
use super::{MeasuredUsage, MeteredChunk, TokenUsage};

/// The meter of one JSON answer.
pub(super) struct JsonMeter {
    document: AnswerDocument,
    tally: UsageTally,
    passed_bytes: u64,
    added: bool,
}

impl JsonMeter {
    pub(super) fn new(shape: AnswerShape, tally: UsageTally) -> Self {
        Self { document: AnswerDocument::new(shape), tally, passed_bytes: 0, added: false }
    }

    pub(super) fn pass(&mut self, chunk: &Bytes) -> MeteredChunk {
        let mut passed =
            MeteredChunk { first_token: self.passed_bytes == 0, ..MeteredChunk::default() };
        self.passed_bytes += chunk.len() as u64;
        let was_done = self.document.is_done();
        self.document.feed(chunk);
        passed.terminal = self.document.is_done() && !was_done;
        if passed.terminal {
            self.add();
            passed.end.push(chunk.clone());
        } else {
            passed.forward.push(chunk.clone());
        }
        passed
    }

    pub(super) fn so_far(&self) -> TokenUsage {
        self.tally.so_far(self.text_to_add())
    }

    pub(super) fn reports_cached(&self) -> bool {
        self.tally.reports_cached()
    }

    pub(super) fn measured(&self) -> MeasuredUsage {
        let complete = self.document.is_done() && !self.document.found().error;
        self.tally.measured(self.text_to_add(), complete)
    }

    /// Ends the body, which may be cut off before the end of the document.
    pub(super) fn finish(&mut self) {
        self.add();
    }

    pub(super) fn item_ids(&self) -> &[Box<str>] {
        self.document.item_ids()
    }

    pub(super) fn id(&self) -> Option<&str> {
        self.document.id()
    }

    fn add(&mut self) {
        if !std::mem::replace(&mut self.added, true) {
            self.tally.add(self.document.found(), self.passed_bytes);
        }
    }

    fn text_to_add(&self) -> u64 {
        if self.added { 0 } else { self.document.found().text_bytes }
    }
}
