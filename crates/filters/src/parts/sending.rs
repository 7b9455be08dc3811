//! What `send` and `bridge` share: offers frames to a sender until it has taken all, and counts the outcome.

use super::received;
use driver::{Transmit, Turn};
use filter::prelude::*;
use std::time::{Duration, Instant};

/// How long to wait for room in the device.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For one wait.
    pub room: Duration,
    /// In all; then the remaining frames are dropped.
    pub all: Duration,
}

/// Sends all frames. `Some((why, left))`: the last `left` frames were not sent.
pub fn send(
    sender: &mut dyn Transmit,
    mut frames: &[&[u8]],
    patience: Patience,
) -> Result<Option<(&'static str, usize)>, Box<Failure>> {
    let mut since = None;
    while !frames.is_empty() {
        match sender.transmit(frames).map_err(received::failure)? {
            Turn::Frames(count) => {
                frames = &frames[count.min(frames.len())..];
                since = None;
            }
            Turn::Down => return Ok(Some(("the device is down", frames.len()))),
            Turn::Nothing => {
                if since.get_or_insert_with(Instant::now).elapsed() > patience.all {
                    return Ok(Some(("no room in the device", frames.len())));
                }
                sender.wait_for_room(patience.room).map_err(received::failure)?;
            }
        }
    }
    Ok(None)
}

/// Waits until the frames in the ring have left, then counts sent and lost frames. Call once, at the end.
pub(crate) fn account(sender: &mut dyn Transmit, wait: Duration, cx: &mut Context<'_>) -> Result<(), Box<Failure>> {
    let until = Instant::now() + wait;
    let statistics = loop {
        let statistics = sender.statistics().map_err(received::failure)?;
        if statistics.under_way == 0 || Instant::now() > until {
            break statistics;
        }
        sender.wait_for_room(Duration::from_millis(1)).map_err(received::failure)?;
    };
    cx.count("sent", statistics.sent);
    let reasons = [
        ("longer than the device takes", statistics.too_long),
        ("no frame of this device", statistics.malformed),
        ("refused by the device", statistics.refused),
        ("not sent in time", statistics.under_way),
    ];
    for (why, count) in reasons.into_iter().filter(|(_, count)| *count > 0) {
        // They were counted as taken when they arrived.
        cx.untake(count);
        cx.counters.drops.add(why, count);
    }
    Ok(())
}
