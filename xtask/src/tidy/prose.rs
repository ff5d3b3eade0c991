//! Measures of names and comments, which are the language of the code.

use std::collections::BTreeMap;

use super::Measure;
use super::source::{SourceFile, SourceTree};

/// Question words with which a doc comment should not begin.
const QUESTION_WORDS: [&str; 6] = ["What", "Who", "Where", "Which", "Why", "When"];

/// Greatest number of words of a short doc comment, which hardly says more than the name below it.
const SHORT_DOC_WORDS: usize = 3;

/// Words that no comment may use, because readers do not know what they mean here.
const BANNED_WORDS: [&str; 11] = [
    "told", "news", "adrift", "employ", "employs", "errand", "errands", "scribe", "anew",
    "of late", "so much",
];

pub(super) fn measures(tree: &SourceTree) -> Vec<Measure> {
    let types: Vec<_> = tree
        .product
        .iter()
        .flat_map(|file| file.types().into_iter().map(move |found| (file, found)))
        .collect();
    let mut homes: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, found) in &types {
        *homes.entry(&found.name).or_default() += 1;
    }
    let shown =
        |file: &SourceFile, line: usize, what: &str| format!("{}:{line}: {what}", file.path);
    let one_word = types.iter().filter(|(_, found)| is_one_word(&found.name));
    let shared = types.iter().filter(|(_, found)| homes[found.name.as_str()] > 1);
    let docs: Vec<_> = tree
        .product
        .iter()
        .flat_map(|file| file.doc_comments().into_iter().map(move |doc| (file, doc)))
        .collect();
    let asking = docs.iter().filter(|(_, doc)| begins_with_question(&doc.text));
    let short =
        docs.iter().filter(|(_, doc)| doc.text.split_whitespace().count() <= SHORT_DOC_WORDS);
    vec![
        Measure::percent(
            "one_word_types",
            "type names of one plain word",
            40,
            types.len(),
            one_word.map(|(file, found)| shown(file, found.line, &found.name)).collect(),
        ),
        Measure::percent(
            "shared_types",
            "types that share their name with another",
            15,
            types.len(),
            shared.map(|(file, found)| shown(file, found.line, &found.name)).collect(),
        ),
        Measure::percent(
            "question_docs",
            "doc comments that begin with What, Who, Where, Which, Why or When",
            2,
            docs.len(),
            asking.map(|(file, doc)| shown(file, doc.line, &doc.text)).collect(),
        ),
        Measure::percent(
            "short_docs",
            "doc comments of three words or fewer",
            3,
            docs.len(),
            short.map(|(file, doc)| shown(file, doc.line, &doc.text)).collect(),
        ),
        Measure::places("banned_words", "comments with a banned word", 0, banned(tree)),
        Measure::places(
            "missing_files",
            "files named in prose that do not exist",
            0,
            missing_files(tree),
        ),
        Measure::places(
            "missing_functions",
            "functions named in prose as `file.rs:function` that do not exist",
            0,
            missing_functions(tree),
        ),
    ]
}

fn is_one_word(name: &str) -> bool {
    name.chars().filter(|c| c.is_uppercase()).count() == 1
}

fn begins_with_question(doc: &str) -> bool {
    let first = doc.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    QUESTION_WORDS.contains(&first)
}

/// Finds comments (not strings or code) that contain one of the [`BANNED_WORDS`].
fn banned(tree: &SourceTree) -> Vec<String> {
    let mut found = Vec::new();
    for file in &tree.product {
        for (index, line) in file.lines().enumerate() {
            let Some(comment) = comment(line) else { continue };
            let comment = comment.to_lowercase();
            let is_used = |word: &&&str| contains_word(&comment, word);
            if let Some(word) = BANNED_WORDS.iter().find(is_used) {
                found.push(format!("{}:{}: `{word}`", file.path, index + 1));
            }
        }
    }
    found
}

/// Returns the text of a line that consists only of a comment; `None` for other lines.
fn comment(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("//")
}

fn contains_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        let is_part =
            |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '`');
        !is_part(before) && !is_part(after)
    })
}

/// Finds names of Rust files and pages, in comments and in pages, for which no file exists.
fn missing_files(tree: &SourceTree) -> Vec<String> {
    let mut missing = Vec::new();
    let is_there = |name: &str| {
        let name = name.trim_start_matches("./").trim_start_matches("../");
        tree.paths.iter().any(|path| path == name || path.ends_with(&format!("/{name}")))
    };
    for file in tree.product.iter().chain(&tree.tests).chain(&tree.pages) {
        let is_page = file.path.ends_with(".md");
        for (index, line) in file.text.lines().enumerate() {
            let Some(text) = (if is_page { Some(line) } else { comment(line) }) else { continue };
            for name in quoted(text).filter(|name| is_file_name(name) && !is_there(name)) {
                missing.push(format!("{}:{}: `{name}`", file.path, index + 1));
            }
        }
    }
    missing
}

