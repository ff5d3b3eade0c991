//! The core stays pure: no clock, randomness, float, I/O, async, serde or logging, and no order of a hash
//! map. Clippy refuses the types and functions that `clippy.toml` lists, once it knows what a name means;
//! these tests look at what clippy does not see: the dependencies, and the plain words of the source, also
//! where they are compiled for another machine or inside a macro.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it reads the source and asks cargo"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// What may not stand in the source, as Rust would read it: spaces do not matter, and `rand` is not found
/// in `operand`. Comments, texts and test modules may say anything.
const FORBIDDEN: &[(&str, &str)] = &[
    ("f32", "decisions are exact"),
    ("f64", "decisions are exact"),
    (FLOAT, "decisions are exact"),
    ("Instant", "time comes in with each event"),
    ("SystemTime", "time comes in with each event"),
    ("rand", "what decides comes in as an event"),
    ("HashMap", "hash order must not decide"),
    ("HashSet", "hash order must not decide"),
    ("RandomState", "it differs between runs"),
    ("DefaultHasher", "its algorithm may change with the compiler"),
    ("async", "the core waits for nothing"),
    (".await", "the core waits for nothing"),
    ("serde", "the text form is the journal's"),
    ("log::", "the core tells by its decisions"),
    ("tracing", "the core tells by its decisions"),
    ("println!", "the core does no I/O"),
    ("print!", "the core does no I/O"),
    ("eprintln!", "the core does no I/O"),
    ("eprint!", "the core does no I/O"),
    ("dbg!", "the core does no I/O"),
    ("std::io", "the core does no I/O"),
    ("std::fs", "the core does no I/O"),
    ("std::net", "the core does no I/O"),
    ("std::os", "the core does no I/O"),
    ("std::env", "what decides comes in as an event"),
    ("std::process", "the core starts and ends nothing"),
    ("std::thread", "the core starts nothing"),
    ("thread_local!", "state lives in the pool"),
    ("unsafe", "nothing here needs it"),
];

/// Each crate the core may be built from, itself included, with the features it may have.
const DEPENDENCIES: &[(&str, &str)] = &[("fairgate-core", ""), ("hashbrown", "")];

/// Stands for every float literal.
const FLOAT: &str = "<float>";

#[test]
fn the_core_is_built_from_hashbrown_alone() {
    let tree = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(home())
        .args(["tree", "--offline", "--all-features", "--target", "all"])
        .args(["--edges", "normal,build", "--prefix", "none", "--format", "{p}|{f}"])
        .output()
        .expect("cargo runs");
    assert!(tree.status.success(), "cargo tree: {}", String::from_utf8_lossy(&tree.stderr));
    let lines = String::from_utf8(tree.stdout).expect("cargo prints text");
    assert_eq!(dependencies(&lines), DEPENDENCIES);
    assert!(!home().join("build.rs").exists(), "a build script");
}

/// The crate's folder as cargo says it now: what it said at compile time may be another checkout's.
fn home() -> PathBuf {
    env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests").into()
}

/// The names and features in what `cargo tree` prints: `name version (where)|features`.
fn dependencies(lines: &str) -> Vec<(&str, &str)> {
    let line =
        |line: &'_ str| -> Option<(usize, usize)> { Some((line.find(' ')?, line.rfind('|')?)) };
    lines.lines().filter_map(|l| line(l).map(|(name, bar)| (&l[..name], &l[bar + 1..]))).collect()
}

#[test]
fn a_new_dependency_or_feature_would_show() {
    let lines = "fairgate-core v0.1.0 (/a b|c)|\nhashbrown v0.16.1|default-hasher\nrand v1.0.0|\n";
    let expected = [("fairgate-core", ""), ("hashbrown", "default-hasher"), ("rand", "")];
    assert_eq!(dependencies(lines), expected);
}

#[test]
fn the_source_says_nothing_impure() {
    let sources = sources();
    assert!(sources.len() > 1, "no sources found");
    let violations: Vec<_> = sources
        .iter()
        .flat_map(|(path, text)| {
            violations(text)
                .into_iter()
                .map(move |(line, word, why)| format!("{}:{line}: `{word}`: {why}", path.display()))
        })
        .collect();
    assert!(violations.is_empty(), "the core is not pure:\n{}", violations.join("\n"));
}

