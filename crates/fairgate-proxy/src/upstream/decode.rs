//! Decodes answers that an upstream compresses although it was asked not to (`accept-encoding: identity`).
//!
//! The answers are decoded before the meter reads them, and are sent to the client uncompressed.
//! The meter must read the tokens as they pass, and the client must get what was metered. An
//! unknown coding is refused, because an answer that cannot be read would be charged by its
//! compressed size.
//!
//! A decoder produces at most [`PIECE_BYTES_MAX`] at a time, and only when the client has taken the
//! previous piece. So a small body that decodes to gigabytes costs no memory. Windows are bounded:
//! 32 KiB for gzip and deflate, 16 MiB for br, 8 MiB for zstd (RFC 9659). If a chunk decodes to
//! more than one piece, the further pieces may come only with the next chunk or at the end of the
//! body, because the decoders require input before they produce more.

use std::io::{self, BufRead, Read};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};

use brotli_decompressor::{BrotliDecoderParameter, Decompressor};
use bytes::{Buf, Bytes, BytesMut};
use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

/// Maximum number of bytes that are decoded in one step.
const PIECE_BYTES_MAX: usize = 32 << 10;
/// Maximum window of zstd, as a power of two.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// Maximum number of bytes of a brotli body that are read in one step.
const BROTLI_INPUT_BYTES: usize = 4 << 10;

/// A supported content coding (`Content-Encoding`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentCoding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

/// Error for a body that has an unknown coding, or several codings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnknownCodingError;

/// Error for bytes that are invalid in their coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CorruptBodyError;

impl ContentCoding {
    /// Returns the coding that the headers announce; `None` if the body is not compressed.
    pub(super) fn announced(headers: &HeaderMap) -> Result<Option<Self>, UnknownCodingError> {
        let mut found = None;
        for value in headers.get_all(CONTENT_ENCODING) {
            for word in value.to_str().map_err(|_| UnknownCodingError)?.split(',') {
                let coding = match word.trim().to_ascii_lowercase().as_str() {
                    "" | "identity" => continue,
                    "gzip" | "x-gzip" => Self::Gzip,
                    "deflate" => Self::Deflate,
                    "br" => Self::Brotli,
                    "zstd" => Self::Zstd,
                    _ => return Err(UnknownCodingError),
                };
                if found.replace(coding).is_some() {
                    return Err(UnknownCodingError);
                }
            }
        }
        Ok(found)
    }
}

/// Decodes a body as it arrives.
pub(super) struct BodyDecoder {
    coding: ContentCoding,
    /// First bytes of the body, until there are two. The first two bytes of a `deflate` body show
    /// which of two formats it has.
    first: BytesMut,
    /// Takes coded bytes; `None` before the first two bytes and after the end.
    feed: Option<Sender<Bytes>>,
    decoding: Option<Box<dyn Read + Send>>,
    /// True once the whole body was decoded.
    over: bool,
    /// True once the coded body has ended.
    ended: bool,
}

impl BodyDecoder {
    pub(super) fn new(coding: ContentCoding) -> Self {
        let first = BytesMut::new();
        Self { coding, first, feed: None, decoding: None, over: false, ended: false }
    }

    /// Returns true if the coded body has ended. If [`BodyDecoder::piece`] returns `None` after
    /// that, the decoded body is complete.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Takes the next chunk of the coded body. May be called only after [`BodyDecoder::piece`] has returned `None`.
    pub(super) fn feed(&mut self, chunk: Bytes) -> Result<(), CorruptBodyError> {
        match &self.feed {
            Some(feed) => {
                // The send fails after the end of the coded data; further bytes are ignored.
                let _ = feed.send(chunk);
                Ok(())
            }
            None => {
                self.first.extend_from_slice(&chunk);
                if self.first.len() >= 2 { self.start() } else { Ok(()) }
            }
        }
    }

