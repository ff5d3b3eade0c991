//! The option `--probe`, which asks every upstream of a configuration.

use std::io::Write;

use anyhow::{Result, bail};
use fairgate_config::Config;
use fairgate_proxy::probe_upstream;

use crate::output::StdoutWriter;

/// Asks every upstream for its list of models, with the upstream's credential, and prints the
/// answers. Fails if an upstream does not answer as it should.
pub(super) fn print_probes(config: &Config, out: &mut StdoutWriter) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut unwell = Vec::new();
    writeln!(out)?;
    for upstream in &config.upstreams {
        let probe = runtime.block_on(probe_upstream(upstream))?;
        writeln!(out, "  upstream     {}: {} {probe}", upstream.name, upstream.url)?;
        out.flush()?;
        if !probe.is_well() {
            unwell.push(upstream.name.as_str());
        }
    }
    match unwell[..] {
        [] => Ok(()),
        _ => bail!("not every upstream is well: {}", unwell.join(", ")),
    }
}
