//! An upstream that streams the same answer to every request, in HTTP chunks of a given size.
//!
//! All chunks of an answer are written at once, so the gateway finds many of them in each read. If an upstream sent its
//! bytes one by one with time between them, each byte would cost a read, whatever a gateway does.

use std::net::SocketAddr;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Number of tokens in the answer, each in an event of its own.
pub(super) const TOKENS: usize = 150;

/// Starts the upstream on a free port and returns its address. The upstream runs as long as the
/// runtime.
pub(super) async fn start(chunk_bytes: usize) -> Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let addr = listener.local_addr()?;
    let answer: &'static [u8] = answer(chunk_bytes).leak();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, answer));
        }
    });
    Ok(addr)
}

/// Answers the requests on a connection until the connection is closed or breaks.
async fn serve(mut stream: TcpStream, answer: &'static [u8]) {
    let _ = stream.set_nodelay(true);
    let mut received = Vec::new();
    loop {
        while let Some(length) = request_length(&received) {
            received.drain(..length);
            if stream.write_all(answer).await.is_err() {
                return;
            }
        }
        match stream.read_buf(&mut received).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

/// Returns the length of the first request in `received`; `None` if the request has not arrived
/// completely. A request must have a `Content-Length`, or no body.
fn request_length(received: &[u8]) -> Option<usize> {
    let head = received.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
    let lines = String::from_utf8_lossy(&received[..head]);
    let body = lines
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, length)| length.trim().parse::<usize>().ok())
        .unwrap_or(0);
    (received.len() >= head + body).then_some(head + body)
}

fn answer(chunk_bytes: usize) -> Vec<u8> {
    let event = |rest: &str| {
        format!(
            "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"bench\",{rest}}}\n\n"
        )
    };
    let token =
        event(r#""choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]"#);
    let usage =
        r#""choices":[],"usage":{"prompt_tokens":200,"completion_tokens":150,"total_tokens":350}"#;
    let body = token.repeat(TOKENS) + &event(usage) + "data: [DONE]\n\n";
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut bytes = head.as_bytes().to_vec();
    for chunk in body.as_bytes().chunks(chunk_bytes) {
        bytes.extend(format!("{:x}\r\n", chunk.len()).bytes());
        bytes.extend(chunk);
        bytes.extend(b"\r\n");
    }
    bytes.extend(b"0\r\n\r\n");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_found_once_it_is_whole() {
        let request = b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET";
        assert_eq!(request_length(request), Some(request.len() - 3));
        assert_eq!(request_length(&request[..38]), None);
        assert_eq!(request_length(b"GET / HTTP/1.1\r\n\r\n"), Some(18));
    }

    #[test]
    fn the_chunks_have_the_size() {
        let answer = String::from_utf8(answer(1)).expect("text");
        assert!(answer.contains("\r\n\r\n1\r\nd\r\n1\r\na\r\n"), "{answer}");
        assert!(answer.ends_with("1\r\n\n\r\n0\r\n\r\n"));
    }
}
