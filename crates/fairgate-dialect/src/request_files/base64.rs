//! Decodes base64 from a JSON string, in either alphabet.

/// Returns the greatest number of bytes to which this much base64 decodes.
pub(super) fn decoded_len(encoded: &[u8]) -> usize {
    encoded.len() / 4 * 3 + encoded.len() % 4
}

/// Decodes at most the first `encoded_max` bytes of base64. Ends at the first byte that is not base64. Padding and the
/// escapes of JSON (`\/`, and the line breaks that some writers insert) are skipped.
pub(super) fn decode(encoded: &[u8], encoded_max: usize) -> Vec<u8> {
    let encoded = &encoded[..encoded.len().min(encoded_max)];
    let mut bytes = Vec::with_capacity(decoded_len(encoded));
    let (mut bits, mut filled) = (0_u32, 0);
    let mut letters = encoded.iter();
    while let Some(&letter) = letters.next() {
        let letter = match letter {
            b'\\' => match letters.next() {
                Some(b'/') => b'/',
                Some(b'n' | b'r' | b't') => continue,
                _ => break,
            },
            b'=' => continue,
            letter => letter,
        };
        let Some(value) = value(letter) else { break };
        bits = bits << 6 | value;
        filled += 6;
        if filled >= 8 {
            filled -= 8;
            bytes.push((bits >> filled).to_le_bytes()[0]);
            bits &= (1 << filled) - 1;
        }
    }
    bytes
}

fn value(letter: u8) -> Option<u32> {
    let value = match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    };
    Some(value.into())
}

/// Encodes bytes in base64 without padding.
#[cfg(test)]
pub(super) fn encode(bytes: &[u8]) -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = Vec::new();
    for part in bytes.chunks(3) {
        let bits = part.iter().fold(0_u32, |bits, &byte| bits << 8 | u32::from(byte));
        let bits = bits << (8 * (3 - part.len()));
        for letter in 0..=part.len() {
            text.push(LETTERS[(bits >> (18 - 6 * letter) & 63) as usize]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_alphabets_padding_and_escapes_are_read() {
        assert_eq!(decode(b"aGVsbG8=", 100), b"hello");
        assert_eq!(decode(b"aGVs\\nbG8", 100), b"hello");
        assert_eq!(decode(b"__-_", 100), [0xff, 0xff, 0xbf]);
        assert_eq!(decode(br"\/\/+\/", 100), [0xff, 0xff, 0xbf]);
        assert_eq!(decode(b"aGVsbG8=", 4), b"hel");
        assert!(decoded_len(b"aGVsbG8") >= 5);
    }
}
