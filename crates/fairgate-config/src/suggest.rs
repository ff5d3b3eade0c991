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

/// Returns the candidate that the fewest edits turn the written text into. Returns `None` if even that candidate needs
/// more edits than a third of the written characters; one edit is always accepted.
fn closest<'a>(written: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let written: Vec<char> = written.chars().take(LONGEST).flat_map(char::to_lowercase).collect();
    let most = (written.len() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (edits(&written, &candidate.to_lowercase()), candidate))
        .filter(|&(edits, _)| edits <= most)
        .min_by_key(|&(edits, _)| edits)
        .map(|(_, candidate)| candidate)
}

/// Largest number of characters of a word that are compared. The time of a comparison grows with the product of both
/// lengths, so the rest of a longer word is ignored.
const LONGEST: usize = 200;

/// Returns the number of characters to insert, remove, replace or swap with their neighbour to turn `from` into `to`.
fn edits(from: &[char], to: &str) -> usize {
    let to: Vec<char> = to.chars().take(LONGEST).collect();
    let mut before = vec![0; to.len() + 1];
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for i in 1..=from.len() {
        let mut row = vec![i; to.len() + 1];
        for j in 1..=to.len() {
            let change = last[j - 1] + usize::from(from[i - 1] != to[j - 1]);
            row[j] = change.min(last[j] + 1).min(row[j - 1] + 1);
            let swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
            if swapped {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[to.len()]
}

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

    #[test]
    fn edits_are_counted() {
        for (from, to, count) in
            [("", "", 0), ("abc", "", 3), ("abc", "acb", 1), ("abc", "xbc", 1), ("ab", "abcd", 2)]
        {
            assert_eq!(edits(&from.chars().collect::<Vec<_>>(), to), count, "{from} {to}");
        }
    }
}
