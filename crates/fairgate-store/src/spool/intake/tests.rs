use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use tokio::time::advance;

use super::*;
use crate::spool::tests::{Place, row};

/// Counts how often the writer was woken, and collects the rows that it was given to keep.
#[derive(Clone, Default)]
struct CountingWriter {
    woken: Arc<AtomicUsize>,
    kept: Arc<Mutex<Vec<String>>>,
}

impl RowWriter for CountingWriter {
    fn wake(&self) {
        self.woken.fetch_add(1, Ordering::Relaxed);
    }

    fn keep(&self, attempt: Box<AttemptRow>) {
        self.kept.lock().unwrap().push(attempt.request);
    }
}

struct IntakeTest {
    place: Place,
    spool: Arc<Spool>,
    writer: CountingWriter,
    intake: Arc<SpoolIntake>,
}

impl IntakeTest {
    fn new(place: Place) -> Self {
        let (spool, writer) = (Arc::new(place.open()), CountingWriter::default());
        let intake = SpoolIntake::new(spool.clone(), Box::new(writer.clone()));
        Self { place, spool, writer, intake }
    }

    fn woken(&self) -> usize {
        self.writer.woken.load(Ordering::Relaxed)
    }

    /// Returns the rows in the files.
    fn left(self) -> Vec<String> {
        let Self { place, spool, intake, .. } = self;
        drop((spool, intake));
        place.left()
    }
}

fn poll(future: Pin<&mut impl Future<Output = PutResult>>) -> Poll<PutResult> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test(start_paused = true)]
async fn a_row_that_comes_alone_is_written_at_once_and_others_together() {
    let test = IntakeTest::new(Place::new());
    assert!(matches!(poll(pin!(test.intake.put(row("a")))), Poll::Ready(Ok(()))));
    let one = test.place.bytes();
    assert_eq!(test.woken(), 1);
    let (mut b, mut c) = (pin!(test.intake.put(row("b"))), pin!(test.intake.put(row("c"))));
    assert!(poll(b.as_mut()).is_pending() && poll(c.as_mut()).is_pending());
    assert_eq!((test.place.bytes(), test.spool.pending_rows()), (one, 1));
    // Both are there when the first of them is acknowledged.
    b.await.unwrap();
    assert_eq!(test.place.bytes(), 3 * one);
    assert!(matches!(poll(c), Poll::Ready(Ok(()))));
    advance(ALONE_AFTER).await;
    assert!(matches!(poll(pin!(test.intake.put(row("d")))), Poll::Ready(Ok(()))));
    // The writer is woken for the first row only.
    assert_eq!(test.woken(), 1);
    assert_eq!(test.left(), ["a", "b", "c", "d"]);
}

#[tokio::test(start_paused = true)]
async fn whoever_reads_finds_the_rows_that_wait() {
    let test = IntakeTest::new(Place::new());
    let waits: Vec<_> = ["a", "b", "c"].map(|request| test.intake.put(row(request))).into();
    test.intake.write_waiting();
    assert_eq!(test.spool.pending_rows(), 3);
    for wait in waits {
        assert!(matches!(poll(pin!(wait)), Poll::Ready(Ok(()))));
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_than_so_many_rows_wait() {
    let test = IntakeTest::new(Place::new());
    let mut waits: Vec<_> = (0..WAITING_MAX + 3)
        .map(|number| Box::pin(test.intake.put(row(&number.to_string()))))
        .collect();
    let are_ready: Vec<_> = waits.iter_mut().map(|wait| poll(wait.as_mut()).is_ready()).collect();
    assert_eq!(are_ready.iter().filter(|ready| **ready).count(), 3);
    assert!(are_ready[0] && are_ready[WAITING_MAX + 1] && are_ready[WAITING_MAX + 2]);
    test.intake.write_waiting();
    assert_eq!(test.spool.pending_rows(), (WAITING_MAX + 3) as u64);
}

#[test]
fn rows_that_wait_are_written_when_the_runtime_ends() {
    let test = IntakeTest::new(Place::new());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        for request in ["a", "b", "c"] {
            drop(test.intake.put(row(request)));
        }
    });
    drop(runtime);
    assert_eq!(test.spool.pending_rows(), 3);
    // Without a runtime, a row is written at once.
    for request in ["d", "e"] {
        assert!(matches!(poll(pin!(test.intake.put(row(request)))), Poll::Ready(Ok(()))));
    }
    assert_eq!(test.left(), ["a", "b", "c", "d", "e"]);
}

#[tokio::test(start_paused = true)]
async fn a_row_that_no_file_takes_and_nobody_waits_for_is_kept() {
    let test = IntakeTest::new(Place::bounded(10, 16));
    let alone = test.intake.put(row("a")).await;
    assert!(
        matches!(alone, Err(SpoolPutError::Unwritten { attempt, .. }) if attempt.request == "a")
    );
    let waiting = test.intake.put(row("b"));
    drop(test.intake.put(row("c")));
    let waited = waiting.await;
    assert!(
        matches!(waited, Err(SpoolPutError::Unwritten { attempt, .. }) if attempt.request == "b")
    );
    assert_eq!(*test.writer.kept.lock().unwrap(), ["c"]);
    assert!(!test.spool.is_writable());
    test.spool.stop();
    assert!(matches!(test.intake.put(row("d")).await, Err(SpoolPutError::Closed)));
}
