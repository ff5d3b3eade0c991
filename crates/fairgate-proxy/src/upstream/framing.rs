//! Checks that the headers of an answer make the end of its body clear.
//!
//! An answer whose end is ambiguous is a failure of the upstream.

use http::HeaderMap;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};

/// Returns true if the headers leave the end of the body ambiguous: they state both a length and
/// chunks, or a transfer coding other than chunks alone. A reader that assumes the wrong end
/// mistakes a part of an answer for the whole answer, or takes a part of one answer for the next
/// (RFC 9112, 6.3).
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
