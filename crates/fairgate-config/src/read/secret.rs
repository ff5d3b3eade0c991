//! Reads secrets. A configuration file must not contain a secret itself, only the name of the environment
//! variable or file that has it. No error message repeats text that stands in the place of a secret.

use std::fs;
use std::path::Path;

use crate::config::{Secret, UpstreamCredential};
use crate::declared::DeclaredKeyHash;
use crate::field::ConfigField;

/// The fewest characters of an admin token, and of a webhook's secret.
const TOKEN_CHARS_MIN: usize = 16;

/// Prefix and length of the secrets of keys that Fairgate makes, and the number of first characters
/// that may be shown.
const MADE_SECRET: (&str, usize, usize) = ("fg-", 46, 7);

/// The largest secret, in bytes.
const SECRET_BYTES_MAX: u64 = 64 << 10;

pub(super) fn credential(field: ConfigField<'_>) -> Option<UpstreamCredential> {
    in_header(field).map(|secret| UpstreamCredential { secret })
}

pub(super) fn admin_token(field: ConfigField<'_>) -> Option<Secret> {
    let token = in_header(field.clone())?;
    match token.expose().len() >= TOKEN_CHARS_MIN {
        true => Some(token),
        false => field.wrong(format!(
            "is too easy to guess: an admin token has at least {TOKEN_CHARS_MIN} characters"
        )),
    }
}

/// Reads a secret of the form `USER:PASSWORD`.
pub(super) fn user_and_password(field: ConfigField<'_>) -> Option<Secret> {
    let secret = in_header(field.clone())?;
    match secret.expose().split_once(':') {
        Some((user, _)) if !user.is_empty() => Some(secret),
        _ => field.wrong("must be a user and a password with a colon between them: USER:PASSWORD"),
    }
}

/// Reads the secret with which the events of a webhook are signed.
pub(super) fn webhook_secret(field: ConfigField<'_>) -> Option<Secret> {
    let secret = secret(field.clone())?;
    match secret.expose().len() >= TOKEN_CHARS_MIN {
        true => Some(secret),
        false => field.wrong(format!(
            "is too easy to guess: the secret of a webhook has at least {TOKEN_CHARS_MIN} characters"
        )),
    }
}

/// The parts of a declared key's secret that are kept.
pub(super) struct DeclaredSecret {
    pub(super) hash: DeclaredKeyHash,
    /// First characters of a secret that Fairgate made; empty for other secrets.
    pub(super) hint: String,
    /// Source of the secret or its hash.
    pub(super) source: String,
}

/// Reads the secret of a declared key: `{hash: …}`, `{env: NAME}` or `{file: PATH}`.
pub(super) fn declared_secret(field: ConfigField<'_>) -> Option<DeclaredSecret> {
    if field.scalar().is_some() {
        return field.wrong(
            "must not be written here, where others can read it: write {hash: …} as `fairgate key hash` prints it, or put \
             the key into an environment variable or a file and write {env: NAME} or {file: PATH}",
        );
    }
    let names = field.entries().unwrap_or_default();
    if names.iter().any(|(entry, _)| entry.name == "hash") {
        let section = field.section(&["hash", "env", "file"])?;
        if section.has("env") || section.has("file") {
            return section.field.wrong("hash, env and file exclude each other");
        }
        let hash = section.optional("hash", key_hash)??;
        let source = "its hash in the file".to_owned();
        return Some(DeclaredSecret { hash, hint: String::new(), source });
    }
    let secret = in_header(field.clone())?;
    let text = secret.expose();
    if text.len() < TOKEN_CHARS_MIN {
        return field.wrong(format!(
            "is too easy to guess: a key has at least {TOKEN_CHARS_MIN} characters"
        ));
    }
    let (beginning, length, shown) = MADE_SECRET;
    let is_made = text.starts_with(beginning) && text.len() == length;
    Some(DeclaredSecret {
        hash: DeclaredKeyHash::of(text.as_bytes()),
        hint: if is_made { text.chars().take(shown).collect() } else { String::new() },
        source: secret.source().unwrap_or_default().to_owned(),
    })
}

/// Reads the hash of a key. The message does not repeat the text, which may be the key itself.
fn key_hash(field: ConfigField<'_>) -> Option<DeclaredKeyHash> {
    let found = field.scalar().and_then(DeclaredKeyHash::parse);
    found.or_else(|| {
        field.wrong(
            "must be the hash of a key: 64 hexadecimal digits, as `fairgate key hash` prints them",
        )
    })
}

