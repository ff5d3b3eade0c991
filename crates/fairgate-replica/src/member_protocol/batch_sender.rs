//! Sends lines to the log. A member's records are applied in the order of their numbers. So if a
//! record was not read back, this record and all later ones are sent again (go-back-N). Each is
//! sent again only when the one before is confirmed, because they could arrive in the wrong order
//! if they were sent together.

use std::collections::VecDeque;

use super::local_requests::RequestKey;
use super::{HEADER_BYTES, LocalMicros, RESEND_AFTER};
use crate::record::{RECORD_BYTES_MAX, RECORD_LINES_MAX};

/// Maximum number of records that were sent and not read back yet.
const OUTSTANDING_MAX: usize = 8;

/// Lines that wait to be sent, and records that were sent and not read back yet.
#[derive(Debug)]
pub(super) struct BatchSender {
    /// Maximum number of lines in a record.
    lines_max: usize,
    pending: VecDeque<PendingLine>,
    pending_bytes: usize,
    outstanding: VecDeque<SentBatch>,
    last_batch: u64,
    /// True while outstanding records are sent again, one by one.
    is_going_back: bool,
    /// Number of the record that was sent again last.
    sent_again: u64,
}

impl Default for BatchSender {
    fn default() -> Self {
        Self {
            lines_max: RECORD_LINES_MAX,
            pending: VecDeque::new(),
            pending_bytes: 0,
            outstanding: VecDeque::new(),
            last_batch: 0,
            is_going_back: false,
            sent_again: 0,
        }
    }
}

#[derive(Debug)]
struct PendingLine {
    text: String,
    key: Option<RequestKey>,
}

/// A record that was sent.
#[derive(Debug)]
struct SentBatch {
    number: u64,
    bytes: Vec<u8>,
    written_at: LocalMicros,
    sent_at: LocalMicros,
    has_alive: bool,
    keys: Vec<RequestKey>,
}

/// The lines of the next record.
#[derive(Debug)]
pub(super) struct NextBatch {
    pub(super) number: u64,
    pub(super) lines: Vec<String>,
    keys: Vec<RequestKey>,
}

/// Content of the records that are confirmed when a record is read back.
#[derive(Debug, Default)]
pub(super) struct ConfirmedBatches {
    /// Requests whose ends were in the confirmed records.
    pub(super) keys: Vec<RequestKey>,
    /// Time at which the latest `alive` in the confirmed records was written.
    pub(super) alive_written_at: Option<LocalMicros>,
}

impl BatchSender {
    #[cfg(test)]
    pub(super) fn set_lines_max(&mut self, lines_max: usize) {
        self.lines_max = lines_max;
    }

    pub(super) fn push(&mut self, text: String, key: Option<RequestKey>) {
        self.pending_bytes += text.len();
        self.pending.push_back(PendingLine { text, key });
    }