/// A hash table has no order that may decide, but nothing stops `for entry in &table`. One file may wrap
/// it and offer look-ups; nobody else can go through it then.
#[test]
fn one_file_at_most_knows_the_hash_table() {
    let sources = sources();
    let knows = |text: &str| shipped(tokens(text)).0.iter().any(|t| t.text == "HashTable");
    let files: Vec<_> = sources.iter().filter(|(_, text)| knows(text)).map(|(p, _)| p).collect();
    assert!(files.len() <= 1, "wrap HashTable in one file, not in {files:?}");
}

/// Every source file that is compiled outside of tests, with its text, sorted by path.
fn sources() -> Vec<(PathBuf, String)> {
    let (mut files, mut dirs) = (Vec::new(), vec![home().join("src")]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).expect("a text");
                files.push((path, text));
            }
        }
    }
    let tests: Vec<_> = files.iter().flat_map(|(path, text)| test_modules(path, text)).collect();
    files.retain(|(path, _)| {
        !tests.iter().any(|test| path.starts_with(test) || *path == test.with_extension("rs"))
    });
    files.sort();
    files
}

/// Where the modules live that `path` declares as `#[cfg(test)] mod name;`: `<this>.rs` or `<this>/`.
fn test_modules(path: &Path, text: &str) -> Vec<PathBuf> {
    let is_root = ["lib.rs", "mod.rs"].iter().any(|root| path.ends_with(root));
    let home = if is_root { path.with_file_name("") } else { path.with_extension("") };
    shipped(tokens(text)).1.iter().map(|module| home.join(module)).collect()
}

