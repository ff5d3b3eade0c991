//! Reads the webhooks of the fleet.

use std::net::IpAddr;

use http::Uri;

use super::{name, secret};
use crate::config::{FleetEventKind, Secret, WebhookConfig};
use crate::field::ConfigField;

const WEBHOOK: &[&str] = &["name", "url", "secret", "events", "ca"];
/// Largest number of webhooks.
const WEBHOOKS_MAX: usize = 16;

pub(super) fn webhooks(field: ConfigField<'_>) -> Option<Vec<WebhookConfig>> {
    let elements = field.clone().list()?;
    if elements.len() > WEBHOOKS_MAX {
        return field.wrong(format!("at most {WEBHOOKS_MAX} webhooks are allowed"));
    }
    let mut webhooks: Vec<WebhookConfig> = Vec::new();
    let mut well = true;
    for element in elements {
        match webhook(element.clone()) {
            None => well = false,
            Some(webhook) if webhooks.iter().any(|other| other.name == webhook.name) => {
                element.wrong::<()>(format!("the webhook {:?} is listed twice", webhook.name));
                well = false;
            }
            Some(webhook) => webhooks.push(webhook),
        }
    }
    well.then_some(webhooks)
}

fn webhook(field: ConfigField<'_>) -> Option<WebhookConfig> {
    let section = field.section(WEBHOOK)?;
    let name = section.required("name", "what the API, the log and metrics call it", name);
    let url = section.required("url", "where events are sent", url);
    let secret = section.required(
        "secret",
        "{env: NAME} or {file: PATH} of the secret with which events are signed",
        secret::webhook_secret,
    );
    let events = section.or("events", FleetEventKind::ALL.to_vec(), events);
    let ca = section.optional("ca", ConfigField::file);
    let (url, ca) = (url?, ca?);
    if ca.is_some() && url.scheme_str() != Some("https") {
        return section.field.wrong("ca is for https only, and url is http");
    }
    let (name, secret, events) = (name?, secret?, events?);
    Some(WebhookConfig { name, url: Secret::new(url.to_string()), secret, events, ca })
}

/// Reads a URL, as text or as `{env: NAME}` or `{file: PATH}`, because the URLs of some receivers hold a token.
fn url(field: ConfigField<'_>) -> Option<Uri> {
    let text = match field.scalar() {
        Some(text) => text.to_owned(),
        None => secret::secret(field.clone())?.expose().to_owned(),
    };
    match parse_webhook_url(&text) {
        Ok(url) => Some(url),
        Err(problem) => {
            field.wrong(format!("{problem}, such as https://hooks.example.com/fairgate"))
        }
    }
}

/// Parses the URL of a webhook. Errors never repeat the text, which may hold a token.
fn parse_webhook_url(text: &str) -> Result<Uri, &'static str> {
    let url: Uri = text.parse().map_err(|_| "must be a URL")?;
    let (Some(scheme), Some(authority)) = (url.scheme_str(), url.authority()) else {
        return Err("must be a URL with https:// and a host");
    };
    if authority.as_str().contains('@') {
        return Err("must not hold a user or password");
    }
    if text.contains('#') {
        return Err("must not have a #");
    }
    let port = authority.as_str().strip_prefix(authority.host());
    let port_fits = match port {
        Some("") => true,
        Some(_) => authority.port_u16().is_some_and(|port| port != 0),
        None => false,
    };
    if authority.host().is_empty() || !port_fits {
        return Err("must have a host, and a port from 1 to 65535 where it has one");
    }
    match scheme {
        "https" => Ok(url),
        "http" if is_loopback(authority.host()) => Ok(url),
        "http" => {
            Err("must start with https://; http:// is for this machine only, 127.0.0.1 or [::1]")
        }
        _ => Err("must start with https://"),
    }
}

/// Returns whether a host is a loopback address. A name never counts as one, because its address
/// may change.
fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn events(field: ConfigField<'_>) -> Option<Vec<FleetEventKind>> {
    const WORDS: [(&str, FleetEventKind); 4] = [
        ("question", FleetEventKind::Question),
        ("blocked", FleetEventKind::Blocked),
        ("budget", FleetEventKind::Budget),
        ("agent_lost", FleetEventKind::AgentLost),
    ];
    let mut events: Vec<FleetEventKind> =
        field.list()?.into_iter().map(|field| field.one_of(&WORDS)).collect::<Option<_>>()?;
    events.sort_unstable();
    events.dedup();
    Some(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_is_https_or_on_this_machine() {
        for good in [
            "https://hooks.example.com/a?b=c",
            "https://10.0.0.5:8443/",
            "http://127.0.0.1:9000/hook",
            "http://[::1]:9000/",
        ] {
            assert_eq!(parse_webhook_url(good).map(|url| url.to_string()), Ok(good.to_owned()));
        }
        for bad in [
            "",
            "hooks.example.com",
            "ftp://127.0.0.1/",
            "http://hooks.example.com/",
            "http://localhost:9000/",
            "http://10.0.0.5/",
            "http://127.0.0.1.example.com/",
            "https://user:pass@host/",
            "https://host/#x",
            "https://host:0/",
        ] {
            assert!(parse_webhook_url(bad).is_err(), "{bad}");
        }
    }
}
