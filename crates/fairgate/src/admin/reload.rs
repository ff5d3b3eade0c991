//! The command `fairgate reload`, which makes the gateway read its configuration file again.

use anyhow::Result;
use clap::Args;
use http::Method;
use serde_json::Value;

use super::AdminOptions;

/// Make the gateway read its configuration file again. A file with an error changes nothing.
#[derive(Debug, Args)]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    common: AdminOptions,
}

impl ReloadArgs {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        let done = client.send(Method::POST, "/api/v1/config/reload", None)?;
        let changes = done["changes"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let changes: Vec<&str> = changes.collect();
        let words = match changes[..] {
            [] => "nothing has changed".to_owned(),
            _ => changes.join("\n"),
        };
        self.common.print_line(&done, &words)
    }
}
