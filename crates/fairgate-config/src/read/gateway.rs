//! Reads the settings of the gateway as a whole.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::address_range::AddressRange;
use crate::config::{
    AdminConfig, ClickHouseConfig, GatewayMetricsConfig, JournalConfig, LimitsConfig,
    OnStoreFailure, Secret, StoreConfig, TlsConfig,
};
use crate::defaults;
use crate::field::ConfigField;
use crate::read::TIMEOUT;
use crate::read::secret::{admin_token, store_url, user_and_password};
use crate::read::url::server_url;

pub(super) fn address(field: ConfigField<'_>) -> Option<SocketAddr> {
    let address = field.scalar().and_then(|text| text.parse().ok());
    address.or_else(|| {
        field.wrong(
            "must be an address with a port, such as 127.0.0.1:8080, 0.0.0.0:443 or \"[::]:8080\"",
        )
    })
}

pub(super) fn tls(field: ConfigField<'_>) -> Option<TlsConfig> {
    let tls = field.section(&["cert", "key"])?;
    let cert = tls.required("cert", "a PEM file, the certificate chain", ConfigField::file);
    let key = tls.required("key", "a PEM file, the private key", ConfigField::file);
    Some(TlsConfig { cert: cert?, key: key? })
}

pub(crate) fn default_store(data_dir: &Path) -> StoreConfig {
    let path = data_dir.join(defaults::SQLITE_FILE);
    StoreConfig {
        url: Secret::new(format!("sqlite:{}", path.display())),
        keep_days: None,
        spool: data_dir.join(defaults::SPOOL_FOLDER),
        spool_bytes_max: defaults::SPOOL_BYTES_MAX,
        clickhouse: None,
    }
}

pub(super) fn store(field: ConfigField<'_>, data_dir: &Path) -> Option<StoreConfig> {
    let store = field.section(&["url", "keep_days", "spool", "spool_size_max", "clickhouse"])?;
    let default = default_store(data_dir);
    let url = store.or("url", default.url, store_url);
    let keep_days = store.optional("keep_days", |field| field.integer(1..=36_500));
    let spool = store.or("spool", default.spool, folder);
    let spool_bytes_max =
        store.or("spool_size_max", default.spool_bytes_max, |field| field.size(16 << 20..=1 << 40));
    let clickhouse = store.optional("clickhouse", clickhouse);
    Some(StoreConfig {
        url: url?,
        keep_days: keep_days?,
        spool: spool?,
        spool_bytes_max: spool_bytes_max?,
        clickhouse: clickhouse?,
    })
}

fn clickhouse(field: ConfigField<'_>) -> Option<ClickHouseConfig> {
    let section = field.section(&["url", "database", "credential", "ca"])?;
    let url = section.required(
        "url",
        "the HTTP interface of ClickHouse, such as http://clickhouse:8123",
        |field| {
            server_url(field, "such as http://clickhouse:8123 or https://clickhouse.internal:8443")
        },
    );
    let database = section.or("database", defaults::CLICKHOUSE_DATABASE.to_owned(), database_name);
    let credential = section.optional("credential", user_and_password);
    let ca = section.optional("ca", ConfigField::file);
    let (url, ca) = (url?, ca?);
    if ca.is_some() && url.scheme_str() != Some("https") {
        return section.field.wrong("ca is for https only, and url is http");
    }
    Some(ClickHouseConfig { url, database: database?, credential: credential?, ca })
}

/// Reads the name of a database. The name is used in statements and URLs without escaping.
fn database_name(field: ConfigField<'_>) -> Option<String> {
    let name = field.clone().text()?;
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match name.chars().all(fits) && !name.starts_with(|c: char| c.is_ascii_digit()) {
        true => Some(name.to_owned()),
        false => field.wrong(
            "must be the name of a database: letters, digits and _, with no digit at its beginning",
        ),
    }
}

/// Reads the path of a folder, which may not exist yet.
fn folder(field: ConfigField<'_>) -> Option<PathBuf> {
    let path = field.clone().path()?;
    match path.is_file() {
        true => field.wrong(format!("must be a folder, and {} is a file", path.display())),
        false => Some(path),
    }
}

pub(super) fn on_store_failure(field: ConfigField<'_>) -> Option<OnStoreFailure> {
    field.one_of(&[("refuse", OnStoreFailure::Refuse), ("serve", OnStoreFailure::Serve)])
}

pub(super) const DEFAULT_ADMIN: AdminConfig =
    AdminConfig { token: None, listen: None, viewer_token: None, pages: true };

pub(super) fn admin(field: ConfigField<'_>, clients: Option<SocketAddr>) -> Option<AdminConfig> {
    let admin = field.section(&["token", "viewer_token", "listen", "pages"])?;
    let token = admin.optional("token", admin_token);
    let viewer_token = admin.optional("viewer_token", |field| {
        let viewer = admin_token(field.clone())?;
        match token.as_ref().and_then(Option::as_ref) == Some(&viewer) {
            true => field
                .wrong("is the admin token: give it another value, because it opens reads only"),
            false => Some(viewer),
        }
    });
    let pages = admin.or("pages", true, ConfigField::boolean);
    let listen = admin.optional("listen", |field| {
        let address = address(field.clone())?;
        match address.port() != 0 && Some(address) == clients {
            true => field.wrong(
                "is where clients connect: give another address, or remove it to share that one",
            ),
            false => Some(address),
        }
    });
    let (viewer_token, pages) = (viewer_token?, pages?);
    Some(AdminConfig { token: token?, listen: listen?, viewer_token, pages })
}

