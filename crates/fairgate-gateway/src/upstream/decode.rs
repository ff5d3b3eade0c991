//! Answers that an upstream compresses although it was asked not to (`accept-encoding: identity`).
//!
//! They are decoded here, before the meter sees them, and go on to the client uncompressed: the meter must read tokens as
//! they pass, and what the client gets must be what was metered. A coding that cannot be decoded is refused, because an
//! answer that cannot be read would be charged by its compressed size.
//!
//! A decoder makes at most [`PIECE_BYTES_MAX`] at a time, and only when the client has taken what was there, so a small
//! body that decodes to gigabytes costs no memory. Windows are bounded: 32 KiB for gzip and deflate, 16 MiB for br, 8 MiB
//! for zstd (RFC 9659). What a chunk decodes to beyond one piece may come out only with the next chunk or the end: the
//! decoders want input before they give more.

use std::io::{self, BufRead, Read};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};

use brotli_decompressor::{BrotliDecoderParameter, Decompressor};
use bytes::{Buf, Bytes, BytesMut};
use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

/// The most that is decoded in one step, in bytes.
const PIECE_BYTES_MAX: usize = 32 << 10;
/// The largest window of zstd, as a power of two.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// How much of a brotli body is read in one step, in bytes.
const BROTLI_INPUT_BYTES: usize = 4 << 10;

/// A way to compress a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

/// A body in a coding that is not known here, or in several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnknownCoding;

/// Bytes that are not what their coding says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Corrupt;

impl Coding {
    /// What a head announces; `None` where the body is as it is.
    pub(super) fn announced(headers: &HeaderMap) -> Result<Option<Self>, UnknownCoding> {
        let mut found = None;
        for value in headers.get_all(CONTENT_ENCODING) {
            for word in value.to_str().map_err(|_| UnknownCoding)?.split(',') {
                let coding = match word.trim().to_ascii_lowercase().as_str() {
                    "" | "identity" => continue,
                    "gzip" | "x-gzip" => Self::Gzip,
                    "deflate" => Self::Deflate,
                    "br" => Self::Brotli,
                    "zstd" => Self::Zstd,
                    _ => return Err(UnknownCoding),
                };
                if found.replace(coding).is_some() {
                    return Err(UnknownCoding);
                }
            }
        }
        Ok(found)
    }
}

/// Decodes a body as it comes.
pub(super) struct Decoder {
    coding: Coding,
    /// The first bytes, until there are two of them: those of `deflate` say which of its two forms they are.
    first: BytesMut,
    /// Where coded bytes go; none before the first two and after the end.
    feed: Option<Sender<Bytes>>,
    decoding: Option<Box<dyn Read + Send>>,
    /// Everything was decoded.
    over: bool,
    /// The coded body has ended.
    ended: bool,
}

impl Decoder {
    pub(super) fn new(coding: Coding) -> Self {
        let first = BytesMut::new();
        Self { coding, first, feed: None, decoding: None, over: false, ended: false }
    }

    /// Whether the coded body has ended: where [`Decoder::piece`] then says `None`, nothing more comes.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Takes the next bytes of the coded body. One chunk at a time: not before [`Decoder::piece`] has said `None`.
    pub(super) fn feed(&mut self, chunk: Bytes) -> Result<(), Corrupt> {
        match &self.feed {
            Some(feed) => {
                // After the end of the coded body nobody reads any more.
                let _ = feed.send(chunk);
                Ok(())
            }
            None => {
                self.first.extend_from_slice(&chunk);
                if self.first.len() >= 2 { self.start() } else { Ok(()) }
            }
        }
    }

    /// The coded body has ended.
    pub(super) fn end(&mut self) -> Result<(), Corrupt> {
        match (&self.decoding, self.first.is_empty()) {
            // No body at all needs no decoding.
            (None, true) => self.over = true,
            (None, false) => self.start()?,
            (Some(_), _) => {}
        }
        self.feed = None;
        self.ended = true;
        Ok(())
    }

    /// The next decoded piece; `None` where more must be fed first, or where all is over.
    pub(super) fn piece(&mut self) -> Result<Option<Bytes>, Corrupt> {
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
                Err(_) => return Err(Corrupt),
            }
        }
    }

    fn start(&mut self) -> Result<(), Corrupt> {
        let first = self.first.split().freeze();
        let zlib = is_zlib(&first);
        let (feed, chunks) = mpsc::channel();
        let coded = Coded { chunks, current: first };
        self.feed = Some(feed);
        self.decoding = Some(decoding(self.coding, zlib, coded)?);
        Ok(())
    }
}

