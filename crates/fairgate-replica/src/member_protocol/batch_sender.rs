//! Lines on their way into the log. A member's records count in the order of their numbers, so the first one that was not
//! read is sent again with all after it (go-back-N).

use std::collections::VecDeque;

use super::local_requests::RequestKey;
use super::{HEADER_BYTES, LocalMicros, RESEND_AFTER};
use crate::record::{RECORD_BYTES_MAX, RECORD_LINES_MAX};

/// Greatest number of records that were sent and not read yet.
const OUTSTANDING_MAX: usize = 8;

/// Lines that wait to be sent, and records that were sent and not read yet.
#[derive(Debug)]
pub(super) struct BatchSender {
    /// Greatest number of lines in a record.
    lines_max: usize,
    pending: VecDeque<PendingLine>,
    pending_bytes: usize,
    outstanding: VecDeque<SentBatch>,
    last_batch: u64,
    /// Index in `outstanding` from which records are to be sent again.
    resend_from: Option<usize>,
}

impl Default for BatchSender {
    fn default() -> Self {
        Self {
            lines_max: RECORD_LINES_MAX,
            pending: VecDeque::new(),
            pending_bytes: 0,
            outstanding: VecDeque::new(),
            last_batch: 0,
            resend_from: None,
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

/// Lines that a record confirms by coming by.
#[derive(Debug, Default)]
pub(super) struct ConfirmedBatches {
    /// Requests about whose ends the records were.
    pub(super) keys: Vec<RequestKey>,
    /// Time at which the latest `alive` in them was written.
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

    /// Forgets everything, because the epoch has ended.
    pub(super) fn clear(&mut self) {
        *self = Self { lines_max: self.lines_max, ..Self::default() };
    }

    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.outstanding.is_empty()
    }

    /// Returns a record that must be sent again now; `None` if there is none.
    pub(super) fn next_again(&mut self, now: LocalMicros) -> Option<Vec<u8>> {
        let is_late = |sent: &SentBatch| now.since(sent.sent_at) >= RESEND_AFTER;
        if self.resend_from.is_none() && self.outstanding.front().is_some_and(is_late) {
            self.resend_from = Some(0);
        }
        let index = self.resend_from?;
        let sent = self.outstanding.get_mut(index)?;
        sent.sent_at = now;
        self.resend_from = Some(index + 1).filter(|next| *next < self.outstanding.len());
        self.outstanding.get(index).map(|sent| sent.bytes.clone())
    }

    /// Takes the lines of the next record. A record is sent at once if none is outstanding; otherwise lines gather until
    /// one is confirmed, or a record is full.
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

    /// Notes that a record is on its way.
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

    /// Notes that a record of this number counts, and with it all before it.
    pub(super) fn confirm(&mut self, number: u64) -> ConfirmedBatches {
        let mut confirmed = ConfirmedBatches::default();
        while let Some(sent) = self.outstanding.pop_front_if(|sent| sent.number <= number) {
            confirmed.keys.extend(sent.keys);
            if sent.has_alive {
                confirmed.alive_written_at = Some(sent.written_at);
            }
            self.resend_from = self.resend_from.map(|index| index.saturating_sub(1));
        }
        if self.outstanding.is_empty() {
            self.resend_from = None;
        }
        confirmed
    }

    /// Sends everything again that is not confirmed, because a record did not count.
    pub(super) fn go_back(&mut self, now: LocalMicros) {
        // The first may just have been sent again.
        let is_fresh =
            |sent: &SentBatch| now.since(sent.sent_at) < LocalMicros(RESEND_AFTER.0 / 10);
        if self.resend_from.is_none() && !self.outstanding.front().is_some_and(is_fresh) {
            self.resend_from = Some(0);
        }
    }

    /// Returns the time at which a record is sent again unless it is read before; `None` if none is outstanding.
    pub(super) fn next_wake(&self, now: LocalMicros) -> Option<LocalMicros> {
        if self.resend_from.is_some() || (self.outstanding.is_empty() && !self.pending.is_empty()) {
            return Some(now);
        }
        self.outstanding.front().map(|sent| sent.sent_at.after(RESEND_AFTER))
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
        assert_eq!(sender.next_again(late), Some(vec![2]));
        assert_eq!(sender.next_again(late), None);
        sender.go_back(late.after(LocalMicros(1)));
        assert_eq!(sender.next_again(late.after(LocalMicros(1))), None, "it was sent just before");
        sender.go_back(late.after(LocalMicros(60_000)));
        sender.confirm(1);
        assert_eq!(sender.next_again(late.after(LocalMicros(60_000))), Some(vec![2]));
    }
}