    /// Discards all lines and records, because the epoch has ended.
    pub(super) fn clear(&mut self) {
        *self = Self { lines_max: self.lines_max, ..Self::default() };
    }

    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.outstanding.is_empty()
    }

    /// Returns a record that must be sent again now; `None` if there is none.
    pub(super) fn next_again(&mut self, now: LocalMicros) -> Option<Vec<u8>> {
        let (is_going_back, sent_again) = (self.is_going_back, self.sent_again);
        let first = self.outstanding.front_mut()?;
        let is_late = now.since(first.sent_at) >= RESEND_AFTER;
        if !is_late && (!is_going_back || first.number == sent_again) {
            return None;
        }
        first.sent_at = now;
        (self.is_going_back, self.sent_again) = (true, first.number);
        Some(first.bytes.clone())
    }

    /// Takes the lines of the next record. If no record is outstanding, lines are sent at once.
    /// Otherwise they are collected until a record is confirmed, or until they fill a record.
    pub(super) fn next_batch(&mut self) -> Option<NextBatch> {
        let is_full = self.pending.len() >= self.lines_max
            || self.pending_bytes >= RECORD_BYTES_MAX - HEADER_BYTES;
        let may_send =
            self.outstanding.is_empty() || (is_full && self.outstanding.len() < OUTSTANDING_MAX);
        if self.pending.is_empty() || !may_send {
            return None;
        }
        let (mut lines, mut keys, mut bytes) = (Vec::new(), Vec::new(), 0);
        while let Some(next) = self.pending.front() {
            bytes += next.text.len();
            let fits = bytes <= RECORD_BYTES_MAX - HEADER_BYTES && lines.len() < self.lines_max;
            if !fits && !lines.is_empty() {
                break;
            }
            let Some(PendingLine { text, key }) = self.pending.pop_front() else { break };
            self.pending_bytes -= text.len();
            lines.push(text);
            keys.extend(key);
        }
        self.last_batch += 1;
        Some(NextBatch { number: self.last_batch, lines, keys })
    }

    /// Records that a record was sent.
    pub(super) fn sent(
        &mut self,
        batch: NextBatch,
        bytes: Vec<u8>,
        now: LocalMicros,
        has_alive: bool,
    ) {
        let NextBatch { number, keys, .. } = batch;
        let (written_at, sent_at) = (now, now);
        let sent = SentBatch { number, bytes, written_at, sent_at, has_alive, keys };
        self.outstanding.push_back(sent);
    }

    /// Records that the record with this number was applied, and so were all before it.
    pub(super) fn confirm(&mut self, number: u64) -> ConfirmedBatches {
        let mut confirmed = ConfirmedBatches::default();
        while let Some(sent) = self.outstanding.pop_front_if(|sent| sent.number <= number) {
            confirmed.keys.extend(sent.keys);
            if sent.has_alive {
                confirmed.alive_written_at = Some(sent.written_at);
            }
        }
        self.is_going_back &= !self.outstanding.is_empty();
        confirmed
    }

    /// Requires all records that are not confirmed to be sent again, because an earlier one is
    /// missing in the log.
    pub(super) fn go_back(&mut self) {
        self.is_going_back = !self.outstanding.is_empty();
    }

    /// Returns the time of the next record. This is `now` if lines are pending and no record is
    /// outstanding, or if the next record of a go-back is due. Otherwise it is the time at which
    /// the first outstanding record is sent again. `None` if there is nothing to send.
    pub(super) fn next_wake(&self, now: LocalMicros) -> Option<LocalMicros> {
        let Some(first) = self.outstanding.front() else {
            return (!self.pending.is_empty()).then_some(now);
        };
        match self.is_going_back && first.number != self.sent_again {
            true => Some(now),
            false => Some(first.sent_at.after(RESEND_AFTER)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(sender: &mut BatchSender, now: u64) -> Option<(u64, usize)> {
        let batch = sender.next_batch()?;
        let sent = (batch.number, batch.lines.len());
        let bytes = vec![u8::try_from(batch.number).unwrap()];
        sender.sent(batch, bytes, LocalMicros(now), false);
        Some(sent)
    }

    #[test]
    fn lines_gather_while_a_record_is_on_its_way() {
        let mut sender = BatchSender::default();
        sender.push("a\n".into(), None);
        assert_eq!(send(&mut sender, 0), Some((1, 1)));
        sender.push("b\n".into(), None);
        sender.push("c\n".into(), None);
        assert_eq!(send(&mut sender, 0), None);
        sender.confirm(1);
        assert_eq!(send(&mut sender, 0), Some((2, 2)));
        assert!(!sender.is_idle());
        sender.confirm(2);
        assert!(sender.is_idle());
    }

    #[test]
    fn full_records_do_not_wait_and_are_bounded() {
        let mut sender = BatchSender::default();
        (0..5000).for_each(|_| sender.push("x\n".into(), None));
        for number in 1..=8 {
            assert_eq!(send(&mut sender, 0), Some((number, RECORD_LINES_MAX)));
        }
        assert_eq!(send(&mut sender, 0), None, "eight are outstanding");
        let mut sender = BatchSender::default();
        (0..3).for_each(|_| sender.push("x".repeat(RECORD_BYTES_MAX / 2), None));
        assert_eq!(send(&mut sender, 0), Some((1, 1)));
    }

    #[test]
    fn what_is_not_read_is_sent_again_from_the_first() {
        let mut sender = BatchSender::default();
        (0..600).for_each(|_| sender.push("x\n".into(), None));
        assert!(send(&mut sender, 0).is_some() && send(&mut sender, 0).is_some());
        let half = LocalMicros(499_999);
        assert_eq!(sender.next_again(half), None);
        let late = LocalMicros(500_000);
        assert_eq!(sender.next_wake(LocalMicros(0)), Some(late));
        assert_eq!(sender.next_again(late), Some(vec![1]));
        assert_eq!(sender.next_again(late), None, "the second follows when the first is confirmed");
        sender.go_back();
        assert_eq!(sender.next_again(late), None, "it is on its way");
        sender.confirm(1);
        assert_eq!(sender.next_again(late), Some(vec![2]));
        sender.confirm(2);
        assert_eq!(sender.next_again(late.after(RESEND_AFTER)), None);
        assert!(send(&mut sender, 600_000).is_some());
    }
}
