//! Records. A record contains the lines that one member appends to the log at once.
//!
//! ```text
//! {"fairgate_log":1,"cluster":"prod","generation":3,"machine":1,"member":2,"epoch":88121,"batch":417,
//!  "built_on":[90210,"9f3c…"],"lines":2,"sum":"…"}                                       (on one line)
//! {"pool":"llama","event":"submit","id":"req-1","tenant":"chat","cost":700}
//! {"event":"alive","applied_at":81234567,"directory":7}
//! ```
//!
//! `sum` is a checksum of all other bytes. So the log engine need not have checksums of its own.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::units::{LogPosition, MemberEpoch, MemberNumber, ShortHash};

/// Version of the format of records.
pub const LOG_VERSION: u32 = 1;

/// Maximum number of lines in a record.
pub const RECORD_LINES_MAX: usize = 256;

/// Maximum size of a record in bytes, which is 256 KiB.
pub const RECORD_BYTES_MAX: usize = 256 << 10;

/// The first line of a record, without its checksum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordHeader {
    /// Version of the format, which is [`LOG_VERSION`].
    pub fairgate_log: u32,
    /// Name of the cluster.
    pub cluster: Arc<str>,
    /// Number of the generation, counted from 1.
    pub generation: u64,
    /// Version of the rules that was in force when the sender built the record.
    pub machine: u32,
    /// Number of the sender; 0 in the record of a join.
    pub member: MemberNumber,
    /// Epoch of the sender; 0 in the record of a join.
    pub epoch: MemberEpoch,
    /// Number of the record in the epoch, counted from 1; 0 in the record of a join.
    pub batch: u64,
    /// Position of the last record that the sender had applied, and the running hash at that
    /// position.
    pub built_on: (LogPosition, ShortHash),
    /// Number of lines that follow.
    pub lines: usize,
}

/// A decoded record, whose lines are not parsed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The first line, without its checksum.
    pub header: RecordHeader,
    /// The lines after the first one, without their line ends.
    pub lines: Vec<&'a str>,
}

/// Error for bytes that are not a record, or are damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// There are more than [`RECORD_BYTES_MAX`] bytes, or no first line with a checksum.
    #[error("not a record of the log")]
    NoRecord,
    /// The bytes are not UTF-8, or the checksum does not match.
    #[error("damaged: the checksum is not that of the bytes")]
    Damaged,
    /// The checksum matches, but the first line cannot be parsed, its format version is unknown, or the number of lines
    /// is wrong.
    #[error("written in a form that this program does not know")]
    UnknownForm,
}

const SUM: &str = r#","sum":""#;
const SUM_END: &str = r#""}"#;

/// Writes a record. `lines` are the texts of its lines, each with its line end.
pub fn encode_record<'a>(
    header: &RecordHeader,
    lines: impl IntoIterator<Item = &'a str>,
) -> Vec<u8> {
    // This cannot fail, because all keys in the header are texts.
    let mut first = serde_json::to_string(header).unwrap_or_default();
    first.pop();
    let mut body = String::new();
    lines.into_iter().for_each(|line| body.push_str(line));
    let sum = checksum(&first, &body);
    format!("{first}{SUM}{sum}{SUM_END}\n{body}").into_bytes()
}

/// Decodes a record, and checks that it is complete.
pub fn decode_record(bytes: &[u8]) -> Result<Record<'_>, RecordError> {
    if bytes.len() > RECORD_BYTES_MAX {
        return Err(RecordError::NoRecord);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| RecordError::Damaged)?;
    let (first, body) = text.split_once('\n').ok_or(RecordError::NoRecord)?;
    let (first, sum) = first
        .strip_suffix(SUM_END)
        .and_then(|first| first.rsplit_once(SUM))
        .ok_or(RecordError::NoRecord)?;
    if ShortHash::parse(sum) != Some(checksum(first, body)) {
        return Err(RecordError::Damaged);
    }
    let header: RecordHeader =
        serde_json::from_str(&format!("{first}}}")).map_err(|_| RecordError::UnknownForm)?;
    let lines: Vec<&str> = body.lines().collect();
    let is_known = header.fairgate_log == LOG_VERSION
        && lines.len() == header.lines
        && lines.len() <= RECORD_LINES_MAX;
    match is_known {
        true => Ok(Record { header, lines }),
        false => Err(RecordError::UnknownForm),
    }
}

fn checksum(first: &str, body: &str) -> ShortHash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(first.as_bytes());
    hasher.update(b"\n");
    hasher.update(body.as_bytes());
    ShortHash::of(&hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(lines: usize) -> RecordHeader {
        RecordHeader {
            fairgate_log: LOG_VERSION,
            cluster: "prod".into(),
            generation: 3,
            machine: 1,
            member: MemberNumber(2),
            epoch: MemberEpoch(88_121),
            batch: 417,
            built_on: (LogPosition(90_210), ShortHash([9; 8])),
            lines,
        }
    }

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        let bytes = encode_record(&header(2), ["one\n", "two\n"]);
        let record = decode_record(&bytes).unwrap();
        assert_eq!((record.header, record.lines), (header(2), vec!["one", "two"]));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let bytes = encode_record(&header(1), ["{\"event\":\"tick\"}\n"]);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                assert!(decode_record(&damaged).is_err(), "bit {bit} of byte {at}");
            }
            assert!(decode_record(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn other_forms_are_named_as_such() {
        let newer = RecordHeader { fairgate_log: 2, ..header(0) };
        let bytes = encode_record(&newer, []);
        assert_eq!(decode_record(&bytes), Err(RecordError::UnknownForm));
        let bytes = encode_record(&header(2), ["one\n"]);
        assert_eq!(decode_record(&bytes), Err(RecordError::UnknownForm));
        assert_eq!(decode_record(&vec![b' '; RECORD_BYTES_MAX + 1]), Err(RecordError::NoRecord));
    }
}