/// Line, forbidden words and the reason, for each place in `source` that ships.
fn violations(source: &str) -> Vec<(usize, &'static str, &'static str)> {
    let (tokens, _) = shipped(tokens(source));
    let imports = imports(&tokens);
    let mut found = Vec::new();
    for &(pattern, why) in FORBIDDEN {
        let words =
            if pattern == FLOAT { vec![FLOAT.into()] } else { texts(self::tokens(pattern)) };
        for run in std::iter::once(&tokens).chain(&imports) {
            for at in run.windows(words.len()) {
                if at.iter().map(|t| &t.text).eq(&words) {
                    found.push((at[0].line, pattern, why));
                }
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// A word, a number or a punctuation mark, and the line it stands on.
#[derive(Clone, Debug)]
struct Token {
    text: String,
    line: usize,
}

fn texts(tokens: Vec<Token>) -> Vec<String> {
    tokens.into_iter().map(|t| t.text).collect()
}

/// The tokens without those of `#[cfg(test)]` items, and the names of the test modules kept in files of
/// their own.
fn shipped(tokens: Vec<Token>) -> (Vec<Token>, Vec<String>) {
    const TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let (mut kept, mut modules) = (Vec::new(), Vec::new());
    let mut rest = &tokens[..];
    while let Some((first, after)) = rest.split_first() {
        if rest.len() >= TEST.len() && rest.iter().zip(TEST).all(|(t, word)| t.text == word) {
            let item = &rest[TEST.len()..];
            let (item, after) = item.split_at(item_len(item));
            match item {
                [.., word, name, end] if word.text == "mod" && end.text == ";" => {
                    modules.push(name.text.clone());
                }
                _ => {}
            }
            rest = after;
        } else {
            kept.push(first.clone());
            rest = after;
        }
    }
    (kept, modules)
}

/// How many tokens the first item takes: up to its `;`, or to the end of its braces.
fn item_len(tokens: &[Token]) -> usize {
    let mut depth = 0_usize;
    for (i, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" => depth -= 1,
            "}" if depth == 1 => return i + 1,
            "}" => depth -= 1,
            ";" if depth == 0 => return i + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// The paths that `use` declarations bring in, each written out: `use a::{b, c}` is `a::b` and `a::c`.
fn imports(tokens: &[Token]) -> Vec<Vec<Token>> {
    let mut paths = Vec::new();
    for (i, _) in tokens.iter().enumerate().filter(|(_, t)| t.text == "use") {
        write_out(&[], &mut tokens[i + 1..].iter(), &mut paths);
    }
    paths
}

/// Writes out one tree of a `use` declaration, up to the `,`, `}` or `;` after it, which is returned.
fn write_out<'a>(
    before: &[Token],
    tokens: &mut impl Iterator<Item = &'a Token>,
    paths: &mut Vec<Vec<Token>>,
) -> Option<&'a str> {
    let mut path = before.to_vec();
    while let Some(token) = tokens.next() {
        match token.text.as_str() {
            end @ ("," | "}" | ";") => {
                paths.push(path);
                return Some(end);
            }
            "{" => while write_out(&path, tokens, paths) == Some(",") {},
            _ => path.push(token.clone()),
        }
    }
    None
}

/// The tokens of a Rust source, without comments, texts, characters and lifetimes.
fn tokens(source: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    let (mut rest, mut line) = (source, 1);
    while let Some(first) = rest.chars().next() {
        let after_dot = tokens.last().is_some_and(|t| t.text == ".");
        let (len, text) = match first {
            _ if first.is_whitespace() => (first.len_utf8(), None),
            _ if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), None),
            _ if rest.starts_with("/*") => (block_comment_len(rest), None),
            _ if let Some(len) = text_len(rest) => (len, None),
            '\'' => (quoted_len(rest), None),
            '0'..='9' => number(rest, after_dot),
            _ if is_word(first) => (word_len(rest), Some(&rest[..word_len(rest)])),
            _ if rest.starts_with("::") => (2, Some("::")),
            _ => (first.len_utf8(), Some(&rest[..first.len_utf8()])),
        };
        tokens.extend(text.map(|text| Token { text: text.into(), line }));
        line += rest[..len].matches('\n').count();
        rest = &rest[len..];
    }
    tokens
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn word_len(rest: &str) -> usize {
    rest.find(|c| !is_word(c)).unwrap_or(rest.len())
}

/// A number's length and text. After a dot it is the index of a tuple.
fn number(rest: &str, after_dot: bool) -> (usize, Option<&str>) {
    let len = word_len(rest);
    let (word, behind) = rest.split_at(len);
    let suffix = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '_');
    let mut next = behind.chars().skip(1);
    let has_point =
        behind.starts_with('.') && !next.next().is_some_and(|c| c == '.' || is_start(c));
    match suffix {
        _ if after_dot => (len, Some(word)),
        "f32" | "f64" => (len, Some(FLOAT)),
        "" if has_point => (len + 1 + word_len(&behind[1..]), Some(FLOAT)),
        _ if suffix.starts_with(['e', 'E']) => (len, Some(FLOAT)),
        _ => (len, Some(word)),
    }
}

fn is_start(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

/// Block comments nest.
fn block_comment_len(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// The length of a string literal, plain or raw, with its prefix; `None` where there is none.
fn text_len(rest: &str) -> Option<usize> {
    let prefix = ["br", "cr", "r", "b", "c", ""].into_iter().find(|p| {
        rest.strip_prefix(p).is_some_and(|r| r.trim_start_matches('#').starts_with('"'))
    })?;
    let body = &rest[prefix.len()..];
    let hashes = body.len() - body.trim_start_matches('#').len();
    let open = prefix.len() + hashes + 1;
    if prefix.ends_with('r') {
        let end = format!("\"{}", "#".repeat(hashes));
        return Some(rest[open..].find(&end).map_or(rest.len(), |at| open + at + end.len()));
    }
    (hashes == 0).then(|| open + closed_by('"', &rest[open..]))
}

/// How much there is up to the closing mark, inclusive; a backslash takes the next character with it.
fn closed_by(mark: char, rest: &str) -> usize {
    let mut chars = rest.char_indices();
    while let Some((i, c)) = chars.next() {
        match c {
            '\\' => _ = chars.next(),
            c if c == mark => return i + 1,
            _ => {}
        }
    }
    rest.len()
}

/// A character literal or a lifetime.
fn quoted_len(rest: &str) -> usize {
    let mut inside = rest[1..].chars();
    match (inside.next(), inside.next()) {
        (Some('\\'), _) | (_, Some('\'')) => 1 + closed_by('\'', &rest[1..]),
        _ => 1 + word_len(&rest[1..]),
    }
}

#[cfg(test)]
mod scanner {
    use super::*;

    fn words(source: &str) -> Vec<(usize, &'static str)> {
        violations(source).into_iter().map(|(line, word, _)| (line, word)).collect()
    }

    #[test]
    fn catches_every_forbidden_word_where_it_is_planted() {
        for &(word, _) in FORBIDDEN.iter().filter(|(word, _)| *word != FLOAT) {
            let planted = format!("fn fine() {{}}\nfn f(x: u64) {{ x {word} x }}\n");
            assert_eq!(words(&planted), [(2, word)]);
        }
    }

    #[test]
    fn catches_floats_however_they_are_written() {
        for float in ["1.5", "1.", "0.5e3", "1e9", "2E-3", "1_000.0", "1f64", "7_f32"] {
            assert_eq!(words(&format!("let x = {float};")), [(1, FLOAT)], "{float}");
        }
        let integers = "x.0.1; 0..5; 1..=2; 1.max(2); 0x1e3; 0xf64; 1usize; 1_000u64; 0b1; t.0 .1";
        assert_eq!(words(integers), []);
    }

    #[test]
    fn catches_what_hides_in_a_group_of_imports() {
        let source =
            "use core::fmt;\nuse std::{\n    fmt,\n    fs::{self, File},\n    io as x,\n};\n";
        assert_eq!(words(source), [(2, "std::fs"), (2, "std::io")]);
        assert_eq!(words("use std::collections::{BTreeMap, HashMap};"), [(1, "HashMap")]);
        assert_eq!(words("fn f() { use std :: { sync::Arc, thread }; }"), [(1, "std::thread")]);
        assert_eq!(words("use std::{sync::Arc, time::Duration};\nmod io;\nuse crate::io;"), []);
    }

    #[test]
    fn does_not_read_comments_texts_characters_and_lifetimes() {
        let source = r####"
            //! An f64 here, and HashMap.
            /* unsafe /* nested f32 */ still unsafe */
            /// async
            fn f<'rand>(x: &'rand str) -> char {
                let s = "println! \" f64";
                let r = r##"unsafe "# f32"##;
                let b = (b"serde", br"\", c"tracing", '"', '\'', b'"', '\u{41}');
                operand.random(s, r, b)
            }
        "####;
        assert_eq!(words(source), []);
        assert_eq!(words("let a = '\"'; unsafe {}"), [(1, "unsafe")]);
        assert_eq!(words("let a = \"\\\\\"; unsafe {}"), [(1, "unsafe")]);
        assert_eq!(words("let a = r\"\\\"; unsafe {}"), [(1, "unsafe")]);
        assert_eq!(words("/* \n */ unsafe {} // f32"), [(2, "unsafe")]);
        assert_eq!(words("r#unsafe"), [(1, "unsafe")]);
    }

    #[test]
    fn does_not_read_test_modules_but_goes_on_after_them() {
        let source = "
            #[cfg(test)]
            #[allow(dead_code)]
            mod tests { const A: [f64; 2] = [1.0; 2]; fn f() { if true { unsafe {} } } }
            fn f() { unsafe {} }
            #[cfg(test)] use std::collections::HashMap;
            #[cfg(not(test))] use std::collections::HashSet;
        ";
        assert_eq!(words(source), [(5, "unsafe"), (7, "HashSet")]);
    }

    #[test]
    fn knows_the_files_of_test_modules() {
        let source = "#[cfg(test)]\nmod tests;\nmod shipped;";
        assert_eq!(test_modules(Path::new("src/lib.rs"), source), [Path::new("src/tests")]);
        assert_eq!(test_modules(Path::new("src/a/mod.rs"), source), [Path::new("src/a/tests")]);
        assert_eq!(test_modules(Path::new("src/a.rs"), source), [Path::new("src/a/tests")]);
    }
}