fn decoding(coding: Coding, zlib: bool, coded: Coded) -> Result<Box<dyn Read + Send>, Corrupt> {
    Ok(match coding {
        Coding::Gzip => Box::new(MultiGzDecoder::new(coded)),
        Coding::Deflate if zlib => Box::new(ZlibDecoder::new(coded)),
        Coding::Deflate => Box::new(DeflateDecoder::new(coded)),
        Coding::Brotli => {
            let mut brotli = Decompressor::new(coded, BROTLI_INPUT_BYTES);
            // Windows of up to 1 GiB are no part of the coding `br`.
            let large = BrotliDecoderParameter::BROTLI_DECODER_PARAM_LARGE_WINDOW;
            brotli.set_parameter(large, 0);
            Box::new(brotli)
        }
        Coding::Zstd => {
            let mut zstd = zstd::Decoder::with_buffer(coded).map_err(|_| Corrupt)?;
            zstd.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(|_| Corrupt)?;
            Box::new(zstd)
        }
    })
}

/// `deflate` is zlib's format, and some servers send what is inside it. Zlib's first two bytes carry a check.
fn is_zlib(first: &[u8]) -> bool {
    matches!(first, [method, flags, ..]
        if method & 0x0f == 8 && u16::from_be_bytes([*method, *flags]).is_multiple_of(31))
}

/// The coded body as far as it has come. Where it has no bytes and has not ended, reading fails with `WouldBlock`, after
/// which decoders can be asked again.
struct Coded {
    chunks: Receiver<Bytes>,
    current: Bytes,
}

impl BufRead for Coded {
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

impl Read for Coded {
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

    /// A brotli body that stores its content as it is: at most 64 KiB.
    fn stored_brotli(text: &[u8]) -> Vec<u8> {
        let head = (u32::try_from(text.len()).unwrap() - 1) << 4 | 1 << 20;
        let mut coded = head.to_le_bytes()[..3].to_vec();
        coded.extend_from_slice(text);
        coded.push(3);
        coded
    }

    fn coded(text: &[u8]) -> Vec<(Coding, Vec<u8>)> {
        let level = Compression::fast();
        let mut gzip = GzEncoder::new(Vec::new(), level);
        gzip.write_all(text).unwrap();
        let mut zlib = ZlibEncoder::new(Vec::new(), level);
        zlib.write_all(text).unwrap();
        let mut bare = DeflateEncoder::new(Vec::new(), level);
        bare.write_all(text).unwrap();
        vec![
            (Coding::Gzip, gzip.finish().unwrap()),
            (Coding::Deflate, zlib.finish().unwrap()),
            (Coding::Deflate, bare.finish().unwrap()),
            (Coding::Brotli, stored_brotli(text)),
            (Coding::Zstd, zstd::encode_all(text, 1).unwrap()),
        ]
    }

    /// Decodes a body that comes in pieces of this many bytes.
    fn decoded(coding: Coding, body: &[u8], bytes: usize) -> Result<Vec<u8>, Corrupt> {
        let mut decoder = Decoder::new(coding);
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
            assert_eq!(decoded(coding, cut, 5), Err(Corrupt), "{coding:?} cut");
            let noise = [0xff, 0xfe, 0xfd, 0xfc, 0xfb, 0xfa, 0xf9, 0xf8, 0xf7];
            assert_eq!(decoded(coding, &noise, 5), Err(Corrupt), "{coding:?} noise");
            assert_eq!(decoded(coding, b"", 1).as_deref(), Ok(&b""[..]), "{coding:?} nothing");
        }
    }

    #[test]
    fn a_bomb_comes_in_small_pieces() {
        let zeroes = vec![0; 64 << 20];
        let body = zstd::encode_all(&zeroes[..], 1).unwrap();
        let mut decoder = Decoder::new(Coding::Zstd);
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
            Coding::announced(&headers)
        };
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&["identity", ""]), Ok(None));
        assert_eq!(of(&["identity, GZIP"]), Ok(Some(Coding::Gzip)));
        assert_eq!(of(&["x-gzip"]), Ok(Some(Coding::Gzip)));
        assert_eq!(of(&["gzip", "gzip"]), Err(UnknownCoding));
        assert_eq!(of(&["br, zstd"]), Err(UnknownCoding));
        assert_eq!(of(&["compress"]), Err(UnknownCoding));
    }
}
