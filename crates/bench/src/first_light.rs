//! The comparison `first-light`: capture files in; counts, streams and HTTP bodies out, in one process.
//!
//! External peers run as processes, and so does our release binary. Captures are in the page cache, and output goes to
//! memory. Our output is checked in every run: the count, or the number and the sizes of files, and once the bytes in
//! them.

pub(crate) mod sides;

use crate::case::{Case, How, Sides};
use crate::measure::{Clock, Figure, Side};
use crate::memory::Blocks;
use crate::setting::Setting;
use crate::table::{Goal, Touched};
use sides::*;

/// Bytes of memory that no cache holds.
const MEMORY_BYTES: u64 = 256 << 20;
/// Bytes of memory as large as the pipes it is compared with, which caches hold.
const RING_BYTES: u64 = 1 << 20;

const fn wall(figure: Figure, sides: fn(&Setting) -> Made<'_>) -> How {
    How::Time(Clock::Wall, figure, sides)
}

/// The cases; those that show how steady the machine is come first.
pub static CASES: &[Case] = &[
    Case {
        about: "A/A: a loop by hand",
        against: "itself",
        goal: Goal::Within(0.97, 1.03),
        touched: Touched::Header,
        how: wall(Figure::Share, |setting| {
            let capture = small_frames(setting)?;
            Ok(Sides { ours: count_by_hand(&capture), peer: count_by_hand(&capture) })
        }),
    },
    Case {
        about: "A/A: `pcap | count` as a process",
        against: "itself",
        goal: Goal::Within(0.97, 1.03),
        touched: Touched::Header,
        how: wall(Figure::Share, |setting| {
            let capture = large_flows(setting)?;
            let side = || count(setting, "pcap F | count", &capture, capture.frames);
            Ok(Sides { ours: side(), peer: side() })
        }),
    },
    Case {
        about: "`pcap | count`, MTU frames",
        against: "loop by hand over the mapped file",
        goal: Goal::AtMost(1.6, 1.2),
        touched: Touched::Header,
        how: wall(Figure::Share, |setting| count_or_loop(large_flows(setting)?)),
    },
    Case {
        about: "`pcap | count`, MTU frames",
        against: "`tcpdump -r F -w /dev/null`",
        goal: Goal::AtLeast(2.0, 2.6),
        touched: Touched::Header,
        how: wall(Figure::TimesAsFast, |setting| {
            let capture = large_flows(setting)?;
            Ok(Sides {
                peer: tcpdump(&capture, None)?,
                ours: count(setting, "pcap F | count", &capture, capture.frames),
            })
        }),
    },
    Case {
        about: "`pcap | count`, 64-byte frames",
        against: "loop by hand over the mapped file",
        goal: Goal::AtMost(2.5, 1.6),
        touched: Touched::Header,
        how: wall(Figure::Share, |setting| count_or_loop(small_frames(setting)?)),
    },
    Case {
        about: "`pcap | count`, 64-byte frames",
        against: "`tcpdump -r F -w /dev/null`",
        goal: Goal::AtLeast(3.0, 4.5),
        touched: Touched::Header,
        how: wall(Figure::TimesAsFast, |setting| {
            let capture = small_frames(setting)?;
            Ok(Sides {
                peer: tcpdump(&capture, None)?,
                ours: count(setting, "pcap F | count", &capture, capture.frames),
            })
        }),
    },
    Case {
        about: "`pcap | bpf \"tcp port 80\" | count`, MTU frames",
        against: "`tcpdump -r F -w /dev/null tcp port 80`",
        goal: Goal::AtLeast(1.7, 2.4),
        touched: Touched::Header,
        how: wall(Figure::TimesAsFast, |setting| bpf(setting, &large_flows(setting)?)),
    },
    Case {
        about: "`pcap | bpf \"tcp port 80\" | count`, 64-byte frames",
        against: "`tcpdump -r F -w /dev/null tcp port 80`",
        goal: Goal::AtLeast(2.2, 3.5),
        touched: Touched::Header,
        how: wall(Figure::TimesAsFast, |setting| bpf(setting, &small_frames(setting)?)),
    },
    Case {
        about: "`pcap | tcp | count`",
        against: "`tshark -q -z conv,tcp -r F`",
        goal: Goal::AtMost(0.05, 0.01),
        touched: Touched::Header,
        how: wall(Figure::Share, |setting| {
            let capture = large_flows(setting)?;
            let peer = conversations(&capture)?;
            Ok(Sides { ours: count_stream_bytes(setting, &capture), peer })
        }),
    },
    Case {
        about: "`pcap | tcp | files hash=no`, 8 large flows",
        against: "map and `writev` of the same bytes by hand",
        goal: Goal::AtMost(1.6, 1.2),
        touched: Touched::Copy,
        how: wall(Figure::Share, |setting| {
            let capture = large_flows(setting)?;
            Ok(Sides {
                ours: stream_files(setting, &capture, "hash=no"),
                peer: stream_files_by_hand(setting, &capture),
            })
        }),
    },
    Case {
        about: "`pcap | tcp | files hash=no`, 8 large flows",
        against: "`tcpflow -r F -o D`",
        goal: Goal::AtMost(0.80, 0.65),
        touched: Touched::Copy,
        how: wall(Figure::Share, |setting| {
            let capture = large_flows(setting)?;
            Ok(Sides { peer: tcpflow(setting, &capture, None)?, ours: stream_files(setting, &capture, "hash=no") })
        }),
    },
    Case {
        about: "`pcap | tcp | files`, hashed, 8 large flows",
        against: "`tcpflow -r F -o D`, without hashes",
        goal: Goal::AtMost(1.0, 0.75),
        touched: Touched::Copy,
        how: wall(Figure::Share, |setting| {
            let capture = large_flows(setting)?;
            Ok(Sides { peer: tcpflow(setting, &capture, None)?, ours: stream_files(setting, &capture, "hash=yes") })
        }),
    },
    Case {
        about: "`pcap | tcp | files hash=no`, 10,000 small flows, 256 open files",
        against: "`tcpflow -r F -o D`, 256 open files",
        goal: Goal::AtMost(0.5, 0.3),
        touched: Touched::Copy,
        how: wall(Figure::Share, |setting| {
            let capture = small_flows(setting)?;
            let peer = tcpflow(setting, &capture, Some(OPEN_FILES))?;
            Ok(Sides { peer, ours: many_stream_files(setting, &capture, "hash=no") })
        }),
    },
    Case {
        about: "`pcap | tcp | files`, hashed, 10,000 small flows, 256 open files",
        against: "`tcpflow -r F -o D`, without hashes, 256 open files",
        goal: Goal::AtMost(0.5, 0.3),
        touched: Touched::Copy,
        how: wall(Figure::Share, |setting| {
            let capture = small_flows(setting)?;
            let peer = tcpflow(setting, &capture, Some(OPEN_FILES))?;
            Ok(Sides { peer, ours: many_stream_files(setting, &capture, "hash=yes") })
        }),
    },
    Case {
        about: "`pcap | http | files`, hashed",
        against: "`tshark -q -r F --export-objects http,D`, processor time, without hashes",
        goal: Goal::AtMost(0.05, 0.02),
        touched: Touched::Copy,
        how: How::Time(Clock::Cpu, Figure::Share, |setting| {
            let capture = http(setting)?;
            Ok(Sides { peer: export_objects(setting, &capture)?, ours: body_files(setting, &capture, "hash=yes") })
        }),
    },
    Case {
        about: "`pcap | http | files hash=no`",
        against: "`tshark -q -r F --export-objects http,D`, processor time",
        goal: Goal::AtMost(0.05, 0.02),
        touched: Touched::Copy,
        how: How::Time(Clock::Cpu, Figure::Share, |setting| {
            let capture = http(setting)?;
            Ok(Sides { peer: export_objects(setting, &capture)?, ours: body_files(setting, &capture, "hash=no") })
        }),
    },
    Case {
        about: "`pcap | http | files`, hashed",
        against: "`tcpflow -a -r F -o D`, with MD5",
        goal: Goal::AtMost(0.3, 0.2),
        touched: Touched::Copy,
        how: wall(Figure::Share, |setting| {
            let capture = http(setting)?;
            Ok(Sides { peer: tcpflow_all(setting, &capture)?, ours: body_files(setting, &capture, "hash=yes") })
        }),
    },
    Case {
        about: "`pcap | http | files hash=no`",
        against: "`tcpflow -a -r F -o D`, with MD5",
        goal: Goal::AtMost(0.3, 0.2),
        touched: Touched::Copy,
        how: wall(Figure::Share, |setting| {
            let capture = http(setting)?;
            Ok(Sides { peer: tcpflow_all(setting, &capture)?, ours: body_files(setting, &capture, "hash=no") })
        }),
    },
    Case {
        about: "memory of `pcap | tcp | files`, 8 large flows",
        against: "`tcpflow -r F -o D`",
        goal: Goal::AtMost(1.5, 0.7),
        touched: Touched::Copy,
        how: How::Memory(|setting| memory(setting, large_flows(setting)?)),
    },
    Case {
        about: "memory of `pcap | tcp | files`, 10,000 small flows",
        against: "`tcpflow -r F -o D`",
        goal: Goal::AtMost(1.5, 0.7),
        touched: Touched::Copy,
        how: How::Memory(|setting| memory(setting, small_flows(setting)?)),
    },
    Case {
        about: "8 filters that do nothing: ns for each block and filter",
        against: "the source alone",
        goal: Goal::AtMost(2.0, 1.0),
        touched: Touched::None,
        how: wall(Figure::ExtraNs(8.0), |setting| {
            let blocks = Blocks::new(&setting.store.noise(MEMORY_BYTES)?, RING_BYTES, 1024, 4096);
            let per_block = blocks.count() as f64;
            let (with, without) = (blocks.clone(), blocks);
            Ok(Sides {
                ours: Side::new(move || with.through_nothing(8)).per_item(per_block),
                peer: Side::new(move || without.through_nothing(0)).per_item(per_block),
            })
        }),
    },
    Case {
        about: "filter that reads one byte of each 1 KB block, out of 256 MiB",
        against: "loop by hand over the same memory",
        goal: Goal::AtMost(1.3, 1.1),
        touched: Touched::Header,
        how: wall(Figure::Share, |setting| {
            touch_or_loop(Blocks::new(&setting.store.noise(MEMORY_BYTES)?, MEMORY_BYTES, 1024, 32))
        }),
    },
    Case {
        about: "filter that reads one byte of each 1 KB block, out of 1 MiB",
        against: "loop by hand over the same memory",
        goal: Goal::Reported,
        touched: Touched::Header,
        how: wall(Figure::Share, |setting| {
            touch_or_loop(Blocks::new(&setting.store.noise(MEMORY_BYTES)?, RING_BYTES, 1024, 8192))
        }),
    },
    Case {
        about: "filter that reads one byte of each 1 KB block, out of 1 MiB",
        against: "three processes and pipes of 1 MiB, a read and a write for each block",
        goal: Goal::AtLeast(100.0, 100.0),
        touched: Touched::Header,
        how: wall(Figure::TimesAsFast, |setting| {
            let blocks = Blocks::new(&setting.store.noise(MEMORY_BYTES)?, RING_BYTES, 1024, 8192);
            let per_block = blocks.count() as f64;
            let ours = Side::new(move || Ok(blocks.through_touch()?.0)).per_item(per_block);
            Ok(Sides { ours, peer: touch_through_pipes(setting) })
        }),
    },
    Case {
        about: "filter that looks for a text in each 1 KB block, out of 256 MiB",
        against: "the same matcher in a loop by hand over the same memory",
        goal: Goal::AtMost(1.2, 1.05),
        touched: Touched::Sum,
        how: wall(Figure::Share, |setting| {
            look_or_loop(Blocks::new(&setting.store.noise(MEMORY_BYTES)?, MEMORY_BYTES, 1024, 4))
        }),
    },
    Case {
        about: "filter that looks for a text in each 1 KB block, out of 1 MiB",
        against: "the same matcher in a loop by hand over the same memory",
        goal: Goal::AtMost(1.2, 1.05),
        touched: Touched::Sum,
        how: wall(Figure::Share, |setting| {
            look_or_loop(Blocks::new(&setting.store.noise(MEMORY_BYTES)?, RING_BYTES, 1024, 2048))
        }),
    },
    Case {
        about: "`pcap | match TEXT | count`, MTU frames",
        against: "loop by hand over the mapped file, the same matcher in it",
        goal: Goal::Reported,
        touched: Touched::Sum,
        how: wall(Figure::Share, |setting| {
            let capture = large_flows(setting)?;
            Ok(Sides { ours: match_in_process(&capture), peer: match_by_hand(&capture) })
        }),
    },
    Case {
        about: "`pcap | match TEXT | count`, MTU frames, as a process",
        against: "three processes and pipes of 1 MiB, the same matcher in the middle, 64 KB at a time",
        goal: Goal::Reported,
        touched: Touched::Sum,
        how: wall(Figure::TimesAsFast, |setting| {
            let capture = large_flows(setting)?;
            let request = format!("pcap F | match \"{TEXT}\" | count");
            let ours = count(setting, &request, &capture, FEW as u64);
            Ok(Sides { ours, peer: match_through_pipes(setting, &capture) })
        }),
    },
];
