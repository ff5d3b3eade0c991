//! Where an answer ends.

use http::HeaderMap;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};

/// Whether a head leaves it open where its body ends: with both a length and chunks, or with a transfer coding other than
/// chunks alone. Whoever takes the one for the other reads a part of an answer as all of it, or as the next one (RFC 9112,
/// 6.3).
pub(super) fn is_ambiguous(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => false,
        (Some(coding), None) => {
            headers.contains_key(CONTENT_LENGTH)
                || !coding.as_bytes().eq_ignore_ascii_case(b"chunked")
        }
        (Some(_), Some(_)) => true,
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn a_body_ends_in_one_way() {
        let of = |pairs: &[(HeaderName, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(name, HeaderValue::from_static(value));
            }
            is_ambiguous(&headers)
        };
        assert!(!of(&[]));
        assert!(!of(&[(CONTENT_LENGTH, "3")]));
        assert!(!of(&[(TRANSFER_ENCODING, "Chunked")]));
        assert!(of(&[(TRANSFER_ENCODING, "chunked"), (CONTENT_LENGTH, "3")]));
        assert!(of(&[(TRANSFER_ENCODING, "gzip, chunked")]));
        assert!(of(&[(TRANSFER_ENCODING, "chunked"), (TRANSFER_ENCODING, "chunked")]));
    }
}
