//! The task of a member: it drives the member's protocol with real time, the log, and the calls of its process.
//!
//! The protocol decides what is sent and when; the task only carries. It never waits for the log: appends, reads and
//! calls to the rows beside the log are async tasks of their own ([`log_io`], [`row_calls`]), whose answers come back
//! as messages.

mod generations;
mod log_io;
mod outputs;
mod requests;
mod row_calls;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fairgate_replica::{ClusterMicros, LocalMicros, LogEntry, MemberProtocol};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use self::generations::GenerationChange;
use self::log_io::{AppendJob, LogAnswer, ReaderPlace};
use self::row_calls::{ROW_CALLS_MAX, RowAnswer, RowCall};
use crate::cluster_log::{ClusterLog, ClusterLogError, GenerationStore, LogCursor, LogRead};
use crate::member_message::{AdmissionAnswer, MemberCommand, RequestName};
use crate::member_options::{MemberObserver, MemberOptions, PeerClocks};
use crate::member_status::{MemberStanding, MemberStatus};

/// Records that wait to be appended. The protocol has at most eight on the way, and sends again what is not read back.
const APPENDS_MAX: usize = 16;

/// Outputs and records that are handled before messages are read again.
const PUMP_STEPS: usize = 1000;

/// The task's clock: microseconds since the start of the task.
#[derive(Clone, Copy, Debug)]
struct LocalClock(Instant);

