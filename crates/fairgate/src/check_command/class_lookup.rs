//! Finds the class that a request would get.

use std::io::Write;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use fairgate_config::{ClassReason, ClassResolution, Config, PolicyClasses, PolicyFile};

use crate::output::StdoutWriter;
use crate::text_format::counted;

/// Options that describe a request whose class is wanted.
#[derive(Debug, Args)]
pub(super) struct ClassLookupArgs {
    /// Model of the request, which selects the pool or the profile.
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Family that the request names.
    #[arg(long, value_name = "FAMILY", requires = "input")]
    family: Option<String>,
    /// Explicit class that the request names.
    #[arg(long, value_name = "CLASS", conflicts_with = "family")]
    class: Option<String>,
    /// Number of input tokens of the request.
    #[arg(long, value_name = "TOKENS")]
    input: Option<u64>,
    /// Number of cached input tokens, on the worker that has the most in its cache.
    #[arg(long, value_name = "TOKENS", default_value_t = 0, requires = "input")]
    cached: u64,
}

impl ClassLookupArgs {
    fn is_asked(&self) -> bool {
        self.input.is_some() || self.class.is_some()
    }

    /// Returns the profile that the options select; `None` if no request is described.
    pub(super) fn profile<'a>(&self, file: &'a PolicyFile) -> Result<Option<&'a PolicyClasses>> {
        if !self.is_asked() && self.model.is_none() {
            return Ok(None);
        }
        let found = match &self.model {
            Some(model) => file.profile(model),
            None => file.root.as_ref(),
        };
        let found = found.ok_or_else(|| {
            let models: Vec<&str> = file.models.keys().map(String::as_str).collect();
            let models = models.join(", ");
            match &self.model {
                Some(model) => {
                    anyhow!("the file has no profile for the model {model:?}, only for {models}")
                }
                None => anyhow!("name the model with --model: the file has profiles for {models}"),
            }
        })?;
        Ok(Some(found).filter(|_| self.is_asked()))
    }

    /// Returns the classes of the pool that the options select; `None` if no request is described.
    pub(super) fn pool<'a>(&self, config: &'a Config) -> Result<Option<&'a PolicyClasses>> {
        let pool = match &self.model {
            Some(model) => {
                let has_it = |it: &fairgate_config::ModelConfig| it.name == *model;
                let found = config.pools.iter().find(|pool| pool.models.iter().any(has_it));
                Some(found.ok_or_else(|| anyhow!("no pool has the model {model:?}"))?)
            }
            None if !self.is_asked() => None,
            None => match &config.pools[..] {
                [pool] => Some(pool),
                _ => bail!("name the model with --model: there are several pools"),
            },
        };
        let Some(pool) = pool.filter(|_| self.is_asked()) else { return Ok(None) };
        let none =
            || anyhow!("the pool {:?} has no policy_file, so no classes by family", pool.name);
        pool.classes.as_ref().ok_or_else(none).map(Some)
    }

    pub(super) fn answer(&self, classes: &PolicyClasses, out: &mut StdoutWriter) -> Result<()> {
        let input = self.input.unwrap_or(0);
        let uncached = input.checked_sub(self.cached).ok_or_else(|| {
            anyhow!(
                "--cached {} is more than --input {input}: cached tokens are part of the input",
                self.cached
            )
        })?;
        let named = self.class.as_deref().or(self.family.as_deref());
        let resolution = classes.resolve(named, uncached);
        let named = named.unwrap_or_default();
        writeln!(out, "Such a request gets the class {}.", resolution.class)?;
        let ClassResolution { family: Some(family), bucket: Some(bucket), class, reason: why } =
            resolution
        else {
            writeln!(out, "It names this explicit class itself; its size does not matter.")?;
            return Ok(());
        };
        match why {
            ClassReason::NamedFamily => writeln!(out, "It names the family {family}.")?,
            ClassReason::NamedNothing => {
                writeln!(
                    out,
                    "It names no family and no class, so it gets the default family, {family}."
                )?;
            }
            ClassReason::NamedClass | ClassReason::NamedUnknown => writeln!(
                out,
                "It names {named:?}, which is neither a family nor an explicit class, so it gets the default family, \
                 {family}."
            )?,
        }
        let (from, to) = classes.range(&bucket.name).unwrap_or_default();
        let range = match to {
            Some(to) => format!("{from} to {}", to.saturating_sub(1)),
            None => format!("{from} and more"),
        };
        writeln!(
            out,
            "{} less {} cached are {uncached} uncached: the bucket {} ({range}).\n{family} × {} is {class}.",
            counted(input, "input token"),
            self.cached,
            bucket.name,
            bucket.name,
        )?;
        Ok(())
    }
}
