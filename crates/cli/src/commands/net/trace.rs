//! `streamline net trace`: the frames of one flow, as a pcapng capture.

use super::{Asking, unexpected};
use crate::exit::{CommandError, Outcome};
use crate::place::DaemonArg;
use crate::signals::{self, Finishing};
use base::atomic::StopFlag;
use buffer::flow::{Drop, State};
use flow::{Answer, Direction, Host, Question, TRACE_GEOMETRY, TraceHead};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::path::PathBuf;

/// Write the frames of a flow as the driver sees them, both directions, in pcapng
///
/// It runs until Ctrl-C, or until the flow ends. You may trace your own flows; root may trace all. The flow never waits for the
/// trace: frames that come while the trace is behind are left out, and counted at the end.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// The flow, as `streamline net flows` numbers it
    flow: u64,

    /// The capture file; standard output if not given
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    file: Option<PathBuf>,

    /// Bytes of each frame to keep at most
    #[arg(long, value_name = "BYTES", default_value_t = 65_549, value_parser = clap::value_parser!(u32).range(1..=65_549))]
    snap: u32,

    #[command(flatten)]
    daemon: DaemonArg,
}

const AFTER_HELP: &str = "\
Examples:
  streamline net trace 7 -w flow.pcapng
  streamline net trace 7 --snap 96 | tcpdump -n -r -";

/// Packets between two checks for a signal.
const TURN: usize = 256;

pub(super) fn run(args: &Args) -> Outcome {
    if args.file.is_none() && io::stdout().is_terminal() {
        let text = "a capture is nothing for a terminal: name a file with -w, or add `| tcpdump -n -r -`";
        return Err(CommandError::Wrong(text.into()));
    }
    let stop = StopFlag::new();
    signals::listen(&stop, Finishing::Untold)?;
    let connection = Asking { daemon: args.daemon.clone(), json: false }.connect("trace")?;
    let (Answer::Granted(granted), fds) = connection.0.flows(Question::Trace(args.flow, args.snap))? else {
        return Err(unexpected());
    };
    let line = connection.0.line().map_err(|error| CommandError::Failed(format!("the daemon: {error}")))?;
    let (device, mtu) = (granted.device.clone(), granted.mtu);
    let adopted = Host::default().adopt(granted, TRACE_GEOMETRY, fds);
    let mut trace = adopted.map_err(|error| CommandError::Failed(format!("the daemon: {error}")))?;
    let name = args.file.as_ref().map_or("standard output".into(), |file| base::terminal::name(file).to_string());
    let failed = |error: io::Error| CommandError::Failed(format!("{name}: {error}"));
    let output: Box<dyn Write> = match &args.file {
        Some(file) => Box::new(File::create(file).map_err(failed)?),
        None => Box::new(io::stdout().lock()),
    };
    let mut capture = Capture { output: BufWriter::new(output), frame: Vec::new(), frames: 0 };
    let mut written = capture.begin(&device, args.snap);
    while written.is_ok() {
        // Read the state before the frames: frames that came until the flow ended are written.
        let has_ended = trace.channel.state() != State::Open;
        let looked = trace.receive(TURN, &mut |packet| {
            capture.frame.resize(packet.len(), 0);
            packet.copy_to(&mut capture.frame);
            if written.is_ok() {
                written = capture.write(packet.time);
            }
        });
        if looked == TURN && !stop.is_set() {
            continue;
        }
        written = written.and_then(|()| capture.output.flush());
        if stop.is_set() || has_ended {
            break;
        }
        if looked == 0 && trace.fall_asleep() {
            let mut fds = [PollFd::from_borrowed_fd(trace.fd(), PollFlags::IN), PollFd::new(&line, PollFlags::IN)];
            let hour = Timespec { tv_sec: 3600, tv_nsec: 0 };
            // A signal and news both end the wait: the loop checks for both.
            let _ = rustix::event::poll(&mut fds, Some(&hour));
            if !fds[1].revents().is_empty() {
                written.map_err(failed)?;
                return Err(CommandError::Failed("the daemon has gone, and the trace with it".into()));
            }
        }
        trace.awake();
    }
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
        other => other.map_err(failed)?,
    }
    let missed = trace.channel.dropped(Drop::NoBuffer);
    tell!("{} frames of flow {} on {device} (MTU {mtu})", capture.frames, args.flow);
    if missed > 0 {
        tell!("note: {missed} frames are missing: the trace was behind; try --snap 96");
    }
    Ok(())
}

/// A pcapng file of one section and one Ethernet interface.
struct Capture<W: Write> {
    output: W,
    /// The traced packet that is written next.
    frame: Vec<u8>,
    frames: u64,
}

/// Numbers of blocks and options in the format (draft-ietf-opsawg-pcapng 4).
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;

impl<W: Write> Capture<W> {
    fn begin(&mut self, device: &str, snap: u32) -> io::Result<()> {
        // Byte order, version 1.0, a section of unknown length.
        let section = [&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
        self.block(SECTION, &[&section], &[])?;
        let interface = [&1_u32.to_le_bytes()[..], &snap.to_le_bytes()].concat();
        // Times in ns: 10 to the power of -9.
        self.block(INTERFACE, &[&interface], &[(IF_NAME, device.as_bytes()), (IF_TSRESOL, &[9])])
    }

    /// Writes the traced packet in `frame`, which the device saw at `time`, ns since 1970 UTC.
    fn write(&mut self, time: u64) -> io::Result<()> {
        let frame = std::mem::take(&mut self.frame);
        let Some((head, bytes)) = TraceHead::read(&frame) else {
            return Err(io::Error::new(ErrorKind::InvalidData, "the daemon traces what makes no sense"));
        };
        let words = [0, (time >> 32) as u32, time as u32, bytes.len() as u32, head.bytes].map(u32::to_le_bytes);
        let direction: u32 = match head.direction {
            Direction::Received => 1,
            Direction::Sent => 2,
        };
        let padding = &[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()];
        self.block(PACKET, &[words.as_flattened(), bytes, padding], &[(EPB_FLAGS, &direction.to_le_bytes())])?;
        (self.frame, self.frames) = (frame, self.frames + 1);
        Ok(())
    }

    fn block(&mut self, kind: u32, parts: &[&[u8]], options: &[(u16, &[u8])]) -> io::Result<()> {
        let of_option = |(_, value): &(u16, &[u8])| 4 + value.len().next_multiple_of(4);
        // With the end of options.
        let options_len = if options.is_empty() { 0 } else { 4 + options.iter().map(of_option).sum::<usize>() };
        let len = 12 + parts.iter().map(|part| part.len()).sum::<usize>() + options_len;
        let len = (len as u32).to_le_bytes();
        self.output.write_all(&kind.to_le_bytes())?;
        self.output.write_all(&len)?;
        parts.iter().try_for_each(|part| self.output.write_all(part))?;
        for (code, value) in options {
            self.output.write_all(&code.to_le_bytes())?;
            self.output.write_all(&(value.len() as u16).to_le_bytes())?;
            self.output.write_all(value)?;
            self.output.write_all(&[0; 3][..value.len().next_multiple_of(4) - value.len()])?;
        }
        if !options.is_empty() {
            self.output.write_all(&[0; 4])?;
        }
        self.output.write_all(&len)
    }
}
