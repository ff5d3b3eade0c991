//! Tests with disks that fail, fill up and hang.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use fairgate_core::Pool;
use fairgate_core::event::{Event, PoolConfig};
use fairgate_journal::parse_policy;

use super::disk::JournalDiskFile;
use super::*;
use crate::gate_status::JournalHealth;

/// A disk in memory that can be made to fail.
#[derive(Clone, Default)]
struct FakeDisk {
    files: Arc<Mutex<BTreeMap<String, Data>>>,
    faults: Arc<Mutex<Faults>>,
}

type Data = Arc<Mutex<Vec<u8>>>;

#[derive(Default)]
struct Faults {
    /// Number of bytes for which there is still room; `None` for any number.
    room: Option<usize>,
    no_new_files: bool,
}

struct FakeFile {
    data: Data,
    faults: Arc<Mutex<Faults>>,
    /// If set, each write waits until a message arrives or the sender is gone.
    turnstile: Option<Arc<Mutex<Receiver<()>>>>,
}

impl JournalDisk for FakeDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.files.lock().unwrap().keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn JournalDiskFile>> {
        if self.faults.lock().unwrap().no_new_files {
            return Err(io::Error::other("read-only"));
        }
        let data = Data::default();
        self.files.lock().unwrap().insert(name.into(), data.clone());
        Ok(Box::new(FakeFile { data, faults: self.faults.clone(), turnstile: None }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.files.lock().unwrap();
        let data = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.into(), data);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let removed = self.files.lock().unwrap().remove(name);
        Ok(removed.map(drop).ok_or(io::ErrorKind::NotFound)?)
    }
}

impl Write for FakeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(turnstile) = &self.turnstile {
            let _ = turnstile.lock().unwrap().recv();
        }
        let mut faults = self.faults.lock().unwrap();
        let taken = faults.room.map_or(bytes.len(), |room| room.min(bytes.len()));
        if taken == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        faults.room = faults.room.map(|room| room - taken);
        self.data.lock().unwrap().extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl JournalDiskFile for FakeFile {
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.data.lock().unwrap().truncate(usize::try_from(length).unwrap());
        Ok(())
    }
}

/// A disk on which each file waits at a turnstile after its first line.
struct SlowDisk {
    disk: FakeDisk,
    turnstile: Arc<Mutex<Receiver<()>>>,
}

