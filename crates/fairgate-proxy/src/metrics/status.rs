//! Label values for HTTP statuses.

/// Returns the status itself if Fairgate or upstreams commonly send it, else the class of the
/// status, such as `4xx`. An upstream may answer with any three digits, but the number of label
/// values must be bounded.
pub(super) fn status_label(status: u16) -> &'static str {
    const USUAL: [(u16, &str); 17] = [
        (200, "200"),
        (400, "400"),
        (401, "401"),
        (403, "403"),
        (404, "404"),
        (405, "405"),
        (408, "408"),
        (413, "413"),
        (415, "415"),
        (422, "422"),
        (429, "429"),
        (499, "499"),
        (500, "500"),
        (502, "502"),
        (503, "503"),
        (504, "504"),
        (529, "529"),
    ];
    if let Some((_, label)) = USUAL.iter().find(|(usual, _)| *usual == status) {
        return label;
    }
    match status / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        5 => "5xx",
        _ => "other",
    }
}
