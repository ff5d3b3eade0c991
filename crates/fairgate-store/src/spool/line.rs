//! Format of a row as one line of text: the format version, a checksum of the row, and the row as
//! JSON.
//!
//! Lines are written in version 2. It has the CRC-32C of the JSON, and the row as a list of its
//! values in the order of [`AttemptRow`]'s fields. Lines of version 1 can still be read. It has the
//! beginning of the BLAKE3 hash, and the row as an object. A new field of a row goes to the end of
//! the list, with a default for rows without it.
//!
//! A line with a wrong checksum is incomplete: either the process was killed before it acknowledged the row, or the
//! machine lost power. A line with a correct checksum that cannot be parsed was written by another version of the
//! program, and only that version can read it.

use serde::ser::{Serialize, SerializeTuple as _, Serializer};

use crate::ledger::AttemptRow;

/// Format version with which every line begins.
const VERSION: &[u8] = b"2 ";
/// Format version of lines whose checksum is a hash.
const HASH_VERSION: &[u8] = b"1 ";
/// Number of hexadecimal digits of the checksum in a line.
const CHECKSUM: usize = 8;
/// Number of bytes before the row's JSON in a line.
const ROW: usize = VERSION.len() + CHECKSUM + 1;

/// Content of a line.
pub(super) enum SpoolLine {
    Row(Box<AttemptRow>),
    NotWhole,
    /// The line is complete, but was written by another version of the program.
    Foreign,
}

/// Appends a row's line, including the newline, to `lines`.
pub(super) fn write(attempt: &AttemptRow, lines: &mut Vec<u8>) {
    let start = lines.len();
    lines.extend_from_slice(VERSION);
    lines.extend_from_slice(&[b' '; CHECKSUM + 1]);
    // Writing to a vector cannot fail. If it did, the line would count as incomplete.
    let _ = serde_json::to_writer(&mut *lines, &RowValues(attempt));
    let (head, json) = lines[start..].split_at_mut(ROW);
    head[VERSION.len()..ROW - 1].copy_from_slice(&checksum(json));
    lines.push(b'\n');
}

/// Parses a line without its newline.
pub(super) fn read(line: &[u8]) -> SpoolLine {
    let Some((head, json)) = line.split_at_checked(ROW) else { return SpoolLine::NotWhole };
    let (version, rest) = head.split_at(VERSION.len());
    let stated = rest.strip_suffix(b" ");
    let is_whole = match version {
        HASH_VERSION => stated == Some(hash(json).as_bytes()),
        // A later version is assumed to use the same checksum.
        _ => stated == Some(checksum(json).as_slice()),
    };
    if !is_whole {
        return SpoolLine::NotWhole;
    }
    match serde_json::from_slice(json) {
        Ok(row) if version == VERSION || version == HASH_VERSION => {
            SpoolLine::Row(Box::new(AttemptRow::upgrade(row)))
        }
        _ => SpoolLine::Foreign,
    }
}

/// Returns the CRC-32C of a row's JSON as hexadecimal digits.
fn checksum(json: &[u8]) -> [u8; CHECKSUM] {
    let sum = crc32c::crc32c(json);
    let digits = b"0123456789abcdef";
    let mut text = [0; CHECKSUM];
    for (place, digit) in text.iter_mut().rev().enumerate() {
        *digit = digits[(sum >> (4 * place)) as usize & 15];
    }
    text
}

/// Returns the beginning of the hash of a row's JSON in a line of version 1.
fn hash(json: &[u8]) -> String {
    let mut hash = blake3::hash(json).to_hex().to_string();
    hash.truncate(CHECKSUM);
    hash
}

/// Serializes a row as the list of its values, without their names. The row's own `Deserialize` can
/// read such a list.
struct RowValues<'a>(&'a AttemptRow);

