//! Filters, directions, stopping, statistics, and the descriptor for select().

use super::{export, with, with_live};
use crate::abi::{BpfProgram, Statistics, status};
use crate::live::Way;
use crate::real::variable;
use program::cbpf::{Instruction, MAX_INSTRUCTIONS};
use std::ffi::{CStr, c_int};

export! {
    /// Sets a filter, also for packets that already wait.
    fn pcap_setfilter(handle: handle, program: *mut BpfProgram) -> c_int => |ours| with_live(ours, |live| {
        // SAFETY: the caller's program, or null.
        let Some(program) = (unsafe { program.as_ref() }) else {
            return Err((status::ERROR, "setfilter: No filter specified".into()));
        };
        // SAFETY: the caller's program.
        let code = unsafe { instructions(program) };
        let Some(code) = code else { return Err((status::ERROR, "BPF program is not valid".into())) };
        live.set_filter(code, &ours.meter).map(|()| 0).map_err(|text| (status::ERROR, text))
    })
}

/// A program's instructions. `None`: it has none, or too many.
///
/// # Safety
///
/// `program.instructions` points to `program.length` instructions.
unsafe fn instructions(program: &BpfProgram) -> Option<&[Instruction]> {
    let (first, length) = (program.instructions, program.length as usize);
    let sound = !first.is_null() && first.is_aligned() && (1..=MAX_INSTRUCTIONS).contains(&length);
    // SAFETY: the caller guarantees the length; any bytes are valid instructions.
    sound.then(|| unsafe { std::slice::from_raw_parts(first, length) })
}

export! {
    /// Selects received packets, sent packets, or both.
    fn pcap_setdirection(handle: handle, direction: c_int) -> c_int => |ours| with_live(ours, |live| {
        let way = [Way::Both, Way::In, Way::Out].into_iter().find(|way| *way as c_int == direction);
        let Some(way) = way else { return Err((status::ERROR, "Invalid direction".into())) };
        live.set_way(way);
        Ok(0)
    })
}

export! {
    /// Stops the loop that reads packets. Signal handlers and other threads may call it, too.
    fn pcap_breakloop(handle: handle) => |ours| ours.stop.want()
}

export! {
    /// The counts. Signal handlers may call it, too.
    fn pcap_stats(handle: handle, statistics: *mut Statistics) -> c_int => |ours| {
        let Some(totals) = ours.meter.totals() else {
            return ours.fail_plainly(status::NOT_ACTIVATED, "This handle hasn't been activated yet");
        };
        // 32-bit totals, like libpcap's.
        let counted = Statistics {
            received: totals.matched as u32,
            dropped: totals.lost as u32,
            dropped_by_interface: totals.lost_by_interface as u32,
        };
        // SAFETY: the caller passes a valid place.
        unsafe { statistics.write(counted) };
        0
    }
}

/// Says whether programs get a descriptor for select(): `yes` or `no`.
const SELECTABLE_VARIABLE: &CStr = c"STREAMLINE_PCAP_FD";

/// Whether the program gets such a descriptor. With one, dumpcap makes a system call before each packet; without one, it reads
/// packets as they are there. So dumpcap gets none by default. The variable decides for dumpcap and all other programs.
fn is_selectable() -> bool {
    match variable(SELECTABLE_VARIABLE).map(CStr::to_bytes) {
        Some(b"yes") => true,
        Some(b"no") => false,
        _ => std::env::current_exe().map_or(true, |path| path.file_name() != Some("dumpcap".as_ref())),
    }
}

fn selectable(ours: &crate::handle::Handle) -> c_int {
    with(ours, |inner| match &mut inner.live {
        Some(live) if is_selectable() => {
            // A program that sleeps until the descriptor is readable must want packets before.
            live.start(&ours.meter).map_err(|text| (-1, text))?;
            live.selectable().map_err(|error| (-1, format!("epoll: {error}")))
        }
        _ => Ok(-1),
    })
}

export! {
    /// A descriptor that is readable while there are packets. -1: there is none.
    fn pcap_get_selectable_fd(handle: handle) -> c_int => |ours| selectable(ours)
}

export! {
    /// The same descriptor.
    fn pcap_fileno(handle: handle) -> c_int => |ours| selectable(ours)
}

/// How often a program without a descriptor should poll.
static LOOK: libc::timeval = libc::timeval { tv_sec: 0, tv_usec: 10_000 };

export! {
    /// How often to poll. Null: select() on the descriptor is enough.
    fn pcap_get_required_select_timeout(handle: handle) -> *const libc::timeval => |_ours| {
        if is_selectable() { std::ptr::null() } else { &raw const LOOK }
    }
}