impl LocalClock {
    fn now(self) -> LocalMicros {
        LocalMicros(u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    fn instant(self, at: LocalMicros) -> Instant {
        self.0 + Duration::from_micros(at.0)
    }
}

/// State of a member's task.
pub(crate) struct MemberTask {
    protocol: MemberProtocol,
    clock: LocalClock,
    process: Arc<str>,
    observer: Box<dyn MemberObserver>,
    peers: Option<Arc<dyn PeerClocks>>,
    patience: Duration,
    waiting_max: usize,
    /// Callers that wait for their slots.
    waiting: HashMap<RequestName, oneshot::Sender<AdmissionAnswer>>,
    /// Requests in flight, with the senders that cut them off.
    flights: HashMap<RequestName, oneshot::Sender<()>>,
    /// Grants whose callers have left.
    unclaimed: Vec<RequestName>,
    lanes: TaskLanes,
    generation: GenerationChange,
    /// False until the log was read for the first time.
    has_read: bool,
    status: watch::Sender<MemberStatus>,
    trouble: Option<String>,
    /// Reason of the last refusal of a join.
    join_problem: Option<String>,
    end: Option<MemberStanding>,
}

/// The ways from the task to its helpers.
struct TaskLanes {
    place: watch::Sender<ReaderPlace>,
    appends: mpsc::Sender<AppendJob>,
    rows: mpsc::Sender<RowCall>,
    peer_answers: mpsc::Sender<PeerReport>,
}

/// Answers of the other members, and how many were asked.
struct PeerReport {
    times: Vec<ClusterMicros>,
    asked: usize,
}

/// The ways from the helpers to the task.
struct TaskInbox {
    commands: mpsc::UnboundedReceiver<MemberCommand>,
    log: mpsc::Receiver<LogAnswer>,
    rows: mpsc::Receiver<RowAnswer>,
    peers: mpsc::Receiver<PeerReport>,
}

/// One message to the task.
enum TaskMessage {
    Command(MemberCommand),
    Log(LogAnswer),
    Row(RowAnswer),
    Peers(PeerReport),
    /// No handle to the member is left.
    NoHandles,
    /// A time has come.
    Due,
}

impl TaskInbox {
    /// Waits for the next message, at most until `due`.
    async fn next(&mut self, due: Instant, has_handles: bool) -> TaskMessage {
        tokio::select! {
            command = self.commands.recv(), if has_handles => match command {
                Some(command) => TaskMessage::Command(command),
                None => TaskMessage::NoHandles,
            },
            Some(answer) = self.log.recv() => TaskMessage::Log(answer),
            Some(answer) = self.rows.recv() => TaskMessage::Row(answer),
            Some(answer) = self.peers.recv() => TaskMessage::Peers(answer),
            () = sleep_until(due) => TaskMessage::Due,
        }
    }
}

/// Runs a member until it has left or cannot go on. `protocol` must have been created with the time 0.
pub(crate) async fn run_member<L: ClusterLog + GenerationStore>(
    log: Arc<L>,
    protocol: MemberProtocol,
    options: MemberOptions,
    commands: mpsc::UnboundedReceiver<MemberCommand>,
    status: watch::Sender<MemberStatus>,
) {
    let mut helpers = JoinSet::new();
    let (mut task, mut inbox) = MemberTask::new(protocol, options, commands, status, |lanes| {
        let LaneEnds { place, appends, rows, log_answers, row_answers } = lanes;
        let answers = log_answers.clone();
        helpers.spawn(log_io::append_records(log.clone(), place.clone(), appends, answers));
        helpers.spawn(log_io::read_records(log.clone(), place, log_answers));
        helpers.spawn(row_calls::carry_out(log.clone(), rows, row_answers));
    });
    let mut has_handles = true;
    while task.end.is_none() {
        task.pump();
        task.show();
        if task.end.is_some() {
            break;
        }
        let message = inbox.next(task.next_due(), has_handles).await;
        if let TaskMessage::NoHandles = message {
            has_handles = false;
        }
        task.take(message);
        // What has come meanwhile goes into the same record.
        while let Ok(command) = inbox.commands.try_recv() {
            task.take(TaskMessage::Command(command));
        }
    }
    // Dropping the helpers ends them, and dropping the callers' senders tells the callers.
    task.show();
}

/// The ends of the lanes that belong to the helpers.
struct LaneEnds {
    place: watch::Receiver<ReaderPlace>,
    appends: mpsc::Receiver<AppendJob>,
    rows: mpsc::Receiver<RowCall>,
    log_answers: mpsc::Sender<LogAnswer>,
    row_answers: mpsc::Sender<RowAnswer>,
}

impl MemberTask {
    fn new(
        protocol: MemberProtocol,
        options: MemberOptions,
        commands: mpsc::UnboundedReceiver<MemberCommand>,
        status: watch::Sender<MemberStatus>,
        start: impl FnOnce(LaneEnds),
    ) -> (Self, TaskInbox) {
        let machine = protocol.replica().machine();
        let cursor = LogCursor { generation: machine.generation(), after: machine.position() };
        let (place, place_end) = watch::channel(ReaderPlace { cursor, again: 0 });
        let (appends, appends_end) = mpsc::channel(APPENDS_MAX);
        let (rows, rows_end) = mpsc::channel(ROW_CALLS_MAX);
        let (log_answers, log) = mpsc::channel(2);
        let (row_answers, row_inbox) = mpsc::channel(2);
        let (peer_answers, peers) = mpsc::channel(1);
        start(LaneEnds {
            place: place_end,
            appends: appends_end,
            rows: rows_end,
            log_answers,
            row_answers,
        });
        let mut observer = options.observer;
        observer.restored(protocol.replica().machine());
        let task = Self {
            protocol,
            clock: LocalClock(Instant::now()),
            process: options.identity.process.clone(),
            observer,
            peers: options.peers,
            patience: options.patience,
            waiting_max: options.waiting_max,
            waiting: HashMap::new(),
            flights: HashMap::new(),
            unclaimed: Vec::new(),
            lanes: TaskLanes { place, appends, rows, peer_answers },
            generation: GenerationChange::new(Instant::now()),
            has_read: false,
            status,
            trouble: None,
            join_problem: None,
            end: None,
        };
        (task, TaskInbox { commands, log, rows: row_inbox, peers })
    }

    fn take(&mut self, message: TaskMessage) {
        match message {
            TaskMessage::Command(command) => self.take_command(command),
            TaskMessage::Log(LogAnswer { asked, read }) => match read {
                Ok(read) => self.take_read(asked, &read),
                Err(error) => self.note_trouble(&error),
            },
            TaskMessage::Row(answer) => self.take_row_answer(answer),
            TaskMessage::Peers(PeerReport { times, asked }) => {
                self.protocol.peers_answered(&times, asked);
            }
            TaskMessage::NoHandles => self.protocol.leave(),
            TaskMessage::Due => {}
        }
    }

    /// Applies what the log has returned to a call at this place.
    fn take_read(&mut self, asked: LogCursor, read: &LogRead) {
        self.trouble = None;
        let machine = self.protocol.replica().machine();
        if asked.generation != machine.generation() || asked.after > machine.position() {
            // The call was made before the member began again from a snapshot.
            return;
        }
        if !self.take_generation(read.generation, read.is_ending) {
            return;
        }
        self.has_read = true;
        self.note_log_end(read.end);
        let next = self.protocol.replica().machine().position().next();
        if read.records.first().is_some_and(|first| first.position > next) {
            // What follows its last record was pruned, because it was away for long.
            return self.load_snapshot(None);
        }
        let entries = read.records.iter().map(|record| LogEntry {
            position: record.position,
            stamp: record.stamp,
            record: &record.bytes,
        });
        // An answer may be older than what was applied meanwhile. The log has lost records only if it ends before the
        // place that was applied when it was asked.
        let position = self.protocol.replica().machine().position();
        let end = if read.end < asked.after { read.end } else { read.end.max(position) };
        self.protocol.read(entries, end, self.clock.now());
        for event in self.protocol.take_pool_events() {
            self.observer.pool_event(&event);
        }
        // An answer has a bounded number of records. The reader gets the rest.
        let got = read.records.last().map_or(asked.after, |last| last.position);
        self.move_cursor(got < read.end);
    }

    /// Tells the helpers up to where the member has applied the log.
    fn move_cursor(&self, again: bool) {
        let machine = self.protocol.replica().machine();
        let cursor = LogCursor { generation: machine.generation(), after: machine.position() };
        self.lanes.place.send_if_modified(|place| {
            let again = place.again + u64::from(again);
            let moved = ReaderPlace { cursor, again };
            std::mem::replace(place, moved) != moved
        });
    }

    /// Does what the protocol asks for, and sends its records.
    fn pump(&mut self) {
        for _ in 0..PUMP_STEPS {
            let record = match self.has_read {
                true => self.protocol.poll_record(self.clock.now()),
                false => None,
            };
            let output = self.protocol.poll_output();
            if record.is_none() && output.is_none() {
                break;
            }
            if let Some(record) = record {
                let generation = self.protocol.replica().machine().generation();
                // If the lane is full, the log does not answer, and the record is sent again later.
                let _ = self.lanes.appends.try_send(AppendJob { generation, record });
            }
            if let Some(output) = output {
                self.take_output(output);
            }
            self.give_back_unclaimed();
        }
        self.look_at_generation();
    }

    fn note_trouble(&mut self, error: &ClusterLogError) {
        let text = error.to_string();
        if self.trouble.as_ref() != Some(&text) {
            tracing::warn!("{text}");
        }
        self.trouble = Some(text);
    }

    fn fail(&mut self, reason: String) {
        tracing::error!("{reason}");
        self.end = Some(MemberStanding::Failed(reason));
    }

    /// Makes a call to the rows beside the log. Returns false if too many calls wait.
    fn call_rows(&self, call: RowCall) -> bool {
        self.lanes.rows.try_send(call).is_ok()
    }

    /// Returns the time at which the task must look again even without a message.
    fn next_due(&self) -> Instant {
        let protocol = self.clock.instant(self.protocol.next_wake(self.clock.now()));
        protocol.min(self.generation.next_look())
    }

    /// Shows the member's state to its handles.
    fn show(&self) {
        let machine = self.protocol.replica().machine();
        let phase = match (&self.end, self.protocol.epoch()) {
            (Some(end), _) => end.clone(),
            (None, _) if self.generation.is_ending() => MemberStanding::BetweenGenerations,
            (None, Some((number, epoch))) => MemberStanding::Member { number, epoch },
            (None, None) => MemberStanding::Joining,
        };
        let status = MemberStatus {
            phase,
            generation: machine.generation(),
            position: machine.position(),
            hash: machine.hash(),
            log_end: self.generation.log_end().max(machine.position()),
            time: machine.now(),
            silent_for: Duration::from_micros(self.protocol.silent_for(self.clock.now()).0),
            trouble: self.join_problem.as_ref().or(self.trouble.as_ref()).cloned(),
        };
        self.status.send_if_modified(|shown| {
            let has_changed = *shown != status;
            *shown = status;
            has_changed
        });
    }
}
