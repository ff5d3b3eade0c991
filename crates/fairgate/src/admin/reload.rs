//! The command `fairgate reload`, which makes the gateway read its configuration file again.

use anyhow::Result;
use clap::Args;
use fairgate_api::admin::ReloadedBody;
use http::Method;

use super::{AdminOptions, understood};

/// Make the gateway read its configuration file again. A file with an error changes nothing.
#[derive(Debug, Args)]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    common: AdminOptions,
    /// Apply the file also if more than half of the declared tenants and keys would be disabled, because it no longer
    /// declares them.
    #[arg(long)]
    yes: bool,
}

impl ReloadArgs {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        let path = match self.yes {
            true => "/api/v1/config/reload?yes=true",
            false => "/api/v1/config/reload",
        };
        let done = client.send(Method::POST, path, None)?;
        let ReloadedBody { mut changes, directory } = understood(&done)?;
        changes.extend(directory);
        let words = match changes[..] {
            [] => "nothing has changed".to_owned(),
            _ => changes.join("\n"),
        };
        self.common.print_line(&done, &words)
    }
}