/// Finds names such as `` `forward/send.rs:send` `` in pages for which no such file has such a function.
fn missing_functions(tree: &SourceTree) -> Vec<String> {
    let is_there = |file: &str, function: &str| {
        let definition = [format!("fn {function}("), format!("fn {function}<")];
        let in_file = |it: &&SourceFile| it.path == file || it.path.ends_with(&format!("/{file}"));
        tree.product.iter().filter(in_file).any(|it| definition.iter().any(|d| it.text.contains(d)))
    };
    let mut missing = Vec::new();
    for page in &tree.pages {
        for (index, line) in page.text.lines().enumerate() {
            let named = quoted(line).filter_map(|name| name.split_once(".rs:"));
            for (file, function) in named.map(|(file, function)| (format!("{file}.rs"), function)) {
                let is_name = !function.is_empty()
                    && function.chars().all(|c| c.is_ascii_lowercase() || c == '_');
                if is_name && !is_there(&file, function) {
                    missing.push(format!("{}:{}: `{file}:{function}`", page.path, index + 1));
                }
            }
        }
    }
    missing
}

/// Returns the texts between single backticks in a line.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns whether a text is the path of one Rust file or page, without placeholders or patterns.
fn is_file_name(name: &str) -> bool {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let is_rust = name.ends_with(".rs") && !name.contains(|c: char| c.is_ascii_uppercase());
    (is_rust || name.ends_with(".md")) && name.chars().all(is_path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "crates/a/src/lib.rs";

    /// Returns the offenders of one measure in a tree.
    fn offenders(name: &str, files: &[(&str, &str)]) -> Vec<String> {
        let measures = measures(&SourceTree::of(files));
        measures.into_iter().find(|measure| measure.name == name).expect("it is measured").offenders
    }

    #[test]
    fn a_type_of_one_plain_word_is_found() {
        let text = "struct Desk;\nstruct ReportQueue;\n";
        assert_eq!(offenders("one_word_types", &[(PATH, text)]), ["crates/a/src/lib.rs:1: Desk"]);
    }

    #[test]
    fn types_with_one_name_are_found_in_all_crates() {
        let files =
            [(PATH, "struct Desk;\n"), ("crates/b/src/lib.rs", "enum Desk {}\nenum Own {}\n")];
        let expected = ["crates/a/src/lib.rs:1: Desk", "crates/b/src/lib.rs:1: Desk"];
        assert_eq!(offenders("shared_types", &files), expected);
        // A test may use a name of the product.
        assert!(
            offenders("shared_types", &[files[0], ("crates/b/tests/it.rs", files[1].1)]).is_empty()
        );
    }

    #[test]
    fn a_doc_comment_that_asks_is_found() {
        let text =
            "/// What is left.\n/// Whatever comes.\nfn a() {}\n/// Whichever it is.\nfn b() {}\n";
        let expected = ["crates/a/src/lib.rs:1: What is left. Whatever comes."];
        assert_eq!(offenders("question_docs", &[(PATH, text)]), expected);
    }

    #[test]
    fn a_doc_comment_of_three_words_is_found() {
        let text = "/// Its own name.\nfn a() {}\n/// Name of the tenant.\nfn b() {}\n";
        assert_eq!(
            offenders("short_docs", &[(PATH, text)]),
            ["crates/a/src/lib.rs:1: Its own name."]
        );
    }

    #[test]
    fn a_banned_word_is_found_in_comments_alone() {
        let text = "// It is told.\nlet told = \"told\";\n/// Foretold; `told`, and of lateness.\nfn a() {}\n/// Of late.\n";
        let expected = ["crates/a/src/lib.rs:1: `told`", "crates/a/src/lib.rs:5: `of late`"];
        assert_eq!(offenders("banned_words", &[(PATH, text)]), expected);
    }

    #[test]
    fn a_file_that_is_not_there_is_found_in_comments_and_pages() {
        let page =
            "See `lib.rs`, `a/src/gone.rs`, `src/**/*.rs`, `tests/NAME.rs` and `docs/none.md`.\n";
        let files = [(PATH, "//! As in `probe.rs`.\n"), ("README.md", page)];
        let expected = [
            "crates/a/src/lib.rs:1: `probe.rs`",
            "README.md:1: `a/src/gone.rs`",
            "README.md:1: `docs/none.md`",
        ];
        assert_eq!(offenders("missing_files", &files), expected);
    }

    #[test]
    fn functions_that_do_not_exist_are_found() {
        let code = ("crates/a/src/b/send.rs", "pub fn send(a: u8) {}\nfn of<T>() {}");
        let page = |text| offenders("missing_functions", &[code, ("MAP.md", text)]);
        assert!(page("`b/send.rs:send` → `send.rs:of`, `send.rs:12`").is_empty());
        assert_eq!(page("`send.rs:sent`"), ["MAP.md:1: `send.rs:sent`"]);
        assert_eq!(page("`a.rs:send`"), ["MAP.md:1: `a.rs:send`"]);
    }
}