impl JournalDisk for SlowDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn JournalDiskFile>> {
        self.disk.create(name)?;
        let data = self.disk.files.lock().unwrap()[name].clone();
        let first = self.disk.files.lock().unwrap().len() == 1;
        let turnstile = (!first).then(|| self.turnstile.clone());
        let faults = self.disk.faults.clone();
        Ok(Box::new(FakeFile { data, faults, turnstile }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }
}

fn pool_task() -> PoolTask {
    let policy = parse_policy(r#"{"share":{"by":"tenant"}}"#).unwrap();
    let pool = Pool::new(PoolConfig { max_queue: Some(10), ..PoolConfig::new(1, policy) });
    PoolTask::new(pool, None, Duration::from_secs(60))
}

fn options() -> JournalOptions {
    JournalOptions { buffer_bytes_max: 4000, ..JournalOptions::new("nowhere") }
}

/// Applies `count` events to the pool task, and passes each of them to the journal separately.
async fn happen(journal: &mut GateJournal, pool_task: &mut PoolTask, count: u64) {
    for _ in 0..count {
        let slots = pool_task.pool().capacity() + 1;
        pool_task.apply(Micros(slots), Event::Capacity { slots });
        journal.pass_on(pool_task).await;
    }
}

/// Waits for the writer, by the system's clock.
fn settle(journal: &GateJournal) {
    while !journal.buffer.is_idle() {
        thread::yield_now();
    }
}

/// Returns the name of each file, with the capacity at its start and at its end.
fn spans(disk: &FakeDisk) -> Vec<(String, u64, u64)> {
    let files = disk.files.lock().unwrap();
    let span = |(name, data): (&String, &Data)| {
        let text = data.lock().unwrap().clone();
        let (start, mut reader) = JournalReader::open(&text[..]).unwrap();
        let mut pool = start.into_pool().unwrap();
        let first = pool.capacity();
        while let Some((at, event)) = reader.next_event().unwrap() {
            pool.apply(at, event, &mut Vec::new()).unwrap();
        }
        (name.clone(), first, pool.capacity())
    };
    files.iter().map(span).collect()
}

fn is_stopped(health: &JournalHealth) -> bool {
    matches!(health.status, JournalStatus::Stopped { .. })
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_ends_the_file_with_a_whole_line_and_the_gap_shows() {
    let (disk, mut pool_task) = (FakeDisk::default(), pool_task());
    let mut journal =
        GateJournal::on_disk(Box::new(disk.clone()), options(), &mut pool_task, Micros(0)).unwrap();
    happen(&mut journal, &mut pool_task, 3).await;
    settle(&journal);
    // Room for half a line more.
    disk.faults.lock().unwrap().room = Some(20);
    happen(&mut journal, &mut pool_task, 1).await;
    settle(&journal);
    happen(&mut journal, &mut pool_task, 2).await;
    assert!(is_stopped(&pool_task.journal_health), "{:?}", pool_task.journal_health);
    assert_eq!((pool_task.journal_health.gaps, pool_task.journal_health.events_lost), (1, 3));
    // Tried again while it is still full: the same gap goes on.
    tokio::time::advance(options().retry).await;
    journal.pass_on(&mut pool_task).await;
    settle(&journal);
    happen(&mut journal, &mut pool_task, 1).await;
    assert!(is_stopped(&pool_task.journal_health));
    disk.faults.lock().unwrap().room = None;
    tokio::time::advance(options().retry).await;
    journal.pass_on(&mut pool_task).await;
    happen(&mut journal, &mut pool_task, 2).await;
    assert_eq!(pool_task.journal_health.status, JournalStatus::Writing);
    assert_eq!(pool_task.journal_health.events_lost, 4);
    journal.finish(&mut pool_task).await;
    let expected = [("00000000-start.jsonl", 1, 4), ("00000001-gap.jsonl", 8, 10)];
    assert_eq!(spans(&disk), expected.map(|(name, first, last)| (name.into(), first, last)));
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_holds_the_gate_up_only_so_long() {
    let (go, turnstile) = channel();
    let fake = FakeDisk::default();
    let slow = SlowDisk { disk: fake.clone(), turnstile: Arc::new(Mutex::new(turnstile)) };
    let mut pool_task = pool_task();
    // Every page ends its file; from the second file on the disk hangs.
    let options = JournalOptions { file_bytes_max: 1, ..options() };
    let mut journal =
        GateJournal::on_disk(Box::new(slow), options.clone(), &mut pool_task, Micros(0)).unwrap();
    let before = Instant::now();
    let mut happened = 0;
    while !is_stopped(&pool_task.journal_health) {
        happen(&mut journal, &mut pool_task, 1).await;
        happened += 1;
        assert!(happened < 1000, "the buffer is bounded");
    }
    assert!((1..=2).contains(&before.elapsed().as_secs()), "stood still for stall_max");
    happen(&mut journal, &mut pool_task, 5).await;
    assert_eq!((pool_task.journal_health.gaps, pool_task.journal_health.events_lost), (1, 6));
    // While it hangs no new file is tried.
    tokio::time::advance(options.retry).await;
    journal.pass_on(&mut pool_task).await;
    assert!(is_stopped(&pool_task.journal_health));
    // It comes back: what was in the buffer is written, then a new file begins.
    drop(go);
    settle(&journal);
    tokio::time::advance(options.retry).await;
    journal.pass_on(&mut pool_task).await;
    assert_eq!(pool_task.journal_health.status, JournalStatus::Writing);
    happen(&mut journal, &mut pool_task, 1).await;
    journal.finish(&mut pool_task).await;
    let spans = spans(&fake);
    let last = pool_task.pool().capacity();
    let gap = spans.iter().position(|(name, ..)| name.ends_with("-gap.jsonl")).unwrap();
    assert_eq!(spans[gap - 1].2 + 6, spans[gap].1, "as many as are said to be lost");
    assert_eq!(spans.last().unwrap().2, last);
    for pair in spans[..gap].windows(2) {
        assert_eq!(pair[0].2, pair[1].1, "no gap that is not said");
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_that_cannot_be_made_is_an_error_at_the_start() {
    let (disk, mut pool_task) = (FakeDisk::default(), pool_task());
    disk.faults.lock().unwrap().no_new_files = true;
    assert!(GateJournal::on_disk(Box::new(disk), options(), &mut pool_task, Micros(0)).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_file_that_cannot_be_made_later_is_a_gap() {
    let (disk, mut pool_task) = (FakeDisk::default(), pool_task());
    let options = JournalOptions { file_bytes_max: 1, ..options() };
    let mut journal =
        GateJournal::on_disk(Box::new(disk.clone()), options, &mut pool_task, Micros(0)).unwrap();
    disk.faults.lock().unwrap().no_new_files = true;
    happen(&mut journal, &mut pool_task, 1).await;
    settle(&journal);
    journal.check_failure(&mut pool_task);
    assert!(is_stopped(&pool_task.journal_health));
    assert_eq!(pool_task.journal_health.events_lost, 0, "the page before was written");
    journal.finish(&mut pool_task).await;
    assert_eq!(spans(&disk).len(), 1);
}
