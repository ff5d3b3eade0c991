//! Format of a row as one line of text, which consists of the format version, a hash of the row, and the row as JSON.
//!
//! A line with a wrong hash is incomplete: either the process was killed before it acknowledged the row, or the machine
//! lost power. A line with a correct hash that cannot be parsed was written by another version of the program, and only
//! that version can read it.

use crate::ledger::AttemptRow;

/// Format version with which every line begins.
const VERSION: &[u8] = b"1 ";
/// Number of hexadecimal digits of the hash in a line.
const HASH: usize = 8;
/// Number of bytes before the row's JSON in a line.
const ROW: usize = VERSION.len() + HASH + 1;

/// Content of a line.
pub(super) enum SpoolLine {
    Row(Box<AttemptRow>),
    NotWhole,
    /// The line is complete, but was written by another version of the program.
    Foreign,
}

/// Replaces the content of `line` with a row's line, including the newline.
pub(super) fn write(attempt: &AttemptRow, line: &mut Vec<u8>) -> serde_json::Result<()> {
    line.clear();
    line.extend_from_slice(VERSION);
    line.resize(ROW, b' ');
    serde_json::to_writer(&mut *line, attempt)?;
    let hash = hash(&line[ROW..]);
    line[VERSION.len()..ROW - 1].copy_from_slice(hash.as_bytes());
    line.push(b'\n');
    Ok(())
}

/// Parses a line without its newline.
pub(super) fn read(line: &[u8]) -> SpoolLine {
    let Some((head, json)) = line.split_at_checked(ROW) else { return SpoolLine::NotWhole };
    if head[VERSION.len()..ROW - 1] != *hash(json).as_bytes() {
        return SpoolLine::NotWhole;
    }
    match serde_json::from_slice(json) {
        Ok(row) if head.starts_with(VERSION) => SpoolLine::Row(Box::new(AttemptRow::upgrade(row))),
        _ => SpoolLine::Foreign,
    }
}

fn hash(json: &[u8]) -> String {
    let mut hash = blake3::hash(json).to_hex().to_string();
    hash.truncate(HASH);
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of the first format, as it is on disks.
    const KNOWN: &str = concat!(
        r#"1 HASHHASH {"request":"r","attempt":1,"last":true,"started_at":5,"group":"g","tenant":"t","key":"k","#,
        r#""agent":null,"session":null,"route":"-","stream":false,"model":"m","pool":null,"worker":null,"#,
        r#""estimate":7,"input_tokens":0,"cached_tokens":0,"output_tokens":0,"charged":7,"usage":"assumed","#,
        r#""waited_us":0,"first_token_us":null,"total_us":0,"status":499,"outcome":"lost","code":"lost","#,
        r#""brownout":false}"#
    );

    fn read_hashed(line: &str) -> SpoolLine {
        let json = &line.as_bytes()[ROW..];
        read(line.replace("HASHHASH", &hash(json)).as_bytes())
    }

    #[test]
    fn lines_of_other_versions_are_told_from_damaged_ones() {
        let SpoolLine::Row(row) = read_hashed(KNOWN) else { panic!("not read") };
        assert_eq!(row.request, "r");
        // Before provider tokens were counted, budgets counted what was charged.
        assert_eq!((row.provider_tokens, row.charged), (7, 7));
        assert_eq!((row.money.0, row.price.as_deref(), row.tier), (0, None, 0));
        assert_eq!((&row.class, &row.claim), (&None, &None));
        let mut line = b"what was there".to_vec();
        write(&row, &mut line).unwrap();
        assert!(matches!(read(&line[..line.len() - 1]), SpoolLine::Row(again) if again == row));
        for foreign in [KNOWN.replacen('1', "2", 1), KNOWN.replace("lost", "vanished")] {
            assert!(matches!(read_hashed(&foreign), SpoolLine::Foreign));
        }
        for damaged in [KNOWN, "", "1 "] {
            assert!(matches!(read(damaged.as_bytes()), SpoolLine::NotWhole));
        }
    }
}
