//! Reads the width and height of an image from its header: PNG, JPEG, GIF and WebP.

/// Returns the width and height in pixels; `None` if the header is of another format or does not state them.
pub(super) fn size(head: &[u8]) -> Option<(u32, u32)> {
    match head {
        [0x89, b'P', b'N', b'G', ..] => {
            let size = head.get(16..24).filter(|_| head.get(12..16) == Some(b"IHDR"))?;
            Some((big_endian(&size[..4]), big_endian(&size[4..])))
        }
        [b'G', b'I', b'F', b'8', ..] => {
            let size = head.get(6..10)?;
            Some((little_endian(&size[..2]), little_endian(&size[2..])))
        }
        [0xff, 0xd8, ..] => jpeg(head),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => webp(head),
        _ => None,
    }
}

/// Walks over the segments of a JPEG to the frame headers. If there are several, the largest size counts.
fn jpeg(head: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    let mut largest: Option<(u32, u32)> = None;
    while let (Some(&mark), Some(&kind)) = (head.get(at), head.get(at + 1)) {
        if mark != 0xff {
            break;
        }
        if kind == 0xff {
            at += 1;
            continue;
        }
        // Marks without a length, and the beginning of the image's data.
        if matches!(kind, 0x01 | 0xd0..=0xd8) {
            at += 2;
            continue;
        }
        if matches!(kind, 0xd9 | 0xda) {
            break;
        }
        let Some(length) = head.get(at + 2..at + 4).map(big_endian) else { break };
        if matches!(kind, 0xc0..=0xcf) && !matches!(kind, 0xc4 | 0xc8 | 0xcc) {
            let size = head.get(at + 5..at + 9)?;
            let size = (big_endian(&size[2..]), big_endian(&size[..2]));
            let pixels = |(width, height): (u32, u32)| u64::from(width) * u64::from(height);
            largest = largest.filter(|other| pixels(*other) >= pixels(size)).or(Some(size));
        }
        at += 2 + (length as usize).max(2);
    }
    largest
}

fn webp(head: &[u8]) -> Option<(u32, u32)> {
    let body = head.get(20..30)?;
    match head.get(12..16)? {
        b"VP8X" => Some((1 + little_endian(&body[4..7]), 1 + little_endian(&body[7..10]))),
        b"VP8L" => {
            let bits = little_endian(&body[1..5]);
            Some((1 + (bits & 0x3fff), 1 + (bits >> 14 & 0x3fff)))
        }
        b"VP8 " => {
            let size = |at: usize| little_endian(&body[at..at + 2]) & 0x3fff;
            Some((size(6), size(8)))
        }
        _ => None,
    }
}

fn big_endian(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u32::from(byte))
}

fn little_endian(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_formats_state_their_size() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x04\0\0\0\x03\0\x08\x06";
        assert_eq!(size(png), Some((1024, 768)));
        assert_eq!(size(b"GIF89a\x40\x01\xf0\0\xf7"), Some((320, 240)));
        let jpeg =
            b"\xff\xd8\xff\xe0\0\x04\0\0\xff\xc2\0\x0b\x08\x02\x58\x03\x20\x03\x01\xff\xda\0\x02";
        assert_eq!(size(jpeg), Some((800, 600)));
        let lossy = b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a\x80\x02\xe0\x01";
        assert_eq!(size(lossy), Some((640, 480)));
        let extended = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x7f\x02\0\xdf\x01\0";
        assert_eq!(size(extended), Some((640, 480)));
        let bits: u32 = 639 | 479 << 14;
        let mut lossless = b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f".to_vec();
        lossless.extend(bits.to_le_bytes());
        lossless.extend([0; 5]);
        assert_eq!(size(&lossless), Some((640, 480)));
    }

    #[test]
    fn every_cut_of_a_header_is_read_without_a_panic() {
        let jpeg = b"\xff\xd8\xff\xe0\0\x04\0\0\xff\xff\xc2\0\x0b\x08\x02\x58\x03\x20";
        for end in 0..jpeg.len() {
            let _ = size(&jpeg[..end]);
        }
        assert_eq!(size(b"\xff\xd8\xff\xe0\0\0\0\0"), None);
        assert_eq!(size(b"<svg width='9'/>"), None);
    }
}
