//! The barest code for the same work, by hand: the limit of the machine. It relies on the captures made here (classic
//! pcap, Ethernet, IPv4, without loss and reordering), and checks only as much as safety needs.

use buffer::MappedFile;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{IoSlice, Write};
use std::path::Path;

/// Slices handed to the kernel in one call: the most that it takes.
const SLICES: usize = 1024;

/// Bytes brought into the page table at a time, ahead of the loop. One page at a time costs more, and so does the whole
/// file at once.
const POPULATE_BYTES: usize = 2 << 20;

/// Maps a file.
pub fn map(path: &Path) -> Result<MappedFile, String> {
    let file = File::open(path).and_then(MappedFile::new);
    file.map_err(|error| format!("{}: {error}", path.display()))
}

/// Calls `each` with every frame of a classic little-endian pcap file.
#[inline]
pub fn frames<'a>(file: &'a MappedFile, mut each: impl FnMut(&'a [u8])) {
    let bytes = file.bytes();
    let (mut at, mut populated) = (24, 0);
    while let Some((header, rest)) = bytes.get(at..).and_then(|rest| rest.split_first_chunk::<16>()) {
        if at + POPULATE_BYTES / 2 >= populated {
            file.populate(populated, POPULATE_BYTES);
            populated += POPULATE_BYTES;
        }
        let [_, _, _, _, _, _, _, _, a, b, c, d, ..] = *header;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        let Some(frame) = rest.get(..length) else { return };
        each(frame);
        at += 16 + length;
    }
}

/// The number of frames and of their bytes, by a loop over the record headers of a mapped file.
pub fn count(path: &Path) -> Result<(u64, u64), String> {
    let file = map(path)?;
    let (mut count, mut bytes) = (0, 0);
    frames(&file, |frame| {
        count += 1;
        bytes += frame.len() as u64;
    });
    Ok((count, bytes))
}

/// The number of frames with a text, by the searcher of `match`.
pub fn count_with(path: &Path, text: &str) -> Result<u64, String> {
    let file = map(path)?;
    let finder = memchr::memmem::Finder::new(text);
    let mut count = 0;
    frames(&file, |frame| count += u64::from(finder.find(frame).is_some()));
    Ok(count)
}

/// Writes each direction of each TCP connection to a file of its own, from the map, many segments in a call.
pub fn write_streams(path: &Path, folder: &Path) -> Result<(), String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", folder.display());
    let file = map(path)?;
    let mut streams: BTreeMap<[u8; 12], (File, Vec<IoSlice<'_>>)> = BTreeMap::new();
    let mut failure = None;
    frames(&file, |frame| {
        let Some((ends, payload)) = tcp_payload(frame) else { return };
        if payload.is_empty() || failure.is_some() {
            return;
        }
        let count = streams.len();
        let (out, slices) = match streams.entry(ends) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => match File::create(folder.join(format!("{count}"))) {
                Ok(file) => entry.insert((file, Vec::with_capacity(SLICES))),
                Err(error) => {
                    failure = Some(error);
                    return;
                }
            },
        };
        slices.push(IoSlice::new(payload));
        if slices.len() == SLICES
            && let Err(error) = write_all(out, slices)
        {
            failure = Some(error);
        }
    });
    for (out, slices) in streams.values_mut() {
        write_all(out, slices).map_err(wrong)?;
    }
    failure.map_or(Ok(()), |error| Err(wrong(error)))
}

/// Addresses and ports, and the payload. `None`: it is not TCP.
fn tcp_payload(frame: &[u8]) -> Option<([u8; 12], &[u8])> {
    let packet = frame.get(14..)?;
    let header_bytes = usize::from(packet.first()? & 15) * 4;
    let total = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
    if packet.get(9) != Some(&6) {
        return None;
    }
    let segment = packet.get(header_bytes..total)?;
    let data_offset = usize::from(segment.get(12)? >> 4) * 4;
    let mut ends = [0; 12];
    ends[..8].copy_from_slice(packet.get(12..20)?);
    ends[8..].copy_from_slice(segment.get(..4)?);
    Some((ends, segment.get(data_offset..)?))
}

fn write_all(out: &mut File, slices: &mut Vec<IoSlice<'_>>) -> std::io::Result<()> {
    let mut left = &mut slices[..];
    while !left.is_empty() {
        match out.write_vectored(left)? {
            0 => return Err(std::io::ErrorKind::WriteZero.into()),
            written => IoSlice::advance_slices(&mut left, written),
        }
    }
    slices.clear();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::captures::{Content, Store};

    #[test]
    fn does_by_hand_what_is_in_the_capture() {
        let folder = tempfile::tempdir().unwrap();
        let capture = Store::new(folder.path()).unwrap().small_flows(300).unwrap();
        let (frames, bytes) = count(&capture.path).unwrap();
        assert_eq!(frames, capture.frames);
        assert_eq!(count_with(&capture.path, "GET /").unwrap(), 0);
        assert_eq!(bytes + 16 * frames + 24, std::fs::metadata(&capture.path).unwrap().len());
        let out = tempfile::tempdir().unwrap();
        write_streams(&capture.path, out.path()).unwrap();
        let files = std::fs::read_dir(out.path()).unwrap();
        let mut found: Vec<_> = files.map(|file| Content::of(&std::fs::read(file.unwrap().path()).unwrap())).collect();
        found.sort_unstable();
        assert_eq!(found, capture.streams);
    }
}
