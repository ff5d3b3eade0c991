//! The option `--against`, which shows the changes that a reload of the file would make in a
//! running gateway.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use fairgate_api::admin::CheckedConfigBody;
use http::{Method, Uri};
use serde_json::json;

use crate::admin::{AdminClient, DEFAULT_TOKEN_FILE, GatewayArgs, understood};
use crate::output::StdoutWriter;

/// Options that compare a file with a running gateway.
#[derive(Debug, Args)]
pub(crate) struct AgainstArgs {
    /// Address of a gateway's admin API. Print what a reload of FILE would change there, and which tenants and keys it
    /// would disable. The gateway checks the file, with its own variables and files, and changes nothing. The exit
    /// status is 1 if the reload would be refused.
    #[arg(long, value_name = "URL")]
    against: Option<Uri>,
    /// File that holds the admin token, for --against. The variable FAIRGATE_ADMIN_TOKEN takes precedence.
    #[arg(
        long,
        env = "FAIRGATE_ADMIN_TOKEN_FILE",
        default_value = DEFAULT_TOKEN_FILE,
        value_name = "FILE"
    )]
    token_file: PathBuf,
    /// PEM file of the certificate authorities to trust, for --against, instead of the built-in ones.
    #[arg(long, env = "FAIRGATE_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl AgainstArgs {
    /// Returns the address of the gateway, if one is given.
    pub(super) fn gateway(&self) -> Option<&Uri> {
        self.against.as_ref()
    }

    /// Asks the gateway which changes a reload of the text would make, and prints them.
    pub(super) fn print(&self, url: &Uri, text: &str, out: &mut StdoutWriter) -> Result<()> {
        let gateway = GatewayArgs::new(url.clone(), self.token_file.clone(), self.ca.clone());
        let client = AdminClient::new(&gateway)?;
        let body = json!({ "text": text });
        let checked = client.send(Method::POST, "/api/v1/config/check", Some(&body))?;
        let checked: CheckedConfigBody = understood(&checked)?;
        let lines: Vec<&String> = checked.changes.iter().chain(&checked.directory).collect();
        if lines.is_empty() {
            writeln!(out, "a reload would change nothing")?;
        }
        for line in lines {
            writeln!(out, "{line}")?;
        }
        out.flush()?;
        match checked.needs_yes {
            true => bail!(
                "a reload would disable {} of {} declared tenants and keys, which is more than half: it would be refused \
                 without `fairgate reload --yes`",
                checked.disabled,
                checked.usable,
            ),
            false => Ok(()),
        }
    }
}
