//! The faults of a backend. A test or a request itself can select them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Largest size of [`SimFault::OversizedEvent`], in bytes.
pub const OVERSIZED_EVENT_BYTES_MAX: usize = 64 << 20;

/// One way in which a backend misbehaves. "In the middle" means after half of the output tokens of a stream, or after
/// half of the bytes of an answer that is not streamed. Each fault has a text form, for headers, prompt markers and the
/// command line.
///
/// Faults apply to the routes that a model answers; `/v1/models` and `/health` keep working.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SimFault {
    /// `hang-before`: takes a slot and never answers.
    HangBefore,
    /// `hang-mid`: sends half of the answer and then nothing more, without closing the connection.
    HangMid,
    /// `reset-before`: resets the connection (RST) instead of answering.
    ResetBefore,
    /// `reset-mid`: resets the connection (RST) in the middle.
    ResetMid,
    /// `close-mid`: closes the connection (FIN) in the middle.
    CloseMid,
    /// `close-at-end`: sends the whole answer, then closes the connection instead of ending the body properly. An
    /// answer that is not streamed lacks its last byte.
    CloseAtEnd,
    /// `close-after`: sends the whole answer with headers that keep the connection open, then closes the connection
    /// nevertheless.
    CloseAfter,
    /// `garbage`: answers 200 with the right content type and a body of bytes that are not even UTF-8.
    Garbage,
    /// `invalid-json`: every JSON text lacks its last brace.
    InvalidJson,
    /// `sse-garbage`: a stream turns into lines that are not events, and ends. An answer that is not streamed is sent
    /// as with `garbage`.
    SseGarbage,
    /// `usage-missing`, `usage-negative`, `usage-huge`, `usage-strings`: the usage is absent or absurd.
    Usage(UsageFault),
    /// `endless`: the answer never ends.
    Endless,
    /// `status=503`, `status=429;retry-after=7` (seconds): refuses the request with this status at once, without taking
    /// a slot.
    Status {
        /// HTTP status, 400 to 599.
        code: u16,
        /// Value of the header `Retry-After` in seconds; `None` sends no such header.
        retry_after_seconds: Option<u32>,
    },
    /// `slow-status=400;after=500` (milliseconds): takes a slot, keeps the slot for this time, and then refuses the
    /// request with this status.
    SlowStatus {
        /// HTTP status, 400 to 599.
        code: u16,
        /// Time for which the request keeps its slot before the refusal.
        after: Duration,
    },
    /// `hidden-tokens=2000` (tokens): generates that many reasoning tokens before the answer. The reasoning tokens take
    /// time and are in the usage, but are not sent. A stream sends its usage one token's time after its last token.
    HiddenTokens {
        /// Number of reasoning tokens that are generated and not sent.
        tokens: u64,
    },
    /// `slow-bytes=50` (milliseconds): sends the body byte by byte, with this pause before each byte.
    SlowBytes {
        /// Pause before each byte of the body.
        pause: Duration,
    },
    /// `oversized-event=1048576` (bytes): the first token has this many bytes, all in one event. The largest size is
    /// [`OVERSIZED_EVENT_BYTES_MAX`].
    OversizedEvent {
        /// Size of the first token in bytes.
        bytes: usize,
    },
    /// `wrong-content-type`: sends a good answer with the content type `text/html`.
    WrongContentType,
}

/// Fault of the usage in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageFault {
    /// The answer has no usage.
    Missing,
    /// Every number in the usage is negative.
    Negative,
    /// Every number in the usage is 10^18 tokens or more.
    Huge,
    /// Every number in the usage is written as a string.
    Strings,
}

const PLAIN: [(&str, SimFault); 16] = [
    ("hang-before", SimFault::HangBefore),
    ("hang-mid", SimFault::HangMid),
    ("reset-before", SimFault::ResetBefore),
    ("reset-mid", SimFault::ResetMid),
    ("close-mid", SimFault::CloseMid),
    ("close-at-end", SimFault::CloseAtEnd),
    ("close-after", SimFault::CloseAfter),
    ("garbage", SimFault::Garbage),
    ("invalid-json", SimFault::InvalidJson),
    ("sse-garbage", SimFault::SseGarbage),
    ("usage-missing", SimFault::Usage(UsageFault::Missing)),
    ("usage-negative", SimFault::Usage(UsageFault::Negative)),
    ("usage-huge", SimFault::Usage(UsageFault::Huge)),
    ("usage-strings", SimFault::Usage(UsageFault::Strings)),
    ("endless", SimFault::Endless),
    ("wrong-content-type", SimFault::WrongContentType),
];

/// Error for a text that is the name of no fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFaultError(String);

impl fmt::Display for UnknownFaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a fault: take ", self.0)?;
        for (name, _) in PLAIN {
            write!(f, "{name}, ")?;
        }
        write!(
            f,
            "status=CODE (400 to 599), status=CODE;retry-after=SECONDS, \
             slow-status=CODE;after=MILLISECONDS, hidden-tokens=TOKENS, slow-bytes=MILLISECONDS or oversized-event=BYTES (at most {OVERSIZED_EVENT_BYTES_MAX})"
        )
    }
}

