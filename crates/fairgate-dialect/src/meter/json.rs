//! An answer that is one JSON document: read as it passes, never held.

use bytes::Bytes;

use super::document::Document;
use super::path::Shape;
use super::tally::Tally;
use super::{Measured, Passed, Usage};

/// A document that passes.
pub(super) struct Body {
    document: Document,
    tally: Tally,
    passed_bytes: u64,
    added: bool,
}

impl Body {
    pub(super) fn new(shape: Shape, tally: Tally) -> Self {
        Self { document: Document::new(shape), tally, passed_bytes: 0, added: false }
    }

    pub(super) fn pass(&mut self, chunk: &Bytes) -> Passed {
        let mut passed = Passed { first_token: self.passed_bytes == 0, ..Passed::default() };
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

    pub(super) fn so_far(&self) -> Usage {
        self.tally.so_far(self.text_to_add())
    }

    pub(super) fn says_cached(&self) -> bool {
        self.tally.says_cached()
    }

    pub(super) fn measured(&self) -> Measured {
        let complete = self.document.is_done() && !self.document.found().error;
        self.tally.measured(self.text_to_add(), complete)
    }

    /// The body is over, whole or not.
    pub(super) fn finish(&mut self) {
        self.add();
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
