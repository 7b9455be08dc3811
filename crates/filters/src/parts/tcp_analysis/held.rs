//! The segments of a direction that are not acknowledged yet.

use base::limits::TCP_ANALYSED_IN_FLIGHT;
use packet::tcp::is_after;
use std::collections::VecDeque;

/// A segment that is not acknowledged yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub begin: u32,
    pub end: u32,
    pub time: u64,
    pub number: u64,
}

/// Room for so many segments is kept when they are acknowledged.
const KEPT: usize = 16;

/// These segments, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Held {
    sent: VecDeque<Sent>,
    /// Each begins and ends behind the one before it or with it, so that the first and last of them tell the range.
    is_mixed: bool,
}

impl Held {
    pub fn len(&self) -> usize {
        self.sent.len()
    }

    /// Adds a segment. `false`: there are too many.
    pub fn push(&mut self, sent: Sent) -> bool {
        if self.sent.len() >= TCP_ANALYSED_IN_FLIGHT {
            return false;
        }
        match self.sent.back() {
            Some(last) => self.is_mixed |= is_after(last.begin, sent.begin) || is_after(last.end, sent.end),
            None => self.is_mixed = false,
        }
        self.sent.push_back(sent);
        true
    }

    /// Whether one of them has all of these bytes.
    pub fn has(&self, begin: u32, end: u32) -> bool {
        self.sent.iter().any(|sent| !is_after(sent.begin, begin) && !is_after(end, sent.end))
    }

    /// When the oldest of them was sent.
    pub fn oldest(&self) -> Option<u64> {
        self.sent.front().map(|sent| sent.time)
    }

    /// Bytes from the first of them to the last. `None`: there are none.
    pub fn range(&self, base: u32) -> Option<u32> {
        let (first, last) = (self.sent.front()?, self.sent.back()?);
        if !self.is_mixed {
            return Some(last.end.wrapping_sub(first.begin));
        }
        let begin = self.sent.iter().map(|sent| sent.begin.wrapping_sub(base)).min()?;
        let end = self.sent.iter().map(|sent| sent.end.wrapping_sub(base)).max()?;
        Some(end.wrapping_sub(begin))
    }

    /// Removes acknowledged segments, and the room that they leave. Returns the segment that ends here, the oldest if there
    /// are several.
    pub fn acknowledge(&mut self, to: u32) -> Option<Sent> {
        let found = self.remove(to);
        // Else each direction could keep room for its largest burst for ever.
        if self.sent.capacity() > KEPT.max(4 * self.sent.len()) {
            self.sent.shrink_to(KEPT.max(2 * self.sent.len()));
        }
        found
    }

    fn remove(&mut self, to: u32) -> Option<Sent> {
        let mut found = None;
        if !self.is_mixed {
            while let Some(first) = self.sent.front_mut() {
                if is_after(first.end, to) {
                    first.begin = later(first.begin, to);
                    break;
                }
                if first.end == to {
                    found.get_or_insert(*first);
                }
                self.sent.pop_front();
            }
            return found;
        }
        self.sent.retain_mut(|sent| {
            if is_after(sent.end, to) {
                sent.begin = later(sent.begin, to);
                return true;
            }
            if sent.end == to {
                found.get_or_insert(*sent);
            }
            false
        });
        found
    }
}

fn later(one: u32, other: u32) -> u32 {
    if is_after(other, one) { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledged_segments_leave_no_room_behind() {
        let mut held = Held::default();
        let most = TCP_ANALYSED_IN_FLIGHT as u32;
        for number in 0..most {
            assert!(held.push(Sent { begin: number, end: number + 1, time: 0, number: 0 }));
        }
        for (to, left) in [(most - 100, 100), (most, 0)] {
            assert_eq!(held.acknowledge(to).map(|sent| sent.end), Some(to));
            assert_eq!(held.len(), left);
            assert!(held.sent.capacity() <= KEPT.max(4 * left), "{} for {left}", held.sent.capacity());
        }
    }
}