impl std::error::Error for UnknownFaultError {}

impl FromStr for SimFault {
    type Err = UnknownFaultError;

    fn from_str(text: &str) -> Result<Self, UnknownFaultError> {
        let text = text.trim();
        if let Some((_, fault)) = PLAIN.iter().find(|(name, _)| *name == text) {
            return Ok(*fault);
        }
        text.split_once('=')
            .and_then(|(name, value)| with_value(name, value))
            .ok_or_else(|| UnknownFaultError(text.chars().take(80).collect()))
    }
}

fn with_value(name: &str, value: &str) -> Option<SimFault> {
    match name {
        "status" => {
            let (code, retry_after_seconds) = match value.split_once(";retry-after=") {
                None => (value, None),
                Some((code, seconds)) => (code, Some(seconds.parse().ok()?)),
            };
            Some(SimFault::Status { code: bad_status(code)?, retry_after_seconds })
        }
        "slow-status" => {
            let (code, after) = value.split_once(";after=")?;
            let after = Duration::from_millis(after.parse().ok()?);
            Some(SimFault::SlowStatus { code: bad_status(code)?, after })
        }
        "hidden-tokens" => value.parse().ok().map(|tokens| SimFault::HiddenTokens { tokens }),
        "slow-bytes" => {
            value.parse().ok().map(|ms| SimFault::SlowBytes { pause: Duration::from_millis(ms) })
        }
        "oversized-event" => value
            .parse()
            .ok()
            .filter(|bytes| *bytes <= OVERSIZED_EVENT_BYTES_MAX)
            .map(|bytes| SimFault::OversizedEvent { bytes }),
        _ => None,
    }
}

fn bad_status(code: &str) -> Option<u16> {
    code.parse().ok().filter(|code| (400..600).contains(code))
}

impl fmt::Display for SimFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status { code, retry_after_seconds: None } => write!(f, "status={code}"),
            Self::Status { code, retry_after_seconds: Some(seconds) } => {
                write!(f, "status={code};retry-after={seconds}")
            }
            Self::SlowStatus { code, after } => {
                write!(f, "slow-status={code};after={}", after.as_millis())
            }
            Self::HiddenTokens { tokens } => write!(f, "hidden-tokens={tokens}"),
            Self::SlowBytes { pause } => write!(f, "slow-bytes={}", pause.as_millis()),
            Self::OversizedEvent { bytes } => write!(f, "oversized-event={bytes}"),
            plain => {
                let name = PLAIN.iter().find(|(_, fault)| fault == plain).map(|(name, _)| *name);
                f.write_str(name.unwrap_or("unnamed"))
            }
        }
    }
}

/// The fault that the next requests get, unless a request asks for a fault itself. `Next` also has the number of
/// requests that will still get the fault.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum InjectedFaults {
    #[default]
    None,
    Always(SimFault),
    Next(SimFault, u64),
}

impl InjectedFaults {
    pub(crate) fn take(&mut self) -> Option<SimFault> {
        match *self {
            Self::None => None,
            Self::Always(fault) => Some(fault),
            Self::Next(fault, left) => {
                *self = if left > 1 { Self::Next(fault, left - 1) } else { Self::None };
                (left > 0).then_some(fault)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_reads_back_from_its_text() {
        let with_values = [
            SimFault::Status { code: 503, retry_after_seconds: None },
            SimFault::Status { code: 429, retry_after_seconds: Some(7) },
            SimFault::SlowStatus { code: 400, after: Duration::from_millis(500) },
            SimFault::HiddenTokens { tokens: 2000 },
            SimFault::SlowBytes { pause: Duration::from_millis(50) },
            SimFault::OversizedEvent { bytes: 1 << 20 },
        ];
        for fault in PLAIN.into_iter().map(|(_, fault)| fault).chain(with_values) {
            assert_eq!(fault.to_string().parse(), Ok(fault));
        }
    }

    #[test]
    fn what_names_no_fault_is_told_what_would() {
        for bad in [
            "",
            "explode",
            "status=200",
            "status=abc",
            "slow-status=400",
            "slow-bytes=",
            "oversized-event=1e9",
        ] {
            let message = bad.parse::<SimFault>().unwrap_err().to_string();
            assert!(
                message.starts_with(&format!("`{bad}`")) && message.contains("reset-mid"),
                "{message}"
            );
        }
    }

    #[test]
    fn a_counted_fault_ends_after_its_count() {
        let mut mischief = InjectedFaults::Next(SimFault::Garbage, 2);
        let met: Vec<_> = (0..3).map(|_| mischief.take()).collect();
        assert_eq!(met, [Some(SimFault::Garbage), Some(SimFault::Garbage), None]);
        assert_eq!(InjectedFaults::Next(SimFault::Garbage, 0).take(), None);
    }
}
