//! Files that tests read: the conformance vectors and recorded traces.
//!
//! A copy of both is in the repository, so that every clone tests them. Further vectors and larger
//! traces are read from the folder that `FAIRGATE_SHARED` names, by default `../shared`, if it
//! exists.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the paths of all vectors whose names end with `suffix`, sorted by name. If a vector of
/// the shared folder has the same contents as the repository's vector of that name, it is left out.
///
/// # Panics
/// Panics if the repository has no such vector.
pub fn vectors(suffix: &str) -> Vec<PathBuf> {
    let own = files_ending_with(&repository_folder().join("conformance/vectors"), suffix);
    assert!(!own.is_empty(), "the repository has no vectors that end with {suffix}");
    let others = files_ending_with(&shared_folder().join("conformance/vectors"), suffix);
    let is_new = |name: &String, path: &PathBuf| match own.get(name) {
        Some(known) => fs::read(known).ok() != fs::read(path).ok(),
        None => true,
    };
    let others: Vec<PathBuf> = others
        .iter()
        .filter(|(name, path)| is_new(name, path))
        .map(|(_, path)| path.clone())
        .collect();
    own.into_values().chain(others).collect()
}

/// Returns the path of a trace in the repository, such as `azure_code_2023.csv`.
pub fn trace(name: &str) -> PathBuf {
    repository_folder().join("traces").join(name)
}

/// Returns the path of a larger trace in the shared folder; `None` if there is no such file.
pub fn shared_trace(name: &str) -> Option<PathBuf> {
    Some(shared_folder().join("data").join(name)).filter(|path| path.is_file())
}

fn repository_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests")
}

fn shared_folder() -> PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    std::env::var_os("FAIRGATE_SHARED").map_or(beside, PathBuf::from)
}

/// Returns the files of a folder by name; an empty map if there is no such folder.
fn files_ending_with(folder: &Path, suffix: &str) -> BTreeMap<String, PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry)));
    let wanted = named.filter(|(name, _)| name.ends_with(suffix));
    wanted.map(|(name, entry)| (name, entry.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_clone_has_the_vectors_and_the_traces() {
        assert!(vectors(".journal.jsonl").len() >= 192);
        assert!(vectors(".snapshot.json").len() >= 72);
        for name in ["azure_code_2023.csv", "azure_conv_2023.csv"] {
            assert!(trace(name).is_file(), "{name}");
        }
    }

    #[test]
    fn equal_vectors_are_tested_once() {
        let mut texts: Vec<(String, Vec<u8>)> = Vec::new();
        for path in vectors(".snapshot.json") {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            texts.push((name.unwrap_or_default(), fs::read(path).unwrap_or_default()));
        }
        let count = texts.len();
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), count);
    }
}
