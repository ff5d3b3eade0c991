//! Tests of secrets, which come from outside the file and are never shown.

use crate::support::{Folder, LEAST, SECRET, errors};

fn with_credential(credential: &str) -> String {
    LEAST.replace("slots: 16", &format!("slots: 16, credential: {credential}"))
}

#[test]
fn they_come_from_the_environment_and_from_files() {
    let folder = Folder::new();
    for (source, expected) in [
        ("{env: OPENAI_API_KEY}", SECRET.to_owned()),
        ("{file: secrets/openai-key}", format!("{SECRET}-file")),
    ] {
        let config = folder.parse(&with_credential(source)).expect("it is right");
        let credential = config.upstreams[0].credential.as_ref().expect("it has one");
        assert_eq!(credential.secret.expose(), expected);
        assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
    }
}

#[test]
fn what_cannot_be_used_is_told_without_showing_it() {
    for (credential, message) in [
        (
            "sk-hunter2",
            "must not be written here, where others can read it: put it into an environment variable and write {env: NAME}, or into a file and write {file: PATH}",
        ),
        (
            "{env: sk-hunter2}",
            "must be the name of an environment variable, such as OPENAI_API_KEY",
        ),
        ("{env: hunter2}", "no environment variable is called so"),
        ("{env: HUNTER2}", "no environment variable is called so"),
        ("{env: NO_SUCH_THING}", "the environment variable NO_SUCH_THING is not set"),
        ("{env: EMPTY}", "is empty: the variable or file that it names holds nothing"),
        ("{env: TWO_WORDS}", "holds spaces or characters that no HTTP header can carry"),
        (
            "{file: hunter2}",
            "the file that it names cannot be read: No such file or directory (os error 2) (relative paths start at the folder of this file)",
        ),
        (
            "{file: secrets}",
            "the file that it names cannot be read: Is a directory (os error 21) (relative paths start at the folder of this file)",
        ),
        ("{}", "must be {env: NAME} or {file: PATH}"),
        ("{env: OPENAI_API_KEY, file: secrets/openai-key}", "env and file exclude each other"),
        ("{token: hunter2}", "must be {env: NAME} or {file: PATH}"),
        ("[hunter2]", "must be a mapping with env, file"),
    ] {
        let lines = errors(&with_credential(credential));
        assert!(lines[0].ends_with(message), "{credential}: {lines:?}");
        assert!(!lines.concat().to_lowercase().contains("hunter2"), "{credential}: {lines:?}");
    }
}

#[test]
fn a_password_does_not_stand_in_the_file() {
    for url in [
        "postgres://me:hunter2@db/fairgate",
        "postgres://db/fairgate?password=hunter2",
        "mysql://me:hunter2@db/fairgate",
        "{env: hunter2}",
    ] {
        let lines = errors(
            &format!("store: {{url: {url:?}}}\n{LEAST}").replace("\"{", "{").replace("}\"", "}"),
        );
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains(": store.url"), "{lines:?}");
        assert!(!lines[0].contains("hunter2"), "{lines:?}");
    }
}

#[test]
fn a_store_can_be_named() {
    let folder = Folder::new();
    let path = folder.path().display().to_string();
    for (url, expected) in [
        ("sqlite:x/fairgate.db", format!("sqlite:{path}/x/fairgate.db")),
        ("sqlite:/x/fairgate.db", "sqlite:/x/fairgate.db".to_owned()),
        ("\"sqlite::memory:\"", "sqlite::memory:".to_owned()),
        ("postgres://me@db:5432/fairgate", "postgres://me@db:5432/fairgate".to_owned()),
        ("{env: FAIRGATE_STORE_URL}", format!("postgres://fairgate:{SECRET}@db.internal/fairgate")),
    ] {
        let config = folder.parse(&format!("store: {{url: {url}}}\n{LEAST}")).expect(url);
        assert_eq!(config.store.url.expose(), expected);
    }
}

#[test]
fn what_stands_in_the_wrong_place_is_not_shown() {
    for wrong in ["admin: hunter2\n", "store: hunter2\n", "admin: {token: hunter2}\n"] {
        let lines = errors(&format!("{wrong}{LEAST}"));
        assert!(!lines.concat().contains("hunter2"), "{lines:?}");
    }
    let lines = errors(&LEAST.replace("http://", "http://me:hunter2@"));
    assert!(!lines.concat().contains("hunter2"), "{lines:?}");
}

#[test]
fn an_admin_token_is_long() {
    let lines = errors(&format!("admin: {{token: {{env: SHORT_TOKEN}}}}\n{LEAST}"));
    assert!(lines[0].contains("at least 16 characters"), "{lines:?}");
    assert!(!lines[0].contains("short\""), "{lines:?}");
}
