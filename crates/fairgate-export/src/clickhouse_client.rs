//! Sends statements to ClickHouse over HTTP.
//!
//! It uses only statements and settings that ClickHouse knows from version 18.16 on. The user and the password go into
//! headers, because URLs are logged.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use fairgate_api::client::{GatewayHttpClient, GatewayHttpRequest, HttpCallError, escaped};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};

use crate::export_error::{ExportError, shortened};

const USER: HeaderName = HeaderName::from_static("x-clickhouse-user");
const PASSWORD: HeaderName = HeaderName::from_static("x-clickhouse-key");
/// Content type of statements and rows.
const TEXT: &str = "text/plain; charset=utf-8";
/// First words of ClickHouse's answers to an unknown user (192), a wrong password (193) and a missing password (194).
/// Newer versions answer 516 to all of these.
const CREDENTIAL_CODES: [&str; 4] = ["Code: 192", "Code: 193", "Code: 194", "Code: 516"];

/// Address of a ClickHouse database.
#[derive(Clone)]
pub struct ClickHouseTarget {
    /// URL of the HTTP interface, such as `http://clickhouse:8123`.
    pub url: Uri,
    /// Database that has the table.
    pub database: String,
    /// User and password; `None` sends neither, which is ClickHouse's user `default`.
    pub credential: Option<(String, String)>,
    /// PEM file of the certificate authorities to trust, instead of the built-in ones.
    pub ca: Option<PathBuf>,
}

/// The password is not shown.
impl fmt::Debug for ClickHouseTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.credential.as_ref().map(|(user, _)| user);
        f.debug_struct("ClickHouseTarget")
            .field("url", &self.url)
            .field("database", &self.database)
            .field("user", &user)
            .finish_non_exhaustive()
    }
}

impl ClickHouseTarget {
    /// Returns the name under which the ledger's database stores the position of the export. If the URL or the database
    /// changes, the name changes, and the export starts from the first row.
    pub fn name(&self) -> String {
        format!("{} {}", self.url, self.database)
    }
}

/// A statement for ClickHouse.
pub(crate) struct ClickHouseStatement {
    /// Kind of the statement, for errors.
    pub(crate) kind: &'static str,
    /// Text of the statement.
    pub(crate) sql: String,
    /// Rows of an insert; empty for other statements.
    pub(crate) rows: Bytes,
    /// Further settings, as `name=value`, besides the settings of every statement.
    pub(crate) settings: &'static [&'static str],
}

/// Client of one ClickHouse database.
pub(crate) struct ClickHouseClient {
    wire: GatewayHttpClient,
    headers: HeaderMap,
    database: String,
    timeout: Duration,
}

impl ClickHouseClient {
    pub(crate) fn new(target: &ClickHouseTarget, timeout: Duration) -> Self {
        let mut headers = HeaderMap::new();
        if let Some((user, password)) = &target.credential {
            for (name, text) in [(USER, user), (PASSWORD, password)] {
                // The configuration accepts only what a header can carry.
                if let Ok(mut value) = HeaderValue::from_str(text) {
                    value.set_sensitive(true);
                    headers.insert(name, value);
                }
            }
        }
        let wire = GatewayHttpClient {
            url: target.url.clone(),
            token: String::new(),
            ca: target.ca.clone(),
        };
        Self { wire, headers, database: target.database.clone(), timeout }
    }

    /// Sends a statement and returns the text of its answer.
    pub(crate) async fn run(&self, statement: ClickHouseStatement) -> Result<String, ExportError> {
        let ClickHouseStatement { kind, sql, rows, settings } = statement;
        let mut path = format!("/?database={}&wait_end_of_query=1", escaped(&self.database));
        for setting in settings {
            path.push('&');
            path.push_str(setting);
        }
        // Rows are the body, and the statement comes before them in the URL; other statements are the body.
        let body = if rows.is_empty() {
            Bytes::from(sql)
        } else {
            path.push_str(&format!("&query={}", escaped(&sql)));
            rows
        };
        let request = GatewayHttpRequest {
            method: Method::POST,
            path,
            content_type: TEXT,
            body,
            headers: self.headers.clone(),
            timeout: self.timeout,
        };
        let response = match self.wire.send(request).await {
            Ok(response) => response,
            Err(error) => {
                let problem = match error.problem() {
                    HttpCallError::Connect(error) => format!("cannot connect: {error}"),
                    problem => problem.to_string(),
                };
                return Err(ExportError::Away { url: self.url(), problem });
            }
        };
        match response.status {
            StatusCode::OK => Ok(response.text),
            status => Err(self.refusal(kind, status, &response.text)),
        }
    }

    fn refusal(&self, statement: &'static str, status: StatusCode, text: &str) -> ExportError {
        let (url, short) = (self.url(), shortened(text));
        let is_credential = status == StatusCode::UNAUTHORIZED
            || status == StatusCode::FORBIDDEN
            || CREDENTIAL_CODES.iter().any(|code| text.trim_start().starts_with(code));
        match is_credential {
            true => ExportError::Credential { url, text: short },
            false => ExportError::Refused { url, statement, status: status.as_u16(), text: short },
        }
    }

    /// Returns the error for an answer that cannot be read.
    pub(crate) fn not_understood(&self, statement: &'static str, text: &str) -> ExportError {
        ExportError::Answer { url: self.url(), statement, text: shortened(text) }
    }

    pub(crate) fn database(&self) -> &str {
        &self.database
    }

    fn url(&self) -> String {
        self.wire.url.to_string()
    }
}

/// Splits an answer in the format `TabSeparated` into rows of cells. Escapes are not decoded: of
/// the values that the export queries, only names of types with quotes have any.
pub(crate) fn tab_separated(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().filter(|line| !line.is_empty()).map(|line| line.split('\t').collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> ClickHouseTarget {
        ClickHouseTarget {
            url: Uri::from_static("http://127.0.0.1:8123/"),
            database: "usage".to_owned(),
            credential: Some(("fairgate".to_owned(), "s3cret".to_owned())),
            ca: None,
        }
    }

    #[test]
    fn a_password_is_shown_nowhere() {
        let target = target();
        assert!(!format!("{target:?}").contains("s3cret"));
        assert_eq!(target.name(), "http://127.0.0.1:8123/ usage");
        let client = ClickHouseClient::new(&target, Duration::from_secs(1));
        assert!(!format!("{:?}", client.headers).contains("s3cret"));
        assert_eq!(client.headers[PASSWORD], "s3cret");
    }

    #[test]
    fn a_wrong_password_is_told_from_other_refusals() {
        let client = ClickHouseClient::new(&target(), Duration::from_secs(1));
        let refusal = |status, text| client.refusal("an insert", status, text);
        let old = "Code: 193, e.displayText() = DB::Exception: Wrong password for user fairgate";
        for (status, text) in [
            (StatusCode::INTERNAL_SERVER_ERROR, old),
            (StatusCode::FORBIDDEN, "Code: 516. DB::Exception: fairgate: Authentication failed"),
            (StatusCode::UNAUTHORIZED, ""),
        ] {
            assert!(matches!(refusal(status, text), ExportError::Credential { .. }), "{text}");
        }
        let full = refusal(StatusCode::INTERNAL_SERVER_ERROR, "Code: 243. No space left");
        assert!(matches!(full, ExportError::Refused { status: 500, .. }));
    }
}