impl Serialize for RowValues<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// Writes the fields in this order, which must be that of their definition. A missing field does not compile.
        macro_rules! list {
            ($($field:ident)*) => {{
                let AttemptRow { $($field),* } = self.0;
                let mut values = serializer.serialize_tuple([$(stringify!($field)),*].len())?;
                $(values.serialize_element($field)?;)*
                values.end()
            }};
        }
        list! {
            request attempt last started_at group tenant key agent session route stream model pool worker estimate
            input_tokens cached_tokens output_tokens charged usage waited_us first_token_us total_us status outcome code
            brownout occupied provider_tokens money price tier class cache_written_tokens cache_written_1h_tokens
            estimate_uncached charged_uncached worker_us price_set claim
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of the first format, as it may be on disks.
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
        assert!(matches!(read_hashed(&KNOWN.replace("lost", "vanished")), SpoolLine::Foreign));
        for damaged in [KNOWN, "", "1 "] {
            assert!(matches!(read(damaged.as_bytes()), SpoolLine::NotWhole));
        }
        assert!(matches!(read_hashed(&KNOWN.replacen('1', "2", 1)), SpoolLine::NotWhole));
    }

    /// A line of the second format, as it may be on disks.
    const LISTED: &str = concat!(
        r#"2 SUMSUMSU ["r",2,true,5,"g","t","k","a","s","/v1",true,"m","p","w",11,12,13,14,15,"reported",16,17,18,200,"#,
        r#""completed","c",true,19,20,21,"price",22,"class",23,24,25,26,28,"set",{"project":"p","task":"x","epoch":27}]"#
    );

    fn read_summed(line: &str) -> SpoolLine {
        let sum = checksum(&line.as_bytes()[ROW..]);
        read(line.replace("SUMSUMSU", std::str::from_utf8(&sum).unwrap()).as_bytes())
    }

    #[test]
    fn a_row_is_the_list_of_its_values() {
        let SpoolLine::Row(row) = read_summed(LISTED) else { panic!("not read") };
        // Every number is another one, so that no two values can have changed places.
        let names = [
            ("estimate", 11),
            ("input_tokens", 12),
            ("cached_tokens", 13),
            ("output_tokens", 14),
            ("charged", 15),
            ("waited_us", 16),
            ("first_token_us", 17),
            ("total_us", 18),
            ("occupied", 19),
            ("provider_tokens", 20),
            ("money", 21),
            ("tier", 22),
            ("cache_written_tokens", 23),
            ("cache_written_1h_tokens", 24),
            ("estimate_uncached", 25),
            ("charged_uncached", 26),
            ("worker_us", 28),
        ];
        let by_name = serde_json::to_value(&row).unwrap();
        for (name, value) in names {
            assert_eq!(by_name[name], value, "{name}");
        }
        let texts = [
            "request", "group", "tenant", "key", "agent", "session", "model", "pool", "worker",
            "code",
        ];
        assert_eq!(
            texts.map(|name| by_name[name].as_str().unwrap()).join(" "),
            "r g t k a s m p w c"
        );
        assert_eq!((row.class.as_deref(), row.claim.as_ref().unwrap().epoch), (Some("class"), 27));
        assert_eq!((row.price.as_deref(), row.price_set.as_deref()), (Some("price"), Some("set")));
        let mut lines = b"the line before\n".to_vec();
        write(&row, &mut lines);
        let line = lines.strip_prefix(b"the line before\n").unwrap().strip_suffix(b"\n").unwrap();
        assert_eq!(line[ROW..], LISTED.as_bytes()[ROW..]);
        assert!(matches!(read(line), SpoolLine::Row(again) if again == row));
        for at in 0..line.len() {
            let mut damaged = line.to_vec();
            damaged[at] ^= 1;
            assert!(!matches!(read(&damaged), SpoolLine::Row(_)), "byte {at}");
            assert!(matches!(read(&line[..at]), SpoolLine::NotWhole), "{at} bytes");
        }
        for foreign in [LISTED.replacen('2', "3", 1), LISTED.replace("reported", "rumoured")] {
            assert!(matches!(read_summed(&foreign), SpoolLine::Foreign));
        }
    }

    /// The polynomial is that of CRC-32C, whose check value is in RFC 3720.
    #[test]
    fn the_checksum_is_crc_32c() {
        assert_eq!(&checksum(b"123456789"), b"e3069283");
        assert_eq!(&checksum(b""), b"00000000");
    }
}
