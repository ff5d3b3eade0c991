//! Numbers of requests, and their text.

/// The number of a request, which no other request of the process has. As text, the number is the request's id in the
/// journal.
pub(crate) type RequestNumber = u64;

/// The text of a request's number, stored on the stack. The text is the request's id in the journal and in the pool.
pub(crate) struct RequestNumberText {
    digits: [u8; 20],
    start: usize,
}

impl RequestNumberText {
    pub(crate) fn of(mut number: RequestNumber) -> Self {
        let (mut digits, mut start) = ([b'0'; 20], 20);
        while number > 0 || start == 20 {
            start -= 1;
            digits[start] += u8::try_from(number % 10).unwrap_or(0);
            number /= 10;
        }
        Self { digits, start }
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.digits[self.start..]).unwrap_or_default()
    }
}
