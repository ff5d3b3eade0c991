//! A server that answers the statements of the export as ClickHouse does, and fails on request.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use fairgate_export::create_table_statement;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Key by which the table replaces rows: day, tenant, request and attempt.
pub(crate) type RowKey = (String, String, String, u64);

/// The server's treatment of inserts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum InsertMode {
    /// The server stores the rows.
    #[default]
    Take,
    /// The server stores the rows, and closes the connection without an answer.
    TakeAndHangUp,
    /// The server never answers.
    Hang,
    /// The server answers with this status and text, and stores nothing.
    Refuse(u16, &'static str),
}

/// Content of the server, and its record of requests.
#[derive(Default)]
pub(crate) struct FakeTables {
    /// Columns of the table with their types; `None` if there is no table.
    pub(crate) columns: Option<Vec<(String, String)>>,
    pub(crate) engine: String,
    /// Highest version of each row.
    pub(crate) rows: BTreeMap<RowKey, HashMap<String, Value>>,
    /// Versions of rows in the order of their arrival, with repetitions.
    pub(crate) versions: Vec<u64>,
    /// Number of rows of each stored insert.
    pub(crate) inserts: Vec<usize>,
    pub(crate) mode: InsertMode,
    /// User and password that are accepted; any user if absent.
    pub(crate) credential: Option<(&'static str, &'static str)>,
    /// True if the server knows the setting `async_insert`.
    pub(crate) is_new: bool,
    /// Paths of all requests.
    pub(crate) paths: Vec<String>,
}

/// A running server. Dropping this value ends the server.
pub(crate) struct FakeClickHouse {
    pub(crate) url: String,
    tables: Arc<Mutex<FakeTables>>,
    task: JoinHandle<()>,
}

impl Drop for FakeClickHouse {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeClickHouse {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let tables: Arc<Mutex<FakeTables>> = Arc::default();
        let shared = tables.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, shared.clone()));
            }
        });
        Self { url, tables, task }
    }

    pub(crate) fn tables(&self) -> MutexGuard<'_, FakeTables> {
        self.tables.lock().unwrap()
    }

    /// Sets the table of the server, which may differ from the one that the export needs.
    pub(crate) fn set_table(&self, columns: Vec<(String, String)>, engine: &str) {
        let mut tables = self.tables();
        (tables.columns, tables.engine) = (Some(columns), engine.to_owned());
    }

    pub(crate) fn drop_table(&self) {
        let mut tables = self.tables();
        (tables.columns, tables.rows, tables.inserts) = (None, BTreeMap::new(), Vec::new());
    }

    pub(crate) fn set_mode(&self, mode: InsertMode) {
        self.tables().mode = mode;
    }

    /// Returns the sum of a column over the rows with the highest versions.
    pub(crate) fn sum(&self, column: &str) -> u64 {
        self.tables().rows.values().map(|row| row[column].as_u64().unwrap()).sum()
    }

    /// Returns the requests and attempts of the rows with the highest versions, in order.
    pub(crate) fn counted(&self) -> Vec<(String, u64)> {
        let tables = self.tables();
        let counted = tables.rows.iter().filter(|(_, row)| row["removed"] == 0);
        counted.map(|((_, _, request, attempt), _)| (request.clone(), *attempt)).collect()
    }
}

