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
}

impl ReloadArgs {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        let done = client.send(Method::POST, "/api/v1/config/reload", None)?;
        let ReloadedBody { changes, .. } = understood(&done)?;
        let words = match changes[..] {
            [] => "nothing has changed".to_owned(),
            _ => changes.join("\n"),
        };
        self.common.print_line(&done, &words)
    }
}