/// Reads a secret that is valid in an HTTP header.
fn in_header(field: ConfigField<'_>) -> Option<Secret> {
    let secret = secret(field.clone())?;
    match secret.expose().bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Some(secret),
        false => field.wrong("holds spaces or characters that no HTTP header can carry"),
    }
}

/// Reads `{env: NAME}` or `{file: PATH}`.
pub(super) fn secret(field: ConfigField<'_>) -> Option<Secret> {
    if field.scalar().is_some() {
        return field.wrong(
            "must not be written here, where others can read it: put it into an environment variable and write \
             {env: NAME}, or into a file and write {file: PATH}",
        );
    }
    let source = field.clone().section(&["env", "file"])?;
    let (text, place) = match (source.has("env"), source.has("file")) {
        (true, true) => return field.wrong("env and file exclude each other"),
        (true, false) => source.optional("env", from_environment)??,
        (false, true) => source.optional("file", from_file)??,
        (false, false) => return field.wrong("must be {env: NAME} or {file: PATH}"),
    };
    match text.trim() {
        "" => field.wrong("is empty: the variable or file that it names holds nothing"),
        secret => Some(Secret::new(secret).with_source(Some(&place))),
    }
}

/// Reads an environment variable. Returns its text, and a description with the variable's name. The
/// name of an existing variable is not secret.
fn from_environment(field: ConfigField<'_>) -> Option<(String, String)> {
    let name = field.scalar().unwrap_or_default();
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(fits) || name.starts_with(|c: char| c.is_ascii_digit())
    {
        return field.wrong("must be the name of an environment variable, such as OPENAI_API_KEY");
    }
    let found = field.context.environment.variable(name);
    found.map(|text| (text, format!("environment variable {name}"))).or_else(|| {
        // Text that does not look like the name of a variable may be the secret itself, so it is not repeated.
        let usual = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        match name.len() <= 64 && name.contains('_') && name.chars().all(usual) {
            true => field.wrong(format!("the environment variable {name} is not set")),
            false => field.wrong("no environment variable is called so"),
        }
    })
}

/// Reads a file. Returns its text, and a description with the file's path. The path of an existing
/// file is not secret.
fn from_file(field: ConfigField<'_>) -> Option<(String, String)> {
    let path = field.clone().path()?;
    match read(&path) {
        Ok(text) => Some((text, format!("file {}", path.display()))),
        // The message does not repeat the path, which may be the secret itself.
        Err(problem) => field.wrong(format!(
            "the file that it names cannot be read: {problem} (relative paths start at the folder of this file)"
        )),
    }
}

fn read(path: &Path) -> Result<String, String> {
    let size = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > SECRET_BYTES_MAX {
        return Err(format!("it has {size} bytes, more than a secret has"));
    }
    fs::read_to_string(path).map_err(|error| error.to_string())
}

/// Reads `sqlite:PATH`, `postgres://…` without a password, or a secret that holds one of them.
pub(super) fn store_url(field: ConfigField<'_>) -> Option<Secret> {
    let literal = field.scalar();
    let given = match literal {
        Some(text) => Secret::new(text),
        None => secret(field.clone())?,
    };
    let url = given.expose();
    if let Some(path) = url.strip_prefix("sqlite:") {
        return match path {
            ":memory:" => Some(given),
            _ if path.is_empty() || path.starts_with("//") => {
                field.wrong("must be sqlite: and a path, such as sqlite:fairgate.db or sqlite:/var/lib/fairgate.db")
            }
            _ => {
                let path = field.context.folder.join(path);
                Some(Secret::new(format!("sqlite:{}", path.display())).with_source(given.source()))
            }
        };
    }
    let Some(rest) = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"))
    else {
        return field
            .wrong("must be sqlite:PATH or postgres://HOST/DATABASE, or {env: NAME} of one");
    };
    if rest.is_empty() {
        return field.wrong("must name a host and a database: postgres://HOST/DATABASE");
    }
    match literal.is_some() && has_password(rest) {
        true => field.wrong(
            "holds a password, which must not be written here: put the whole URL into an environment variable and \
             write {env: NAME}",
        ),
        false => Some(given),
    }
}

/// Returns true if a PostgreSQL URL, given without its scheme, contains a password.
fn has_password(url: &str) -> bool {
    let user = url.rsplit_once('@').map_or("", |(user, _)| user);
    user.contains(':') || url.to_ascii_lowercase().contains("password")
}
