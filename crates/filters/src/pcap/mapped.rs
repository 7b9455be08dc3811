//! A capture in a mapped file. Frames are not copied: a frame's position is its offset in the file.
//!
//! The file may grow; then it is mapped again. Another process may truncate it; the missing part then reads as zeroes,
//! which look like empty frames. So after an empty frame the file's length is checked.

use super::scan::{Next, Scanner};
use super::{Ending, Step};
use buffer::{Descriptor, MappedFile, SegmentId};
use filter::Context;
use packet::capture::{Cause, Damage, Stop};
use std::fs::File;
use std::io;

/// Bytes entered into the page table at a time, ahead of the scan. From 2 MiB on this is 5 to 10 % faster than page
/// faults; 8 MiB and more gain nothing further. Steps of one page take half as long again.
const POPULATE_BYTES: usize = 2 << 20;

pub(super) struct Mapped {
    segment: SegmentId,
    /// For checking whether the file was truncated.
    file: File,
    /// `None` until the header has been read.
    scanner: Option<Scanner>,
    at: usize,
    /// Bytes from the start that are in the page table.
    populated: usize,
    /// Bytes that the scan needs to continue.
    need: usize,
}

impl Mapped {
    /// Maps a file. Makes system calls. Error: the file must be read instead.
    pub(super) fn open(file: File, cx: &mut Context<'_>) -> io::Result<Mapped> {
        let segment = cx.rings.add_file(MappedFile::new(file.try_clone()?)?);
        Ok(Mapped { segment, file, scanner: None, at: 0, populated: 0, need: 0 })
    }

    /// Bytes of the file scanned so far.
    pub(super) fn position(&self) -> u64 {
        self.at as u64
    }

    /// The memory that the frames lie in.
    pub(super) fn segment(&self) -> SegmentId {
        self.segment
    }

    /// Gives up to a batch of frames. `follow`: the file may still grow.
    pub(super) fn pull(&mut self, follow: bool, cx: &mut Context<'_>) -> Step {
        loop {
            let Some(mapped) = cx.rings.file(self.segment) else { return Step::End(Ending::Whole) };
            let window = mapped.bytes().get(self.at..).unwrap_or_default();
            if window.len() < self.need || window.is_empty() {
                if let Some(step) = self.at_end(follow, cx) {
                    return step;
                }
                continue;
            }
            if self.at + POPULATE_BYTES / 2 >= self.populated && self.populated < mapped.len() {
                let from = self.populated.max(self.at);
                mapped.populate(from, POPULATE_BYTES);
                self.populated = from + POPULATE_BYTES;
            }
            let Some(scanner) = &mut self.scanner else {
                match Scanner::open(window) {
                    Ok((scanner, consumed)) => {
                        self.scanner = Some(scanner);
                        self.at += consumed;
                        self.need = 0;
                    }
                    Err(Stop::More { need, .. }) => self.need = need,
                    Err(Stop::Damaged(damage)) => return Step::End(Ending::Damaged(damage)),
                }
                continue;
            };
            let scanned = scanner.scan(window, self.at as u64, cx.out, cx.counters);
            if (scanned.empties || mapped.cut_at().is_some())
                && let Some(ending) = cut(&self.file, mapped.len(), cx.out)
            {
                return Step::End(ending);
            }
            self.at += scanned.consumed;
            self.need = 0;
            match scanned.next {
                Next::Enough => return Step::Given,
                Next::Unnamed(block, interface) => match scanner.name(block, interface, self.segment, cx.rings) {
                    Some(block) => cx.out.push(block),
                    None => return Step::End(Ending::Failed(scanner.too_many_interfaces())),
                },
                Next::More(need) => {
                    self.need = need;
                    if !cx.out.is_empty() {
                        return Step::Given;
                    }
                }
                Next::Damaged(damage) => return Step::End(Ending::Damaged(damage)),
                Next::Another(offset) => return Step::End(Ending::Another(offset)),
            }
        }
    }

    /// Too few bytes are left: returns the end or a wait. `None`: the file has grown, scan on.
    fn at_end(&mut self, follow: bool, cx: &mut Context<'_>) -> Option<Step> {
        let before = cx.rings.file(self.segment).map_or(0, MappedFile::len);
        if let Some(ending) = cut(&self.file, before, cx.out) {
            return Some(Step::End(ending));
        }
        if follow {
            return match cx.rings.grow_file(self.segment) {
                Ok(now) if now > before as u64 => {
                    self.populated = self.at;
                    None
                }
                Ok(_) => Some(Step::Waiting),
                Err(error) => Some(Step::End(Ending::Failed(format!("cannot follow: {error}")))),
            };
        }
        let rest = cx.rings.file(self.segment).and_then(|file| file.bytes().get(self.at..)).unwrap_or_default();
        let finished = match &self.scanner {
            Some(scanner) => scanner.finish(rest),
            None => Err(Damage { offset: 0, cause: Cause::EndsInHeader }),
        };
        Some(Step::End(finished.map_or_else(Ending::Damaged, |()| Ending::Whole)))
    }
}

/// If the file is now shorter than `len`, removes the frames in the missing part from `out`. Makes a system call.
#[cold]
fn cut(file: &File, len: usize, out: &mut Vec<Descriptor>) -> Option<Ending> {
    let now = file.metadata().ok()?.len();
    if now >= len as u64 {
        return None;
    }
    out.retain(|block| block.pos + u64::from(block.len) <= now);
    Some(Ending::Failed(format!("it was cut at byte {now} while it was read")))
}
