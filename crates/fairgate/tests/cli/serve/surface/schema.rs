//! The tables, columns, constraints and indices of a new database.

use fairgate_sim::SimOptions;
use fairgate_testkit::postgres_server::PostgresServer;
use rusqlite::Connection;
use tokio_postgres::SimpleQueryMessage;

use super::super::running::{Folder, Model, one_pool};
use super::gateway;

/// Returns the statements that make the same SQLite database.
pub(super) fn of_sqlite() -> Vec<String> {
    let folder = Folder::new();
    drop(gateway(&folder, &one_pool(&Model::start(SimOptions::default()), "")));
    let database = Connection::open(folder.join("data/fairgate.db")).expect("a database");
    let sql =
        "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY tbl_name, type DESC, name";
    let mut statement = database.prepare(sql).expect("SQL");
    let rows = statement.query_map([], |row| row.get::<_, String>(0)).expect("rows");
    let mut lines = Vec::new();
    for sql in rows {
        lines.extend(statement_lines(&sql.expect("a row")));
    }
    lines
}

/// Returns a statement with one column or constraint a line, without comments and without the layout of its source.
fn statement_lines(sql: &str) -> Vec<String> {
    let code = sql.lines().map(|line| line.split("--").next().unwrap_or_default());
    let words: Vec<&str> = code.flat_map(str::split_whitespace).collect();
    let text = words.join(" ").replace("( ", "(").replace(" )", ")").replace(" ,", ",");
    let is_table = text.starts_with("CREATE TABLE");
    let (mut depth, mut line, mut lines) = (0_u32, String::new(), Vec::new());
    for c in text.chars() {
        line.push(c);
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if is_table && depth == 1 && (c == '(' || c == ',') {
            lines.push(std::mem::take(&mut line));
        }
    }
    lines.push(line);
    let indented = |(number, line): (usize, String)| {
        if number == 0 { line } else { format!("  {}", line.trim()) }
    };
    lines.into_iter().enumerate().map(indented).collect()
}

/// Returns columns, constraints and indices of the same PostgreSQL database.
pub(super) fn of_postgresql() -> Vec<String> {
    const QUERIES: [&str; 3] = [
        "SELECT 'column ' || table_name || '.' || column_name || ' ' || data_type || \
           CASE is_nullable WHEN 'NO' THEN ' NOT NULL' ELSE '' END || COALESCE(' DEFAULT ' || column_default, '') \
         FROM information_schema.columns WHERE table_schema = 'public' ORDER BY table_name, column_name",
        "SELECT 'constraint ' || conrelid::regclass || ' ' || pg_get_constraintdef(oid) FROM pg_constraint \
         WHERE connamespace = 'public'::regnamespace AND contype <> 'n' ORDER BY conrelid::regclass::text, 1",
        "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY tablename, indexname",
    ];
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = PostgresServer::start_for_tests().expect("PostgreSQL starts");
    let database = runtime.block_on(server.create_database()).expect("a database");
    let folder = Folder::new();
    let store = format!("store: {{ url: \"{}\" }}\n", server.socket_url(&database));
    drop(gateway(&folder, &one_pool(&Model::start(SimOptions::default()), &store)));
    let mut lines = Vec::new();
    for query in QUERIES {
        let answer = runtime.block_on(server.run(&database, query)).expect("an answer");
        lines.extend(answer.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        }));
    }
    lines
}

#[test]
fn the_layout_of_a_statement_does_not_count() {
    let expected =
        ["CREATE TABLE a (", "  b INTEGER NOT NULL,", "  c TEXT CHECK (c IN ('x', 'y')))"];
    for sql in [
        "CREATE TABLE a (b INTEGER NOT NULL, c TEXT CHECK (c IN ('x', 'y')))",
        "CREATE TABLE a (\n  b INTEGER NOT NULL , -- its b\n  c TEXT CHECK (c IN ('x', 'y'))\n)",
    ] {
        assert_eq!(statement_lines(sql), expected);
    }
    assert_eq!(statement_lines("CREATE INDEX i ON a (b,\n c)"), ["CREATE INDEX i ON a (b, c)"]);
}
