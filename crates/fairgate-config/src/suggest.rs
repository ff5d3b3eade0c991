//! Suggestions for misspelled names.

/// Returns `; did you mean "listen"?` if one of the candidates is close to the written text, else an empty text.
pub(crate) fn did_you_mean<'a>(
    written: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> String {
    match closest(written, candidates) {
        Some(candidate) => format!("; did you mean {candidate:?}?"),
        None => String::new(),
    }
}

/// Returns the candidate that needs the fewest edits to become the written text. An edit inserts,
/// removes or replaces a character, or swaps two neighbours. Returns `None` if the candidate needs
/// more edits than a third of the written characters; one edit is always accepted.
fn closest<'a>(written: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let written: String = written.chars().take(LONGEST).flat_map(char::to_lowercase).collect();
    let most = (written.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (strsim::osa_distance(&written, &candidate.to_lowercase()), candidate))
        .filter(|&(edits, _)| edits <= most)
        .min_by_key(|&(edits, _)| edits)
        .map(|(_, candidate)| candidate)
}

/// Largest number of characters of a written name that are compared. The time of a comparison grows with the product of
/// both lengths, so the rest of a longer name is ignored.
const LONGEST: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_names_are_suggested_and_far_ones_are_not() {
        let fields = ["listen", "limits", "pools", "upstreams"];
        for (written, meant) in [
            ("lisetn", Some("listen")),
            ("Listen", Some("listen")),
            ("limit", Some("limits")),
            ("pool", Some("pools")),
            ("upstream", Some("upstreams")),
            ("port", None),
            ("", None),
        ] {
            assert_eq!(closest(written, fields), meant, "{written}");
        }
    }
}