/// The parts of an HTTP request that the server uses.
struct Request {
    path: String,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

async fn read(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await.ok()?;
    Some(Request { path, headers, body })
}

async fn serve(stream: TcpStream, tables: Arc<Mutex<FakeTables>>) {
    let mut reader = BufReader::new(stream);
    while let Some(request) = read(&mut reader).await {
        let Some((status, text)) = answer(&request, &tables) else { return };
        if status == 0 {
            return std::future::pending().await;
        }
        let length = text.len();
        let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n");
        if reader.get_mut().write_all((head + &text).as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Returns the status and the text of the answer. `None` closes the connection, and the status 0
/// never answers.
fn answer(request: &Request, tables: &Mutex<FakeTables>) -> Option<(u16, String)> {
    let mut tables = tables.lock().unwrap();
    tables.paths.push(request.path.clone());
    if let Some((user, password)) = tables.credential {
        let header = |name: &str| request.headers.get(name).map_or("", String::as_str);
        if (header("x-clickhouse-user"), header("x-clickhouse-key")) != (user, password) {
            let text = "Code: 516. DB::Exception: Authentication failed: password is incorrect";
            return Some((403, text.to_owned()));
        }
    }
    assert!(!request.headers.contains_key("authorization"), "two ways to name a user are refused");
    if let Some((_, query)) = request.path.split_once("&query=") {
        assert!(query.starts_with("INSERT%20INTO%20fairgate_attempts%20%28"), "{query}");
        return insert(&request.body, &mut tables);
    }
    let sql = String::from_utf8(request.body.clone()).unwrap();
    Some((200, select(&sql, &mut tables)))
}

fn select(sql: &str, tables: &mut FakeTables) -> String {
    let key = "day, tenant, request, attempt";
    if sql.starts_with("SELECT engine, sorting_key FROM system.tables") {
        let engine = &tables.engine;
        return tables.columns.as_ref().map_or(String::new(), |_| format!("{engine}\t{key}\n"));
    }
    if sql.starts_with("SELECT name, type FROM system.columns") {
        let columns = tables.columns.iter().flatten();
        return columns
            .map(|(name, kind)| format!("{name}\t{}\n", kind.replace('\'', "\\'")))
            .collect();
    }
    if sql.starts_with("SELECT name FROM system.settings") {
        return if tables.is_new { "async_insert\n".to_owned() } else { String::new() };
    }
    if sql.starts_with("CREATE TABLE IF NOT EXISTS fairgate_attempts") {
        assert_eq!(sql, create_table_statement());
        tables.columns = Some(columns());
        tables.engine = "ReplacingMergeTree".to_owned();
        return String::new();
    }
    assert!(sql.contains("FROM fairgate_attempts FINAL WHERE"), "{sql}");
    day_sums(sql, tables)
}

/// Returns the columns of the statement that creates the table.
pub(crate) fn columns() -> Vec<(String, String)> {
    let statement = create_table_statement();
    let lines = statement.lines().filter_map(|line| line.strip_prefix("    "));
    let column = |line: &str| {
        let (name, kind) = line.trim_end_matches(',').split_once(' ').unwrap();
        (name.to_owned(), kind.to_owned())
    };
    lines.map(column).collect()
}

fn insert(body: &[u8], tables: &mut FakeTables) -> Option<(u16, String)> {
    match &tables.mode {
        InsertMode::Refuse(status, text) => return Some((*status, (*text).to_owned())),
        InsertMode::Hang => return Some((0, String::new())),
        InsertMode::Take | InsertMode::TakeAndHangUp => {}
    }
    let Some(columns) = &tables.columns else {
        return Some((404, "Code: 60. DB::Exception: Table does not exist".to_owned()));
    };
    let names: Vec<String> = columns.iter().map(|(name, _)| name.clone()).collect();
    let lines: Vec<HashMap<String, Value>> = std::str::from_utf8(body)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    tables.inserts.push(lines.len());
    for row in lines {
        assert!(row.keys().all(|name| names.contains(name)) && row.len() == names.len());
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        let key = (text("day"), text("tenant"), text("request"), row["attempt"].as_u64().unwrap());
        let version = row["version"].as_u64().unwrap();
        tables.versions.push(version);
        let known = tables.rows.get(&key).map_or(0, |known| known["version"].as_u64().unwrap());
        if version >= known {
            tables.rows.insert(key, row);
        }
    }
    (tables.mode == InsertMode::Take).then(|| (200, String::new()))
}

fn day_sums(sql: &str, tables: &FakeTables) -> String {
    let after = |mark: &str| sql.split(mark).nth(1).unwrap();
    let day = |mark: &str| after(mark).split('\'').next().unwrap().to_owned();
    let (first, last) = (day("day >= toDate('"), day("day <= toDate('"));
    let version: u64 = after("version <= ").split(' ').next().unwrap().parse().unwrap();
    let mut days: BTreeMap<&str, [u64; 7]> = BTreeMap::new();
    for ((day, ..), row) in &tables.rows {
        let is_in = (first.as_str()..=last.as_str()).contains(&day.as_str());
        if !is_in || row["version"].as_u64().unwrap() > version {
            continue;
        }
        let number = |name: &str| row[name].as_u64().unwrap();
        let sums = days.entry(day).or_default();
        let row = [
            u64::from(row["removed"] == 0),
            number("input_tokens"),
            number("cached_tokens"),
            number("output_tokens"),
            number("charged"),
            number("provider_tokens"),
            number("money_micro"),
        ];
        sums.iter_mut().zip(row).for_each(|(sum, number)| *sum += number);
    }
    let line = |(day, sums): (&str, [u64; 7])| {
        format!("{day}\t{}\n", sums.map(|sum| sum.to_string()).join("\t"))
    };
    days.into_iter().map(line).collect()
}