    /// Marks the end of the coded body.
    pub(super) fn end(&mut self) -> Result<(), CorruptBodyError> {
        match (&self.decoding, self.first.is_empty()) {
            // An empty body needs no decoding.
            (None, true) => self.over = true,
            (None, false) => self.start()?,
            (Some(_), _) => {}
        }
        self.feed = None;
        self.ended = true;
        Ok(())
    }

    /// Returns the next decoded piece. `None` if another chunk must be fed first, or if the body is
    /// complete.
    pub(super) fn piece(&mut self) -> Result<Option<Bytes>, CorruptBodyError> {
        let Some(decoding) = self.decoding.as_mut().filter(|_| !self.over) else { return Ok(None) };
        let mut piece = BytesMut::zeroed(PIECE_BYTES_MAX);
        loop {
            match decoding.read(&mut piece) {
                Ok(0) => {
                    self.over = true;
                    return Ok(None);
                }
                Ok(read) => {
                    piece.truncate(read);
                    return Ok(Some(piece.freeze()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(CorruptBodyError),
            }
        }
    }

    fn start(&mut self) -> Result<(), CorruptBodyError> {
        let first = self.first.split().freeze();
        let zlib = is_zlib(&first);
        let (feed, chunks) = mpsc::channel();
        let coded = CodedBytes { chunks, current: first };
        self.feed = Some(feed);
        self.decoding = Some(decoding(self.coding, zlib, coded)?);
        Ok(())
    }
}

fn decoding(
    coding: ContentCoding,
    zlib: bool,
    coded: CodedBytes,
) -> Result<Box<dyn Read + Send>, CorruptBodyError> {
    Ok(match coding {
        ContentCoding::Gzip => Box::new(MultiGzDecoder::new(coded)),
        ContentCoding::Deflate if zlib => Box::new(ZlibDecoder::new(coded)),
        ContentCoding::Deflate => Box::new(DeflateDecoder::new(coded)),
        ContentCoding::Brotli => {
            let mut brotli = Decompressor::new(coded, BROTLI_INPUT_BYTES);
            // Windows of up to 1 GiB are not part of the coding `br`.
            let large = BrotliDecoderParameter::BROTLI_DECODER_PARAM_LARGE_WINDOW;
            brotli.set_parameter(large, 0);
            Box::new(brotli)
        }
        ContentCoding::Zstd => {
            let mut zstd = zstd::Decoder::with_buffer(coded).map_err(|_| CorruptBodyError)?;
            zstd.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(|_| CorruptBodyError)?;
            Box::new(zstd)
        }
    })
}

/// Returns true if the data is in zlib's format, whose first two bytes carry a check. The coding `deflate` means zlib's
/// format, but some servers send raw deflate data without the zlib format around it.
fn is_zlib(first: &[u8]) -> bool {
    matches!(first, [method, flags, ..]
        if method & 0x0f == 8 && u16::from_be_bytes([*method, *flags]).is_multiple_of(31))
}

/// The coded bytes that have arrived. If there are none and the body has not ended, reading fails with `WouldBlock`.
/// Decoders can continue after this error once more bytes have arrived.
struct CodedBytes {
    chunks: Receiver<Bytes>,
    current: Bytes,
}

impl BufRead for CodedBytes {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.current.is_empty() {
            match self.chunks.try_recv() {
                Ok(chunk) => self.current = chunk,
                Err(TryRecvError::Empty) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(TryRecvError::Disconnected) => break,
            }
        }
        Ok(&self.current)
    }

    fn consume(&mut self, bytes: usize) {
        self.current.advance(bytes);
    }
}

impl Read for CodedBytes {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(into)?;
        self.consume(read);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use http::HeaderValue;

    use super::*;

    /// Returns a brotli body that contains the text uncompressed; at most 64 KiB.
    fn stored_brotli(text: &[u8]) -> Vec<u8> {
        let head = (u32::try_from(text.len()).unwrap() - 1) << 4 | 1 << 20;
        let mut coded = head.to_le_bytes()[..3].to_vec();
        coded.extend_from_slice(text);
        coded.push(3);
        coded
    }

    fn coded(text: &[u8]) -> Vec<(ContentCoding, Vec<u8>)> {
        let level = Compression::fast();
        let mut gzip = GzEncoder::new(Vec::new(), level);
        gzip.write_all(text).unwrap();
        let mut zlib = ZlibEncoder::new(Vec::new(), level);
        zlib.write_all(text).unwrap();
        let mut bare = DeflateEncoder::new(Vec::new(), level);
        bare.write_all(text).unwrap();
        vec![
            (ContentCoding::Gzip, gzip.finish().unwrap()),
            (ContentCoding::Deflate, zlib.finish().unwrap()),
            (ContentCoding::Deflate, bare.finish().unwrap()),
            (ContentCoding::Brotli, stored_brotli(text)),
            (ContentCoding::Zstd, zstd::encode_all(text, 1).unwrap()),
        ]
    }

    /// Decodes a body that arrives in pieces of this many bytes.
    fn decoded(
        coding: ContentCoding,
        body: &[u8],
        bytes: usize,
    ) -> Result<Vec<u8>, CorruptBodyError> {
        let mut decoder = BodyDecoder::new(coding);
        let mut all = Vec::new();
        for chunk in body.chunks(bytes) {
            decoder.feed(Bytes::copy_from_slice(chunk))?;
            while let Some(piece) = decoder.piece()? {
                assert!(piece.len() <= PIECE_BYTES_MAX);
                all.extend_from_slice(&piece);
            }
        }
        decoder.end()?;
        while let Some(piece) = decoder.piece()? {
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }

    #[test]
    fn every_coding_decodes_however_it_is_cut() {
        let text: Vec<u8> = (0..5000_u32).flat_map(|n| n.to_string().into_bytes()).collect();
        for (coding, body) in coded(&text) {
            for bytes in [1, 2, 7, 1000, body.len()] {
                assert_eq!(decoded(coding, &body, bytes).as_deref(), Ok(&text[..]), "{coding:?}");
            }
        }
    }

    #[test]
    fn what_is_cut_off_or_no_such_coding_is_corrupt() {
        let text = b"rivers and their names, rivers and their names";
        for (coding, body) in coded(text) {
            let cut = &body[..body.len() / 2];
            assert_eq!(decoded(coding, cut, 5), Err(CorruptBodyError), "{coding:?} cut");
            let noise = [0xff, 0xfe, 0xfd, 0xfc, 0xfb, 0xfa, 0xf9, 0xf8, 0xf7];
            assert_eq!(decoded(coding, &noise, 5), Err(CorruptBodyError), "{coding:?} noise");
            assert_eq!(decoded(coding, b"", 1).as_deref(), Ok(&b""[..]), "{coding:?} nothing");
        }
    }

    #[test]
    fn a_bomb_comes_in_small_pieces() {
        let zeroes = vec![0; 64 << 20];
        let body = zstd::encode_all(&zeroes[..], 1).unwrap();
        let mut decoder = BodyDecoder::new(ContentCoding::Zstd);
        decoder.feed(body.into()).unwrap();
        for _ in 0..10 {
            assert!(decoder.piece().unwrap().unwrap().len() <= PIECE_BYTES_MAX);
        }
    }

    #[test]
    fn one_coding_is_read_and_any_other_is_not() {
        let of = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(CONTENT_ENCODING, HeaderValue::from_static(value));
            }
            ContentCoding::announced(&headers)
        };
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&["identity", ""]), Ok(None));
        assert_eq!(of(&["identity, GZIP"]), Ok(Some(ContentCoding::Gzip)));
        assert_eq!(of(&["x-gzip"]), Ok(Some(ContentCoding::Gzip)));
        assert_eq!(of(&["gzip", "gzip"]), Err(UnknownCodingError));
        assert_eq!(of(&["br, zstd"]), Err(UnknownCodingError));
        assert_eq!(of(&["compress"]), Err(UnknownCodingError));
    }
}