pub(super) fn journal(field: ConfigField<'_>, data_dir: &Path) -> Option<JournalConfig> {
    let journal = field.section(&["folder", "file_size_max", "files_max"])?;
    let folder = journal.or("folder", data_dir.join(defaults::JOURNAL_FOLDER), ConfigField::path);
    let file_bytes_max = journal.or("file_size_max", defaults::JOURNAL_FILE_BYTES_MAX, |field| {
        field.size(1 << 20..=16 << 30)
    });
    let files_max =
        journal.or("files_max", defaults::JOURNAL_FILES_MAX, |field| field.integer(2..=100_000));
    Some(JournalConfig { folder: folder?, file_bytes_max: file_bytes_max?, files_max: files_max? })
}

pub(super) fn metrics(field: ConfigField<'_>) -> Option<GatewayMetricsConfig> {
    let metrics = field.section(&["tenants"])?;
    let tenants_max = metrics
        .or("tenants", defaults::METRICS.tenants_max, |field| field.integer(0..=TENANTS_MAX))?;
    Some(GatewayMetricsConfig { tenants_max })
}

/// Largest number of tenants that are counted by name. Each adds about 25 series for each pool that it uses.
const TENANTS_MAX: usize = 1000;

const LIMITS: &[&str] = &[
    "body_size_max",
    "header_timeout",
    "body_timeout",
    "header_size_max",
    "connections_max",
    "trusted_proxies",
    "held_size_max",
    "names_per_key_max",
    "response_ids_per_tenant_max",
    "response_id_lifetime",
    "foreign_response_ids",
];

/// Range of the time for which the id of a response is remembered.
const RESPONSE_ID_LIFETIME: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(8760 * 60 * 60);

fn address_ranges(field: ConfigField<'_>) -> Option<Vec<AddressRange>> {
    let read = |field: ConfigField<'_>| match field.scalar().and_then(AddressRange::parse) {
        Some(range) => Some(range),
        None => field.expected("an address or a range, such as 127.0.0.1 or 10.0.0.0/8"),
    };
    let all: Vec<_> = field.list()?.into_iter().map(read).collect();
    all.into_iter().collect()
}

pub(super) fn limits(field: ConfigField<'_>) -> Option<LimitsConfig> {
    let limits = field.section(LIMITS)?;
    let default = defaults::LIMITS;
    let body_bytes_max =
        limits.or("body_size_max", default.body_bytes_max, |field| field.size(1 << 10..=4 << 30));
    let header_timeout =
        limits.or("header_timeout", default.header_timeout, |field| field.duration(TIMEOUT));
    let body_timeout =
        limits.or("body_timeout", default.body_timeout, |field| field.duration(TIMEOUT));
    let header_bytes_max = limits
        .or("header_size_max", default.header_bytes_max, |field| field.size(8 << 10..=1 << 20));
    let connections_max =
        limits.or("connections_max", default.connections_max, |field| field.integer(1..=1_000_000));
    let trusted_proxies =
        limits.or("trusted_proxies", default.trusted_proxies.clone(), address_ranges);
    let held_bytes_max =
        limits.or("held_size_max", default.held_bytes_max, |field| field.size(1 << 20..=1 << 40));
    let names_per_key_max = limits
        .or("names_per_key_max", default.names_per_key_max, |field| field.integer(1..=100_000));
    let response_ids_per_tenant_max =
        limits.or("response_ids_per_tenant_max", default.response_ids_per_tenant_max, |field| {
            field.integer(1..=1_000_000)
        });
    let response_id_lifetime =
        limits.or("response_id_lifetime", default.response_id_lifetime, |field| {
            field.duration(RESPONSE_ID_LIFETIME)
        });
    let foreign_response_ids =
        limits.or("foreign_response_ids", default.foreign_response_ids, |field| {
            field.one_of(&[("refuse", false), ("allow", true)])
        });
    if let (Some(held), Some(body)) = (held_bytes_max, body_bytes_max)
        && held < body
    {
        let message =
            "held_size_max must be at least body_size_max, or the largest body never fits";
        return limits.field.wrong(message);
    }
    Some(LimitsConfig {
        body_bytes_max: body_bytes_max?,
        header_timeout: header_timeout?,
        body_timeout: body_timeout?,
        header_bytes_max: header_bytes_max?,
        connections_max: connections_max?,
        trusted_proxies: trusted_proxies?,
        held_bytes_max: held_bytes_max?,
        names_per_key_max: names_per_key_max?,
        response_ids_per_tenant_max: response_ids_per_tenant_max?,
        response_id_lifetime: response_id_lifetime?,
        foreign_response_ids: foreign_response_ids?,
    })
}
