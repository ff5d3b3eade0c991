//! A row as one line of text: the format's version, a hash of the row, and the row as JSON.
//!
//! A line whose hash is wrong was not written whole, and so not acknowledged, or the machine lost power. One whose hash is
//! right and that cannot be read is of another version of the program, which must take it back.

use crate::ledger::Attempt;

/// What a line begins with: the format's version.
const VERSION: &[u8] = b"1 ";
/// How many digits of a line's hash are kept.
const HASH: usize = 8;
/// Where the row begins in a line.
const ROW: usize = VERSION.len() + HASH + 1;

/// What a line is.
pub(super) enum Line {
    Row(Box<Attempt>),
    NotWhole,
    /// Whole, and of another version.
    Foreign,
}

/// Writes a row's line, with its newline, in place of what `line` holds.
pub(super) fn write(attempt: &Attempt, line: &mut Vec<u8>) -> serde_json::Result<()> {
    line.clear();
    line.extend_from_slice(VERSION);
    line.resize(ROW, b' ');
    serde_json::to_writer(&mut *line, attempt)?;
    let hash = hash(&line[ROW..]);
    line[VERSION.len()..ROW - 1].copy_from_slice(hash.as_bytes());
    line.push(b'\n');
    Ok(())
}

/// Reads a line without its newline.
pub(super) fn read(line: &[u8]) -> Line {
    let Some((head, json)) = line.split_at_checked(ROW) else { return Line::NotWhole };
    if head[VERSION.len()..ROW - 1] != *hash(json).as_bytes() {
        return Line::NotWhole;
    }
    match serde_json::from_slice(json) {
        Ok(row) if head.starts_with(VERSION) => Line::Row(Box::new(Attempt::of_any_version(row))),
        _ => Line::Foreign,
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

    fn read_hashed(line: &str) -> Line {
        let json = &line.as_bytes()[ROW..];
        read(line.replace("HASHHASH", &hash(json)).as_bytes())
    }

    #[test]
    fn lines_of_other_versions_are_told_from_damaged_ones() {
        let Line::Row(row) = read_hashed(KNOWN) else { panic!("not read") };
        assert_eq!(row.request, "r");
        // Before provider tokens were counted, budgets counted what was charged.
        assert_eq!((row.provider_tokens, row.charged), (7, 7));
        assert_eq!((row.money.0, row.price.as_deref(), row.tier), (0, None, 0));
        assert_eq!((&row.class, &row.claim), (&None, &None));
        let mut line = b"what was there".to_vec();
        write(&row, &mut line).unwrap();
        assert!(matches!(read(&line[..line.len() - 1]), Line::Row(again) if again == row));
        for foreign in [KNOWN.replacen('1', "2", 1), KNOWN.replace("lost", "vanished")] {
            assert!(matches!(read_hashed(&foreign), Line::Foreign));
        }
        for damaged in [KNOWN, "", "1 "] {
            assert!(matches!(read(damaged.as_bytes()), Line::NotWhole));
        }
    }
}
