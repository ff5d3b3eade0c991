//! What can go wrong on purpose.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The largest [`Fault::OversizedEvent`], in bytes.
pub const OVERSIZED_EVENT_BYTES_MAX: usize = 64 << 20;

/// One way in which a backend misbehaves. "Mid" is after half of the output tokens of a stream, or half of the bytes
/// of an answer that is not streamed. Each has a text form, for headers, prompt markers and the command line.
///
/// Faults concern the routes that a model answers; `/v1/models` and `/health` stay well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// `hang-before`: takes a slot and never answers.
    HangBefore,
    /// `hang-mid`: goes silent in the middle.
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
    /// `close-after`: sends the whole answer as on a connection that it keeps, then closes it all the same.
    CloseAfter,
    /// `garbage`: 200, the right content type, and bytes that are not even UTF-8.
    Garbage,
    /// `invalid-json`: every JSON text lacks its last brace.
    InvalidJson,
    /// `sse-garbage`: a stream turns into lines that are not events, and ends. Not streamed, it is `garbage`.
    SseGarbage,
    /// `usage-missing`, `usage-negative`, `usage-huge`, `usage-strings`: the usage is absent or absurd.
    Usage(UsageFault),
    /// `endless`: the answer never ends.
    Endless,
    /// `status=503`, `status=429;retry-after=7` (seconds): refuses at once, without taking a slot.
    Status {
        /// The status, 400 to 599.
        code: u16,
        /// The value of `Retry-After` in seconds, if any.
        retry_after_seconds: Option<u32>,
    },
    /// `slow-status=400;after=500` (milliseconds): takes a slot, keeps it for this long, and then refuses.
    SlowStatus {
        /// The status, 400 to 599.
        code: u16,
        /// How long the slot is kept.
        after: Duration,
    },
    /// `hidden-tokens=2000` (tokens): thinks for so many tokens before it answers. They take their time and are in the
    /// usage; nobody sees them. A stream tells its usage one token's time after its end.
    HiddenTokens {
        /// How many.
        tokens: u64,
    },
    /// `slow-bytes=50` (milliseconds): the body arrives byte by byte with this pause before each.
    SlowBytes {
        /// The pause before each byte.
        pause: Duration,
    },
    /// `oversized-event=1048576` (bytes): the first token has this many bytes, all in one event; at most
    /// [`OVERSIZED_EVENT_BYTES_MAX`].
    OversizedEvent {
        /// The size in bytes.
        bytes: usize,
    },
    /// `wrong-content-type`: says `text/html` over a good answer.
    WrongContentType,
}

/// How a usage lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageFault {
    /// There is none.
    Missing,
    /// Every number is negative.
    Negative,
    /// Every number is 10^18 tokens or more.
    Huge,
    /// Every number is a string.
    Strings,
}

const PLAIN: [(&str, Fault); 16] = [
    ("hang-before", Fault::HangBefore),
    ("hang-mid", Fault::HangMid),
    ("reset-before", Fault::ResetBefore),
    ("reset-mid", Fault::ResetMid),
    ("close-mid", Fault::CloseMid),
    ("close-at-end", Fault::CloseAtEnd),
    ("close-after", Fault::CloseAfter),
    ("garbage", Fault::Garbage),
    ("invalid-json", Fault::InvalidJson),
    ("sse-garbage", Fault::SseGarbage),
    ("usage-missing", Fault::Usage(UsageFault::Missing)),
    ("usage-negative", Fault::Usage(UsageFault::Negative)),
    ("usage-huge", Fault::Usage(UsageFault::Huge)),
    ("usage-strings", Fault::Usage(UsageFault::Strings)),
    ("endless", Fault::Endless),
    ("wrong-content-type", Fault::WrongContentType),
];

/// A text that names no fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFault(String);

impl fmt::Display for UnknownFault {
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

impl std::error::Error for UnknownFault {}

impl FromStr for Fault {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Self, UnknownFault> {
        let text = text.trim();
        if let Some((_, fault)) = PLAIN.iter().find(|(name, _)| *name == text) {
            return Ok(*fault);
        }
        text.split_once('=')
            .and_then(|(name, value)| with_value(name, value))
            .ok_or_else(|| UnknownFault(text.chars().take(80).collect()))
    }
}

fn with_value(name: &str, value: &str) -> Option<Fault> {
    match name {
        "status" => {
            let (code, retry_after_seconds) = match value.split_once(";retry-after=") {
                None => (value, None),
                Some((code, seconds)) => (code, Some(seconds.parse().ok()?)),
            };
            Some(Fault::Status { code: bad_status(code)?, retry_after_seconds })
        }
        "slow-status" => {
            let (code, after) = value.split_once(";after=")?;
            let after = Duration::from_millis(after.parse().ok()?);
            Some(Fault::SlowStatus { code: bad_status(code)?, after })
        }
        "hidden-tokens" => value.parse().ok().map(|tokens| Fault::HiddenTokens { tokens }),
        "slow-bytes" => {
            value.parse().ok().map(|ms| Fault::SlowBytes { pause: Duration::from_millis(ms) })
        }
        "oversized-event" => value
            .parse()
            .ok()
            .filter(|bytes| *bytes <= OVERSIZED_EVENT_BYTES_MAX)
            .map(|bytes| Fault::OversizedEvent { bytes }),
        _ => None,
    }
}

fn bad_status(code: &str) -> Option<u16> {
    code.parse().ok().filter(|code| (400..600).contains(code))
}

impl fmt::Display for Fault {
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

/// Which fault the next request meets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Mischief {
    #[default]
    None,
    Always(Fault),
    Next(Fault, u64),
}

impl Mischief {
    pub(crate) fn take(&mut self) -> Option<Fault> {
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
            Fault::Status { code: 503, retry_after_seconds: None },
            Fault::Status { code: 429, retry_after_seconds: Some(7) },
            Fault::SlowStatus { code: 400, after: Duration::from_millis(500) },
            Fault::HiddenTokens { tokens: 2000 },
            Fault::SlowBytes { pause: Duration::from_millis(50) },
            Fault::OversizedEvent { bytes: 1 << 20 },
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
            let told = bad.parse::<Fault>().unwrap_err().to_string();
            assert!(told.starts_with(&format!("`{bad}`")) && told.contains("reset-mid"), "{told}");
        }
    }

    #[test]
    fn a_counted_fault_ends_after_its_count() {
        let mut mischief = Mischief::Next(Fault::Garbage, 2);
        let met: Vec<_> = (0..3).map(|_| mischief.take()).collect();
        assert_eq!(met, [Some(Fault::Garbage), Some(Fault::Garbage), None]);
        assert_eq!(Mischief::Next(Fault::Garbage, 0).take(), None);
    }
}
