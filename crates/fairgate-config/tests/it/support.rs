//! Helpers of the tests: a folder with the files that configurations name, an environment, and the
//! repository's files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use fairgate_config::{Config, ConfigErrors, ConfigReload, ReloadPlan};

/// Secret that no error and no debug output may show.
pub(crate) const SECRET: &str = "hunter2-hunter2-hunter2";

/// Temporary folder of one test, removed at the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Creates a folder with the files that the example, the documents and the options name.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("fairgate-config-{}-{next}", std::process::id());
        let folder = Self(std::env::temp_dir().join(name));
        for file in ["fullchain.pem", "privkey.pem", "company-ca.pem", "other.pem"] {
            folder.write(&format!("tls/{file}"), "");
        }
        folder.write("router-policy.yaml", &repository("examples/router-policy.yaml"));
        folder.write("secrets/openai-key", &format!("\n  {SECRET}-file \n"));
        folder
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("it can be made");
        fs::write(path, text).expect("it can be written");
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of the configuration, which need not exist.
    pub(crate) fn file(&self) -> PathBuf {
        self.0.join("fairgate.yaml")
    }

    pub(crate) fn parse(&self, text: &str) -> Result<Config, ConfigErrors> {
        Config::parse(text, &self.file(), &environment())
    }

    pub(crate) fn reload(&self, current: &Config, text: &str) -> Result<ReloadPlan, ConfigErrors> {
        ConfigReload::parse(current, text, &self.file(), &environment()).map(|reload| reload.plan)
    }

    /// Returns the errors as a user sees them, without the path of the folder.
    pub(crate) fn shown(&self, errors: &ConfigErrors) -> String {
        errors.to_string().replace(&format!("{}/", self.0.display()), "")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the variables that the example, the documents and the options name.
pub(crate) fn environment() -> BTreeMap<String, String> {
    let url = format!("postgres://fairgate:{SECRET}@db.internal/fairgate");
    let credential = format!("fairgate:{SECRET}");
    let variables = [
        ("OPENAI_API_KEY", SECRET),
        ("FAIRGATE_ADMIN_TOKEN", SECRET),
        ("FAIRGATE_VIEWER_TOKEN", "a-token-for-those-who-only-read"),
        ("FAIRGATE_WEBHOOK_SECRET", SECRET),
        ("FAIRGATE_STORE_URL", &url),
        ("CLICKHOUSE_CREDENTIAL", &credential),
        ("NIGHT_KEY", "a-key-for-the-night"),
        ("SHORT_TOKEN", "short"),
        ("EMPTY", " \n"),
        ("TWO_WORDS", "two words"),
    ];
    variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// Reads a file of the repository.
pub(crate) fn repository(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).expect("it is there")
}

/// Shortest valid configuration.
pub(crate) const LEAST: &str = "\
upstreams:
  - {name: vllm-a, url: http://10.0.0.11:8000, slots: 16}
  - {name: vllm-b, url: https://10.0.0.12:8000, slots: 8}
pools:
  - {name: llama, models: [llama-8b], workers: [vllm-a, vllm-b]}
";

/// Returns the errors of a text, one per line.
pub(crate) fn errors(text: &str) -> Vec<String> {
    let folder = Folder::new();
    match folder.parse(text) {
        Ok(config) => panic!("it is a configuration: {config:?}"),
        Err(errors) => folder.shown(&errors).lines().map(str::to_owned).collect(),
    }
}
