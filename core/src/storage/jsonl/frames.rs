//! zstd frames: finding their borders without decompressing, and both directions of the codec (ZST-01 to ZST-10).

use crate::error::{Code, Error, Result};

const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();

/// What stands at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// A whole frame that ends before `end`.
    Whole {
        /// Offset of the first byte behind the frame.
        end: usize,
    },
    /// The bytes end inside the frame (ZST-05).
    Torn,
    /// No frame begins here, or its structure is invalid at this offset.
    Invalid {
        /// Offset of the offending byte.
        at: usize,
    },
}

/// Finds the end of the frame at `start` (ZST-04). `start` lies inside `bytes`.
pub(super) fn scan(bytes: &[u8], start: usize) -> Frame {
    // With fewer than four bytes their values are not looked at (ZST-05).
    let Some(magic) = bytes.get(start..start + 4) else {
        return Frame::Torn;
    };
    if magic != MAGIC {
        // A power cut may leave the length of a batch without its content; nothing of ours is only zeros.
        let is_blank = bytes[start..].iter().all(|byte| *byte == 0);
        return if is_blank { Frame::Torn } else { Frame::Invalid { at: start } };
    }
    let mut at = start + 4;
    let Some(&descriptor) = bytes.get(at) else {
        return Frame::Torn;
    };
    if descriptor & 0x18 != 0 {
        return Frame::Invalid { at };
    }
    let single_segment = descriptor & 0x20 != 0;
    let dictionary_id = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let content_size = match descriptor >> 6 {
        0 => usize::from(single_segment),
        1 => 2,
        2 => 4,
        _ => 8,
    };
    at += 1 + usize::from(!single_segment) + dictionary_id + content_size;
    loop {
        let Some(header) = bytes.get(at..at + 3) else {
            return Frame::Torn;
        };
        let header = u32::from_le_bytes([header[0], header[1], header[2], 0]);
        let size = match (header >> 1) & 3 {
            1 => 1,
            3 => return Frame::Invalid { at },
            _ => (header >> 3) as usize,
        };
        at += 3 + size;
        if header & 1 == 1 {
            break;
        }
    }
    at += if descriptor & 4 != 0 { 4 } else { 0 };
    if at > bytes.len() { Frame::Torn } else { Frame::Whole { end: at } }
}

/// Fails with `UNSUPPORTED_FORMAT` when this build has no codec.
pub(in crate::storage) fn check() -> Result<()> {
    if cfg!(feature = "zstd") {
        return Ok(());
    }
    let message = "this build cannot read or write zstd; build turnwheel with its feature `zstd`, or use plain files";
    Err(Error::new(Code::UnsupportedFormat, message))
}

pub(super) use codec::decompress_torn;
pub(in crate::storage) use codec::{compress, decompress};

#[cfg(feature = "zstd")]
mod codec {
    use std::io;
    use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};
    use zstd::zstd_safe::CParameter;

    /// Compresses one append batch to one frame with a checksum, at the default level (ZST-01, ZST-03).
    pub(in crate::storage) fn compress(plain: &[u8]) -> io::Result<Vec<u8>> {
        let mut compressor = zstd::bulk::Compressor::new(0)?;
        compressor.set_parameter(CParameter::ChecksumFlag(true))?;
        compressor.compress(plain)
    }

    /// Appends the text of a whole frame to `out`. Fails on a bad checksum or content (ZST-06).
    pub(in crate::storage) fn decompress(frame: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        zstd::stream::copy_decode(frame, out)
    }

    /// Appends whatever whole blocks of a torn frame decompress (ZST-08); content that does not decompress ends it.
    pub(in crate::storage) fn decompress_torn(frame: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let mut decoder = Decoder::new()?;
        let mut input = InBuffer::around(frame);
        let mut buffer = vec![0; 128 * 1024];
        loop {
            let mut output = OutBuffer::around(&mut buffer[..]);
            let result = decoder.run(&mut input, &mut output);
            let written = output.pos();
            out.extend_from_slice(&buffer[..written]);
            if result.is_err() || (written == 0 && input.pos() == frame.len()) {
                return Ok(());
            }
        }
    }
}

/// Callers ask [`check`] before a codec is needed; what gets here all the same fails.
#[cfg(not(feature = "zstd"))]
mod codec {
    use std::io;

    pub(in crate::storage) fn compress(_: &[u8]) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(in crate::storage) fn decompress(_: &[u8], _: &mut Vec<u8>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(in crate::storage) fn decompress_torn(_: &[u8], _: &mut Vec<u8>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(all(test, feature = "zstd"))]
mod tests {
    use super::*;

    #[test]
    fn every_cut_of_a_frame_is_torn_and_the_whole_is_whole() {
        let frame = compress("one line\n".repeat(50).as_bytes()).expect("compress");
        for cut in 0..frame.len() {
            assert_eq!(scan(&frame[..cut], 0), Frame::Torn, "cut at {cut}");
        }
        assert_eq!(scan(&frame, 0), Frame::Whole { end: frame.len() });
    }

    #[test]
    fn a_cut_inside_the_checksum_loses_nothing() {
        let text = "line\n".repeat(90_000);
        let frame = compress(text.as_bytes()).expect("compress");
        let mut out = Vec::new();
        decompress_torn(&frame[..frame.len() - 2], &mut out).expect("decompress");
        assert!(out == text.as_bytes());
    }

    #[test]
    fn a_wrong_checksum_is_an_error() {
        let mut frame = compress(b"text\n").expect("compress");
        *frame.last_mut().expect("not empty") ^= 1;
        assert!(decompress(&frame, &mut Vec::new()).is_err());
    }

    #[test]
    fn zeros_up_to_the_end_are_a_torn_frame_and_zeros_before_anything_else_are_not() {
        assert_eq!(scan(&[0; 64], 0), Frame::Torn);
        assert_eq!(scan(&[0, 0, 0, 0, 0, 1], 0), Frame::Invalid { at: 0 });
    }

    #[test]
    fn a_skippable_frame_is_a_wrong_magic() {
        let skippable = [0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0];
        assert_eq!(scan(&skippable, 0), Frame::Invalid { at: 0 });
    }
}
